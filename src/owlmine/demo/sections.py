"""Pieces of the report as HTML: tiles, tables, curves, examples. Everything from outside is escaped here."""

from __future__ import annotations

from html import escape
from typing import Any

from owlmine.demo import curves
from owlmine.demo.curves import Line, curves_svg
from owlmine.demo.figures import NAMES
from owlmine.demo.paper import PAPER_RATIOS
from owlmine.demo.table import figure_rows, ratio_text


def tiles(results: dict[str, Any]) -> str:
    """P@1 of each method, large."""
    told = []
    for number, method in enumerate(results["methods"], start=1):
        is_baseline = method["folder"] == results["baseline"]
        ratio = "the yardstick" if is_baseline else f"{ratio_text(method['ratio']['P@1'])} × negative sampling"
        told.append(
            f'<div class="tile m{number}">{escape(method["title"])}<b>{method["test"]["P@1"]:.2f} %</b>'
            f"<span>P@1 on the test split, {ratio}</span></div>"
        )
    return "\n".join(told)


def ratio_table(results: dict[str, Any]) -> str:
    compared = [method for method in results["methods"] if method["folder"] != results["baseline"]]
    head = "<th></th>" + "".join(f'<th>{escape(m["title"])}</th><th class="paper">paper</th>' for m in compared)
    rows = []
    for name in NAMES:
        cells = "".join(
            f'<td>{ratio_text(m["ratio"][name])}</td><td class="paper">{PAPER_RATIOS[m["folder"]][name]:.2f}</td>'
            for m in compared
        )
        rows.append(f"<tr{_part(name)}><th>{name}</th>{cells}</tr>")
    return _table(head, rows)


def figure_table(results: dict[str, Any]) -> str:
    """Best figure of each row in bold."""
    listed = list(figure_rows(results))
    # Narrow columns, broken at the spaces and not behind the hyphen of Top-1.
    head = "<th></th>" + "".join(f"<th>{escape(title).replace(' ', '<br>')}</th>" for title, _, _ in listed)
    rows = []
    for name in NAMES:
        best = max(test[name] for _, test, _ in listed)
        bold = [' class="best"' if test[name] == best else "" for _, test, _ in listed]
        cells = "".join(f"<td{b}>{test[name]:.2f}</td>" for b, (_, test, _) in zip(bold, listed, strict=True))
        rows.append(f"<tr{_part(name)}><th>{name}</th>{cells}</tr>")
    seconds = "".join(f'<td class="paper">{seconds}</td>' for _, _, seconds in listed)
    return _table(head, [*rows, f'<tr class="part"><th class="paper">seconds</th>{seconds}</tr>'])


def legend(results: dict[str, Any]) -> str:
    return curves.legend([(number, method["title"]) for number, method in enumerate(results["methods"], start=1)])


def curve_svg(results: dict[str, Any], x_key: str, x_name: str) -> str:
    """Validation P@1 against ``x_key`` (points or seconds); all curves begin where all methods do."""
    start = results["start"]["validation"]["P@1"]
    lines = [
        Line(
            method["title"],
            number,
            [0.0, *(record[x_key] for record in method["curve"])],
            [start, *(record["P@1"] for record in method["curve"])],
        )
        for number, method in enumerate(results["methods"], start=1)
    ]
    ends = ", ".join(f"{line.title} ends at {line.ys[-1]:.2f} percent" for line in lines)
    return curves_svg(lines, x_name=x_name, y_name="validation P@1, %", label=f"P@1 against {x_name}: {ends}")


def example_cards(results: dict[str, Any]) -> str:
    return "\n".join(_example(example, results["methods"]) for example in results["examples"])


def _example(example: dict[str, Any], methods: list[dict[str, Any]]) -> str:
    true = "".join(f'<span class="name">{escape(name)}</span>' for name in example["true"])
    rows = [f'<dt class="kind">depends on</dt><dd>{true}</dd>']
    for method in methods:
        answers = "".join(
            f'<span class="name {"hit" if answer["hit"] else "miss"}">{"✓ " if answer["hit"] else ""}'
            f"{escape(answer['name'])}</span>"
            for answer in example["predicted"][method["folder"]]
        )
        rows.append(f'<dt class="kind">{escape(method["title"])}</dt><dd>{answers}</dd>')
    return (
        f'<article class="example"><h3>{escape(example["package"])}</h3><p>{escape(example["summary"])}</p>'
        f"<dl>{''.join(rows)}</dl></article>"
    )


def _table(head: str, rows: list[str]) -> str:
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(rows) + "\n</tbody></table>"


def _part(name: str) -> str:
    """A line between recall and precision."""
    return ' class="part"' if name == "P@1" else ""
