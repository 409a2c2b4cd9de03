"""What linear classifiers learn from, and which of them there are to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from owlmine.rank.linear import LinearJudge, mine_pairs
from owlmine.rank.linear_training import LinearOptions, MinedPairs, train_linear

from .small_tasks import assert_same_tensors
from .small_world import world
from .test_candidates import dense_scores

KINDS: dict[str, dict[str, Any]] = {"embedding": {}, "two heads": {"heads": 2}, "linear": {"kind": "linear"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 5, 24])
def test_classifiers_learn_what_the_dense_model_confuses(kind: str, length: int) -> None:
    """A point teaches its labels, and the best classes that are none."""
    small = world(**KINDS[kind])
    training = replace(small.training, sizes=replace(small.training.sizes, confusable=length))
    exact = dense_scores(small.model, training.queries)
    best = np.argsort(-exact, axis=1, kind="stable")[:, :length]
    wanted = MinedPairs.of(best, training.labels, num_classes=24)
    found = mine_pairs(training)
    for name in ("offsets_K1", "points", "targets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_lists_are_no_longer_than_there_are_classes() -> None:
    training, said = world().training, list[str]()
    mine_pairs(replace(training, sizes=replace(training.sizes, confusable=100), message=said.append))
    assert said[0] == "the 24 best classes of each training point, to find confusable classes"


@pytest.mark.parametrize(
    ("chosen", "most_pairs", "costs"), [(None, 10**6, [0.3, 1.0]), (None, 1, [1.0]), (0.3, 1, [0.3]), (3, 10**6, [3.0])]
)
def test_the_costs_to_choose_from(chosen: float | None, most_pairs: int, costs: list[float]) -> None:
    """The usual one alone where there are many pairs, and the chosen one alone wherever there is one."""
    training = world().training
    training = replace(training, sizes=replace(training.sizes, most_pairs_of_choice=most_pairs))
    forms = LinearJudge.fit(training, chosen)
    assert list(forms) == costs
    pairs = mine_pairs(training)
    for cost, judge in forms.items():
        own = train_linear(training.queries, pairs, num_features=20, options=LinearOptions(cost=float(str(cost))))
        assert_same_tensors(judge, own)


def test_the_seed_counts() -> None:
    training = world().training
    one, other = (LinearJudge.fit(replace(training, seed=seed), 1.0)[1.0] for seed in (0, 1))
    assert not np.array_equal(one.weights.biases_K, other.weights.biases_K)


@pytest.mark.parametrize("where", ["shortlists", "24 of 24"])
def test_it_can_be_stopped(where: str) -> None:
    def stop_at(place: str) -> Callable[[str], None]:
        def check(now: str) -> None:
            if now == place:
                raise InterruptedError(now)

        return check

    with pytest.raises(InterruptedError, match=where):
        LinearJudge.fit(replace(world().training, check=stop_at(where)), None)
