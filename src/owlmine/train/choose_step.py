"""Which step a run takes: by kernels on a GPU, or the plain one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from owlmine.data.rows import Int64
from owlmine.data.store import Split
from owlmine.dense.objective import PoolObjective
from owlmine.dense.retriever import Retriever
from owlmine.dense.step import TrainingStep
from owlmine.mining.hardest_classes import have_triton
from owlmine.recipe.options import TrainOptions


class Step(Protocol):
    """Learns from points of the training split."""

    def __call__(self, rows: Int64, *, number: int, progress: float) -> Tensor:
        """Mean loss (0-d, on the device) of the points with these row numbers. ``progress``: share of the run."""

    def grow(self, pool_size: int) -> None:
        """From now on pools have this size. For losses that mine."""

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that changes during training besides the model's tensors."""

    def load_state_tensors(self, state: dict[str, Tensor]) -> None:
        """Puts back what ``state_tensors`` gave."""


class HostStep:
    """The plain step, which is handed its points by the host."""

    def __init__(self, model: Retriever, options: TrainOptions, split: Split) -> None:
        self._learn, self._split = TrainingStep(model, options), split
        self.state_tensors, self.load_state_tensors = self._learn.state_tensors, self._learn.load_state_tensors

    def __call__(self, rows: Int64, *, number: int, progress: float) -> Tensor:
        return self._learn(self._split.batch(rows), number=number, progress=progress)

    def grow(self, pool_size: int) -> None:
        objective = self._learn.objective
        assert isinstance(objective, PoolObjective)
        objective.pool_size = pool_size


def choose_step(model: Retriever, options: TrainOptions, split: Split, tell: Callable[[str], None]) -> Step:
    """By kernels where the device has them and they can do what the options ask; ``tell`` says why not."""
    if model.device.type == "cuda" and options.kernels and have_triton():
        from owlmine.dense.fused_step import FusedStep, why_not_fused  # Triton is an optional part.

        reason = why_not_fused(model, options, split)
        if reason is None:
            return FusedStep(model, options, split)
        tell(f"steps by plain PyTorch, as {reason}")
    return HostStep(model, options, split)
