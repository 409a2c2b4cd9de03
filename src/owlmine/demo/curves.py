"""Curves as inline SVG. Colours come from the page's style sheet, so that they follow light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Drawing area of the picture in its own units, inside the margins for the words.
_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 22, 14, 44
_MARK = 4.0


@dataclass(frozen=True)
class Line:
    """One method's curve. ``number`` chooses colour and mark: 1, 2 or 3."""

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


def curves_svg(lines: Sequence[Line], *, x_name: str, y_name: str, label: str) -> str:
    """One picture with all curves; ``label`` tells it to those who cannot see it."""
    x_ticks = round_ticks(0.0, max(max(line.xs) for line in lines))
    y_ticks = round_ticks(min(min(line.ys) for line in lines), max(max(line.ys) for line in lines))
    x_axis = Axis(x_ticks[0], x_ticks[-1], _LEFT, _WIDTH - _RIGHT)
    y_axis = Axis(y_ticks[0], y_ticks[-1], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">']
    parts += _frame(x_axis, y_axis, x_ticks, y_ticks)
    parts.append(f'<text class="axis" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}">{escape(x_name)}</text>')
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
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
    unit, letter = (1000, "k") if x_ticks[-1] >= 10_000 else (1, "")
    for tick in x_ticks:
        x = x_axis.place(tick)
        told = f"{tick / unit:,g}{letter}" if tick else "0"
        parts.append(f'<text class="tick" x="{x:.1f}" y="{y_axis.start + 16}">{told}</text>')
    return parts


def _curve(line: Line, x_axis: Axis, y_axis: Axis, *, x_name: str) -> list[str]:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<g class="m{line.number}"><polyline class="curve" points="{path}"/>']
    for (x, y), told_x, told_y in zip(places, line.xs, line.ys, strict=True):
        told = f"{line.title}: {told_y:.2f} % at {told_x:,.0f} {x_name}"
        parts.append(f"<g><title>{escape(told)}</title>{mark(line.number, x, y)}</g>")
    return [*parts, "</g>"]


def mark(number: int, x: float, y: float) -> str:
    """A circle, a square or a triangle: methods can be told apart without colour."""
    if number == 1:
        return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{_MARK}"/>'
    if number == 2:
        side = 2 * _MARK - 1
        return f'<rect class="mark" x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side}" height="{side}"/>'
    corners = ((0, -_MARK - 1), (_MARK + 1, _MARK), (-_MARK - 1, _MARK))
    return f'<polygon class="mark" points="{" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)}"/>'
