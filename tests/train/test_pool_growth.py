"""The pool doubles when half of it would find markedly fewer mistakes, and a stopped run grows as an unstopped one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data import Store
from owlmine.dense import objective, pool_growth
from owlmine.dense.pool_growth import PoolGrowth
from owlmine.errors import OwlmineError
from owlmine.mining import BatchPool
from owlmine.model import ModelShape, Retriever
from owlmine.train import train, trainer

from .runs import Listener, contents, interrupted, small_options

GROWING = {"pool": 40, "pool_start": 4, "epochs": 4.0}


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the tests have forty steps."""
    monkeypatch.setattr(trainer, "LOOK_EVERY", 3)
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


def test_a_run_grows_and_says_so(store: Store, tmp_path: Path) -> None:
    listener = Listener()
    train(store, tmp_path / "model", small_options(**GROWING), reporter=listener)
    grown = [message for message in listener.messages if "the pool grows to" in message]
    assert grown[0].endswith("the pool grows to 8")
    assert all("after step" in message for message in grown)


def test_steps_draw_pools_of_the_size_that_was_grown_to(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a look at another pool every few steps is what it grows by."""
    widths: list[int] = []
    seen: list[tuple[int, int]] = []
    draw, look = objective.draw_batch_pool, PoolGrowth.look

    def drawn(*given: Any, **named: Any) -> BatchPool:
        pool = draw(*given, **named)
        widths.append(pool.pool_size)
        return pool

    def looked(self: PoolGrowth, *given: Any, number: int) -> bool:
        grew = look(self, *given, number=number)
        seen.append((number, self.size))
        return grew

    monkeypatch.setattr(objective, "draw_batch_pool", drawn)
    monkeypatch.setattr(PoolGrowth, "look", looked)
    train(store, tmp_path / "model", small_options(**GROWING))
    assert [number for number, _ in seen] == list(range(0, 40, 3))
    assert widths == [seen[step // 3][1] for step in range(40)]
    assert widths[0] == 4
    assert widths[-1] >= 8


def test_stopped_and_resumed(store: Store, tmp_path: Path) -> None:
    options = small_options(**GROWING)
    train(store, tmp_path / "whole", options)
    interrupted(store, tmp_path / "parts", options, at=14)
    interrupted(store, tmp_path / "parts", options, at=25, resume=True)
    train(store, tmp_path / "parts", options, resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"pool_start": 1}, "at least 2"),
        ({"pool_start": 3, "top": 5}, "at least 2 and no fewer than --top"),
        ({"pool_start": 50}, "at most the pool of 20"),
        ({"pool_start": 4, "loss": "negative-sampling-bowl"}, "0 with a loss in which the whole pool counts"),
        ({"pool_start": 4, "loss": "softmax"}, "0 with a loss over all classes"),
    ],
)
def test_refused(store: Store, tmp_path: Path, changes: dict[str, Any], wanted: str) -> None:
    with pytest.raises((ValueError, OwlmineError), match=wanted):
        train(store, tmp_path / "model", small_options(**changes))
    assert not (tmp_path / "model").exists()
