"""The demo from beginning to end: train, judge, write down. What is finished in the folder is not done again."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import owlmine
from owlmine.data.store import Store
from owlmine.demo.earlier import RESULTS, DemoFolder
from owlmine.demo.examples import examples
from owlmine.demo.figures import curve, judge, judge_start, ratios
from owlmine.demo.methods import BASELINE, METHODS, POOL, Method
from owlmine.demo.report import write_report
from owlmine.errors import OwlmineError
from owlmine.files import write_text
from owlmine.model.predictor import Predictor
from owlmine.options import option
from owlmine.train import Reporter, Stopped, TrainOptions, train
from owlmine.train.reporters import SilentReporter
from owlmine.train.validate import validation_part


@dataclass(frozen=True)
class DemoOptions:
    """The budget, which all methods share."""

    epochs: float = option(8.0, "Visits to each training point, for each method.")
    dim: int = option(512, "Dimension of query and class vectors.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ValueError(f"dim is {self.dim}; wanted 1 or more")
        if not self.epochs > 0:
            raise ValueError(f"epochs is {self.epochs}; wanted above 0")
        METHODS[0].options(**asdict(self))  # raises ValueError for the others


class Show(Protocol):
    """Shows the demo while it runs."""

    def training(self, title: str, number: int, total: int) -> AbstractContextManager[Reporter]:
        """A reporter for one method."""

    def message(self, text: str) -> None: ...


def run_demo(store: Store, out: Path, options: DemoOptions, show: Show) -> dict[str, Any]:
    """Trains every method into a folder of its own under ``out``, and leaves ``results.json`` and the report there.

    Returns what ``results.json`` holds.

    Called again, it goes on where it was stopped; models of other options or data are trained anew.
    """
    home, predictors = DemoFolder(out), {}
    home.check()
    with home.held():
        for number, method in enumerate(METHODS, start=1):
            folder, chosen = out / method.folder, method.options(**asdict(options))
            if home.clear(method.folder, store, chosen):
                show.message(f"{method.title}: removed an earlier model of other options or data; training anew")
            if (folder / "config.json").exists():
                show.message(f"{method.title}: trained before")
                predictors[method.folder] = _trained(store, folder, chosen, SilentReporter())
                continue
            with show.training(method.title, number, len(METHODS)) as reporter:
                predictors[method.folder] = _trained(store, folder, chosen, reporter)
        show.message("judging on the test split")
        results = _results(store, options, predictors)
        try:
            write_text(out / RESULTS, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise OwlmineError(f"{out / RESULTS}: cannot be written: {error.strerror}") from error
        write_report(out, results)
    return results


def _trained(store: Store, folder: Path, options: TrainOptions, reporter: Reporter) -> Predictor:
    """The method's model: found finished, gone on with, or trained from the beginning."""
    resume = (folder / "run.json").exists()
    try:
        return train(store, folder, options, resume=resume, reporter=reporter, data_name="sample")
    except Stopped as stopped:
        stopped.args = (str(stopped).replace("go on with --resume", "the same command goes on from there"),)
        raise


def _results(store: Store, options: DemoOptions, predictors: dict[str, Predictor]) -> dict[str, Any]:
    test = {name: judge(predictor.retriever, store["test"]) for name, predictor in predictors.items()}
    any_method = METHODS[0].options(**asdict(options))
    part = validation_part(store, any_method)
    return {
        "written_by": f"owlmine {owlmine.__version__}",
        "data": {
            "classes": store.num_classes,
            "features": store.num_features,
            "train_points": len(part.train_rows),
            "validation_points": len(part),
            "test_points": len(store["test"]),
            "checksum": store.meta["checksum"],
        },
        "options": {**asdict(options), "pool": POOL, "batch_size": any_method.batch_size},
        "baseline": BASELINE,
        "start": judge_start(store, any_method),
        "methods": [_record(method, predictors[method.folder], test, len(part.train_rows)) for method in METHODS],
        "examples": examples(store, predictors, seed=options.seed),
    }


def _record(method: Method, predictor: Predictor, test: dict[str, dict[str, float]], num_points: int) -> dict[str, Any]:
    drawn = curve(predictor.config["history"], num_points=num_points)
    return {
        "folder": method.folder,
        "title": method.title,
        "loss": method.loss,
        "top": method.top,
        "rates": asdict(method.rates),
        "points_seen": drawn[-1]["points"],
        "seconds": drawn[-1]["seconds"],
        "curve": drawn,
        "test": test[method.folder],
        "ratio": ratios(test[method.folder], test[BASELINE]),
    }
