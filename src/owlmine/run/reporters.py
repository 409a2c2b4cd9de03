"""A run shown to people: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from owlmine.dense.progress import Progress as RunProgress

_LINE_SECONDS = 10.0


class LineReporter:
    """A line when an epoch ends, and one every few seconds in between."""

    def __init__(self, console: Console) -> None:
        self._console, self._last, self._step = console, time.monotonic(), 0
        # Each epoch has a new object of figures.
        self._validated: dict[str, float] | None = None

    def progress(self, progress: RunProgress) -> None:
        now = time.monotonic()
        # The first report of this model: the first one, or the next of an ensemble.
        if self._validated is None or progress.step < self._step:
            self._validated = progress.validation
        self._step = progress.step
        if progress.validation is self._validated and now - self._last < _LINE_SECONDS:
            return
        self._last, self._validated = now, progress.validation
        self._console.print(f"epoch {progress.epoch:5.2f}  {figures_line(progress)}", soft_wrap=True, highlight=False)

    def message(self, text: str) -> None:
        self._console.print(escape(text), soft_wrap=True, highlight=False)


class BarReporter:
    """A bar with loss, speed, time left and the last validation figure. A context manager."""

    def __init__(self, console: Console, title: str = "training") -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self._task = self._bar.add_task(escape(title), total=None, figures="")

    def __enter__(self) -> BarReporter:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def progress(self, progress: RunProgress) -> None:
        self._bar.update(self._task, total=progress.num_steps, completed=progress.step, figures=figures_line(progress))

    def message(self, text: str) -> None:
        self._bar.console.print(escape(text), soft_wrap=True, highlight=False)


def figures_line(progress: RunProgress) -> str:
    """The figures of a run on one line."""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    figures = "".join(f"  {name} {value:.2f}" for name, value in progress.validation.items() if name == "P@1")
    return (
        f"loss {progress.loss:.4f}  {progress.points_per_second:,.0f} points/s  {minutes}:{seconds:02d} left{figures}"
    )
