"""Runs with --minutes: time chooses the plan before the first step, and nothing after it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from owlmine.data import Store
from owlmine.dense.step import TrainingStep
from owlmine.errors import OwlmineError
from owlmine.recipe import probe
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

from .runs import Listener, contents, save_after_each_step, small_options, use_step

CHANGES: dict[str, Any] = {"recipe": "best", "dim": None, "epochs": None, "shortlist": 8, "validation": 0.2}


def options_of(**changes: Any) -> TrainOptions:
    return small_options(loss="mined-softmax", feature_rate=0.3, **CHANGES | changes)


def speed(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """From now on a step is found to take so long."""
    patch.setattr(probe, "seconds_per_step", lambda train, rows, shape, settings, device: seconds)


def killed_at(step: int, work: Any) -> None:
    """Does the work in a process that gets a SIGKILL as it begins a step."""

    class Killed(TrainingStep):
        def __call__(self, batch: Any, *, number: int, progress: float) -> Any:
            if number == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(batch, number=number, progress=progress)

    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            use_step(Killed, patch)
            save_after_each_step(patch)
            work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.measured
@pytest.mark.parametrize("seconds", [0.03, 10.0])
def test_a_killed_run_resumes_with_its_plan(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Although the machine has become faster or slower, so that it would now choose another; bit for bit."""
    options = options_of(minutes=0.5)
    speed(seconds, monkeypatch)
    train(store, tmp_path / "whole", options)
    plan = json.loads((tmp_path / "whole" / "run.json").read_text())["plan"]
    out = tmp_path / "killed"
    killed_at(3, lambda: train(store, out, options))
    assert json.loads((out / "run.json").read_text())["plan"] == plan
    speed(10.0 if seconds < 1 else 0.03, monkeypatch)
    train(store, tmp_path / "other", options)
    assert json.loads((tmp_path / "other" / "run.json").read_text())["plan"] != plan
    monkeypatch.delattr(probe, "seconds_per_step")  # nothing is measured again
    listener = Listener()
    train(store, out, options, resume=True, reporter=listener)
    assert not [text for text in listener.messages if text.startswith("plan:")]
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.measured
def test_the_same_plan_gives_the_same_model(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether time or an effort chose it."""
    speed(10.0, monkeypatch)
    by_time = train(store, tmp_path / "time", options_of(minutes=0.5))
    by_effort = train(store, tmp_path / "effort", options_of(effort="fast"))
    assert by_time.record.plan == by_effort.record.plan
    assert tensors_in(tmp_path / "time") == tensors_in(tmp_path / "effort")


def tensors_in(folder: Path) -> dict[str, Any]:
    return {name: value for name, value in contents(folder).items() if isinstance(value, bytes)}


@pytest.mark.measured
def test_the_plan_is_said_first_and_what_it_took_is_noted(store: Store, tmp_path: Path) -> None:
    listener, out = Listener(), tmp_path / "model"
    train(store, out, options_of(effort="fast"), reporter=listener)
    assert listener.messages[0].startswith("plan: 1 model of 128 dimensions, 5 epochs, trained twice")
    record = json.loads((out / "run.json").read_text())
    assert set(record["estimate"]) == set(record["costs"])
    assert record["costs"]["seconds"] > 0
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    assert record["costs"]["disk_bytes"] > size, "with the checkpoints that are gone now"
    assert record["costs"]["memory_bytes"] > 1 << 20


def test_the_time_of_a_resumed_run_is_unknown(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "model"
    killed_at(3, lambda: train(store, out, options_of()))
    train(store, out, options_of(), resume=True)
    assert json.loads((out / "run.json").read_text())["costs"]["seconds"] is None


@pytest.mark.measured
def test_other_minutes_are_another_run(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "model"
    killed_at(3, lambda: train(store, out, options_of(minutes=0.5)))
    with pytest.raises(OwlmineError, match=r"\(minutes is 0\.25, was 0\.5\)"):
        train(store, out, options_of(minutes=0.25), resume=True)
