"""A run by kernels that was stopped ends as if it never had been; on a GPU but for the order of atomic additions."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import owlmine
from owlmine.data import Store, SyntheticOptions, synthesize
from owlmine.dense.fused_step import FusedStep
from owlmine.recipe.options import TrainOptions
from owlmine.run import Stopped, train

STOP = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    options = SyntheticOptions(num_classes=30, train_points=60, test_points=10, labels_per_point=2)
    return synthesize(tmp_path_factory.mktemp("kernels") / "store", options)


class StopsOnce(FusedStep):
    """Sends the process a SIGTERM as it begins a step."""

    def __call__(self, rows: Any, *, number: int, progress: float) -> Any:
        if number == STOP - 1:
            signal.raise_signal(signal.SIGTERM)
        return super().__call__(rows, number=number, progress=progress)


@pytest.mark.parametrize(
    ("changes", "interpreted_error"),
    [
        ({"loss": "bowl", "top": 1, "pool": 12}, 0.0),
        ({"loss": "mined-softmax", "top": 2, "pool": 29}, 0.0),
        # The copy in bfloat16 is made anew: rounded, where the interpreter had cut it off.
        ({"loss": "softmax", "scale": 2.0, "exclude_known": False}, 5e-3),
    ],
    ids=["pool", "all mined", "all classes"],
)
def test_stopped_and_resumed(
    store: Store,
    tmp_path: Path,
    device: str,
    changes: dict[str, Any],
    interpreted_error: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = {"recipe": "single", "dim": 16, "batch_size": 16, "epochs": 2.0, "validation": 0.0, "device": device}
    options = TrainOptions.of(**(chosen | changes), feature_rate=1.0, class_rate=0.05)

    def take(kind: type[FusedStep]) -> None:
        monkeypatch.setattr(
            "owlmine.dense.loop.choose_step", lambda model, settings, split, explain: kind(model, settings, split)
        )

    take(FusedStep)
    train(store, tmp_path / "whole", options)
    take(StopsOnce)
    with pytest.raises(Stopped, match=f"stopped at step {STOP} of"):
        train(store, tmp_path / "parts", options)
    take(FusedStep)
    train(store, tmp_path / "parts", options, resume=True)
    whole, parts = (owlmine.load(tmp_path / name).dense.tensors() for name in ("whole", "parts"))
    error = interpreted_error if device == "cpu" else 1e-4
    for name, tensor in whole.items():
        assert torch.allclose(tensor, parts[name], rtol=0.0, atol=error), name
