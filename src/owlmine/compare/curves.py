"""Curves as inline SVG. Colours come from the page's style sheet, so that they work in light and dark mode and in
print.

Every piece is ``Markup``: ``format`` escapes titles and names, and templates print the picture as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

# Width and height in the picture's own units: for two side by side, and for one with many curves.
SMALL, LARGE = (460, 300), (760, 400)
# Margins for the labels.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 22, 14, 44
_MARK = 4.0
# Dash pattern by number: solid for the first three, so that pictures with few curves stay simple.
_DASHES = ("", "", "", "9 3", "2 3", "6 3 2 3", "12 4", "4 4", "9 3 2 3 2 3", "1 4")
NUM_LOOKS = len(_DASHES)


@dataclass(frozen=True)
class Line:
    """The curve of one method. ``number``, 1 to 10, chooses colour, mark and dashes."""

    title: str
    number: int
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Axis:
    """Maps data to a position on the page."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


# Size and letter of a unit, and the smallest last tick for which it is used.
_UNITS = ((1_000_000, "M", 10_000_000), (1_000, "k", 10_000), (1, "", 0))


def curves_svg(lines: Sequence[Line], *, x_name: str, y_name: str, label: str, size: tuple[int, int] = SMALL) -> Markup:
    """One picture with all curves; ``label`` describes it for screen readers."""
    width, height = size
    x_ticks = round_ticks(0.0, max(max(line.xs) for line in lines))
    y_ticks = round_ticks(min(min(line.ys) for line in lines), max(max(line.ys) for line in lines))
    x_axis = Axis(x_ticks[0], x_ticks[-1], _LEFT, width - _RIGHT)
    y_axis = Axis(y_ticks[0], y_ticks[-1], height - _BOTTOM, _TOP)
    middle_x, middle_y = (_LEFT + width - _RIGHT) / 2, (_TOP + height - _BOTTOM) / 2
    parts = [
        Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, label),
        *_frame(x_axis, y_axis, x_ticks, y_ticks),
        Markup('<text class="axis" x="{}" y="{}">{}</text>').format(middle_x, height - 8, x_name),
        Markup('<text class="axis" transform="translate(12 {}) rotate(-90)">{}</text>').format(middle_y, y_name),
        *(_curve(line, x_axis, y_axis, x_name=x_name) for line in lines),
        Markup("</svg>"),
    ]
    return Markup("\n").join(parts)


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


def _frame(x_axis: Axis, y_axis: Axis, x_ticks: list[float], y_ticks: list[float]) -> list[Markup]:
    parts = []
    for tick in y_ticks:
        y, grid = y_axis.place(tick), Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>')
        parts.append(grid.format(x_axis.start, x_axis.end, f"{y:.1f}", f"{y:.1f}"))
        parts.append(_text("tick end", x_axis.start - 6, y + 4, f"{tick:g}"))
    unit, letter = next((unit, letter) for unit, letter, least in _UNITS if x_ticks[-1] >= least)
    words = [f"{tick / unit:,g}{letter}" if tick else "0" for tick in x_ticks]
    y = y_axis.start + 16
    return parts + [_text("tick", x_axis.place(tick), y, word) for tick, word in zip(x_ticks, words, strict=True)]


def _text(kind: str, x: float, y: float, text: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, f"{x:.1f}", f"{y:.1f}", text)


def _curve(line: Line, x_axis: Axis, y_axis: Axis, *, x_name: str) -> Markup:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [
        Markup('<g class="m{}"><polyline class="curve"{} points="{}"/>').format(line.number, _dashes(line.number), path)
    ]
    for (x, y), at, value in zip(places, line.xs, line.ys, strict=True):
        hint = f"{line.title}: {value:.2f} % at {at:,.0f} {x_name}"
        parts.append(Markup("<g><title>{}</title>{}</g>").format(hint, mark(line.number, x, y)))
    return Markup("").join([*parts, Markup("</g>")])


def legend_key(number: int) -> Markup:
    """A short piece of the line, to stand before its title outside the picture."""
    return Markup(
        '<svg viewBox="0 0 34 14" aria-hidden="true"><line class="curve"{} x1="0" y1="7" x2="34" y2="7"/>{}</svg>'
    ).format(_dashes(number), mark(number, 17, 7))


def mark(number: int, x: float, y: float) -> Markup:
    """Every number has its own shape, so that methods can be told apart without colour."""
    if not 1 <= number <= NUM_LOOKS:
        raise ValueError(f"number is {number}; wanted 1 to {NUM_LOOKS}")
    if number in (1, 9):
        kind = "mark hollow" if number == 9 else "mark"
        return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(kind, f"{x:.1f}", f"{y:.1f}", _MARK)
    if number in _STROKES:
        return Markup('<path class="stroke" d="{}"/>').format(_STROKES[number].format(x=x, y=y))
    corners, filled = _CORNERS[number]
    places = " ".join(f"{x + dx * _MARK:.1f},{y + dy * _MARK:.1f}" for dx, dy in corners)
    return Markup('<polygon class="{}" points="{}"/>').format("mark" if filled else "mark hollow", places)


def _dashes(number: int) -> Markup:
    pattern = _DASHES[number - 1]
    return Markup(' stroke-dasharray="{}"').format(pattern) if pattern else Markup("")


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
