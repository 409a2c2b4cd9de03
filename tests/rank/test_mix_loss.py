"""The loss by which scores are weighed: by a loop, by differences, and where it is smallest.

Shapes: N points, S places of a shortlist, J scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from owlmine.rank.mix import MixLoss

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def one_thread_of_numpy() -> Iterator[None]:
    """Threads that wait for each other, on a machine with other work, make small products ten times slower."""
    with threadpool_limits(1):
        yield


def loss_by_loop(scores: Sequence[Array], hits_NS: Array, prior: Sequence[float], u: Sequence[float]) -> float:
    """Of each label against the non-labels of its point, in which three labels at most count in full, and what it
    costs to leave the prior."""
    loss = 0.5 * sum((weight / usual - 1) ** 2 for weight, usual in zip(u, prior, strict=True))
    for n, own in enumerate(hits_NS.tolist()):
        places = [s for s in range(len(own)) if math.isfinite(scores[0][n, s])]
        mixed = {s: sum(w * float(part[n, s]) for w, part in zip(u, scores, strict=True)) for s in places}
        labels, rivals = [s for s in places if own[s]], [s for s in places if not own[s]]
        of_point = sum(math.log1p(sum(math.exp(mixed[t] - mixed[s]) for t in rivals)) for s in labels)
        loss += of_point * min(1.0, 3 / max(len(labels), 1))
    return loss / len(hits_NS)


def some_scores(seed: int, num_points: int, places: int, num_scores: int) -> tuple[list[Array], Array, Array]:
    """Scores, of which the first has empty places at the ends of lists, hits and a prior. Of some points all places
    are labels, or none."""
    generator = np.random.default_rng(seed)
    hits_NS = generator.random((num_points, places)) < generator.choice([0.0, 0.2, 0.7, 1.0], (num_points, 1))
    scores = [
        (noise * generator.normal(size=hits_NS.shape) + hits_NS).astype(np.float32)
        for noise in generator.uniform(0.5, 2, num_scores)
    ]
    empty_NS = np.arange(places) >= generator.integers(1, places + 1, (num_points, 1))
    scores[0][empty_NS] = -np.inf
    return scores, hits_NS & ~empty_NS, generator.uniform(0.3, 3, num_scores)


_shapes = {
    "seed": st.integers(0, 10**6),
    "num_points": st.integers(1, 12),
    "places": st.integers(1, 9),
    "num_scores": st.integers(1, 4),
}


@settings(max_examples=60, deadline=None)
@given(**_shapes)
def test_the_loss_its_slope_and_its_curvature(seed: int, num_points: int, places: int, num_scores: int) -> None:
    """By a loop and by differences."""
    scores, hits_NS, prior_J = some_scores(seed, num_points, places, num_scores)
    loss, at_J = MixLoss(scores, hits_NS, prior_J), np.random.default_rng(seed).uniform(0, 2, num_scores)
    found, slope_J, curvature_JJ = loss(at_J)
    assert found == pytest.approx(loss_by_loop(scores, hits_NS, prior_J.tolist(), at_J.tolist()), rel=1e-9)
    for place, step_J in enumerate(1e-5 * np.eye(num_scores)):
        after, before = loss(at_J + step_J), loss(at_J - step_J)
        assert slope_J[place] == pytest.approx((after[0] - before[0]) / 2e-5, rel=1e-6, abs=1e-8)
        np.testing.assert_allclose(curvature_JJ[place], (after[1] - before[1]) / 2e-5, rtol=1e-5, atol=1e-8)


@settings(max_examples=30, deadline=None)
@given(**_shapes)
def test_it_is_convex(seed: int, num_points: int, places: int, num_scores: int) -> None:
    scores, hits_NS, prior_J = some_scores(seed, num_points, places, num_scores)
    loss, ends_2J = MixLoss(scores, hits_NS, prior_J), np.random.default_rng(seed).uniform(0, 5, (2, num_scores))
    one, other, between = (loss(u_J)[0] for u_J in (*ends_2J, ends_2J.mean(axis=0)))
    assert between <= (one + other) / 2 + 1e-12


@settings(max_examples=30, deadline=None)
@given(**_shapes)
@example(seed=10509, num_points=10, places=3, num_scores=2)
def test_nothing_is_smaller_than_the_smallest(seed: int, num_points: int, places: int, num_scores: int) -> None:
    """Where a weight could still move, the loss does not fall with it."""
    scores, hits_NS, prior_J = some_scores(seed, num_points, places, num_scores)
    # Scores that speak against labels, for weights that end at their least.
    scores[-1] = np.where(np.isneginf(scores[-1]), scores[-1], -3 * scores[-1])
    loss = MixLoss(scores, hits_NS, prior_J)
    u_J, smallest = loss.smallest()
    least_J = np.where(np.arange(num_scores) == 0, 0.1, 0.0) * prior_J
    assert (u_J >= least_J).all()
    assert smallest == pytest.approx(loss(u_J)[0])
    slope_J = loss(u_J)[1] * prior_J
    assert (slope_J > -1e-3).all()
    # SciPy ends some roundings of float64 beside a bound.
    assert (np.abs(slope_J[u_J > least_J * (1 + 1e-14)]) < 1e-3).all()
    for other_J in np.random.default_rng(seed).uniform(0, 3, (10, num_scores)) * prior_J:
        assert loss(np.maximum(other_J, least_J))[0] >= smallest - 1e-9


def test_the_first_score_counts_at_least_a_tenth_of_what_it_usually_does() -> None:
    """What others count is told as a multiple of it; they may count for nothing."""
    generator = np.random.default_rng(0)
    hits_NS = generator.random((400, 6)) < 0.3
    wrong_NS = (generator.normal(size=hits_NS.shape) - 2 * hits_NS).astype(np.float32)
    u_J, _ = MixLoss([wrong_NS, wrong_NS], hits_NS, np.array([10.0, 2.0])).smallest()
    np.testing.assert_allclose(u_J, [1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("num_labels", [1, 2, 3, 4, 5])
def test_no_point_has_a_larger_share_than_one_with_three_labels(num_labels: int) -> None:
    """All places alike: log(1 + rivals) for each label that counts."""
    hits_NS, prior_J = np.arange(6)[None] < num_labels, np.ones(1)
    found, _, _ = MixLoss([np.zeros((1, 6), np.float32)], hits_NS, prior_J)(prior_J)
    assert found == pytest.approx(min(num_labels, 3) * math.log(7 - num_labels))


def test_points_that_tell_nothing() -> None:
    """Without a label, with labels alone, or with nothing beside them but empty places: they change the mean alone."""
    scores, hits_NS, prior_J = some_scores(3, 5, 4, 2)
    idle = [np.array([[0.5, 0.2, 0.1, -0.3], [2.0, 1.0, 0.5, 0.25], [2.0, -1.0, -np.inf, -np.inf]], np.float32)] * 2
    idle_hits = np.array([[False] * 4, [True] * 4, [True, True, False, False]])
    at_J = 1.3 * prior_J
    (told, slope_J, _), strain = MixLoss(scores, hits_NS, prior_J)(at_J), 2 * 0.5 * 0.3**2
    both = [np.concatenate(parts) for parts in zip(scores, idle, strict=True)]
    found, found_slope_J, _ = MixLoss(both, np.concatenate([hits_NS, idle_hits]), prior_J)(at_J)
    assert found == pytest.approx(5 / 8 * told)
    np.testing.assert_allclose(found_slope_J, 5 / 8 * slope_J)
    alone = MixLoss(idle, idle_hits, prior_J)
    assert alone(at_J)[0] == pytest.approx(strain / 3)
    np.testing.assert_allclose(alone.smallest()[0], prior_J)


def test_what_stands_at_empty_places_does_not_count() -> None:
    scores, hits_NS, prior_J = some_scores(4, 20, 6, 3)
    empty_NS = np.isneginf(scores[0])
    assert empty_NS.any()
    others = [scores[0], *(np.where(empty_NS, np.float32(1e6), part) for part in scores[1:])]
    found, slope_J, _ = MixLoss(others, hits_NS, prior_J)(prior_J)
    wanted, wanted_slope_J, _ = MixLoss(scores, hits_NS, prior_J)(prior_J)
    assert found == wanted
    np.testing.assert_array_equal(slope_J, wanted_slope_J)


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_scores_far_apart(size: float) -> None:
    """A label far behind costs the distance, and one far before nothing; no exponential overflows."""
    scores = np.array([[size, 0.0], [size, 0.0]], np.float32)
    hits_NS, prior_J = np.array([[True, False], [False, True]]), np.ones(1)
    found, slope_J, _ = MixLoss([scores], hits_NS, prior_J)(prior_J)
    assert found == pytest.approx(size / 2)
    np.testing.assert_allclose(slope_J, [size / 2])


def test_the_prior_matters_where_points_are_few() -> None:
    scores, hits_NS, prior_J = some_scores(5, 12, 6, 3)
    strains = []
    for copies in (1, 10, 100):
        parts = [np.tile(part, (copies, 1)) for part in scores]
        u_J, _ = MixLoss(parts, np.tile(hits_NS, (copies, 1)), prior_J).smallest()
        strains.append(float(((u_J / prior_J - 1) ** 2).sum()))
    assert 0 < 2 * strains[0] < strains[1] < strains[2]
