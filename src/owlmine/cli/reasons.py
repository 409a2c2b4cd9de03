"""Reasons for a person at a terminal: for each class its parts as bars, the words that moved it, and who voted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table

from owlmine.cli.terminal import literal

if TYPE_CHECKING:
    from owlmine.rank.explain import Effect, Reasons, Voter

_BAR_WIDTH = 16
# Further ones are in the JSON.
_MOST_WORDS, _MOST_VOTERS = 8, 3
_TEXT_WIDTH = 200


def reasons_table(reasons: Reasons, text: str | None) -> Table:
    """One class. ``text``: the query, whose spelling of words is shown."""
    table = _grid()
    table.add_column(style="dim", no_wrap=True, min_width=7)
    table.add_column(ratio=1)
    table.add_row("parts", _parts(reasons))
    if reasons.words:
        table.add_row("words", "   ".join(_word(effect, text) for effect in reasons.words[:_MOST_WORDS]))
    if reasons.spelled_by:
        table.add_row("name", f"spelled by {literal(', '.join(reasons.spelled_by))}")
    if reasons.voters:
        table.add_row("voters", _voters(reasons))
    if reasons.suggested_by:
        table.add_row("list", f"suggested by {literal(', '.join(reasons.suggested_by))}")
    elif not reasons.listed:
        table.add_row("list", "not among the candidates of this query")
    return table


def _grid() -> Table:
    return Table(box=None, show_header=False, padding=(0, 1), pad_edge=False, expand=True)


def _parts(reasons: Reasons) -> Table:
    table = _grid()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, min_width=_BAR_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    largest = max(1e-9, *(abs(part.score) for part in reasons.parts))
    for part in reasons.parts:
        bar = "━" * round(_BAR_WIDTH * abs(part.score) / largest)
        table.add_row(f"{part.score:+.3f}", f"[{_colour(part.score)}]{bar}[/]", literal(part.title))
    return table


def _word(effect: Effect, text: str | None) -> str:
    """As the user wrote it."""
    word = f"feature {effect.feature}" if effect.word is None else effect.word
    if text is not None and effect.spans:
        start, end = effect.spans[0]
        word = " ".join(text[start:end].split())
    return f"[{_colour(effect.total)}]{literal(word)}[/] {effect.total:+.3f}"


def _voters(reasons: Reasons) -> Table:
    table = _grid()
    table.add_column(justify="right", no_wrap=True, min_width=5)
    table.add_column(style="dim", no_wrap=True, min_width=11)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    voters = sorted(reasons.voters, key=lambda voter: -voter.share)
    for voter in voters[:_MOST_VOTERS]:
        table.add_row(f"{voter.share:.1%}", f"cosine {voter.cosine:.2f}", literal("  ".join(_said_of(voter))))
    if len(voters) > _MOST_VOTERS:
        rest = voters[_MOST_VOTERS:]
        table.add_row(f"{sum(voter.share for voter in rest):.1%}", f"{len(rest)} more")
    return table


def _said_of(voter: Voter) -> Iterator[str]:
    yield f"row {voter.row}" if voter.id is None else voter.id
    if voter.text is not None:
        yield " ".join(voter.text.split())[:_TEXT_WIDTH]


def _colour(effect: float) -> str:
    return "red" if effect < 0 else "green"
