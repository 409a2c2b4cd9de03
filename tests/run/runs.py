"""Small runs, how they are stopped, and what they leave behind in a form that can be compared bit for bit."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from owlmine.data import Store
from owlmine.dense import loop
from owlmine.dense.progress import Progress
from owlmine.dense.step import TrainingStep
from owlmine.dense.validation import ValidationPart
from owlmine.recipe.options import TrainOptions
from owlmine.run import Stopped, train
from owlmine.run.surroundings import FolderWatch

# 400 points less 8 for validation, 40 to a batch: ten steps in an epoch.
STEPS_PER_EPOCH = 10


def small_options(**changes: Any) -> TrainOptions:
    """A single dense model of two epochs, but for these changes."""
    options = {
        "recipe": "single",
        "loss": "bowl",
        "dim": 8,
        "pool": 20,
        "epochs": 2.0,
        "batch_size": 40,
        "feature_rate": 1.0,
        "class_rate": 0.05,
        "device": "cpu",
    }
    return TrainOptions.of(**(options | changes))


def ensemble_options(**changes: Any) -> TrainOptions:
    """Two models and judges, chosen on a fifth of the points: no rehearsal."""
    options = {"loss": "mined-softmax", "heads": 2, "shortlist": 8, "validation": 0.2, "seed": 3, "feature_rate": 0.3}
    return small_options(**(options | changes))


def best_options(**changes: Any) -> TrainOptions:
    """The best recipe, small: a rehearsal, two models, judges."""
    options = {"recipe": "best", "heads": 2, "shortlist": 8, "seed": 3, "feature_rate": 0.3, "loss": "mined-softmax"}
    return small_options(**(options | changes))


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.steps: list[int] = []

    def progress(self, progress: Progress) -> None:
        self.steps.append(progress.step)

    def message(self, text: str) -> None:
        self.messages.append(text)


def without_seconds(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [without_seconds(json.loads(line)) for line in lines]


def contents(folder: Path) -> dict[str, Any]:
    """Everything in a model folder but times: tensors as bytes, metrics, the configuration and the names of files."""
    tensors = {
        f"{file.stem}/{name}": tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        for file in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }
    config = json.loads((folder / "config.json").read_text())
    config["record"]["history"] = [without_seconds(record) for record in config["record"]["history"]]
    del config["checksum"]
    names = sorted(file.name for file in folder.iterdir())
    return tensors | {"metrics": metrics_of(folder), "config": config, "files": names}


def use_step(kind: type[TrainingStep], patch: pytest.MonkeyPatch) -> None:
    """From now on runs take steps of this kind."""
    patch.setattr(loop, "TrainingStep", kind)


def stop_after(step: int, patch: pytest.MonkeyPatch, number: int = signal.SIGTERM) -> None:
    """From now on a run is sent the signal as it begins the step after this one's number."""

    class Interrupted(TrainingStep):
        def __call__(self, batch: Any, *, number: int, progress: float) -> Any:
            if number == step - 1:
                signal.raise_signal(sent)
            return super().__call__(batch, number=number, progress=progress)

    sent = number
    use_step(Interrupted, patch)


def interrupted(store: Store, out: Path, options: TrainOptions, *, at: int, resume: bool = False) -> None:
    """A run that is stopped when it has done so many steps."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(at, patch)
        with pytest.raises(Stopped, match=f"stopped at step {at:,} of"):
            train(store, out, options, resume=resume)


def save_after_each_step(patch: pytest.MonkeyPatch) -> None:
    """From now on runs save a checkpoint after every step."""
    patch.setattr(FolderWatch, "due", lambda self: True)


def measure_by_hand(figures: list[float], patch: pytest.MonkeyPatch) -> list[dict[str, bytes]]:
    """From now on P@1 of epochs is what these figures say; back come the weights that were measured."""
    left, weights = iter(figures), list[dict[str, bytes]]()

    def measure(self: ValidationPart, model: Any, *, briefly: bool) -> dict[str, float]:
        weights.append(bytes_of(model.tensors()))
        return {"P@1": next(left), "P@3": 0.0, "P@5": 0.0}

    patch.setattr(ValidationPart, "measure", measure)
    return weights


def bytes_of(tensors: dict[str, Any]) -> dict[str, bytes]:
    return {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}


@contextmanager
def signals_to_nobody() -> Iterator[None]:
    """Outside of a run a SIGTERM fails the test, instead of ending its process."""

    def nobody(number: int, frame: object) -> None:
        raise AssertionError("a signal came that no run listened to")

    before = signal.signal(signal.SIGTERM, nobody)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def signal_once(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """SIGTERM comes as a function is entered for the first time from now on."""
    original, entered = getattr(owner, name), []

    def signalled(*given: Any, **named: Any) -> Any:
        if not entered:
            entered.append(name)
            signal.raise_signal(signal.SIGTERM)
        return original(*given, **named)

    patch.setattr(owner, name, signalled)


class _Killed(BaseException):
    """Nothing that runs afterwards may answer to it, as to a SIGKILL."""


@contextmanager
def killed_in(owner: Any, name: str, *, call: int = 1) -> Iterator[None]:
    """The process dies as it enters a function for the ``call``-th time from now on."""
    original, left = getattr(owner, name), call

    def killed(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise _Killed
        return original(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(_Killed):
            yield


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """The kernel refuses to write past a size, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


Curves = dict[str, dict[int, float]]


def curves_of(folder: Path) -> Curves:
    """Step and figure of every curve as TensorBoard shows it; no step may be there twice."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    shown = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    curves: Curves = {}
    for name in shown.Tags()["scalars"]:
        points = [(event.step, event.value) for event in shown.Scalars(name)]
        assert [step for step, _ in points] == sorted({step for step, _ in points}), name
        curves[name] = dict(points)
    return curves
