"""Small trainings in memory."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from owlmine.data.store import Dataset
from owlmine.dense import loop
from owlmine.dense.loop import DenseFit, DenseTraining, Snapshot, Watch, train_dense
from owlmine.dense.progress import Progress, Reporter
from owlmine.dense.retriever import ModelShape
from owlmine.dense.settings import DenseSettings
from owlmine.dense.step import TrainingStep
from owlmine.dense.validation import ValidationPart

# 400 points less 8 for validation, 40 to a batch: ten steps in an epoch.
STEPS_PER_EPOCH = 10
VALIDATION = 0.02
CPU = torch.device("cpu")


def small_settings(**changes: Any) -> DenseSettings:
    """The paper's loss on a small model for two epochs, but for these changes."""
    settings: dict[str, Any] = {
        "kind": "embedding",
        "dim": 8,
        "depth": 1,
        "loss": "bowl",
        "top": 1,
        "pool": 20,
        "pool_start": None,
        "shared_pool": True,
        "positives_in_pool": False,
        "surrogate": "hinge",
        "scale": 1.0,
        "learn_scale": False,
        "power": 0.0,
        "least_weight": 0.0,
        "exclude_known": True,
        "epochs": 2.0,
        "batch_size": 40,
        "class_rate": 0.05,
        "feature_rate": 1.0,
        "map_rate": 0.001,
        "momentum": 0.9,
        "optimiser": "sgd",
        "schedule": "linear",
        "warm_start": True,
        "patience": 0,
        "kernels": True,
        "seed": 0,
    }
    return DenseSettings(**(settings | changes))


def shape_for(data: Dataset, settings: DenseSettings) -> ModelShape:
    return ModelShape(
        num_features=data.num_features,
        num_classes=data.num_classes,
        dense=data.meta["queries"] == "dense",
        kind=settings.kind,
        dim=settings.dim,
        depth=settings.depth,
    )


def trained(
    data: Dataset, settings: DenseSettings, *, watch: Watch | None = None, validation: float = VALIDATION
) -> DenseFit:
    part = ValidationPart(data, share=validation)
    return train_dense(data["train"], shape_for(data, settings), settings, part, device=CPU, watch=watch)


def training(data: Dataset, settings: DenseSettings, watch: Watch, *, validation: float = VALIDATION) -> DenseTraining:
    """One that has not begun."""
    part = ValidationPart(data, share=validation)
    return DenseTraining(data["train"], shape_for(data, settings), settings, part, device=CPU, watch=watch)


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.seen: list[Progress] = []

    @property
    def steps(self) -> list[int]:
        return [progress.step for progress in self.seen]

    def progress(self, progress: Progress) -> None:
        self.seen.append(progress)

    def message(self, text: str) -> None:
        self.messages.append(text)


def use_step(kind: type[TrainingStep], patch: pytest.MonkeyPatch) -> None:
    """From now on trainings take steps of this kind."""
    patch.setattr(loop, "TrainingStep", kind)


def without_seconds(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


def outcome(fit: DenseFit) -> dict[str, Any]:
    """Everything but times, in a form that can be compared bit for bit."""
    tensors = {name: tensor.detach().numpy().tobytes() for name, tensor in fit.model.tensors().items()}
    best = without_seconds([fit.best])
    return tensors | {"history": without_seconds(fit.history), "best": best}


class Interrupted(Exception):  # noqa: N818
    """Somebody stopped the training."""


class Saved:
    """A snapshot whose tensors later steps do not move. All of its state but the best weights has been through JSON,
    as in a file."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.step = snapshot.step
        self._tensors = {name: tensor.detach().clone() for name, tensor in snapshot.tensors.items()}
        best = copy.deepcopy(snapshot.state["best"])
        self.state = json.loads(json.dumps(snapshot.state | {"best": None})) | {"best": best}

    @property
    def tensors(self) -> Saved:
        return self

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def read(self, name: str) -> Tensor:
        return self._tensors[name].clone()

    def read_into(self, name: str, tensor: Tensor) -> None:
        tensor.copy_(self._tensors[name])


class MemoryWatch(Watch):
    """Saves snapshots in memory, and stops the training at a step (0: before the first)."""

    def __init__(
        self,
        *,
        stop_at: int | None = None,
        saved: Saved | None = None,
        save_always: bool = False,
        reporter: Reporter | None = None,
    ) -> None:
        super().__init__(reporter)
        self.saved, self._stop_at, self._save_always = saved, stop_at, save_always
        self.step = 0 if saved is None else saved.step
        self.events: list[str] = []
        self.histories: list[list[Any]] = []
        self.points: list[tuple[int, dict[str, float]]] = []

    def restore(self) -> Saved | None:
        return self.saved

    @property
    def stopping(self) -> bool:
        return self._stop_at is not None and self.step >= self._stop_at

    def stop(self, where: str) -> None:
        self.events.append(f"stop {where}")
        raise Interrupted(where)

    def due(self) -> bool:
        """Asked once after every step."""
        self.step += 1
        return self._save_always

    def save(self, take: Callable[[], Snapshot], *, is_last: bool) -> None:
        del is_last
        self.saved = Saved(take())
        self.events.append(f"save {self.saved.step}")

    def epoch_ended(self, history: list[loop.Record]) -> None:
        self.histories.append(without_seconds(history))

    def figures(self, step: int, figures: dict[str, float]) -> None:
        self.points.append((step, figures))

    def advice(self) -> str:
        return "; ask an owl"


def stopped(
    data: Dataset, settings: DenseSettings, *, at: int, saved: Saved | None = None, validation: float = 0.02
) -> Saved:
    """What is saved of a training that somebody stops after so many steps."""
    watch = MemoryWatch(stop_at=at, saved=saved)
    with pytest.raises(Interrupted, match=f"^at step {at} of"):
        training(data, settings, watch, validation=validation).run()
    assert watch.saved is not None
    return watch.saved
