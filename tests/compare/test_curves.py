"""Curves as pictures: ticks that cover the range, looks that differ, marks inside the frame."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.compare.curves import NUM_LOOKS, Line, curves_svg, mark, round_ticks
from tests.compare.pages import parsed


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_are_few_equal_steps_that_cover_the_range(low: float, span: float) -> None:
    high = low + span
    ticks = round_ticks(low, high)
    slack = 1e-9 * max(abs(low), abs(high), 1e-3)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    np.testing.assert_allclose(np.diff(ticks), ticks[1] - ticks[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (0.0, float("nan")), (0.0, float("inf"))])
def test_ticks_of_no_range_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="wanted numbers"):
        round_ticks(low, high)


def test_curves_stay_inside_the_picture() -> None:
    line = Line("one", 1, [0, 10, 20_000], [3.0, 50.0, 41.5])
    text = curves_svg([line], x_name="points", y_name="percent", label="three points")
    parsed(text)
    places = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text)
    assert len(places) == 3
    for x, y in places:
        assert 0 <= float(x) <= 460
        assert 0 <= float(y) <= 300


def test_words_of_others_are_escaped() -> None:
    name = "<script>\"'&"
    text = curves_svg([Line(name, 1, [0, 1], [0, 1])], x_name=name, y_name=name, label=name)
    page = parsed(text)
    assert "script" not in page.tags
    assert page.words.count(name) == 2
    assert any(words.startswith(f"{name}: ") for words in page.words)
    assert 'aria-label="&lt;script&gt;&#34;&#39;&amp;"' in text


@pytest.mark.parametrize(
    ("last", "word"), [(8_000, "8,000"), (15_000, "15k"), (8_000_000, "8,000k"), (15_000_000, "15M")]
)
def test_ticks_are_counted_in_units(last: float, word: str) -> None:
    picture = curves_svg([Line("one", 1, [0.0, last], [1.0, 2.0])], x_name="points", y_name="y", label="one")
    assert f">{word}</text>" in picture


def test_every_curve_looks_different() -> None:
    marks = {mark(number, 5, 5) for number in range(1, NUM_LOOKS + 1)}
    assert len(marks) == NUM_LOOKS == 10
    for number in (0, NUM_LOOKS + 1):
        with pytest.raises(ValueError, match="wanted 1 to 10"):
            mark(number, 0, 0)
    lines = [Line(f"line {n}", n, [1, 2], [n, n + 1]) for n in range(1, NUM_LOOKS + 1)]
    text = curves_svg(lines, x_name="points", y_name="percent", label="ten", size=(760, 400))
    parsed(text)
    assert len(set(re.findall(r'stroke-dasharray="([^"]+)"', text))) == 7
