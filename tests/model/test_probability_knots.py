"""Probabilities bent to what came true."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.evaluate.calibration import expected_calibration_error
from owlmine.model.calibration import Calibration
from owlmine.model.probability_knots import bend, checked_knots, fit_knots


def drawn(num: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Promises p of what comes true with p²."""
    generator = np.random.default_rng(seed)
    promised = generator.random(num)
    return promised, generator.random(num) < promised**2


def test_ten_groups_of_equal_size() -> None:
    promised, hits = drawn(20_000)
    knots = np.array(fit_knots(promised, hits))
    assert knots[0].tolist() == [0, 0]
    assert knots[-1].tolist() == [1, 1]
    for group, (x, y) in enumerate(knots[1:-1]):
        inside = (promised >= np.quantile(promised, group / 10)) & (promised < np.quantile(promised, (group + 1) / 10))
        assert x == pytest.approx(promised[inside].mean(), abs=1e-3)
        assert y == pytest.approx(hits[inside].mean(), abs=2e-3)


def test_what_comes_true_is_promised_afterwards() -> None:
    promised, hits = drawn(20_000)
    fresh, fresh_hits = drawn(20_000, seed=1)
    before = expected_calibration_error(fresh, fresh_hits)
    after = expected_calibration_error(bend(fresh, fit_knots(promised, hits)), fresh_hits)
    assert before > 0.15
    assert after < 0.02


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1) | st.floats(0, 1e-300), st.booleans()), min_size=1, max_size=60))
def test_order_and_range_are_kept(pairs: list[tuple[float, bool]]) -> None:
    promised, hits = np.array([p for p, _ in pairs]), np.array([h for _, h in pairs])
    knots = fit_knots(promised, hits)
    assert checked_knots(json.loads(json.dumps(knots))) == knots
    bent = bend(np.sort(promised), knots)
    assert (np.diff(bent) >= 0).all()
    assert bent.min() >= 0
    assert bent.max() <= 1


def test_without_knots_nothing_changes() -> None:
    promised, _ = drawn(10)
    assert bend(promised, ()) is promised


@pytest.mark.parametrize(
    "told",
    [
        "01",
        [[0, 0]],
        [[0.1, 0], [1, 1]],
        [[0, 0], [0.5, 0.6], [0.5, 0.7], [1, 1]],
        [[0, 0], [0.5, 0.6], [0.7, 0.5], [1, 1]],
        [[0, 0], [1e-300, 0.5], [1, 1]],
        [[0, 0], [1, 2]],
        [[0, 0], [1, float("nan")]],
        [[0, 0], [1, True]],
        [[0, 0], [1]],
        [0, 1],
    ],
)
def test_harmed_knots_are_refused(told: Any) -> None:
    with pytest.raises(ValueError, match="knots of the calibration are"):
        checked_knots(told)


def scored(num_points: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scores whose truth no logistic map can tell: a step."""
    generator = np.random.default_rng(3)
    scores = -np.sort(-generator.random((num_points, 10)), axis=1)
    return scores, generator.random(scores.shape) < np.where(scores > 0.8, 0.5, 0.1)


def test_many_points_have_knots_and_few_have_none() -> None:
    assert Calibration.fit(*scored(399)).knots == ()
    with_knots = Calibration.fit(*scored(400))
    assert len(with_knots.knots) > 2
    assert Calibration.from_dict(json.loads(json.dumps(with_knots.to_dict()))) == with_knots


@pytest.mark.parametrize("all_hit", [False, True])
def test_nothing_is_impossible_or_certain(all_hit: bool) -> None:
    scores, _ = scored(400)
    probabilities = Calibration.fit(scores, np.full(scores.shape, all_hit)).probabilities(scores)
    assert (probabilities > 0).all()
    assert (probabilities < 1).all()
    assert (abs(probabilities - all_hit) < 0.05).all()


def test_a_model_from_before_has_none() -> None:
    told = Calibration.fit(*scored(50)).to_dict()
    del told["knots"]
    assert Calibration.from_dict(told).knots == ()


def test_knots_mend_what_the_smooth_map_cannot() -> None:
    scores, hits = scored(4_000)
    fitted = Calibration.fit(scores[:2_000], hits[:2_000])
    smooth = Calibration.from_dict(fitted.to_dict() | {"knots": []})
    errors = [
        expected_calibration_error(c.probabilities(scores[2_000:]).ravel(), hits[2_000:].ravel())
        for c in (smooth, fitted)
    ]
    assert errors[1] < 0.6 * errors[0]
