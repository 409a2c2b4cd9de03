"""How far the answers to a file of queries are: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn

from owlmine.cli.terminal import Terminal

if TYPE_CHECKING:
    from owlmine.exchange.part_folder import Tally

_LINE_SECONDS = 10.0


class AnswerProgress:
    """Shows the number of answered queries, the rate, and the time left. A context manager."""

    def __init__(self) -> None:
        self._console = Terminal(stderr=True)
        self._bar = Progress(
            TextColumn("answering"),
            BarColumn(bar_width=32),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=1.0, figures="")
        self._began = self._shown = time.monotonic()
        # Of the first block: a resumed command has passed over what was answered before.
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> AnswerProgress:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, tally: Tally, share: float) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = (tally.queries, share), now
            return
        figures = figures_of(tally.queries, share, now - self._began, self._first)
        self._bar.update(self._task, completed=share, figures=figures)
        if not self._console.is_terminal and now - self._shown >= _LINE_SECONDS:
            self._shown = now
            self._console.print(figures, soft_wrap=True, highlight=False)


def figures_of(queries: int, share: float, seconds: float, first: tuple[int, float]) -> str:
    """Queries so far, a second, and the time left, which is unknown where nobody knows how long the input is.

    ``seconds``: since ``first``, a number of queries and the share of the input that had been read.
    """
    rate = (queries - first[0]) / max(seconds, 1e-9)
    figures = f"{queries:,} queries  {rate:,.0f}/s"
    if share <= first[1]:
        return figures
    minutes, rest = divmod(round(seconds * (1 - share) / (share - first[1])), 60)
    return f"{figures}  {share:.0%}  {minutes}:{rest:02d} left"
