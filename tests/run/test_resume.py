"""A run that was stopped or killed ends as if it never had been, bit for bit."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import owlmine.run
from owlmine.data import Store
from owlmine.dense import loop, pool_growth
from owlmine.dense.step import TrainingStep
from owlmine.model import load
from owlmine.rank.linear import LinearJudge
from owlmine.rank.probabilities import Calibration
from owlmine.recipe import fit as recipe
from owlmine.run import surroundings, train
from owlmine.run.surroundings import FolderSurroundings, FolderWatch

from .runs import (
    STEPS_PER_EPOCH,
    Listener,
    best_options,
    bytes_of,
    contents,
    interrupted,
    killed_in,
    measure_by_hand,
    metrics_of,
    save_after_each_step,
    small_options,
)

CHANGES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adaptive": {"optimiser": "adaptive", "class_rate": 0.01, "feature_rate": 0.1},
    "learned scale": {"loss": "sampled-softmax", "learn_scale": True, "scale": 5.0, "map_rate": 0.01},
    "patience": {"patience": 1, "epochs": 6.0},
    "depth 2, whole pool": {"depth": 2, "loss": "negative-sampling-bowl"},
    "no maps": {"depth": 0, "top": 3},
    "linear": {"kind": "linear", "class_rate": 1.0},
    "no validation": {"validation": 0.0, "epochs": 1.7},
    "pools of each point": {"shared_pool": False, "top": 2},
    "a pool that grows": {"pool": 40, "pool_start": 4, "epochs": 4.0},
}


def check_resume(store: Store, tmp_path: Path, changes: dict[str, Any]) -> None:
    options = small_options(**changes)
    train(store, tmp_path / "whole", options)
    expected = contents(tmp_path / "whole")
    interrupted(store, tmp_path / "parts", options, at=6)
    assert len(list((tmp_path / "parts" / "checkpoints").iterdir())) == 2
    interrupted(store, tmp_path / "parts", options, at=STEPS_PER_EPOCH + 2, resume=True)
    assert not (tmp_path / "parts" / "config.json").exists()
    train(store, tmp_path / "parts", options, resume=True)
    assert contents(tmp_path / "parts") == expected


@pytest.mark.parametrize("name", CHANGES)
def test_stopped_twice(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 3)
    monkeypatch.setattr(pool_growth, "_POINTS", 80)
    check_resume(store, tmp_path, CHANGES[name])


@pytest.mark.parametrize("patience", [0, 2])
def test_stopped_twice_with_a_dev_split(store_with_dev: Store, tmp_path: Path, patience: int) -> None:
    check_resume(store_with_dev, tmp_path, {"pool": 10, "patience": patience, "epochs": 3.0})


def test_stopped_twice_with_dense_queries(dense_store: Store, tmp_path: Path) -> None:
    check_resume(dense_store, tmp_path, {"map_rate": 0.01})


def test_ten_steps_are_six_and_four(store: Store, tmp_path: Path) -> None:
    options = small_options(epochs=1.0)
    train(store, tmp_path / "ten", options)
    interrupted(store, tmp_path / "six", options, at=6)
    listener = Listener()
    train(store, tmp_path / "six", options, resume=True, reporter=listener)
    assert listener.messages == ["resumed at step 6 of 10"]
    assert contents(tmp_path / "six") == contents(tmp_path / "ten")


def test_the_same_seed_gives_the_same_folder(store: Store, tmp_path: Path) -> None:
    for name in ("first", "second"):
        train(store, tmp_path / name, best_options())
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_checkpoints_by_the_clock_change_nothing(store: Store, tmp_path: Path) -> None:
    """One after every step: a look at the run must leave no trace in it, the reported losses included."""
    train(store, tmp_path / "rare", small_options())
    train(store, tmp_path / "often", small_options(checkpoint_minutes=1e-9))
    rare, often = contents(tmp_path / "rare"), contents(tmp_path / "often")
    for one in (rare, often):
        del one["config"]["record"]["options"]
    assert often == rare


def test_checkpoints_come_by_the_clock(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three minutes after the one before, of which a step takes one; and after the last step."""
    minutes = count()
    clock = SimpleNamespace(monotonic=lambda: 60.0 * next(minutes))
    monkeypatch.setattr(surroundings, "time", clock)
    steps: list[int] = []
    save = FolderWatch.save
    monkeypatch.setattr(FolderWatch, "save", lambda self, take, **last: save(self, lambda: noted(take()), **last))

    def noted(snapshot: Any) -> Any:
        steps.append(snapshot.step)
        return snapshot

    train(store, tmp_path / "out", small_options(epochs=1.1, checkpoint_minutes=3.0))
    assert steps == [3, 6, 9, 11]


