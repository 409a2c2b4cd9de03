"""Steps against the gradient. Row-sparse: what a batch touched moves, nothing else is read or written. Dense: the rest.

Shapes: R rows of the table, U rows of a step, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from owlmine.model.compiled_rows import compiled_momentum_step, is_compiled_for
from owlmine.model.row_table import RowTable


class Optimizer(Protocol):
    """Moves what has had a gradient since the last step, and forgets the gradient."""

    def step(self, rate: float) -> None: ...

    def tensors(self) -> dict[str, Tensor]:
        """State that changes during training."""


class RowSGD:
    """row -= rate * gradient."""

    def __init__(self, table: RowTable) -> None:
        self._table = table

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for touched in self._table.take_touched():
            self._table.descend(touched, rate)

    def tensors(self) -> dict[str, Tensor]:
        return {}


class RowAdagrad:
    """row -= rate * gradient / sqrt(sum of the row's earlier mean squared gradients): one number of state per row."""

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._sums_R = torch.zeros(len(table), device=table.weight.device)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for touched in self._table.take_touched():
            sums_U = self._sums_R[touched.ids_U] + touched.gradient_UD.square().mean(dim=1)
            self._sums_R[touched.ids_U] = sums_U
            self._table.move(touched, touched.gradient_UD / (sums_U.sqrt() + 1e-10)[:, None], -rate)

    def tensors(self) -> dict[str, Tensor]:
        return {"sums": self._sums_R}


class DenseSGD:
    """velocity = momentum * velocity + gradient; parameter -= rate * velocity.

    What ``torch.optim.SGD`` does, whose bookkeeping takes longer than moving a small matrix.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, momentum: float) -> None:
        self._parameters, self._momentum = list(parameters), momentum
        self._velocities = [torch.zeros_like(parameter) for parameter in self._parameters] if momentum else []

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for number, parameter in enumerate(self._parameters):
            assert parameter.grad is not None
            gradient, parameter.grad = parameter.grad, None
            if not self._momentum:
                parameter.add_(gradient, alpha=-rate)
                continue
            velocity = self._velocities[number]
            if is_compiled_for(parameter, velocity, gradient):
                compiled_momentum_step(parameter, velocity, gradient, momentum=self._momentum, rate=rate)
            else:
                parameter.add_(velocity.mul_(self._momentum).add_(gradient), alpha=-rate)

    def tensors(self) -> dict[str, Tensor]:
        return {f"momentum.{number}": velocity for number, velocity in enumerate(self._velocities)}


def row_optimizer(name: str, table: RowTable) -> Optimizer:
    return RowAdagrad(table) if name == "adaptive" else RowSGD(table)


def rate_factor(schedule: str, progress: float) -> float:
    """What the step sizes are multiplied with after this share of the run (0 to 1)."""
    if schedule == "linear":
        return 1.0 - progress
    if schedule == "cosine":
        return 0.5 * (1.0 + float(torch.cos(torch.tensor(progress * torch.pi, dtype=torch.float64))))
    return 1.0
