"""Rates for the demo: a coordinate search per method on points cut from train.

    python benchmarks/demo_rates.py [METHOD ...]

Each setting trains for 2 epochs on nine tenths of the sample's train split and is judged by P@1 on the rest; the test
split takes no part. The rest is cut in blocks of consecutive lines: the file keeps packages of one source together, and
the test split holds whole sources. Points cut at random have sisters in train and would favour rates that memorise.

The search starts at the rates in the demo's table, moves one rate at a time by a factor of 3 and goes on in a direction
while it helps. All settings go to benchmarks/results/demo_rates.json with the machine and the commit. The figures
choose, they prove nothing: there is no claim to fail.
"""

from __future__ import annotations

import lzma
import sys
import tempfile
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from machine import machine, save_result

from owlmine.data import convert
from owlmine.data.datasets import sample_folder
from owlmine.data.store import Store
from owlmine.demo.methods import METHODS, Method, Rates
from owlmine.errors import OwlmineError
from owlmine.train import Stopped, train

EPOCHS, DIM, FACTOR, MOST_STEPS = 2.0, 512, 3.0, 4
BLOCK_LINES = 50  # every tenth block is held out


class Search:
    """Validation P@1 of the settings of one method; each is trained once."""

    def __init__(self, store: Store, method: Method) -> None:
        self.store, self.method = store, method
        self.tried: dict[Rates, dict[str, float]] = {}

    def measure(self, rates: Rates) -> float:
        if rates not in self.tried:
            options = self.method.options(epochs=EPOCHS, dim=DIM, seed=0, rates=rates)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    record = train(self.store, Path(folder) / "model", options).config["history"][-1]
                except Stopped:
                    raise
                except OwlmineError:  # the loss left the numbers
                    record = {"P@1": 0.0, "P@3": 0.0, "P@5": 0.0}
            self.tried[rates] = {name: round(record[name], 3) for name in ("P@1", "P@3", "P@5")}
            print(
                f"{self.method.folder:18} {told(rates)}  P@1 {record['P@1']:6.2f}  P@5 {record['P@5']:6.2f}", flush=True
            )
        return self.tried[rates]["P@1"]

    def best(self) -> Rates:
        rates = self.method.rates
        self.measure(rates)
        for field in fields(Rates):
            for factor in (1 / FACTOR, FACTOR):
                for _ in range(MOST_STEPS):
                    moved = replace(rates, **{field.name: float(f"{getattr(rates, field.name) * factor:.2g}")})
                    if self.measure(moved) <= self.measure(rates):
                        break
                    rates = moved
        return rates


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


def main(asked: list[str]) -> None:
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        store = without_blocks(Path(folder))
        for method in METHODS:
            if asked and method.folder not in asked:
                continue
            search = Search(store, method)
            best = search.best()
            print(f"{method.folder:18} {told(best)}  <- best\n", flush=True)
            tried = [{**asdict(rates), **figures} for rates, figures in search.tried.items()]
            results[method.folder] = {"best": asdict(best), "tried": tried}
    if not asked:
        common = {"epochs": EPOCHS, "dim": DIM, "block_lines": BLOCK_LINES, "threads": torch.get_num_threads()}
        save_result("demo_rates", {**common, "methods": results, "machine": machine()})


if __name__ == "__main__":
    main(sys.argv[1:])
