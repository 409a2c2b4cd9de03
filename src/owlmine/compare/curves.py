"""Curves as inline SVG. Colours come from the page's style sheet, so that they follow light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Width and height of a picture in its own units: one that stands beside another, and one with room for many curves.
SMALL, LARGE = (460, 300), (760, 400)
# Margins for the words.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 22, 14, 44
_MARK = 4.0
# Of each number: solid lines for the first three, so that few curves stay calm.
_DASHES = ("", "", "", "9 3", "2 3", "6 3 2 3", "12 4", "4 4", "9 3 2 3 2 3", "1 4")
NUM_LOOKS = len(_DASHES)


@dataclass(frozen=True)
class Line:
    """One method's curve. ``number``, 1 to 10, chooses colour, mark and dashes."""

    title: str
    number: int
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Axis:
    """From data to a place on the page."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


# What ticks are counted in, and from which last tick on.
_UNITS = ((1_000_000, "M", 10_000_000), (1_000, "k", 10_000), (1, "", 0))


def curves_svg(lines: Sequence[Line], *, x_name: str, y_name: str, label: str, size: tuple[int, int] = SMALL) -> str:
    """One picture with all curves; ``label`` tells it to those who cannot see it."""
    width, height = size
    x_ticks = round_ticks(0.0, max(max(line.xs) for line in lines))
    y_ticks = round_ticks(min(min(line.ys) for line in lines), max(max(line.ys) for line in lines))
    x_axis = Axis(x_ticks[0], x_ticks[-1], _LEFT, width - _RIGHT)
    y_axis = Axis(y_ticks[0], y_ticks[-1], height - _BOTTOM, _TOP)
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">']
    parts += _frame(x_axis, y_axis, x_ticks, y_ticks)
    parts.append(f'<text class="axis" x="{(_LEFT + width - _RIGHT) / 2}" y="{height - 8}">{escape(x_name)}</text>')
    middle = (_TOP + height - _BOTTOM) / 2
    parts.append(f'<text class="axis" transform="translate(12 {middle}) rotate(-90)">{escape(y_name)}</text>')
    for line in lines:
        parts += _curve(line, x_axis, y_axis, x_name=x_name)
    return "\n".join([*parts, "</svg>"])


def round_ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Round numbers in equal steps of 1, 2 or 5 times a power of ten, from below ``low`` to above ``high``."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"low is {low}, high is {high}; wanted numbers, the lower first")
    size = max(abs(low), abs(high), 1.0)
    # A flat curve has no scale of its own.
    span = high - low if high - low > 1e-6 * size else size
    power = 10.0 ** math.floor(math.log10(span / most))
    for step in (factor * power for factor in (1, 2, 5, 10, 20, 50)):
        first, last = math.floor(low / step), math.ceil(high / step)
        last = max(last, first + 1)
        if last - first <= most:
            break
    return [round(number * step, 12) for number in range(first, last + 1)]


def _frame(x_axis: Axis, y_axis: Axis, x_ticks: list[float], y_ticks: list[float]) -> list[str]:
    parts = []
    for tick in y_ticks:
        y = y_axis.place(tick)
        parts.append(f'<line class="grid" x1="{x_axis.start}" x2="{x_axis.end}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{x_axis.start - 6}" y="{y + 4:.1f}">{tick:g}</text>')
    unit, letter = next((unit, letter) for unit, letter, least in _UNITS if x_ticks[-1] >= least)
    for tick in x_ticks:
        x = x_axis.place(tick)
        told = f"{tick / unit:,g}{letter}" if tick else "0"
        parts.append(f'<text class="tick" x="{x:.1f}" y="{y_axis.start + 16}">{told}</text>')
    return parts


def _curve(line: Line, x_axis: Axis, y_axis: Axis, *, x_name: str) -> list[str]:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<g class="m{line.number}"><polyline class="curve"{_dashes(line.number)} points="{path}"/>']
    for (x, y), told_x, told_y in zip(places, line.xs, line.ys, strict=True):
        told = f"{line.title}: {told_y:.2f} % at {told_x:,.0f} {x_name}"
        parts.append(f"<g><title>{escape(told)}</title>{mark(line.number, x, y)}</g>")
    return [*parts, "</g>"]


def legend(entries: Sequence[tuple[int, str]]) -> str:
    """Items of a list that tells numbers and titles of lines, to stand outside the picture."""
    return "\n".join(
        f'<li class="m{number}"><svg viewBox="0 0 34 14" aria-hidden="true">'
        f'<line class="curve"{_dashes(number)} x1="0" y1="7" x2="34" y2="7"/>{mark(number, 17, 7)}</svg>'
        f"<span>{escape(title)}</span></li>"
        for number, title in entries
    )


def mark(number: int, x: float, y: float) -> str:
    """Every number has a form of its own: methods can be told apart without colour."""
    if not 1 <= number <= NUM_LOOKS:
        raise ValueError(f"number is {number}; wanted 1 to {NUM_LOOKS}")
    if number in (1, 9):
        hollow = " hollow" if number == 9 else ""
        return f'<circle class="mark{hollow}" cx="{x:.1f}" cy="{y:.1f}" r="{_MARK}"/>'
    if number in _STROKES:
        return f'<path class="stroke" d="{_STROKES[number].format(x=x, y=y)}"/>'
    corners, filled = _CORNERS[number]
    places = " ".join(f"{x + dx * _MARK:.1f},{y + dy * _MARK:.1f}" for dx, dy in corners)
    return f'<polygon class="mark{"" if filled else " hollow"}" points="{places}"/>'


def _dashes(number: int) -> str:
    pattern = _DASHES[number - 1]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


_SQUARE = ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88))
_UP = ((0, -1.25), (1.25, 1), (-1.25, 1))
_DIAMOND = ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0))
_DOWN = tuple((x, -y) for x, y in _UP)
# Corners in units of the mark's radius, and whether they are filled.
_CORNERS = {
    2: (_SQUARE, True),
    3: (_UP, True),
    4: (_DIAMOND, True),
    5: (_DOWN, True),
    6: (_SQUARE, False),
    8: (_UP, False),
    10: (_DIAMOND, False),
}
_STROKES = {7: "M{x:.1f} {y:.1f}m-4 -4l8 8m0 -8l-8 8"}
