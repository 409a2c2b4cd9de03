"""Small runs, and what they leave behind in a form that can be compared bit for bit."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from owlmine.data import Store
from owlmine.train import Stopped, TrainOptions, train, trainer
from owlmine.train.step import TrainingStep

# 400 points less 8 for validation, 40 to a batch: ten steps in an epoch.
STEPS_PER_EPOCH = 10


def small_options(**changes: Any) -> TrainOptions:
    chosen = {
        "dim": 8,
        "pool": 20,
        "epochs": 2.0,
        "batch_size": 40,
        "feature_rate": 1.0,
        "class_rate": 0.05,
        "device": "cpu",
    }
    return TrainOptions(**(chosen | changes))


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.steps: list[int] = []

    def progress(self, progress: trainer.Progress) -> None:
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
        f"{file.stem}/{name}": tensor.contiguous().numpy().tobytes()
        for file in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }
    config = json.loads((folder / "config.json").read_text())
    config["history"] = [without_seconds(record) for record in config["history"]]
    config["kept"] = without_seconds(config["kept"])
    del config["checksum"]
    names = sorted(file.name for file in folder.iterdir())
    return tensors | {"metrics": metrics_of(folder), "config": config, "files": names}


def stop_after(step: int, patch: pytest.MonkeyPatch, number: int = signal.SIGTERM) -> None:
    """From now on a run is sent the signal as it begins the step after this one's number."""

    class Interrupted(TrainingStep):
        def __call__(self, batch: Any, *, number: int, progress: float) -> Any:
            if number == step - 1:
                signal.raise_signal(sent)
            return super().__call__(batch, number=number, progress=progress)

    sent = number
    patch.setattr(trainer, "TrainingStep", Interrupted)


def interrupted(store: Store, out: Path, options: TrainOptions, *, at: int, resume: bool = False) -> None:
    """A run that is stopped when it has done so many steps."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(at, patch)
        with pytest.raises(Stopped, match=f"stopped at step {at:,} of"):
            train(store, out, options, resume=resume)
