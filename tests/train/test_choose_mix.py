"""The parts of a re-ranker are weighed by what is most precise on validation points."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.train import choose_mix as module
from owlmine.train.choose_mix import Mix, Shortlists, best_places, choose_mix


def some_lists(seed: int = 0, num_points: int = 60, places: int = 8) -> tuple[Shortlists, np.ndarray[Any, Any]]:
    """And a score that knows more of the hits than the lists do."""
    generator = np.random.default_rng(seed)
    hits = generator.random((num_points, places)) < 0.25
    scores = np.sort(generator.random((num_points, places)).astype(np.float32), axis=1)[:, ::-1]
    rarities = generator.random((num_points, places)).astype(np.float32)
    telling = (hits + generator.normal(size=hits.shape)).astype(np.float32)
    return Shortlists(np.ascontiguousarray(scores), hits, rarities), telling


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 9))
def test_best_places_against_a_sort(seed: int, places: int, k: int) -> None:
    k = min(k, places)
    # Few values: many are equal.
    scores = np.random.default_rng(seed).integers(0, 4, size=(6, places)).astype(np.float32)
    np.testing.assert_array_equal(best_places(scores, k), np.argsort(-scores, axis=1, kind="stable")[:, :k])


@pytest.mark.parametrize("places", [1, 2, 4, 8])
def test_precision_against_a_loop(places: int) -> None:
    lists, mixed = some_lists(places=places)
    figures = []
    for k in (k for k in (1, 3, 5) if k <= places):
        found = 0
        for row in range(len(mixed)):
            order = sorted(range(places), key=lambda s: (-mixed[row, s], s))[:k]
            found += sum(bool(lists.hits_NS[row, s]) for s in order)
        figures.append(100 * found / (k * len(mixed)))
    assert lists.precision(mixed) == pytest.approx(np.mean(figures))


def test_no_weight_and_lift_would_be_better() -> None:
    lists, telling = some_lists()
    linear = {0.3: telling, 1.0: np.flip(telling, axis=1).copy()}
    mix, figure = choose_mix(lists, linear, {})
    every = {
        (cost, weight, lift): lists.precision(
            lists.scores_NS + np.float32(weight) * linear[cost] + np.float32(lift) * lists.rarities_NS
        )
        for cost, weight, lift in product(linear, module._WEIGHTS, module._LIFTS)
    }
    assert figure == max(every.values()) == every[mix.cost, mix.weight, mix.lift]
    assert mix.cost == 0.3
    assert mix.kind is None
    assert "no neighbours vote" in mix.told


def test_votes_that_tell_more_are_taken() -> None:
    lists, telling = some_lists()
    nothing = np.zeros_like(telling)
    votes = {("dense", 2.0): nothing, ("sparse", 4.0): telling}
    mix, figure = choose_mix(lists, {1.0: nothing}, votes)
    assert (mix.kind, mix.power) == ("sparse", 4.0)
    mixed = lists.scores_NS + np.float32(mix.vote_weight) * telling + np.float32(mix.lift) * lists.rarities_NS
    assert figure == lists.precision(mixed)
    assert "sparse neighbours" in mix.told


def test_votes_that_bring_too_little_are_not() -> None:
    lists, telling = some_lists()
    votes = {("dense", 2.0): np.zeros_like(telling)}
    assert choose_mix(lists, {1.0: telling}, votes)[0].kind is None


def test_of_equals_the_one_that_changes_least() -> None:
    lists, _ = some_lists()
    nothing = np.zeros_like(lists.scores_NS)
    alike = Shortlists(lists.scores_NS, lists.hits_NS, nothing)
    assert choose_mix(alike, {1.0: nothing}, {})[0] == Mix(cost=1.0, weight=0.0, lift=0.0)
