"""Reliability bins and the expected calibration error, against a loop and by their properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.metrics.calibration import expected_calibration_error, judged_predictions, reliability_bins
from owlmine.metrics.labels import FilterPairs

events = st.lists(st.tuples(st.integers(0, 12).map(lambda n: n / 12), st.booleans()), min_size=1, max_size=60)


def looped(pairs: list[tuple[float, bool]], bins: int) -> float:
    """The definition, a prediction at a time; equal probabilities go where the middle of them goes."""
    members: dict[int, list[tuple[float, bool]]] = {}
    for p, hit in pairs:
        below, equal = sum(q < p for q, _ in pairs), sum(q == p for q, _ in pairs)
        number = 0
        while (number + 1) * len(pairs) * 2 <= (2 * below + equal) * bins:
            number += 1
        members.setdefault(number, []).append((p, hit))
    error = 0.0
    for mine in members.values():
        told = sum(p for p, _ in mine) / len(mine)
        right = sum(hit for _, hit in mine) / len(mine)
        error += len(mine) / len(pairs) * abs(told - right)
    return error


@given(events, st.integers(1, 20))
@settings(max_examples=80, deadline=None)
def test_error_against_the_loop(pairs: list[tuple[float, bool]], bins: int) -> None:
    p, hits = (np.array(column) for column in zip(*pairs, strict=True))
    assert expected_calibration_error(p, hits, bins=bins) == pytest.approx(looped(pairs, bins), abs=1e-12)


@given(events, st.integers(1, 20), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_properties(pairs: list[tuple[float, bool]], bins: int, random: object) -> None:
    p, hits = (np.array(column) for column in zip(*pairs, strict=True))
    found = reliability_bins(p, hits, bins=bins)
    assert 1 <= len(found) <= bins
    assert sum(one.count for one in found) == len(pairs)
    means = [one.probability for one in found]
    assert means == sorted(means)
    assert sum(one.count * one.hits for one in found) == pytest.approx(hits.sum())
    error = expected_calibration_error(p, hits, bins=bins)
    # At least the gap of the whole, since the bins' gaps add up to it; at most 1.
    assert abs(p.mean() - hits.mean()) - 1e-12 <= error <= 1
    order = np.random.default_rng(len(pairs)).permutation(len(pairs))
    assert expected_calibration_error(p[order], hits[order], bins=bins) == error
    assert expected_calibration_error(1 - p, ~hits, bins=1) == pytest.approx(
        expected_calibration_error(p, hits, bins=1)
    )


def test_bins_of_equal_mass() -> None:
    p = np.random.default_rng(0).random((30, 10)) ** 3
    found = reliability_bins(p, p > 0.5, bins=15)
    assert [one.count for one in found] == [20] * 15


def test_known_values() -> None:
    hits = np.array([True, False, True, False])
    assert expected_calibration_error(np.full(4, 0.5), hits) == 0
    assert expected_calibration_error(hits.astype(float), hits) == 0
    assert expected_calibration_error(1.0 - hits, hits) == 1
    rng = np.random.default_rng(1)
    p = rng.random(200_000)
    assert expected_calibration_error(p, rng.random(len(p)) < p) < 0.01
    assert expected_calibration_error(p, rng.random(len(p)) < p**2) == pytest.approx(1 / 6, abs=0.01)


@pytest.mark.parametrize(
    ("p", "hits", "bins", "told"),
    [
        ([], np.zeros(0, bool), 15, "not empty"),
        ([0.5], np.zeros(2, bool), 15, r"shape \(1,\) and hits \(2,\)"),
        ([0.5], np.zeros(1), 15, "wanted bool"),
        ([1.5], np.zeros(1, bool), 15, "from 0 to 1"),
        ([np.nan], np.zeros(1, bool), 15, "from 0 to 1"),
        ([0.5], np.zeros(1, bool), 0, "at least 1"),
    ],
)
def test_bad_input(p: list[float], hits: np.ndarray, bins: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        expected_calibration_error(np.array(p), hits, bins=bins)


def test_judged_predictions_leave_out_filtered_and_empty_places() -> None:
    ids = np.array([[4, 2, 0, 1], [3, 1, -1, -1], [-1, -1, -1, -1]])
    p = np.arange(12, dtype=np.float32).reshape(3, 4) / 16
    labels = [[0, 4], [1], [2]]
    told, hits = judged_predictions(ids, p, labels, k=2, num_classes=5)
    assert told.tolist() == [0, 1 / 16, 4 / 16, 5 / 16]
    assert hits.tolist() == [True, False, False, True]
    pairs = FilterPairs(np.array([[0, 4], [0, 3], [1, 3]]))
    told, hits = judged_predictions(ids, p, labels, k=2, num_classes=5, filter_pairs=pairs)
    assert told.tolist() == [1 / 16, 2 / 16, 5 / 16]  # the places below a filtered one move up
    assert hits.tolist() == [False, True, True]
