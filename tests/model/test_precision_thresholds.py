"""Thresholds for a wanted precision, against a loop over all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.rank.probabilities import (
    PRECISIONS,
    PrecisionThreshold,
    check_rising,
    find_threshold,
    precision_thresholds,
)


def looped(p: list[float], hits: list[bool]) -> dict[float, tuple[float, float]]:
    """Every probability tried as a threshold: the lowest that is safe, and the share that it keeps."""
    found = {}
    for precision in PRECISIONS:
        for threshold in sorted(set(p)):
            kept = [hit for q, hit in zip(p, hits, strict=True) if q >= threshold]
            n, share = len(kept), sum(kept) / len(kept)
            error = math.sqrt(share * (1 - share) / n + 1 / (4 * n * n))
            expected = sum(q for q in p if q >= threshold) / n
            if min((share + 1 / (2 * n) - error) / (1 + 1 / n), expected) >= precision:
                found[precision] = (threshold, n / len(p))
                break
    return found


@given(st.lists(st.tuples(st.integers(1, 15).map(lambda n: n / 16), st.integers(0, 15)), min_size=1, max_size=80))
@settings(max_examples=60, deadline=None)
def test_against_the_loop(drawn: list[tuple[float, int]]) -> None:
    # Sixteenths add without rounding; hits follow the probability, so that precisions are reached.
    p, hits = [q for q, _ in drawn], [luck < 16 * q for q, luck in drawn]
    found = precision_thresholds(np.array(p, np.float32), np.array(hits))
    check_rising(found)
    assert {one.precision: (one.threshold, one.kept) for one in found} == looped(p, hits)


def test_new_points_reach_it_mostly() -> None:
    rng = np.random.default_rng(0)
    short = 0
    for _ in range(40):
        p = rng.random((2, 1500)).astype(np.float32)
        hits = rng.random(p.shape) < p
        found = find_threshold(precision_thresholds(p[0], hits[0]), 0.8)
        assert found is not None
        short += hits[1][p[1] >= found.threshold].mean() < 0.8
    assert short <= 14


def test_next_higher_or_none() -> None:
    table = (PrecisionThreshold(0.5, 0.2, 0.9), PrecisionThreshold(0.8, 0.6, 0.3))
    assert find_threshold(table, 0.1) is table[0]
    assert find_threshold(table, 0.5) is table[0]
    assert find_threshold(table, 0.51) is table[1]
    assert find_threshold(table, 0.81) is None
    assert find_threshold((), 0.5) is None
    for bad in (0.0, -1.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="wanted a number above 0"):
            find_threshold(table, bad)


def test_nothing_is_reached_without_hits() -> None:
    assert precision_thresholds(np.full(50, 0.9, np.float32), np.zeros(50, bool)) == ()
    # One hit in one try proves little.
    assert precision_thresholds(np.array([0.99], np.float32), np.array([True]))[-1].precision <= 0.5


@pytest.mark.parametrize("change", [{"threshold": 1.5}, {"kept": math.nan}, {"precision": "0.5"}, {"kept": True}])
def test_bad_entries(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="wanted a number from 0 to 1"):
        PrecisionThreshold.from_dict({"precision": 0.5, "threshold": 0.2, "kept": 0.9} | change)
