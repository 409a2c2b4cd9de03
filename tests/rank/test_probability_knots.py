"""Probabilities bent to what came true, where that helps.

Shapes: N queries, S places of a list.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from owlmine.metrics.calibration import expected_calibration_error
from owlmine.rank import probabilities as module
from owlmine.rank.probabilities import Calibration, bend, checked_knots, fit_knots, knots_help


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
@example([(0.9999999999999999, False), (0.30189176053221073, False)])
def test_order_and_range_are_kept(pairs: list[tuple[float, bool]]) -> None:
    """In float32, in which probabilities are told: in float64 a line may end a last digit above its knot."""
    promised, hits = np.array([p for p, _ in pairs]), np.array([h for _, h in pairs])
    knots = fit_knots(promised, hits)
    assert checked_knots(json.loads(json.dumps(knots))) == knots
    bent = bend(np.sort(promised), knots)
    assert (np.diff(bent) >= -1e-15).all()
    assert bent.min() >= 0
    assert bent.max() <= 1 + 1e-15
    told = bent.astype(np.float32)
    assert (np.diff(told) >= 0).all()
    assert told.max() <= 1


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
    smooth = Calibration.from_dict(with_knots.to_dict() | {"knots": []}).probabilities(scored(400)[0])
    assert with_knots.knots == fit_knots(smooth.ravel(), scored(400)[1].ravel())
    assert Calibration.from_dict(json.loads(json.dumps(with_knots.to_dict()))) == with_knots


@pytest.mark.parametrize("all_hit", [False, True])
def test_nothing_is_impossible_or_certain(all_hit: bool) -> None:
    scores, _ = scored(400)
    probabilities = Calibration.fit(scores, np.full(scores.shape, all_hit)).probabilities(scores)
    assert (probabilities > 0).all()
    assert (probabilities < 1).all()
    assert (abs(probabilities - all_hit) < 0.05).all()


def loss_by_loop(probabilities: list[list[float]], hits: list[list[bool]]) -> float:
    terms = [
        -math.log(max(p if hit else 1 - p, 2.0**-126))
        for row, own in zip(probabilities, hits, strict=True)
        for p, hit in zip(row, own, strict=True)
    ]
    return sum(terms) / len(terms)


def held_out_by_loop(probabilities_NS: np.ndarray[Any, Any], hits_NS: np.ndarray[Any, Any]) -> float:
    """The log loss of each query, bent by what four of five others tell, as a share of that without."""
    bent: list[list[float]] = [[] for _ in probabilities_NS]
    for fold in range(5):
        others = [n for n in range(len(bent)) if n % 5 != fold]
        knots = fit_knots(
            np.array([p for n in others for p in probabilities_NS[n]]),
            np.array([hit for n in others for hit in hits_NS[n]]),
        )
        for n in range(fold, len(bent), 5):
            for p in probabilities_NS[n].tolist():
                right = next(place for place, (x, _) in enumerate(knots) if place and p <= x)
                (x0, y0), (x1, y1) = knots[right - 1], knots[right]
                bent[n].append(y0 + (y1 - y0) * (p - x0) / (x1 - x0))
    return loss_by_loop(bent, hits_NS.tolist()) / loss_by_loop(probabilities_NS.tolist(), hits_NS.tolist())


def promises(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """As lists have them: the best first, of most queries high and then low."""
    return -np.sort(-(generator.random(shape).astype(np.float32) ** 3), axis=1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_queries=st.integers(6, 90),
    places=st.integers(1, 6),
    bend_by=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_whether_knots_help_against_a_loop(seed: int, num_queries: int, places: int, bend_by: float) -> None:
    """On either side of what they bring."""
    generator = np.random.default_rng(seed)
    promised_NS = promises(generator, (num_queries, places))
    hits_NS = generator.random(promised_NS.shape) < promised_NS ** (1 + bend_by)
    gain = 1 - held_out_by_loop(promised_NS, hits_NS)
    with pytest.MonkeyPatch.context() as patch:
        for least, do_help in ((gain - 1e-6, True), (gain + 1e-6, False)):
            patch.setattr(module, "_LEAST_GAIN", least)
            assert knots_help(promised_NS, hits_NS) == do_help


@pytest.mark.parametrize("seed", range(5))
def test_they_help_where_the_map_is_bent_and_not_where_it_is_good(seed: int) -> None:
    generator = np.random.default_rng(seed)
    promised_NS = promises(generator, (2_000, 10))
    chances_NS = generator.random(promised_NS.shape)
    assert not knots_help(promised_NS, chances_NS < promised_NS)
    for truth_NS in (promised_NS**1.5, np.sqrt(promised_NS), np.where(promised_NS > 0.3, 0.5, 0.05)):
        assert knots_help(promised_NS, chances_NS < truth_NS)


def test_knots_of_a_good_map_would_only_follow_chance() -> None:
    """Made and judged on the same points they always help: what they are not made from must tell."""
    generator = np.random.default_rng(0)
    promised_NS = promises(generator, (400, 10))
    hits_NS = generator.random(promised_NS.shape) < promised_NS
    bent_NS = bend(promised_NS, fit_knots(promised_NS.ravel(), hits_NS.ravel()))
    own = loss_by_loop(bent_NS.tolist(), hits_NS.tolist()) / loss_by_loop(promised_NS.tolist(), hits_NS.tolist())
    assert own < 1 - 0.001
    assert not knots_help(promised_NS, hits_NS)


def test_a_query_is_in_one_fold_with_all_its_places() -> None:
    """Places of a query that are right or wrong together would tell of each other."""
    generator = np.random.default_rng(1)
    promised_NS = np.repeat(generator.random((200, 1)).astype(np.float32), 40, axis=1)
    hits_NS = np.repeat(generator.random((200, 1)) < promised_NS[:, :1], 40, axis=1)
    assert held_out_by_loop(promised_NS, hits_NS) > 1 - 0.001
    assert not knots_help(promised_NS, hits_NS)
    # The same places, each as a query of its own: others of the same query stand in the other folds.
    apart = (200 * 40, 1)
    assert knots_help(promised_NS.reshape(apart), hits_NS.reshape(apart))


@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_promises_that_are_certain_and_wrong(certain: float) -> None:
    """Their loss is large, and a number."""
    promised_NS = np.full((10, 3), certain, np.float32)
    hits_NS = np.zeros((10, 3), bool)
    hits_NS[:, 0] = True
    assert not knots_help(promised_NS, hits_NS), "knots leave 0 and 1 where they are"


def test_knots_mend_what_the_smooth_map_cannot() -> None:
    scores, hits = scored(4_000)
    fitted = Calibration.fit(scores[:2_000], hits[:2_000])
    smooth = Calibration.from_dict(fitted.to_dict() | {"knots": []})
    errors = [
        expected_calibration_error(c.probabilities(scores[2_000:]).ravel(), hits[2_000:].ravel())
        for c in (smooth, fitted)
    ]
    assert errors[1] < 0.6 * errors[0]
