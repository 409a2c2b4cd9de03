"""Probabilities of all classes, against loops over Python floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from owlmine.estimator import scores as module
from owlmine.estimator.scores import exclusive_probabilities, marginal_probabilities
from owlmine.rank.probabilities import Calibration

from ..rank.test_probabilities import EXAMPLE


def score_rows(num_classes: int) -> Any:
    # Few values, so that some are equal.
    one = st.floats(-3, 3) | st.sampled_from([-1.0, 0.0, 1.0])
    return st.lists(st.lists(one, min_size=num_classes, max_size=num_classes), min_size=1, max_size=4)


def plain_exclusive(calibration: Calibration, scores: list[float]) -> list[float]:
    """The shift that makes the sum 1, found by bisection."""
    places = [1 + sum(other > score for other in scores) for score in scores]
    log_odds = [
        calibration.score * score - calibration.place * math.log(place)
        for score, place in zip(scores, places, strict=True)
    ]

    def total(shift: float) -> float:
        return math.fsum(1 / (1 + math.exp(-(odds + shift))) for odds in log_odds)

    shift = brentq(lambda shift: total(shift) - 1, -100, 100, xtol=1e-12)
    return [1 / (1 + math.exp(-(odds + shift))) for odds in log_odds]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12).flatmap(score_rows))
def test_probabilities_of_one_label_are_those_of_the_formula(rows: list[list[float]]) -> None:
    found = exclusive_probabilities(EXAMPLE, np.array(rows))
    np.testing.assert_allclose(found, [plain_exclusive(EXAMPLE, row) for row in rows], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    for row, probabilities in zip(rows, found, strict=True):
        order = np.argsort(row)
        assert (np.diff(probabilities[order]) >= 0).all()
        for one in range(len(row)):
            assert len({probabilities[c] for c in range(len(row)) if row[c] == row[one]}) == 1


@pytest.mark.parametrize("scale", [1e-30, 1e3, 1e30])
def test_extreme_scores_still_sum_to_one(scale: float) -> None:
    scores = scale * np.array([[1.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-1.0, -1.0, 1.0]])
    found = exclusive_probabilities(EXAMPLE, scores)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert (found >= 0).all()
    np.testing.assert_allclose(found[1], 1 / 3, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(score_rows(EXAMPLE.depth + 3))
def test_probabilities_of_several_labels_are_those_of_the_calibration(rows: list[list[float]]) -> None:
    scores = np.array(rows)
    order = np.argsort(-scores, axis=1, kind="stable")
    of_best = EXAMPLE.probabilities(np.take_along_axis(scores, order, axis=1))
    found = np.take_along_axis(marginal_probabilities(EXAMPLE, scores), order, axis=1)
    np.testing.assert_allclose(found, of_best, rtol=1e-12)


@pytest.mark.parametrize("probabilities", [exclusive_probabilities, marginal_probabilities])
def test_blocks_change_nothing_but_rounding(probabilities: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).normal(size=(50, EXAMPLE.depth + 4))
    wanted = probabilities(EXAMPLE, scores)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    # A row takes as many steps as the slowest of its block.
    np.testing.assert_allclose(probabilities(EXAMPLE, scores), wanted, rtol=1e-11)
    assert probabilities(EXAMPLE, scores[:0]).shape == (0, scores.shape[1])
