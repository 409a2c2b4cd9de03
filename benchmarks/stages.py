"""Where the seconds of ``owlmine train`` go, by stage.

    python benchmarks/stages.py DATASET [--data-root FOLDER] [--device cpu] [--option name=value] [--label after]

Trains with the default command and prints a table of seconds: members, index, lists (the classes that the dense model
confuses), classifiers, neighbours, names, mix, probabilities, saving, and the rest. A stage's seconds are its own,
without those of the stages inside it; a rehearsal adds to the same stages. Results go to
benchmarks/results/stages.json, by dataset, device and label; --option is for experiments, which are not stored.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

from machine import RESULTS, machine, save_result
from settings import parsed

sys.path.append(str(Path(__file__).parent / "paper"))
from contention import Contention
from dataset import DATASETS, Dataset
from results import read
from tables import markdown

import owlmine.run
from owlmine.device import choose_device
from owlmine.rank import linear
from owlmine.rank.names import NameJudge
from owlmine.rank.points import SparsePoints
from owlmine.recipe.fit import Fit
from owlmine.recipe.options import TrainOptions

STORED = RESULTS / "stages.json"
REST = "the rest"
# Where each stage happens. Votes of neighbours and fits of weights happen inside the choice of the mix.
STAGES: tuple[tuple[str, Any, str], ...] = (
    ("members", Fit, "_train_members"),
    ("index", Fit, "_index"),
    ("lists", linear, "mine_pairs"),
    ("classifiers", linear, "train_linear"),
    ("neighbours", SparsePoints, "of"),
    ("neighbours", SparsePoints, "nearest"),
    ("names", NameJudge, "of"),
    ("mix", Fit, "_fit_ranker"),
    ("probabilities", Fit, "_calibrate"),
    ("saving", owlmine.run, "save_model"),
)


class Stopwatch:
    """Seconds by stage; the clock of the outer stage stands still in an inner one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open = [REST]
        self._since = time.perf_counter()

    def _count(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._count()
        self._open.append(name)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def finish(self) -> dict[str, float]:
        """In the order of the stages."""
        self._count()
        order = [*dict.fromkeys(name for name, _, _ in STAGES), REST]
        return {name: self.seconds[name] for name in order if name in self.seconds}


@contextmanager
def watched(watch: Stopwatch) -> Iterator[None]:
    """Every stage is timed while this is open."""

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def run(*arguments: Any, **options: Any) -> Any:
            with watch.stage(name):
                return work(*arguments, **options)

        return run

    with ExitStack() as stack:
        for name, owner, attribute in STAGES:
            given = vars(owner)[attribute]
            if isinstance(given, classmethod):
                timer: Any = classmethod(timed(name, given.__func__))
            else:
                timer = timed(name, given)
            stack.enter_context(mock.patch.object(owner, attribute, timer))
        yield


def profile(dataset: str, data_root: Path | None, options: TrainOptions) -> dict[str, Any]:
    store = Dataset.named(dataset).open(data_root)
    with tempfile.TemporaryDirectory() as folder, Contention() as contention:
        watch = Stopwatch()
        with watched(watch):
            owlmine.run.train(store, Path(folder) / "model", options, data_name=dataset)
        seconds = watch.finish()
    total = sum(seconds.values())
    return {"seconds": seconds | {"total": total}, "machine": machine(), **contention.record}


def table() -> str:
    """All stored profiles: a row for each stage, a column for each run."""
    stored = read(STORED)
    if not stored:
        return "Not measured yet."
    names = [*dict.fromkeys(name for name, _, _ in STAGES), REST, "total"]
    rows = [
        (name, *(f"{run['seconds'][name]:.0f}" if name in run["seconds"] else "–" for run in stored.values()))
        for name in names
        if any(name in run["seconds"] for run in stored.values())
    ]
    head = ("seconds", *(key + (" \\*" if run.get("busy") else "") for key, run in stored.items()))
    return markdown(head, rows, left=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--data-root", type=Path, help="folder with one subfolder per dataset")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--label", default="", help="to keep several results of a dataset, such as before and after")
    parser.add_argument("--option", default="", help="options of training to try, as name=value, separated by spaces")
    arguments = parser.parse_args()
    device = choose_device(arguments.device).type
    changed = parsed(arguments.option)
    result = profile(arguments.dataset, arguments.data_root, TrainOptions.of(**{"device": device} | changed))
    rows = [(name, f"{seconds:.1f}") for name, seconds in result["seconds"].items()]
    print(markdown(("stage", "seconds"), rows, left=1))
    if not changed:
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        key = ", ".join(filter(None, (arguments.dataset, device, arguments.label)))
        save_result("stages", stored | {key: result})


if __name__ == "__main__":
    main()
