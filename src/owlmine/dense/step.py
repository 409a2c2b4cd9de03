"""One step of training, readable from top to bottom.

All randomness of a step comes from the seed and the step number, so a resumed run continues as if it had never stopped.

Shapes: N points, R rows of a table, U rows of a step, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store import Batch
from owlmine.dense.compiled_rows import compiled_momentum_step, is_compiled_for
from owlmine.dense.encoder import Encoder, query_batch
from owlmine.dense.objective import make_objective
from owlmine.dense.retriever import Retriever
from owlmine.dense.row_table import RowTable
from owlmine.dense.settings import DenseSettings


class Optimizer(Protocol):
    """Updates everything with a gradient since the last step, and clears the gradients."""

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

    The same as ``torch.optim.SGD``, whose bookkeeping takes longer than updating a small matrix.
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
    """The factor on step sizes after this share of the run (0 to 1)."""
    if schedule == "linear":
        return 1.0 - progress
    if schedule == "cosine":
        return 0.5 * (1.0 + float(torch.cos(torch.tensor(progress * torch.pi, dtype=torch.float64))))
    return 1.0


class TrainingStep:
    """The model, its loss and its optimisers. Gradients are of the sum over the batch, not the mean: the update from
    one point does not depend on the size of its batch."""

    def __init__(self, model: Retriever, settings: DenseSettings) -> None:
        self.model, self.settings = model, settings
        self.objective = make_objective(settings, model.classes)
        self._optimizers = self._make_optimizers()
        self._generator = torch.Generator(model.device)

    def __call__(self, batch: Batch, *, number: int, progress: float) -> Tensor:
        """Learns from a batch and returns its mean loss (0-d, on the device). ``progress``: share of the run so far."""
        self._generator.manual_seed(step_seed(self.settings.seed, number))
        positives = draw_positives(batch.labels, np.random.default_rng([self.settings.seed, number, 1]))
        positives_N = torch.from_numpy(positives).to(self.model.device)
        queries_ND = self.model.encoder(query_batch(batch.queries, self.model.device))
        losses_N = self.objective(queries_ND, positives_N, batch.labels, self._generator)
        losses_N.sum().backward()  # type: ignore[no-untyped-call]
        self._update(rate_factor(self.settings.schedule, progress))
        return losses_N.detach().mean()

    def _make_optimizers(self) -> list[tuple[str, Optimizer, float]]:
        """The updated parts: the prefix of their state names, their optimiser, and their step size before the
        schedule."""
        encoder, settings = self.model.encoder, self.settings
        found: list[tuple[str, Optimizer, float]] = [
            ("rows.0.", row_optimizer(settings.optimiser, self.model.classes), settings.class_rate)
        ]
        maps: list[nn.Parameter] = list(self.objective.loss.parameters())
        if isinstance(encoder, Encoder):
            maps = [*encoder.maps, *maps]
            if encoder.projection is None:
                found.append(("rows.1.", row_optimizer(settings.optimiser, encoder.table), settings.feature_rate))
            else:
                found.append(("table.", DenseSGD([encoder.projection], momentum=0.0), settings.feature_rate))
        return [*found, ("", DenseSGD(maps, momentum=settings.momentum), settings.map_rate)]

    def _update(self, factor: float) -> None:
        for _, optimizer, rate in self._optimizers:
            optimizer.step(rate * factor)

    def update_maps(self, factor: float) -> None:
        """Updates what is not a row of a table; gradients of the parameters are set."""
        _, optimizer, rate = self._optimizers[-1]
        optimizer.step(rate * factor)

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that changes during training except the model's tensors."""
        state = {
            f"{prefix}{name}": tensor
            for prefix, optimizer, _ in self._optimizers
            for name, tensor in optimizer.tensors().items()
        }
        return state | {f"loss.{name}": t.data for name, t in self.objective.loss.named_parameters()}

    @torch.no_grad()
    def load_state_tensors(self, state: dict[str, Tensor]) -> None:
        """Restores the result of ``state_tensors``."""
        own = self.state_tensors()
        for name, tensor in state.items():
            own[name].copy_(tensor)


def step_seed(seed: int, number: int) -> int:
    """A seed per step; the multiplier spreads neighbouring steps over all 63 bits."""
    return (seed * 0x9E3779B97F4A7C15 + number * 0xD1342543DE82EF95 + 1) % (1 << 63)


def draw_positives(labels: SparseRows, generator: np.random.Generator) -> Int64:
    """One label of each point: uniformly, or in proportion to the labels' weights. Every point must have one."""
    draws = generator.random(len(labels))
    if labels.values is None:
        places = labels.offsets[:-1] + (draws * labels.counts).astype(np.int64)
    else:
        ends = np.cumsum(labels.values, dtype=np.float64)
        before = np.concatenate([[0.0], ends])[labels.offsets]
        places = np.searchsorted(ends, before[:-1] + draws * np.diff(before), side="right")
        places = np.clip(places, labels.offsets[:-1], labels.offsets[1:] - 1)
    return labels.indices[places].astype(np.int64)
