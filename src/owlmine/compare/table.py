"""The results on a terminal."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from owlmine.demo.figures import NAMES
from owlmine.demo.table import ratio_text


def print_results(console: Console, results: dict[str, Any]) -> None:
    console.print(figure_table(results))
    if results["baseline"] is not None:
        console.print(ratio_table(results))
        if results["paper"]["ratios"]:
            console.print(f"The paper's ratios are those for {results['paper']['dataset']}.", highlight=False)
    for note in results["notes"]:
        console.print(f"{escape(note)}.", soft_wrap=True, highlight=False)


def figure_table(results: dict[str, Any]) -> Table:
    """Narrow enough for 80 columns: the deviation of P@1 alone, the others are in the report."""
    seeds = results["options"]["seeds"]
    table = _table(
        f"Percent on the test split, {seeds} seed{'s' if seeds > 1 else ''}", [*NAMES, "ms per\nstep", "s per\nrun"]
    )
    for method in results["methods"]:
        figures = (cell(method, name) if name == "P@1" else f"{method['mean'][name]:.2f}" for name in NAMES)
        table.add_row(escape(method["title"]), *figures, *costs(method))
    return table


def ratio_table(results: dict[str, Any]) -> Table:
    """The paper's Table 2, with the paper's own ratios in lines of their own."""
    table = _table("Ratio to negative sampling", NAMES)
    for method in results["methods"]:
        if method["name"] == results["baseline"]:
            continue
        table.add_row(escape(method["title"]), *(ratio_text(method["ratio"][name]) for name in NAMES))
        if own := results["paper"]["ratios"].get(method["name"]):
            table.add_row("  in the paper", *(f"{own[name]:.2f}" for name in NAMES), style="dim")
    return table


def cell(method: dict[str, Any], name: str) -> str:
    """A mean, with its deviation where there are several runs."""
    deviation = method["deviation"][name]
    return f"{method['mean'][name]:.2f}" + ("" if deviation is None else f" ±{deviation:.2f}")


def costs(method: dict[str, Any]) -> tuple[str, str]:
    """Milliseconds of a step and seconds of a run, validation left out."""
    if method["seconds"] is None:
        return "–", "–"
    return f"{1000 * method['seconds_per_step']:.1f}", f"{method['seconds']:.0f}"


def _table(title: str, columns: list[str] | tuple[str, ...]) -> Table:
    table = Table("", *columns, title=title, box=SIMPLE, padding=(0, 0), title_justify="left")
    table.title_style = "bold"
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    return table
