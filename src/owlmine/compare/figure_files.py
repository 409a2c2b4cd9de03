"""The figures for other programs: a CSV file, and a LaTeX table."""

from __future__ import annotations

import csv
import io
from typing import Any

from owlmine.demo.figures import NAMES

_SETTING = ("class_rate", "feature_rate", "map_rate", "scale")
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    c: f"\\{c}" for c in "&%$#_{}"
}


def figures_csv(results: dict[str, Any]) -> str:
    """One row per method, numbers in full; empty where there is none."""
    names = [f"{name} {what}" for name in NAMES for what in ("mean", "deviation", "ratio")]
    rest = ("seconds_per_step", "seconds", "points_seen", *_SETTING, "search_runs", "search_seconds")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "title", "seeds", *names, *rest])
    for method in results["methods"]:
        ratio = method["ratio"] or dict.fromkeys(NAMES)
        figures = [column[name] for name in NAMES for column in (method["mean"], method["deviation"], ratio)]
        cost = [method["seconds_per_step"], method["seconds"], method["points_seen"]]
        setting = [method["setting"][name] for name in _SETTING]
        search = [method["search"]["runs"], method["search"]["seconds"]]
        writer.writerow([method["name"], method["title"], len(method["finals"]), *figures, *cost, *setting, *search])
    return text.getvalue()


def table_tex(results: dict[str, Any]) -> str:
    """A tabular with the rules of booktabs; best mean of each column in bold."""
    best = {name: max(method["mean"][name] for method in results["methods"]) for name in NAMES}
    lines = [
        f"% {results['written_by']}: percent on the test split of {_one_line(results['data']['name'])},"
        f" seeds: {results['options']['seeds']}. Needs \\usepackage{{booktabs}}.",
        rf"\begin{{tabular}}{{l{'r' * (len(NAMES) + 1)}}}",
        r"\toprule",
        " & ".join(["", *NAMES, "ms/step"]) + r" \\",
        r"\midrule",
    ]
    for method in results["methods"]:
        cells = [_cell(method, name, bold=method["mean"][name] == best[name]) for name in NAMES]
        step = method["seconds_per_step"]
        time = "--" if step is None else f"{1000 * step:.1f}"
        lines.append(" & ".join([tex(method["title"]), *cells, time]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def tex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def _cell(method: dict[str, Any], name: str, *, bold: bool) -> str:
    mean, deviation = f"{method['mean'][name]:.2f}", method["deviation"][name]
    told = rf"\mathbf{{{mean}}}" if bold else mean
    return f"${told}$" if deviation is None else rf"${told} \pm {deviation:.2f}$"


def _one_line(text: str) -> str:
    return " ".join(text.split())