def test_metrics_after_a_resume(store: Store, tmp_path: Path) -> None:
    """One line per epoch, each epoch once, although the second was begun twice; times go on."""
    out, options = tmp_path / "out", small_options(epochs=3.0)
    interrupted(store, out, options, at=STEPS_PER_EPOCH + 5)
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "ep')  # as if killed in the middle of a line
    train(store, out, options, resume=True)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(record["model"], record["step"], record["epoch"]) for record in records] == [
        (1, 10, 1),
        (1, 20, 2),
        (1, 30, 3),
    ]
    assert all(0 <= record[f"P@{k}"] <= 100 for record in records for k in (1, 3, 5))
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)
    assert json.loads((out / "config.json").read_text())["record"]["history"] == records


def test_lines_of_metrics_after_the_checkpoint_go(store: Store, tmp_path: Path) -> None:
    """The epochs that they are about come again; until then nobody should read of them."""
    out, options = tmp_path / "out", small_options(epochs=3.0)
    interrupted(store, out, options, at=STEPS_PER_EPOCH + 5)
    first = metrics_of(out)
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"model": 1, "step": 20, "epoch": 2.0, "loss": 0.0}\n')
    interrupted(store, out, options, at=STEPS_PER_EPOCH + 6, resume=True)
    assert metrics_of(out) == first
    assert [record["step"] for record in first] == [10]


