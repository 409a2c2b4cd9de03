"""The results on a terminal: two tables and the examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from owlmine.demo.figures import NAMES
from owlmine.demo.paper import PAPER_DATASET, PAPER_RATIOS


def print_results(console: Console, results: dict[str, Any]) -> None:
    console.print(ratio_table(results))
    console.print(figure_table(results))
    console.print(
        "[bold]Five test packages[/], drawn at random: what they depend on, and the five best answers of"
        f" {results['data']['classes']:,}; {_tick(console)} marks a true one.",
        highlight=False,
    )
    for example in results["examples"]:
        console.print()
        _print_example(console, example, results["methods"])
    console.print()


def ratio_table(results: dict[str, Any]) -> Table:
    """The paper's Table 2 in miniature: each figure divided by negative sampling's."""
    table = Table(title="Ratio to negative sampling on the test split (above 1: better)", box=SIMPLE)
    table.add_column("")
    compared = [method for method in results["methods"] if method["folder"] != results["baseline"]]
    for method in compared:
        table.add_column(escape(method["title"]), justify="right", style="bold")
        table.add_column(f"paper, {PAPER_DATASET}", justify="right", style="dim")
    for name in NAMES:
        cells = ((ratio_text(m["ratio"][name]), f"{PAPER_RATIOS[m['folder']][name]:.2f}") for m in compared)
        table.add_row(name, *(cell for pair in cells for cell in pair), end_section=name == NAMES[2])
    return table


def figure_table(results: dict[str, Any]) -> Table:
    """The figures themselves, with what they cost."""
    table = Table(title="Percent on the test split, and seconds of training", box=SIMPLE)
    table.add_column("")
    for name in (*NAMES, "seconds"):
        table.add_column(name, justify="right")
    for title, test, seconds in figure_rows(results):
        table.add_row(escape(title), *(f"{test[name]:.2f}" for name in NAMES), seconds)
    return table


def figure_rows(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, float], str]]:
    """Title, figures and seconds of every method and of the start that they share."""
    yield "Before training", results["start"]["test"], "–"
    for method in results["methods"]:
        yield method["title"], method["test"], f"{method['seconds']:.0f}"


def ratio_text(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _print_example(console: Console, example: dict[str, Any], methods: list[dict[str, Any]]) -> None:
    tick, width = _tick(console), max(len(method["title"]) for method in methods)
    title = Text.assemble((example["package"], "bold"), "  ", (example["summary"], "dim"))
    title.truncate(console.width, overflow="ellipsis")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=width)
    grid.add_column(ratio=1)
    grid.add_row("depends on", Text(", ".join(example["true"])))
    for method in methods:
        answers = Text()
        for place, answer in enumerate(example["predicted"][method["folder"]]):
            answers.append("" if place == 0 else ", ")
            # No space behind the mark: a line would end there.
            answers.append((tick if answer["hit"] else "") + answer["name"], "bold green" if answer["hit"] else "")
        grid.add_row(method["title"], answers)
    console.print(title)
    console.print(grid)


def _tick(console: Console) -> str:
    return "✓" if console.encoding.lower().startswith("utf") else "+"
