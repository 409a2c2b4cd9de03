"""The results of a comparison or a demo on a terminal: tables of figures and ratios, and the examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from owlmine.compare.figures import NAMES, ratio_text
from owlmine.compare.report import costs


def print_comparison(console: Console, results: dict[str, Any]) -> None:
    console.print(comparison_table(results))
    if results["baseline"] is not None:
        console.print(ratio_table(results))
        if results["paper"]["ratios"]:
            console.print(f"The paper's ratios are for {results['paper']['dataset']}.", highlight=False)
    for note in results["notes"]:
        console.print(f"{escape(note)}.", soft_wrap=True, highlight=False)


def print_demo(console: Console, results: dict[str, Any]) -> None:
    console.print(demo_table(results))
    console.print(ratio_table(results))
    console.print(f"The paper's ratios are for {results['paper']['dataset']}.", highlight=False)
    console.print()
    console.print(
        f"[bold]{len(results['examples'])} test packages[/], drawn at random: what they depend on, and the best"
        f" answers among {results['data']['classes']:,} classes. {_tick(console)} marks a correct one.",
        highlight=False,
    )
    titles = {model["name"]: model["title"] for model in (results["product"], *results["methods"])}
    for example in results["examples"]:
        console.print()
        _print_example(console, example, titles)
    console.print()


def comparison_table(results: dict[str, Any]) -> Table:
    """Narrow enough for 80 columns: with the deviation of P@1 alone; the report has the others."""
    seeds = results["options"]["seeds"]
    title = f"Percent on the test split, {seeds} seed{'s' if seeds > 1 else ''}"
    table = _table(title, [*NAMES, "ms per\nstep", "s per\nrun"])
    for method in results["methods"]:
        figures = (cell(method, name) if name == "P@1" else f"{method['mean'][name]:.2f}" for name in NAMES)
        table.add_row(escape(method["title"]), *figures, *costs(method))
    return table


def demo_table(results: dict[str, Any]) -> Table:
    """The model of ``owlmine train`` first, then those of the paper and the start that they share."""
    table = _table("Percent on the test split, and seconds of training", [*NAMES, "seconds"])
    product = results["product"]
    table.add_row(escape(product["title"]), *_figures(product["test"]), f"{product['seconds']:.0f}", style="bold")
    table.add_section()
    for method in results["methods"]:
        table.add_row(escape(method["title"]), *_figures(method["mean"]), f"{method['final_seconds']:.0f}")
    table.add_row("before training", *_figures(results["start"]["test"]), "–", style="dim")
    return table


def ratio_table(results: dict[str, Any]) -> Table:
    """The paper's Table 2, with the paper's own ratios on separate lines."""
    table = _table("Ratio to negative sampling", NAMES)
    for method in results["methods"]:
        if method["name"] == results["baseline"]:
            continue
        table.add_row(escape(method["title"]), *(ratio_text(method["ratio"][name]) for name in NAMES))
        if paper := results["paper"]["ratios"].get(method["name"]):
            table.add_row("  in the paper", *_figures(paper), style="dim")
    return table


def cell(method: dict[str, Any], name: str) -> str:
    """A mean, with its deviation where there are several runs."""
    deviation = method["deviation"][name]
    return f"{method['mean'][name]:.2f}" + ("" if deviation is None else f" ±{deviation:.2f}")


def _figures(figures: dict[str, float]) -> Iterable[str]:
    return (f"{figures[name]:.2f}" for name in NAMES)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table("", *columns, title=title, box=SIMPLE, padding=(0, 0), title_justify="left", title_style="bold")
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _print_example(console: Console, example: dict[str, Any], titles: dict[str, str]) -> None:
    tick, width = _tick(console), max(map(len, titles.values()))
    title = Text.assemble((example["package"], "bold"), "  ", (example["summary"], "dim"))
    title.truncate(console.width, overflow="ellipsis")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=width)
    grid.add_column(ratio=1)
    grid.add_row("depends on", Text(", ".join(example["true"])))
    for name, title_of_model in titles.items():
        answers = Text()
        for place, answer in enumerate(example["predicted"][name]):
            answers.append("" if place == 0 else ", ")
            # No space after the tick: a line could break there.
            answers.append((tick if answer["hit"] else "") + answer["name"], "bold green" if answer["hit"] else "")
        grid.add_row(title_of_model, answers)
    console.print(title)
    console.print(grid)


def _tick(console: Console) -> str:
    return "✓" if console.encoding.lower().startswith("utf") else "+"
