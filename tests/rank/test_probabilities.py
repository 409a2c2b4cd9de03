"""Probabilities of scores: the formula, the order it keeps, what it learns, thresholds, and what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from owlmine.metrics.calibration import expected_calibration_error
from owlmine.rank import probabilities as calibration_module
from owlmine.rank.probabilities import (
    PRECISIONS,
    Calibration,
    PrecisionThreshold,
    bend,
    check_rising,
    find_threshold,
    fit_knots,
    fit_logistic,
    precision_thresholds,
)

EXAMPLE = Calibration(11.0, -2.0, -5.0, 0.3, -3.0, 3, 40, (PrecisionThreshold(0.5, 0.25, 0.5),))


def falling_scores(rng: np.random.Generator, num_queries: int, places: int = 10) -> np.ndarray:
    """Queries of all kinds: some far above the rest of their list, some level."""
    centre, spread = rng.uniform(0.2, 0.6, (num_queries, 1)), rng.uniform(0.02, 0.3, (num_queries, 1))
    return -np.sort(-(centre + spread * rng.random((num_queries, places))), axis=1).astype(np.float32)


def looped(calibration: Calibration, scores: list[list[float]], best: list[list[float]]) -> list[list[float]]:
    rows = []
    for row, of_all in zip(scores, best, strict=True):
        known = of_all[: calibration.depth]
        told = []
        for s in row:
            place = 1 + sum(other > s for other in known)
            margin = calibration.score * s + calibration.best * known[0] + calibration.last * known[-1]
            margin += calibration.bias - calibration.place * math.log(place)
            told.append(1 / (1 + math.exp(-margin)))
        rows.append(told)
    return rows


def test_formula_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    scores = falling_scores(rng, 30, 7)
    scores[3, 1:4] = scores[3, 1]  # ties share a place
    whole = EXAMPLE.probabilities(scores)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, looped(EXAMPLE, scores.tolist(), scores.tolist()), rtol=1e-5)
    chosen = scores[:, [2, 4, 6]]
    np.testing.assert_allclose(EXAMPLE.probabilities(chosen, best_NT=scores), whole[:, [2, 4, 6]], rtol=1e-6)
    unseen = rng.random((30, 2)).astype(np.float32) - 0.5
    expected = looped(EXAMPLE, unseen.tolist(), scores[:, :3].tolist())
    np.testing.assert_allclose(EXAMPLE.probabilities(unseen, best_NT=scores[:, :3]), expected, rtol=1e-5)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 3), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_order_is_kept_whatever_was_learned(num_queries: int, places: int, kind: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = falling_scores(rng, num_queries, places)
    # No hits, all, at random, or the worse the score the likelier, which a free fit would follow.
    chance = {0: 0.0, 1: 1.0, 2: 0.3}.get(kind, 1 - scores)
    fitted = Calibration.fit(scores, rng.random(scores.shape) < chance)
    told = fitted.probabilities(scores)
    assert np.isfinite(told).all()
    assert (np.diff(told, axis=1) <= 0).all()
    assert ((told >= 0) & (told <= 1)).all()
    assert (fitted.depth, fitted.num_points) == (places, num_queries)
    assert Calibration.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


def test_it_finds_the_law_that_made_the_hits() -> None:
    rng = np.random.default_rng(1)
    law = Calibration(9.0, -1.0, -4.0, 0.4, -1.5, 10, 1)
    scores = falling_scores(rng, 40_000)
    hits = rng.random(scores.shape) < law.probabilities(scores)
    fitted = Calibration.fit(scores, hits)
    for name in ("score", "best", "last", "place", "bias"):
        assert getattr(fitted, name) == pytest.approx(getattr(law, name), abs=0.35), name
    np.testing.assert_allclose(fitted.probabilities(scores), law.probabilities(scores), atol=0.02)


@pytest.mark.parametrize("seed", range(6))
def test_knots_are_kept_where_the_map_cannot_tell_and_only_there(seed: int) -> None:
    """Of hits that the formula makes there is nothing left to bend; with those of a law of another form there is."""
    rng = np.random.default_rng(seed)
    scores = falling_scores(rng, 1_000)
    smooth = EXAMPLE.probabilities(scores)
    chances = rng.random(scores.shape)
    assert Calibration.fit(scores, chances < smooth).knots == ()
    # A step: two probabilities, and nothing between them.
    hits = chances < np.where(smooth > 0.3, 0.6, 0.02)
    fitted = Calibration.fit(scores, hits)
    assert fitted.knots
    told, straight = (c.probabilities(scores) for c in (fitted, replace(fitted, knots=())))
    assert (np.diff(told, axis=1) <= 0).all()
    assert fitted.knots == fit_knots(straight.ravel(), hits.ravel())
    np.testing.assert_allclose(told, bend(straight, fitted.knots), rtol=1e-6)


@pytest.mark.parametrize("helps", [False, True])
def test_knots_are_kept_as_points_that_they_are_not_made_from_say(monkeypatch: pytest.MonkeyPatch, helps: bool) -> None:
    scores = falling_scores(np.random.default_rng(0), 400)
    hits, asked = np.random.default_rng(1).random(scores.shape) < 0.3, []
    monkeypatch.setattr(calibration_module, "knots_help", lambda *given: asked.append(given) or helps)
    fitted = Calibration.fit(scores, hits)
    assert bool(fitted.knots) == helps
    np.testing.assert_array_equal(asked[0][0], replace(fitted, knots=()).probabilities(scores))
    np.testing.assert_array_equal(asked[0][1], hits)
    Calibration.fit(scores[:399], hits[:399])
    assert len(asked) == 1, "few points are not asked"


def test_fifty_points_suffice_for_something() -> None:
    law = Calibration(12.0, -2.0, -6.0, 0.2, -3.0, 10, 1)
    rng = np.random.default_rng(2)
    scores = falling_scores(rng, 4000)
    hits = rng.random(scores.shape) < law.probabilities(scores)
    errors = []
    for start in range(0, 1000, 50):
        fitted = Calibration.fit(scores[start : start + 50], hits[start : start + 50])
        errors.append(expected_calibration_error(fitted.probabilities(scores[1000:]), hits[1000:]))
    assert np.mean(errors) < 0.04
    assert max(errors) < 0.08


def test_all_hits_and_none() -> None:
    scores = falling_scores(np.random.default_rng(3), 50)
    assert Calibration.fit(scores, np.ones(scores.shape, bool)).probabilities(scores).min() > 0.95
    none = Calibration.fit(scores, np.zeros(scores.shape, bool))
    assert none.probabilities(scores).max() < 0.05
    assert none.thresholds == ()


def test_constant_scores_give_the_share_of_hits() -> None:
    hits = np.arange(400).reshape(40, 10) % 4 == 0
    told = Calibration.fit(np.full((40, 10), 0.5, np.float32), hits).probabilities(np.full((2, 10), 0.5, np.float32))
    np.testing.assert_allclose(told, 0.25, atol=0.01)


@pytest.mark.parametrize(
    ("scores", "hits", "told"),
    [
        (np.zeros((0, 3)), np.zeros((0, 3), bool), "at least one of each"),
        (np.zeros((3, 0)), np.zeros((3, 0), bool), "at least one of each"),
        (np.zeros(3), np.zeros(3, bool), "shape"),
        (np.zeros((2, 3)), np.zeros((2, 2), bool), r"hits \(2, 2\)"),
        (np.zeros((2, 3)), np.zeros((2, 3)), "wanted bool"),
        (np.array([[1.0, np.nan]]), np.zeros((1, 2), bool), "not finite"),
        (np.array([[1.0, 2.0]]), np.zeros((1, 2), bool), "rise"),
    ],
)
def test_fit_refuses(scores: np.ndarray, hits: np.ndarray, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Calibration.fit(scores, hits)


def test_probabilities_want_the_best_scores() -> None:
    with pytest.raises(ValueError, match="the 3 best of each"):
        EXAMPLE.probabilities(np.zeros((4, 2), np.float32))
    with pytest.raises(ValueError, match="as many rows"):
        EXAMPLE.probabilities(np.zeros((4, 2), np.float32), best_NT=np.zeros((5, 3), np.float32))


BAD_ENTRIES: list[Any] = [
    "garbled",
    [],
    {},
    EXAMPLE.to_dict() | {"wings": 2},
    EXAMPLE.to_dict() | {"score": "11"},
    EXAMPLE.to_dict() | {"score": -1.0},
    EXAMPLE.to_dict() | {"place": -0.1},
    EXAMPLE.to_dict() | {"bias": math.nan},
    EXAMPLE.to_dict() | {"best": True},
    EXAMPLE.to_dict() | {"last": 10**400},
    EXAMPLE.to_dict() | {"depth": 0},
    EXAMPLE.to_dict() | {"depth": 3.0},
    EXAMPLE.to_dict() | {"num_points": None},
    EXAMPLE.to_dict() | {"thresholds": {"0.5": 0.2}},
    EXAMPLE.to_dict() | {"thresholds": [0.5]},
    EXAMPLE.to_dict() | {"thresholds": [{"precision": 0.5, "threshold": 2.0, "kept": 0.5}]},
    EXAMPLE.to_dict() | {"thresholds": [entry.to_dict() for entry in EXAMPLE.thresholds * 2]},
]


@pytest.mark.parametrize("told", BAD_ENTRIES, ids=range(len(BAD_ENTRIES)))
def test_garbled_entries_are_refused(told: Any) -> None:
    with pytest.raises(ValueError, match="wanted"):
        Calibration.from_dict(told)


def test_thresholds_are_those_of_its_own_probabilities() -> None:
    rng = np.random.default_rng(4)
    scores = falling_scores(rng, 500)
    hits = rng.random(scores.shape) < EXAMPLE.probabilities(scores, best_NT=scores)
    fitted = Calibration.fit(scores, hits)
    found = fitted.threshold_for(0.52)
    assert found is not None
    assert found.precision == 0.55
    kept = fitted.probabilities(scores) >= found.threshold
    assert hits[kept].mean() >= 0.55
    assert kept.mean() == pytest.approx(found.kept)
    assert replace(fitted, thresholds=()).threshold_for(0.5) is None


def thresholds_by_loop(p: list[float], hits: list[bool]) -> dict[float, tuple[float, float]]:
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
def test_thresholds_against_a_loop(drawn: list[tuple[float, int]]) -> None:
    # Sixteenths add without rounding; hits follow the probability, so that precisions are reached.
    p, hits = [q for q, _ in drawn], [luck < 16 * q for q, luck in drawn]
    found = precision_thresholds(np.array(p, np.float32), np.array(hits))
    check_rising(found)
    assert {one.precision: (one.threshold, one.kept) for one in found} == thresholds_by_loop(p, hits)


def test_new_points_mostly_reach_a_precision() -> None:
    rng = np.random.default_rng(0)
    short = 0
    for _ in range(40):
        p = rng.random((2, 1500)).astype(np.float32)
        hits = rng.random(p.shape) < p
        found = find_threshold(precision_thresholds(p[0], hits[0]), 0.8)
        assert found is not None
        short += hits[1][p[1] >= found.threshold].mean() < 0.8
    assert short <= 14


def test_the_threshold_of_the_next_higher_precision_or_none() -> None:
    table = (PrecisionThreshold(0.5, 0.2, 0.9), PrecisionThreshold(0.8, 0.6, 0.3))
    assert find_threshold(table, 0.1) is table[0]
    assert find_threshold(table, 0.5) is table[0]
    assert find_threshold(table, 0.51) is table[1]
    assert find_threshold(table, 0.81) is None
    assert find_threshold((), 0.5) is None
    for bad in (0.0, -1.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="wanted a number above 0"):
            find_threshold(table, bad)


def test_no_precision_is_reached_without_hits() -> None:
    assert precision_thresholds(np.full(50, 0.9, np.float32), np.zeros(50, bool)) == ()
    # One hit in one try proves little.
    assert precision_thresholds(np.array([0.99], np.float32), np.array([True]))[-1].precision <= 0.5


@pytest.mark.parametrize("change", [{"threshold": 1.5}, {"kept": math.nan}, {"precision": "0.5"}, {"kept": True}])
def test_thresholds_that_cannot_be_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="wanted a number from 0 to 1"):
        PrecisionThreshold.from_dict({"precision": 0.5, "threshold": 0.2, "kept": 0.9} | change)


def objective(features: np.ndarray, hits: np.ndarray, weights: np.ndarray, bias: float) -> float:
    """Written out event by event: log loss with Platt's targets, ridge on weights times the feature's spread."""
    num_hits = int(hits.sum())
    high, low = (num_hits + 1) / (num_hits + 2), 1 / (len(hits) - num_hits + 2)
    total = 0.0
    for row, hit in zip(features, hits, strict=True):
        margin = float(row @ weights) + bias
        target = high if hit else low
        total += np.logaddexp(0, margin) - target * margin
    return total + 0.5 * float(((weights * features.std(0)) ** 2).sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("not_negative", [(), (0,), (0, 2)])
def test_the_fit_against_a_general_solver(seed: int, not_negative: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(60, 3)) * [1.0, 0.1, 20.0] + [0, 3, -5]
    # Signs of both kinds, so that the bounds bite in some of the cases.
    hits = rng.random(60) < 1 / (1 + np.exp(-(features - features.mean(0)) @ (rng.normal(size=3) * [2, 20, 0.1])))
    weights, bias = fit_logistic(features, hits, not_negative=not_negative)
    assert all(weights[column] >= 0 for column in not_negative)
    scale = features.std(0)
    found = minimize(
        lambda x: objective(features, hits, x[:3] / scale, x[3] - float(x[:3] / scale @ features.mean(0))),
        np.zeros(4),
        method="L-BFGS-B",
        bounds=[(0, None) if column in not_negative else (None, None) for column in range(3)] + [(None, None)],
    )
    assert objective(features, hits, weights, bias) <= found.fun + 1e-6
    # The solver takes slopes from differences and stops early; the line above is the sharp one.
    np.testing.assert_allclose(weights * scale, found.x[:3], atol=2e-3)


@given(st.integers(1, 40), st.integers(0, 3), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_degenerate_data_give_finite_weights(num_events: int, kind: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_events, 2)) if kind % 2 else np.ones((num_events, 2), np.float64) * 1e4
    hits = {0: np.zeros(num_events, bool), 1: np.ones(num_events, bool)}.get(kind, features[:, 0] > 0)
    weights, bias = fit_logistic(features, hits, not_negative=(0,))
    assert np.isfinite([*weights, bias]).all()
    assert weights[0] >= 0


def test_all_hits_give_platts_share() -> None:
    weights, bias = fit_logistic(np.zeros((8, 1)), np.ones(8, bool))
    assert weights.tolist() == [0.0]
    assert 1 / (1 + np.exp(-bias)) == pytest.approx(9 / 10)


def test_separable_data_are_held_back() -> None:
    features = np.linspace(-1, 1, 200)[:, None]
    weights, _ = fit_logistic(features, features[:, 0] > 0)
    assert 5 < weights[0] < 200


def test_rounding_noise_is_not_learned_from() -> None:
    noise = np.float32(0.7) + np.float32(6e-8) * (np.arange(50, dtype=np.float32) // 10)
    weights, _ = fit_logistic(noise.astype(np.float64)[:, None], np.arange(50) > 25)
    assert weights.tolist() == [0.0]
