"""``owlmine compare``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from owlmine.cli.data import DataArgument, open_data, with_reading_options
from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal
from owlmine.compare.options import CompareOptions
from owlmine.data.options import ConvertOptions

if TYPE_CHECKING:
    from owlmine.train import Progress, Reporter

# Between two lines of one run, where nobody watches a bar.
_LINE_SECONDS = 60.0


@with_reading_options
@with_options(CompareOptions)
def compare_command(
    data: DataArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="REPORT", help="Runs, figures and report; an earlier comparison goes on.")
    ],
    options: CompareOptions,
    reading: ConvertOptions,
) -> None:
    """Compare ways to learn on a dataset, each at settings of its own, and write a report.

    Searches rates (and a score scale where the loss has one) for every method on points
    cut from train, then trains each with several seeds and the same budget and
    judges them on the test split. Stopped, the same command goes on; finished
    runs are never made again.
    """
    from owlmine.compare.comparison import REPORT, Request, run_comparison
    from owlmine.compare.folder import CompareFolder
    from owlmine.compare.table import print_results
    from owlmine.device import choose_device

    # Before data are converted, which can take an hour.
    CompareFolder(out).check()
    choose_device(options.device)
    store = open_data(data, reading)
    results = run_comparison(store, Request(data, out), options, RunShow(Terminal(stderr=True)))
    console = Terminal()
    print_results(console, results)
    console.print(f"Report: {literal(str((out / REPORT).resolve()))}", soft_wrap=True, highlight=False)


class RunShow:
    """A bar per run on a terminal; elsewhere a line when it has ended, and one a minute before."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def running(self, title: str) -> Iterator[Reporter]:
        from owlmine.train.reporters import BarReporter

        if self._console.is_terminal:
            with BarReporter(self._console, title) as bar:
                yield bar
        else:
            yield MinuteLines(self._console, title)

    def done(self, text: str) -> None:
        # A bar that has come to its end stays and says as much.
        if not self._console.is_terminal or text.endswith("(found)"):
            self.message(text)

    def message(self, text: str) -> None:
        self._console.print(literal(text), soft_wrap=True, highlight=False)


class MinuteLines:
    """A line a minute."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title, self._last = console, title, time.monotonic()

    def progress(self, progress: Progress) -> None:
        from owlmine.train.reporters import told

        if time.monotonic() - self._last >= _LINE_SECONDS:
            self._last = time.monotonic()
            self.message(f"{self._title}: epoch {progress.epoch:.2f}  {told(progress)}")

    def message(self, text: str) -> None:
        self._console.print(literal(text), soft_wrap=True, highlight=False)
