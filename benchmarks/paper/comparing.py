"""What Table 2 and the questions share: comparisons that stop after a time limit and can be resumed."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results import PAPER, machine

from owlmine.compare.comparison import compare_method, settled
from owlmine.compare.folder import CompareFolder
from owlmine.compare.methods import Method
from owlmine.compare.options import CompareOptions
from owlmine.compare.results import make_results
from owlmine.compare.runs import Runs
from owlmine.data.store import Store
from owlmine.dense.progress import SilentReporter
from owlmine.files import write_text


class Lines:
    """Prints a line for every finished run."""

    def __init__(self, name: str) -> None:
        self._name = name

    @contextmanager
    def running(self, title: str) -> Iterator[SilentReporter]:
        del title
        yield SilentReporter()

    def done(self, text: str) -> None:
        if not text.endswith("(found)"):
            self.message(text)

    def message(self, text: str) -> None:
        print(f"{self._name}: {text}", flush=True)


def stop_after(seconds: float) -> None:
    """Ends this process as if by ``kill``: the run under way writes a checkpoint, finished ones are there already."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()


def compare(
    store: Store, name: str, methods: Sequence[Method], asked: CompareOptions, *, work: Path, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """What ``owlmine compare`` does, for any methods. Runs that are in ``work`` are not made again."""
    options, folder, show = settled(store, asked), CompareFolder(work), Lines(name)
    with folder.held():
        runs = Runs(store, folder, show, data_name=name)
        compared = [compare_method(method, options, runs, show) for method in methods]
        results = make_results(store, options, compared, notes=list(notes), data=name)
    return results | {"made_by": machine()}


def store_results(results: dict[str, Any], *where: str) -> Path:
    path = PAPER.joinpath(*where).with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return path
