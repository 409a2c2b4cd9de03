"""Rates for the demo: a coordinate search per method on points cut from train.

    python benchmarks/demo_rates.py [METHOD ...]

Each setting trains on nine tenths of the sample's train split and is judged by P@1 on the rest; the test split takes
no part. The rest is cut in blocks of consecutive lines: the file keeps packages of one source together, and
the test split holds whole sources. Points cut at random have sisters in train and would favour rates that memorise.

The search goes along one rate at a time, by factors of 3, and on in a direction while it helps; from two starts: the
rates in the demo's table, and one far from them that all methods share. Every run has the demo's own budget: about two
seconds on a GPU, a minute on two cores. All settings go to benchmarks/results/demo_rates.json with the machine and the
commit; methods that were not asked for keep their earlier entry. The figures choose, they prove nothing.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from machine import RESULTS, machine, save_result

from owlmine.data import convert
from owlmine.data.datasets import sample_folder
from owlmine.data.store import Store
from owlmine.demo.methods import METHODS, Method, Rates
from owlmine.demo.run import DemoOptions
from owlmine.train import NotFinite, train

FACTOR, MOST_STEPS = 3.0, 4
# Class vectors that hardly move, and an encoder that learns to meet them.
SHARED_START = Rates(0.003, 3.0, 0.003)
DEMO = DemoOptions()
BLOCK_LINES = 50  # every tenth block is held out


class Search:
    """Validation P@1 of the settings of one method at one budget; each is trained once."""

    def __init__(self, store: Store, method: Method, epochs: float) -> None:
        self.store, self.method, self.epochs = store, method, epochs
        self.tried: dict[Rates, dict[str, float]] = {}

    def measure(self, rates: Rates) -> float:
        if rates not in self.tried:
            options = self.method.options(epochs=self.epochs, dim=DEMO.dim, seed=0, rates=rates)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    record = train(self.store, Path(folder) / "model", options).config["history"][-1]
                except NotFinite:
                    record = {"P@1": 0.0, "P@3": 0.0, "P@5": 0.0}
            self.tried[rates] = {name: round(record[name], 3) for name in ("P@1", "P@3", "P@5")}
            figures = f"P@1 {record['P@1']:6.2f}  P@5 {record['P@5']:6.2f}"
            print(f"{self.method.folder:18} {self.epochs:g} epochs  {told(rates)}  {figures}", flush=True)
        return self.tried[rates]["P@1"]

    def best(self, rates: Rates, names: Sequence[str]) -> Rates:
        """The best rates that a walk from ``rates`` along these names finds."""
        self.measure(rates)
        for name in names:
            for factor in (1 / FACTOR, FACTOR):
                for _ in range(MOST_STEPS):
                    moved = replace(rates, **{name: float(f"{getattr(rates, name) * factor:.1g}")})
                    if self.measure(moved) <= self.measure(rates):
                        break
                    rates = moved
        return rates

    def best_of_starts(self) -> Rates:
        names = [field.name for field in fields(Rates)]
        return max((self.best(start, names) for start in (self.method.rates, SHARED_START)), key=self.measure)


def without_blocks(folder: Path) -> Store:
    """The sample's train split with blocks of it as the split ``dev``, which the trainer validates on."""
    source = folder / "files"
    source.mkdir()
    with (
        lzma.open(sample_folder() / "train.jsonl.xz", "rb") as lines,
        (source / "train.jsonl").open("wb") as train_file,
        (source / "dev.jsonl").open("wb") as dev_file,
    ):
        for number, line in enumerate(lines):
            (dev_file if number // BLOCK_LINES % 10 == 9 else train_file).write(line)
    return convert(source, folder / "store")


def told(rates: Rates) -> str:
    return f"class {rates.class_rate:<8g} feature {rates.feature_rate:<8g} map {rates.map_rate:<8g}"


def search(store: Store, method: Method) -> dict[str, object]:
    runs = Search(store, method, DEMO.epochs)
    best = runs.best_of_starts()
    print(f"{method.folder:18} {told(best)}  <- best\n", flush=True)
    tried = [{"epochs": runs.epochs, **asdict(rates), **figures} for rates, figures in runs.tried.items()]
    return {"best": asdict(best), "tried": tried, "device": _device(), "machine": machine()}


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"cpu, {torch.get_num_threads()} threads"


def main(asked: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = without_blocks(Path(folder))
        for method in METHODS:
            if not asked or method.folder in asked:
                found = search(store, method)
                file = RESULTS / "demo_rates.json"
                earlier = json.loads(file.read_text()) if file.exists() else {}
                save_result("demo_rates", earlier | {method.folder: found})


if __name__ == "__main__":
    main(sys.argv[1:])
