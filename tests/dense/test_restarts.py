"""Where a training may be interrupted: one that was stopped ends as if it never had been, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from owlmine.data import Store
from owlmine.dense import loop, pool_growth
from owlmine.dense.loop import Snapshot
from owlmine.dense.retriever import Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.dense.validation import ValidationPart

from .trainings import (
    STEPS_PER_EPOCH,
    Interrupted,
    Listener,
    MemoryWatch,
    outcome,
    small_settings,
    stopped,
    trained,
    training,
    without_seconds,
)

RESUMED: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adaptive": {"optimiser": "adaptive", "class_rate": 0.01, "feature_rate": 0.1},
    "learned scale": {"loss": "sampled-softmax", "learn_scale": True, "scale": 5.0, "map_rate": 0.01},
    "patience": {"patience": 1, "epochs": 6.0},
    "depth 2, whole pool": {"depth": 2, "loss": "negative-sampling-bowl"},
    "no maps": {"depth": 0, "top": 3},
    "linear": {"kind": "linear", "class_rate": 1.0},
    "part of an epoch": {"epochs": 1.7},
    "pools of each point": {"shared_pool": False, "top": 2},
    "a pool that grows": {"pool": 40, "pool_start": 4, "epochs": 4.0},
}


def check_resume(data: Store, settings: DenseSettings, *, validation: float = 0.02) -> None:
    """A training that is stopped twice ends as if it never had been, bit for bit."""
    expected = outcome(trained(data, settings, validation=validation))
    first = stopped(data, settings, at=6, validation=validation)
    second = stopped(data, settings, at=STEPS_PER_EPOCH + 2, saved=first, validation=validation)
    listener = Listener()
    watch = MemoryWatch(saved=second, reporter=listener)
    fit = training(data, settings, watch, validation=validation).run()
    assert outcome(fit) == expected
    assert listener.messages[0].startswith(f"resumed at step {STEPS_PER_EPOCH + 2} of ")
    assert watch.histories[0] == without_seconds(second.state["history"])
    seconds = [record["seconds"] for record in fit.history]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("name", RESUMED)
def test_stopped_twice(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 3)
    monkeypatch.setattr(pool_growth, "_POINTS", 80)
    check_resume(store, small_settings(**RESUMED[name]))


def test_seconds_go_on(store: Store) -> None:
    """Of an earlier process too."""
    saved = stopped(store, small_settings(), at=STEPS_PER_EPOCH + 2)
    assert 0 < saved.state["seconds"] < 1e6
    saved.state["seconds"] += 1e6
    history = training(store, small_settings(), MemoryWatch(saved=saved)).run().history
    assert [record["seconds"] > 1e6 for record in history] == [False, True]


def test_stopped_twice_without_validation_points(store: Store) -> None:
    check_resume(store, small_settings(), validation=0.0)


@pytest.mark.parametrize("patience", [0, 2])
def test_stopped_twice_with_a_dev_split(store_with_dev: Store, patience: int) -> None:
    check_resume(store_with_dev, small_settings(pool=10, patience=patience, epochs=3.0))


def test_stopped_twice_with_dense_queries(dense_store: Store) -> None:
    check_resume(dense_store, small_settings(map_rate=0.01))


def test_snapshots_change_nothing(store: Store) -> None:
    """One after every step: a look at the training must leave no trace in it, the reported losses included."""
    watch = MemoryWatch(save_always=True)
    fit = training(store, small_settings(), watch).run()
    assert outcome(fit) == outcome(trained(store, small_settings()))
    assert watch.events == [f"save {step}" for step in range(1, 21)]


def test_a_snapshot_is_saved_before_a_stop(store: Store) -> None:
    watch = MemoryWatch(stop_at=6)
    with pytest.raises(Interrupted):
        training(store, small_settings(), watch).run()
    assert watch.events == ["save 6", "stop at step 6 of 20"]


def test_a_stop_while_an_epoch_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came between two steps: the epoch is measured once, and not again after the restart."""
    measured: list[int] = []
    measure = ValidationPart.measure

    def stopping(self: ValidationPart, model: Retriever, *, briefly: bool) -> dict[str, float]:
        measured.append(watch.step)
        watch._stop_at = STEPS_PER_EPOCH
        return measure(self, model, briefly=briefly)

    monkeypatch.setattr(ValidationPart, "measure", stopping)
    watch = MemoryWatch()
    with pytest.raises(Interrupted, match=r"^at step 10 of 20$"):
        training(store, small_settings(), watch).run()
    watch = MemoryWatch(saved=watch.saved)
    with pytest.raises(Interrupted, match=r"^at step 20 of 20$"):
        training(store, small_settings(), watch).run()
    assert measured == [10, 20]
    monkeypatch.setattr(ValidationPart, "measure", measure)
    fit = training(store, small_settings(), MemoryWatch(saved=watch.saved)).run()
    assert outcome(fit) == outcome(trained(store, small_settings()))


def test_a_stop_while_a_snapshot_is_saved(store: Store) -> None:
    """The step that stops has a snapshot of its own."""

    class Late(MemoryWatch):
        def save(self, take: Callable[[], Snapshot], *, is_last: bool) -> None:
            super().save(take, is_last=is_last)
            self._save_always, self._stop_at = False, self.step

    watch = Late(save_always=True)
    with pytest.raises(Interrupted):
        training(store, small_settings(), watch).run()
    assert watch.events == ["save 1", "save 2", "stop at step 2 of 20"]


def test_a_stop_in_the_last_step(store: Store) -> None:
    """Nothing is left to learn then, and nothing is learned again."""
    settings = small_settings(epochs=1.0)
    saved, listener = stopped(store, settings, at=10), Listener()
    fit = training(store, settings, MemoryWatch(saved=saved, reporter=listener)).run()
    assert (listener.messages, listener.steps) == (["resumed at step 10 of 10"], [])
    assert outcome(fit) == outcome(trained(store, settings))


def test_a_stop_before_the_first_step(store: Store) -> None:
    """The warm start looks for one; nothing is saved, as nothing has been learned."""
    watch = MemoryWatch(stop_at=0)
    with pytest.raises(Interrupted, match=r"^before the first step$"):
        training(store, small_settings(), watch).run()
    assert watch.events == ["stop before the first step"]
