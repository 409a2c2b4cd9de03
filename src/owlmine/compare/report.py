"""The pages: one self-contained HTML file each, generated from ``results.json`` and the templates.

Templates escape whatever they print, except ``Markup``: the style sheet, and pictures by ``curves``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from owlmine.compare.curves import LARGE, SMALL, Line, curves_svg, legend_key
from owlmine.compare.figures import NAMES, TABLE_2, ratio_text
from owlmine.compare.runs import machine_text
from owlmine.rank import JUDGES


def comparison_page(results: dict[str, Any]) -> str:
    """``report.html`` of a comparison."""
    return _page("compare.html.j2", results)


def demo_page(results: dict[str, Any]) -> str:
    """``report.html`` of a demo."""
    return _page("demo.html.j2", results)


def _page(template: str, results: dict[str, Any]) -> str:
    return _environment().get_template(template).render(results)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("owlmine.compare"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "number": lambda number: f"{number:g}",
        "figure": lambda figure: f"{figure:.2f}",
        "ratio": ratio_text,
        "duration": duration,
        "machine": machine_text,
        "judge": lambda name: JUDGES[name].title,
        "command": shlex.join,
    }
    environment.globals |= {
        "NAMES": NAMES,
        "TABLE_2": TABLE_2,
        "style": Markup(files("owlmine.compare").joinpath("templates/style.css").read_text("utf-8")),
        "picture": picture,
        "legend_key": legend_key,
        "best": best_figures,
        "costs": costs,
    }
    return environment


def picture(
    methods: list[dict[str, Any]], x_key: str, x_name: str, *, start: float | None = None, large: bool = False
) -> Markup | None:
    """Validation P@1 of the first seed against ``x_key`` (points or seconds); None if no run has a curve.

    ``start`` is the figure before the first step, if all methods share one.
    """
    before = [] if start is None else [{x_key: 0.0, "P@1": start}]
    lines = []
    for method in methods:
        if method["curve"]:
            points = [*before, *method["curve"]]
            xs, ys = [point[x_key] for point in points], [point["P@1"] for point in points]
            lines.append(Line(method["title"], method["number"], xs, ys))
    if not lines:
        return None
    ends = ", ".join(f"{line.title} ends at {line.ys[-1]:.2f} percent" for line in lines)
    return curves_svg(
        lines,
        x_name=x_name,
        y_name="validation P@1, %",
        label=f"P@1 against {x_name}: {ends}",
        size=LARGE if large else SMALL,
    )


def best_figures(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    """The highest of each figure."""
    rows = list(rows)
    return {name: max(row[name] for row in rows) for name in NAMES}


def costs(method: dict[str, Any]) -> tuple[str, str]:
    """Milliseconds of a step and seconds of a run, without validation."""
    if method["seconds"] is None:
        return "–", "–"
    return f"{1000 * method['seconds_per_step']:.1f}", f"{method['seconds']:.0f}"


def duration(seconds: float) -> str:
    """In a convenient unit."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