def test_the_best_epoch_is_saved(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better, better, worse, equal: the weights of the second epoch come back, from a file that then goes."""
    seen = measure_by_hand([10.0, 20.0, 15.0, 20.0, 99.0], monkeypatch)
    out = tmp_path / "out"
    trained = train(store, out, small_options(epochs=9.0, patience=2))
    assert len(seen) == 4, "stopped after two epochs that were not better"
    for one in (trained, load(out)):
        assert bytes_of(one.dense.tensors()) == seen[1]
        assert len(one.record.history) == 4
    assert not (out / "best.safetensors").exists()
    assert "The weights are those of epoch 2" in (out / "README.md").read_text("utf-8")


def test_a_run_out_of_patience_stays_so(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when it had decided to stop but not yet written the model: it must not train on."""
    out, options = tmp_path / "out", small_options(epochs=9.0, patience=1, checkpoint_minutes=1e-9)
    measure_by_hand([10.0] * 4, monkeypatch)
    train(store, tmp_path / "whole", options)
    with killed_in(owlmine.run, "save_model"):
        train(store, out, options)
    assert (out / "best.safetensors").exists(), "the run that goes on needs it"
    train(store, out, options, resume=True)
    assert len(metrics_of(out)) == 2
    assert contents(out) == contents(tmp_path / "whole")


AFTER_THE_LAST_STEP = {
    "calibration": (Calibration, "fit"),
    "metrics": (owlmine.run, "write_metrics"),
    "saving": (owlmine.run, "save_model"),
}


@pytest.mark.parametrize("moment", AFTER_THE_LAST_STEP)
def test_killed_after_the_last_step(store: Store, tmp_path: Path, moment: str) -> None:
    """Out of memory, or a machine that loses its power: no step is taken again."""
    out = tmp_path / "out"
    with killed_in(*AFTER_THE_LAST_STEP[moment]):
        train(store, out, small_options())
    listener = Listener()
    train(store, out, small_options(), resume=True, reporter=listener)
    assert (listener.messages, listener.steps) == (["resumed at step 20 of 20"], [])
    train(store, tmp_path / "whole", small_options())
    assert contents(out) == contents(tmp_path / "whole")


# Of the best recipe: a rehearsal of two models with 16 steps each, judges, probabilities; then two models with 20 steps
# each, and judges.
MOMENTS: dict[str, tuple[Any, str, int, int]] = {
    "before anything": (recipe, "train_dense", 1, 0),
    "a step of the rehearsal": (TrainingStep, "__call__", 9, 8),
    "the second model of the rehearsal": (recipe, "train_dense", 2, 16),
    "a step of it": (TrainingStep, "__call__", 19, 18),
    "joining": (recipe, "join_models", 1, 32),
    "judges of the rehearsal": (LinearJudge, "fit", 1, 32),
    "the mix": (recipe, "choose_mix", 1, 32),
    "probabilities": (Calibration, "fit", 1, 32),
    "the end of the rehearsal": (FolderSurroundings, "remember", 1, 32),
    "after the rehearsal": (recipe, "train_dense", 3, 32),
    "a step": (TrainingStep, "__call__", 37, 36),
    "the second model": (recipe, "train_dense", 4, 52),
    "a step of the second model": (TrainingStep, "__call__", 63, 62),
    "judges": (LinearJudge, "fit", 2, 72),
    "metrics": (owlmine.run, "write_metrics", 1, 72),
    "saving": (owlmine.run, "save_model", 1, 72),
    "tidying up": (owlmine.run, "remove_working_files", 1, 72),
}
"""Where the process dies, and the steps that it has then taken."""


@pytest.fixture(scope="module")
def best(store: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an undisturbed run of the best recipe leaves."""
    out = tmp_path_factory.mktemp("best") / "out"
    train(store, out, best_options())
    return contents(out)


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_best_recipe_killed_anywhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best: dict[str, Any], moment: str
) -> None:
    """No step is taken again that a checkpoint knows of."""
    out, options = tmp_path / "out", best_options()
    owner, name, call, steps_before = MOMENTS[moment]
    with monkeypatch.context() as patch, killed_in(owner, name, call=call):
        if owner is TrainingStep:
            save_after_each_step(patch)
        train(store, out, options)
    steps: list[int] = []
    step = TrainingStep.__call__

    def watched(self: Any, *given: Any, number: int, progress: float) -> Any:
        steps.append(number)
        return step(self, *given, number=number, progress=progress)

    monkeypatch.setattr(TrainingStep, "__call__", watched)
    train(store, out, options, resume=True)
    assert contents(out) == best
    assert len(steps) == 72 - steps_before


def test_a_rehearsal_that_was_remembered_is_not_repeated(store: Store, tmp_path: Path, best: dict[str, Any]) -> None:
    out, options = tmp_path / "out", best_options()
    with killed_in(recipe, "train_dense", call=4):
        train(store, out, options)
    listener = Listener()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "choose_mix", None)
        train(store, out, options, resume=True, reporter=listener)
    assert not [message for message in listener.messages if "rehearsal" in message or "cost 0.1" in message]
    assert contents(out) == best


DAMAGES = {
    "half": lambda text: text[: len(text) // 2],
    "nothing": lambda text: "",
    "another kind": lambda text: "[1, 2]",
    "null": lambda text: "null",
    "no checksum": lambda text: json.dumps({"outcome": json.loads(text)["outcome"]}),
    "another weight": lambda text: text.replace('"linear": ', '"linear": 1', 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_rehearsal_is_repeated(store: Store, tmp_path: Path, best: dict[str, Any], damage: str) -> None:
    """From the models that are still there; and it says so."""
    out, options = tmp_path / "out", best_options()
    with killed_in(recipe, "train_dense", call=3):
        train(store, out, options)
    file = out / "members" / "rehearsal.json"
    before = file.read_text()
    file.write_text(DAMAGES[damage](before))
    assert file.read_text() != before
    listener = Listener()
    train(store, out, options, resume=True, reporter=listener)
    assert listener.messages[0] == f"{file}: is damaged; the rehearsal is repeated"
    assert listener.messages.count("resumed at step 16 of 16") == 2
    assert contents(out) == best


def test_a_rehearsal_that_cannot_be_written_is_repeated_if_need_be(
    store: Store, tmp_path: Path, best: dict[str, Any]
) -> None:
    out, listener, options = tmp_path / "out", Listener(), best_options()
    file = out / "members" / "rehearsal.json"
    with killed_in(owlmine.run, "FolderSurroundings"):
        train(store, out, options)
    file.mkdir(parents=True)
    train(store, out, options, resume=True, reporter=listener)
    assert listener.messages[0] == f"{file}: is damaged; the rehearsal is repeated"
    assert f"{file}: not written: Is a directory; training continues" in listener.messages
    file.rmdir()
    file.parent.rmdir()
    assert contents(out) == best
