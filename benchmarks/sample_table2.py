"""The paper's recipe on the embedded sample: every method at its own rates, three seeds, P and R on the test split.

    python benchmarks/sample_table2.py [METHOD ...]

Rates come from the coordinate search of ``demo_rates.py`` at the full budget, on blocks of lines cut from train, from
two starts each: one of the method's own and one that all share. The test split takes no part in the choice; models
trained on all of train with the chosen rates are judged on it. Pool of 1,024, cold start, other labels of a point left
in the pool, as in the paper. Runs take seconds on a GPU and minutes on two cores. Methods that were not asked for keep
their entry in results/sample_table2.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from demo_rates import Search, told, without_blocks
from machine import RESULTS, machine, save_result

from owlmine.data.store import Store
from owlmine.demo.methods import POOL, Method, Rates
from owlmine.evaluate.of_model import evaluate_model
from owlmine.train import TrainOptions, train

EPOCHS, SEEDS = 15.0, 3
NAMES = ("P@1", "P@3", "P@5", "R@1", "R@3", "R@5")


@dataclass(frozen=True)
class PaperMethod(Method):
    """A method of the demo, without what we added to the paper's recipe."""

    def options(self, *, epochs: float, dim: int, seed: int, rates: Rates | None = None) -> TrainOptions:
        ours = super().options(epochs=epochs, dim=dim, seed=seed, rates=rates)
        return replace(ours, warm_start=False, exclude_known=False, dim=512)


METHODS = (
    PaperMethod("top-1", "Top-1 SNM", "bowl", 1, Rates(0.1, 10.0, 0.001)),
    PaperMethod("top-16", "Top-16 SNM", "bowl", 16, Rates(0.3, 10.0, 0.001)),
    PaperMethod("top-256", "Top-256 SNM", "bowl", 256, Rates(0.03, 3.0, 0.0003)),
    PaperMethod("negative-sampling", "Negative sampling", "negative-sampling-bowl", 1, Rates(0.01, 1.0, 0.0001)),
)


def on_test(store: Store, method: Method, rates: Rates, seed: int) -> dict[str, float]:
    options = replace(method.options(epochs=EPOCHS, dim=512, seed=seed, rates=rates), validation=0.0)
    with tempfile.TemporaryDirectory() as folder:
        figures = evaluate_model(train(store, Path(folder) / "model", options), store["test"]).figures
    return {name: round(figures[name], 3) for name in NAMES}


def main(asked: list[str]) -> None:
    from owlmine.data.datasets import open_dataset

    with tempfile.TemporaryDirectory() as folder:
        blocks, whole = without_blocks(Path(folder)), open_dataset("sample")
        for method in METHODS:
            if asked and method.folder not in asked:
                continue
            search = Search(blocks, method, EPOCHS)
            rates = search.best_of_starts()
            runs = [on_test(whole, method, rates, seed) for seed in range(SEEDS)]
            means = {name: statistics.mean(run[name] for run in runs) for name in NAMES}
            print(f"{method.folder:18} {told(rates)} test: {means}", flush=True)
            tried = [asdict(tried) | figures for tried, figures in search.tried.items()]
            entry = {"rates": asdict(rates), "mean": means, "runs": runs, "tried": tried, "machine": machine()}
            file = RESULTS / "sample_table2.json"
            earlier = json.loads(file.read_text()) if file.exists() else {"pool": POOL, "epochs": EPOCHS}
            save_result("sample_table2", earlier | {method.folder: entry})


if __name__ == "__main__":
    main(sys.argv[1:])
