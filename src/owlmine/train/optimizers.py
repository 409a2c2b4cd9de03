"""Row-sparse steps: what a batch touched moves, nothing else is read or written. And the steps of what is dense.

Shapes: R rows of the table, U rows of a step, D dimension.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from owlmine.model.row_table import RowTable
from owlmine.train.options import TrainOptions


class RowOptimizer(Protocol):
    """Moves the rows that were read since the last step, against their gradients."""

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
            self._table.move(touched, touched.gradient_UD, -rate)

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


def row_optimizer(name: str, table: RowTable) -> RowOptimizer:
    return RowAdagrad(table) if name == "adaptive" else RowSGD(table)


def dense_optimizer(options: TrainOptions, encoder: nn.Module, loss: nn.Module) -> torch.optim.SGD | None:
    """SGD for what every point touches, None where there is nothing. A group's ``rate`` is its step size at full rate.

    A feature table that dense queries use as a whole keeps the rule of its rows: ``feature_rate``, no momentum.
    """
    table = [p for name, p in encoder.named_parameters() if name == "projection"]
    maps = [p for name, p in encoder.named_parameters() if name != "projection"]
    groups = [
        {"params": table, "rate": options.feature_rate, "momentum": 0.0},
        {"params": [*maps, *loss.parameters()], "rate": options.map_rate, "momentum": options.momentum},
    ]
    groups = [group for group in groups if group["params"]]
    # One pass over each parameter instead of three; the same bits.
    return torch.optim.SGD(groups, lr=0.0, fused=True) if groups else None


def rate_factor(schedule: str, progress: float) -> float:
    """What the step sizes are multiplied with after this share of the run (0 to 1)."""
    if schedule == "linear":
        return 1.0 - progress
    if schedule == "cosine":
        return 0.5 * (1.0 + float(torch.cos(torch.tensor(progress * torch.pi, dtype=torch.float64))))
    return 1.0
