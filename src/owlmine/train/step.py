"""One step of training, readable from top to bottom.

All randomness of a step comes from the seed and the number of the step, so a run continues anywhere as if it had never
stopped.

Shapes: N points, D dimension.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store import Batch
from owlmine.model.encoder import Encoder, query_batch
from owlmine.model.retriever import Retriever
from owlmine.train.objective import make_objective
from owlmine.train.optimizers import RowOptimizer, dense_optimizer, rate_factor, row_optimizer
from owlmine.train.options import TrainOptions


class TrainingStep:
    """The model, its loss and its optimisers. Gradients are of the sum over the batch, not the mean: what one point
    moves does not depend on how many others share its batch."""

    def __init__(self, model: Retriever, options: TrainOptions) -> None:
        self.model, self.options = model, options
        self.objective = make_objective(options, model.classes)
        self._rows: list[tuple[RowOptimizer, float]] = [
            (row_optimizer(options.optimiser, model.classes), options.class_rate)
        ]
        if isinstance(model.encoder, Encoder) and model.encoder.projection is None:
            self._rows.append((row_optimizer(options.optimiser, model.encoder.table), options.feature_rate))
        self._dense = dense_optimizer(options, model.encoder, self.objective.loss)
        self._generator = torch.Generator(model.device)

    def __call__(self, batch: Batch, *, number: int, progress: float) -> Tensor:
        """Learns from a batch and returns its mean loss (0-d, on the device). ``progress``: share of the run so far."""
        self._generator.manual_seed(step_seed(self.options.seed, number))
        positives = draw_positives(batch.labels, np.random.default_rng([self.options.seed, number, 1]))
        positives_N = torch.from_numpy(positives).to(self.model.device)
        queries_ND = self.model.encoder(query_batch(batch.queries, self.model.device))
        losses_N = self.objective(queries_ND, positives_N, batch.labels, self._generator)
        losses_N.sum().backward()  # type: ignore[no-untyped-call]
        self._update(rate_factor(self.options.schedule, progress))
        return losses_N.detach().mean()

    def _update(self, factor: float) -> None:
        for optimizer, rate in self._rows:
            optimizer.step(rate * factor)
        if self._dense is not None:
            for group in self._dense.param_groups:
                group["lr"] = group["rate"] * factor
            self._dense.step()
            self._dense.zero_grad(set_to_none=True)

    def parameters(self) -> list[nn.Parameter]:
        """What has dense gradients, in the order in which checkpoints number it."""
        return [] if self._dense is None else [p for group in self._dense.param_groups for p in group["params"]]

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that changes during training besides the model's tensors."""
        state = {f"rows.{i}.{name}": t for i, (rows, _) in enumerate(self._rows) for name, t in rows.tensors().items()}
        for i, parameter in enumerate(self.parameters()):
            buffer = self._dense.state[parameter].get("momentum_buffer") if self._dense is not None else None
            if buffer is not None:
                state[f"momentum.{i}"] = buffer
        return state | {f"loss.{name}": t.data for name, t in self.objective.loss.named_parameters()}

    @torch.no_grad()
    def load_state_tensors(self, state: dict[str, Tensor]) -> None:
        """Puts back what ``state_tensors`` gave."""
        for i, parameter in enumerate(self.parameters()):
            if f"momentum.{i}" in state and self._dense is not None:
                self._dense.state[parameter]["momentum_buffer"] = state[f"momentum.{i}"].to(parameter.device).clone()
        own = self.state_tensors()
        for name, tensor in state.items():
            if not name.startswith("momentum."):
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
