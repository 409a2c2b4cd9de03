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
    from owlmine.dense.progress import Progress, Reporter


@with_reading_options
@with_options(CompareOptions)
def compare_command(
    data: DataArgument,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="REPORT", help="Folder for runs and report. An earlier comparison is resumed."),
    ],
    options: CompareOptions,
    reading: ConvertOptions,
) -> None:
    """Compare training methods on a dataset, each at its own best settings, and write a report.

    Searches learning rates (and a score scale if the loss has one) for every method on held-out training points. Then
    trains each method with several seeds and the same budget, and evaluates the models on the test split. If it is
    stopped, the same command resumes it; finished runs are never repeated.
    """
    from owlmine.compare.comparison import Request, run_comparison
    from owlmine.compare.folder import REPORT, CompareFolder
    from owlmine.compare.terminal import print_comparison
    from owlmine.device import choose_device

    # Before data are converted, which can take an hour.
    CompareFolder(out).check()
    choose_device(options.device)
    store = open_data(data, reading)
    results = run_comparison(store, Request(data, out), options, RunShow(Terminal(stderr=True), line_seconds=60.0))
    console = Terminal()
    print_comparison(console, results)
    console.print(f"Report: {literal(str((out / REPORT).resolve()))}", soft_wrap=True, highlight=False)


class RunShow:
    """A bar per run on a terminal; elsewhere a line every ``line_seconds``, and one at the end of a run."""

    def __init__(self, console: Console, *, line_seconds: float) -> None:
        self._console, self._line_seconds = console, line_seconds

    @contextmanager
    def running(self, title: str) -> Iterator[Reporter]:
        from owlmine.run.reporters import BarReporter

        if self._console.is_terminal:
            with BarReporter(self._console, title) as bar:
                yield bar
        else:
            yield _TitledLines(self._console, title, self._line_seconds)

    def done(self, text: str) -> None:
        # A finished bar stays visible and says as much.
        if not self._console.is_terminal or text.endswith("(found)"):
            self.message(text)

    def message(self, text: str) -> None:
        self._console.print(literal(text), soft_wrap=True, highlight=False)


class _TitledLines:
    """A line every few seconds."""

    def __init__(self, console: Console, title: str, seconds: float) -> None:
        self._console, self._title, self._seconds, self._last = console, title, seconds, time.monotonic()

    def progress(self, progress: Progress) -> None:
        from owlmine.run.reporters import figures_line

        if time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            self.message(f"epoch {progress.epoch:.2f}  {figures_line(progress)}")

    def message(self, text: str) -> None:
        self._console.print(literal(f"{self._title}: {text}"), soft_wrap=True, highlight=False)
