"""A step in parts: together they use the kernels of a step, so that these can be compiled at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from owlmine.dense.fused_step import FusedStep
from owlmine.dense.retriever import ModelShape, Retriever

from .test_fused_step import DIM, NUM_CLASSES, NUM_FEATURES, _settings, _split


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of kernels that were launched."""
    names: set[str] = set()
    real: Callable[..., Any] = InterpretedFunction.__getitem__

    def getitem(kernel: Any, grid: Any) -> Any:
        names.add(kernel.__name__)
        return real(kernel, grid)

    monkeypatch.setattr(InterpretedFunction, "__getitem__", getitem)
    return names


@pytest.mark.parametrize(
    "chosen",
    [
        {"loss": "bowl", "pool": 12},
        {"loss": "mined-softmax", "top": 4, "pool": 12},
        {"loss": "mined-softmax", "top": 4, "pool": 12, "exclude_known": False},
        {"loss": "sampled-softmax", "pool": 12},
        {"loss": "softmax"},
    ],
    ids=str,
)
def test_parts_have_the_kernels_of_a_step(launched: set[str], chosen: dict[str, Any]) -> None:
    shape = ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM)
    step = FusedStep(Retriever.new(shape, seed=0), _settings(batch_size=8, **chosen), _split())
    step(torch.arange(8).numpy(), number=0, progress=0.0)
    of_step = set(launched)
    launched.clear()
    threads = [threading.Thread(target=part) for part in step.parts()]
    for thread in threads:
        thread.start()
        thread.join()  # the interpreter runs one kernel at a time
    assert of_step == launched
