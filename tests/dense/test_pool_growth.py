"""The pool doubles when half of it would find markedly fewer mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data import Store
from owlmine.dense import loop, objective, pool_growth
from owlmine.dense.loop import Watch
from owlmine.dense.pool_growth import PoolGrowth
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.mining import BatchPool

from .trainings import Listener, small_settings, trained

GROWING = small_settings(pool=40, pool_start=4, epochs=4.0)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainings of these tests have forty steps."""
    monkeypatch.setattr(loop, "LOOK_EVERY", 3)
    monkeypatch.setattr(pool_growth, "_POINTS", 80)


def seen(whole: int, half: int, points: int = 100) -> PoolGrowth:
    growth = PoolGrowth(start=10, most=35, seed=0)
    growth.load_state_dict({"size": 10, "points": points, "whole": whole, "half": half})
    return growth


@pytest.mark.parametrize(
    ("whole", "half", "grows"),
    [(80, 160, False), (60, 100, True), (59, 100, False), (10, 10, True), (0, 0, True)],
)
def test_decision(whole: int, half: int, grows: bool) -> None:
    """``half`` counts both halves: 60 mistakes of the whole pool and 100 of the two are a ratio of 1.2."""
    growth = seen(whole, half)
    assert growth._decide() == grows
    assert growth.size == (20 if grows else 10)
    assert growth.state_dict() == {"size": growth.size, "points": 0, "whole": 0, "half": 0}


def test_waits_for_enough_points() -> None:
    growth = seen(70, 70, points=79)
    assert not growth._decide()
    assert growth.size == 10


def test_never_past_the_most() -> None:
    growth = seen(50, 50)
    for size in (20, 35, 35):
        growth.load_state_dict({**growth.state_dict(), "points": 100, "whole": 50, "half": 50})
        growth._decide()
        assert growth.size == size


def test_counts_are_those_of_a_loop(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_growth, "_POINTS", 1_000)
    drawn: list[torch.Tensor] = []
    draw = pool_growth.draw_distinct
    monkeypatch.setattr(pool_growth, "draw_distinct", lambda *a, **o: drawn.append(draw(*a, **o)) or drawn[-1])
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=8), seed=1)
    batch = store["train"].batch(np.arange(50))
    positives = pool_growth.draw_positives(batch.labels, np.random.default_rng([5, 7, 2]))
    growth = PoolGrowth(start=11, most=40, seed=5)
    growth.look(model, batch, number=7)
    queries = model.encoder(pool_growth.query_batch(batch.queries, model.device)).detach()
    classes = model.classes.weight
    whole = half = 0
    for point, positive in enumerate(positives):
        known = set(batch.labels.indices[batch.labels.offsets[point] : batch.labels.offsets[point + 1]])
        wrong = [
            int(y) not in known and float(queries[point] @ classes[y]) > float(queries[point] @ classes[positive])
            for y in drawn[0][0]
        ]
        whole += any(wrong)
        half += any(wrong[:6]) + any(wrong[6:])
    assert 0 < whole < 50
    assert growth.state_dict() == {"size": 11, "points": 50, "whole": whole, "half": half}


def test_a_training_grows_and_says_so(store: Store) -> None:
    listener = Listener()
    trained(store, GROWING, watch=Watch(listener))
    grown = [message for message in listener.messages if "the pool grows to" in message]
    assert grown[0].endswith("the pool grows to 8")
    assert all("after step" in message for message in grown)


def test_steps_draw_pools_of_the_size_that_was_grown_to(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a look at another pool every few steps is what it grows by."""
    widths: list[int] = []
    looks: list[tuple[int, int]] = []
    draw, look = objective.draw_batch_pool, PoolGrowth.look

    def drawn(*given: Any, **named: Any) -> BatchPool:
        pool = draw(*given, **named)
        widths.append(pool.pool_size)
        return pool

    def looked(self: PoolGrowth, *given: Any, number: int) -> bool:
        grew = look(self, *given, number=number)
        looks.append((number, self.size))
        return grew

    monkeypatch.setattr(objective, "draw_batch_pool", drawn)
    monkeypatch.setattr(PoolGrowth, "look", looked)
    trained(store, GROWING)
    assert [number for number, _ in looks] == list(range(0, 40, 3))
    assert widths == [looks[step // 3][1] for step in range(40)]
    assert widths[0] == 4
    assert widths[-1] >= 8


def test_without_a_first_size_nothing_grows() -> None:
    assert pool_growth.pool_growth(small_settings()) is None
