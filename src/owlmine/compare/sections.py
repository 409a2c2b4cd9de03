"""Pieces of the report as HTML: tiles, tables, curves. Everything from outside is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from owlmine.compare.table import costs
from owlmine.demo import curves
from owlmine.demo.figures import NAMES
from owlmine.demo.table import ratio_text

_SETTING = {
    "class_rate": "class<br>rate",
    "feature_rate": "feature<br>rate",
    "map_rate": "map<br>rate",
    "scale": "scale",
}


def tiles(results: dict[str, Any]) -> str:
    """The best method, the baseline, and what everything cost."""
    methods = results["methods"]
    best = max(methods, key=lambda method: method["mean"]["P@1"])
    told = [_tile(best, "best P@1 on the test split")]
    told += [_tile(m, "the yardstick") for m in methods if m["name"] == results["baseline"] and m is not best]
    runs = sum(method["search"]["runs"] + len(method["finals"]) for method in methods)
    seconds = results["seconds"]
    time = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
    return "\n".join([*told, f'<div class="tile">Cost<b>{time}</b><span>of {runs} runs, search included</span></div>'])


def _tile(method: dict[str, Any], what: str) -> str:
    return (
        f'<div class="tile m{method["number"]}">{escape(method["title"])}<b>{method["mean"]["P@1"]:.2f} %</b>'
        f"<span>{what}</span></div>"
    )


def ratio_table(results: dict[str, Any]) -> str:
    """A line per method, the paper's own under those that it has."""
    rows = []
    for method in results["methods"]:
        if method["name"] == results["baseline"]:
            continue
        cells = "".join(f"<td>{ratio_text(method['ratio'][name])}</td>" for name in NAMES)
        rows.append(f"<tr><th>{escape(method['title'])}</th>{cells}</tr>")
        if own := results["paper"]["ratios"].get(method["name"]):
            cells = "".join(f'<td class="paper">{own[name]:.2f}</td>' for name in NAMES)
            rows.append(f'<tr class="under"><th class="paper">in the paper</th>{cells}</tr>')
    return _table(NAMES, rows)


def figure_table(results: dict[str, Any]) -> str:
    """Best mean of each column in bold."""
    methods = results["methods"]
    best = {name: max(method["mean"][name] for method in methods) for name in NAMES}
    rows = []
    for method in methods:
        cells = "".join(_figure(method, name, best=best[name]) for name in NAMES)
        time = "".join(f'<td class="paper">{cost}</td>' for cost in costs(method))
        rows.append(f"<tr><th>{escape(method['title'])}</th>{cells}{time}</tr>")
    return _table((*NAMES, "ms per<br>step", "seconds<br>per run"), rows)


def _figure(method: dict[str, Any], name: str, *, best: float) -> str:
    mean, deviation = method["mean"][name], method["deviation"][name]
    bold = ' class="best"' if mean == best else ""
    spread = "" if deviation is None else f"<small>±{deviation:.2f}</small>"
    return f"<td{bold}>{mean:.2f}{spread}</td>"


def setting_table(results: dict[str, Any]) -> str:
    """What each method chose, and what choosing cost."""
    rows = []
    for method in results["methods"]:
        setting, search = method["setting"], method["search"]
        chosen = "".join(
            f"<td>{setting[name]:g}</td>" if name in method["searched"] else f'<td class="paper">{setting[name]:g}</td>'
            for name in _SETTING
        )
        lost = sum(not tried["finite"] for tried in search["tried"])
        rows.append(
            f"<tr><th>{escape(method['title'])}</th>{chosen}<td>{search['validation P@1']:.2f}</td>"
            f'<td class="paper">{search["runs"]}</td><td class="paper">{lost}</td>'
            f'<td class="paper">{search["seconds"]:.0f}</td></tr>'
        )
    return _table((*_SETTING.values(), "validation<br>P@1", "runs", "not<br>finite", "seconds"), rows)


def data_table(results: dict[str, Any]) -> str:
    """The row of the paper's Table 1."""
    data = results["data"]
    columns = ("features", "classes", "points<br>to learn", "points<br>to validate", "points<br>to test")
    counts = (data[name] for name in ("features", "classes", "learnt_points", "validation_points", "test_points"))
    means = (data[name] for name in ("points_per_class", "classes_per_point"))
    cells = [f"<td>{count:,}</td>" for count in counts] + [f"<td>{mean:.2f}</td>" for mean in means]
    row = f"<tr><th>{escape(data['name'])}</th>{''.join(cells)}</tr>"
    return _table((*columns, "points<br>per class", "classes<br>per point"), [row])


def notes(results: dict[str, Any]) -> str:
    return "\n".join(f'<p class="note">{escape(note)}.</p>' for note in results["notes"])


def legend(results: dict[str, Any]) -> str:
    return curves.legend([(method["number"], method["title"]) for method in results["methods"]])


def curve_svg(results: dict[str, Any], x_key: str, x_name: str) -> str:
    """Validation P@1 of the first seed against ``x_key`` (points or seconds)."""
    lines = [
        curves.Line(
            method["title"],
            method["number"],
            [record[x_key] for record in method["curve"]],
            [record["P@1"] for record in method["curve"]],
        )
        for method in results["methods"]
        if method["curve"]
    ]
    if not lines:
        return "<p>No run came to an end.</p>"
    ends = ", ".join(f"{line.title} ends at {line.ys[-1]:.2f} percent" for line in lines)
    label = f"P@1 against {x_name}: {ends}"
    return curves.curves_svg(lines, x_name=x_name, y_name="validation P@1, %", label=label, size=curves.LARGE)


def _table(columns: Sequence[str], rows: list[str]) -> str:
    head = "<th></th>" + "".join(f"<th>{column}</th>" for column in columns)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(rows) + "\n</tbody></table>"
