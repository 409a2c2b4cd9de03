"""One training step on a GPU: the same mathematics as ``step.py``, with kernels, without waiting for the host.

The data are on the device; a step takes row indices, random keys and step sizes. Steps of full batches are captured
once as a CUDA graph and replayed, so that their dozens of small kernels run without gaps.

What differs from the reference: classes are scored for mining in bfloat16 (the kept ones again in float32), and a pool
is the beginning of a keyed permutation without the positive, while the reference draws the shared classes and the one
that each point leaves out. Feature rows are updated by atomic additions, so runs differ in the last bits.

Shapes: N points, D dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from owlmine.data.rows import Int64
from owlmine.data.store import SparseTable, Split
from owlmine.dense.class_sides import AllSide, ClassSide, KeptSide, StepInputs, pool_side
from owlmine.dense.encoder import Encoder
from owlmine.dense.objective import ClassObjective, PoolObjective, make_objective
from owlmine.dense.retriever import Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.dense.step import rate_factor, step_seed
from owlmine.losses.modules.registry import LOSSES
from owlmine.mining.kernels.all_classes import AllClassLoss
from owlmine.mining.kernels.bags import DeviceRows, add_to_bags, sum_bags
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.hardest import MAX_CHOSEN
from owlmine.mining.kernels.positives import draw_positives
from owlmine.mining.kernels.unit_rows import unit_rows, unit_rows_back


@dataclass(frozen=True, eq=False)
class DeviceSplit:
    queries: DeviceRows
    labels: DeviceRows
    most_labels: int
    """Of one point."""

    @classmethod
    def of(cls, split: Split, device: torch.device) -> DeviceSplit:
        assert isinstance(split.queries, SparseTable)
        counts = np.diff(split.labels.offsets)
        most = int(counts.max()) if len(counts) else 0
        return cls(_on_device(split.queries, device), _on_device(split.labels, device), most)

    @property
    def num_bytes(self) -> int:
        parts = [part for rows in (self.queries, self.labels) for part in (rows.offsets, rows.ids, rows.values)]
        return sum(part.nbytes for part in parts if part is not None)


def num_bytes(split: Split) -> int:
    """What ``DeviceSplit.of`` takes."""
    assert isinstance(split.queries, SparseTable)
    return sum(
        part.nbytes
        for table in (split.queries, split.labels)
        for part in (table.offsets, table.indices, table.values)
        if part is not None
    )


def _on_device(table: SparseTable, device: torch.device) -> DeviceRows:
    rows = table.slice(0, len(table))
    values = None if rows.values is None else torch.from_numpy(rows.values).to(device)
    return DeviceRows(torch.from_numpy(rows.offsets).to(device), torch.from_numpy(rows.indices).to(device), values)


# Held while kernels are compiled and graphs recorded: models that are trained side by side share the compiled kernels,
# and only one graph can be recorded at a time.
_RECORDING = Lock()
_NUM_KEYS = 3
_FIRST_POINT = _NUM_KEYS + 2

# Losses over all classes that kernels compute.
_ALL_CLASS_LOSSES = ("softmax", "one-vs-all")
# Share of the device's free memory that the data may take.
_DATA_SHARE = 0.5


def why_not_fused(model: Retriever, settings: DenseSettings, split: Split) -> str | None:
    """Why a run cannot use this step, in words; None if it can."""
    if not isinstance(model.encoder, Encoder):
        return "the model is linear"
    if not isinstance(split.queries, SparseTable):
        return "queries are dense"
    reasons = (
        (settings.optimiser != "sgd", "the optimiser is adaptive"),
        (settings.learn_scale, "the scale is learned"),
        (not settings.shared_pool, "each point has a pool of its own"),
        (settings.positives_in_pool, "the pool has the positives of the batch"),
        (
            LOSSES[settings.loss].inputs == "classes" and settings.loss not in _ALL_CLASS_LOSSES,
            f"there is no kernel for {settings.loss}",
        ),
        (model.shape.dim % 8 != 0, "the dimension is not a multiple of 8"),
    )
    for holds, words in reasons:
        if holds:
            return words
    free, _ = torch.cuda.mem_get_info(model.device)
    if num_bytes(split) > _DATA_SHARE * free:
        return "the data do not fit on the device"
    most = int(np.diff(split.labels.offsets).max(initial=0)) if settings.exclude_known else 1
    if settings.top > 1 and settings.top + most + 1 > MAX_CHOSEN:
        return f"a point has {most:,} labels"
    return None


class FusedStep:
    """Model, data, loss and optimiser state of a run on one GPU. See ``why_not_fused`` for its requirements."""

    def __init__(self, model: Retriever, settings: DenseSettings, split: Split) -> None:
        assert isinstance(model.encoder, Encoder)
        self.model, self.settings, self._encoder = model, settings, model.encoder
        self._class_side = _class_side(model, settings)
        self._data = DeviceSplit.of(split, model.device)
        self._momentum = [torch.zeros_like(matrix) for matrix in model.encoder.maps]
        # Everything that changes from step to step, at fixed addresses for the captured graph, and in one tensor, since
        # each copy to the device takes as long as a small kernel: keys, factors (two numbers of 32 bits in each of 64),
        # points.
        self._changing = torch.zeros(_FIRST_POINT + settings.batch_size, dtype=torch.int64, device=model.device)
        self._keys = self._changing[:_NUM_KEYS]
        self._factors = self._changing[_NUM_KEYS:_FIRST_POINT].view(torch.float32)[:_NUM_KEYS]
        self._points_N = self._changing[_FIRST_POINT:]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._recorded_loss = torch.zeros((), device=model.device)
        self._compiled = False

    @property
    def data_bytes(self) -> int:
        """Of the data on the device."""
        return self._data.num_bytes

    @property
    def copy_bytes(self) -> int:
        """Of the class table's copy for mining."""
        copy_KD = self._class_side.copy_KD
        return 0 if copy_KD is None else copy_KD.nbytes

    def __call__(self, rows: Int64, *, number: int, progress: float) -> Tensor:
        """Learns from the points with these row numbers and returns their mean loss (0-d, on the device)."""
        settings, factor = self.settings, rate_factor(self.settings.schedule, progress)
        keys = [step_seed(settings.seed, 3 * number + i) & 0xFFFFFFFF for i in range(3)]
        factors = [-rate * factor for rate in (settings.class_rate, settings.feature_rate, settings.map_rate)]
        changing = np.empty(_FIRST_POINT + len(rows), np.int64)
        changing[:_NUM_KEYS] = keys
        changing[_NUM_KEYS:_FIRST_POINT].view(np.float32)[:_NUM_KEYS] = factors
        changing[_FIRST_POINT:] = rows
        _put(self._changing[: len(changing)], torch.from_numpy(changing))
        if len(rows) < len(self._points_N) or self.model.device.type != "cuda":
            with _RECORDING:
                return self._learn(self._points_N[: len(rows)])
        if self._graph is None and self._compiled:
            self._record()
        if self._graph is not None:
            self._graph.replay()
            return self._recorded_loss
        # The first step compiles the kernels, which must not happen while a graph is recorded.
        self._compiled = True
        with _RECORDING:
            return self._learn(self._points_N)

    def grow(self, pool_size: int) -> None:
        """Sets the size of pools from now on. For losses that mine."""
        assert isinstance(self._class_side, KeptSide)
        self._class_side.pool_size = pool_size
        # The captured graph has the old size, and the new one may need kernels that are not compiled yet.
        self._graph, self._compiled = None, False

    def parts(self) -> list[Callable[[], object]]:
        points_N, keys, factors, data = self._points_N, self._keys, self._factors, self._data
        table_FD, shape = self._encoder.table.weight, (len(points_N), self.model.shape.dim)
        units_ND = torch.nn.functional.normalize(torch.randn(shape, device=points_N.device), dim=1)
        positives_N = torch.zeros_like(points_N)
        inputs = StepInputs(
            units_ND,
            units_ND.to(torch.bfloat16),
            positives_N,
            self._exclusions(points_N, positives_N),
            pool_key=keys[1:2],
            rounding_key=keys[2:3],
            factor=factors[0:1],
        )
        return [
            partial(draw_positives, data.labels, points_N, keys[0:1]),
            partial(self._encode, points_N),
            partial(unit_rows, units_ND, copy_dtype=torch.bfloat16),
            partial(unit_rows_back, units_ND, units_ND[:, 0].contiguous(), units_ND),
            partial(add_to_bags, table_FD, data.queries, points_N, units_ND, factors[1:2]),
            *self._class_side.parts(inputs),
        ]

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile: they train other models, or write finished ones.
        with _RECORDING:
            torch.cuda.synchronize(self.model.device)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._recorded_loss = self._learn(self._points_N)
        self._graph = graph

    @torch.no_grad()
    def _learn(self, points_N: Tensor) -> Tensor:
        positives_N = draw_positives(self._data.labels, points_N, self._keys[0:1])
        inputs, outputs_ND = self._encode(points_N)
        units_ND, rounded_ND, lengths_N = unit_rows(outputs_ND, copy_dtype=torch.bfloat16)
        losses_N, gradient_ND = self._class_side(
            StepInputs(
                units_ND,
                rounded_ND,
                positives_N,
                self._exclusions(points_N, positives_N),
                pool_key=self._keys[1:2],
                rounding_key=self._keys[2:3],
                factor=self._factors[0:1],
            )
        )
        self._move_encoder(points_N, inputs, unit_rows_back(units_ND, lengths_N, gradient_ND))
        return losses_N.mean()

    def _exclusions(self, points_N: Tensor, positives_N: Tensor) -> Exclusions:
        if not self.settings.exclude_known:
            return Exclusions.of_padded(positives_N[:, None])
        labels = self._data.labels
        return Exclusions(points_N, labels.offsets, labels.ids, self._data.most_labels)

    def _encode(self, points_N: Tensor) -> tuple[list[Tensor], Tensor]:
        """The input of each map (after the ReLU), and the output of the last."""
        maps = list(self._encoder.maps)
        hidden_ND = sum_bags(self._encoder.table.weight, self._data.queries, points_N, relu=bool(maps))
        inputs: list[Tensor] = []
        for depth, matrix in enumerate(maps):
            if depth:
                hidden_ND = hidden_ND.relu()
            inputs.append(hidden_ND)
            hidden_ND = hidden_ND @ matrix
        return inputs, hidden_ND

    def _move_encoder(self, points_N: Tensor, inputs: list[Tensor], gradient_ND: Tensor) -> None:
        for matrix, momentum, input_ND in zip(
            reversed(list(self._encoder.maps)), reversed(self._momentum), reversed(inputs), strict=True
        ):
            slope_DD = input_ND.T @ gradient_ND
            gradient_ND = (gradient_ND @ matrix.T) * (input_ND > 0)
            momentum.mul_(self.settings.momentum).add_(slope_DD)
            matrix.add_(momentum * self._factors[2])
        add_to_bags(self._encoder.table.weight, self._data.queries, points_N, gradient_ND, self._factors[1:2])

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that changes during training except the model's tensors."""
        return {f"momentum.{i}": momentum for i, momentum in enumerate(self._momentum)}

    def load_state_tensors(self, state: dict[str, Tensor]) -> None:
        """Restores the result of ``state_tensors``."""
        for name, momentum in self.state_tensors().items():
            if name in state:
                momentum.copy_(state[name])


def _class_side(model: Retriever, settings: DenseSettings) -> ClassSide:
    objective = make_objective(settings, model.classes)
    if isinstance(objective, ClassObjective):
        kind: AllClassLoss = "softmax" if settings.loss == "softmax" else "one-vs-all"
        return AllSide(kind, model.classes, scale=settings.scale, exclude_known=settings.exclude_known)
    assert isinstance(objective, PoolObjective)
    if objective.kept is None:
        return pool_side(objective.loss, model.classes, pool_size=objective.pool_size)
    return KeptSide(objective.loss, model.classes, pool_size=objective.pool_size, kept=objective.kept)


def _put(target: Tensor, values: Tensor) -> None:
    """Into memory of the device, without waiting for it."""
    target.copy_(values.pin_memory() if target.is_cuda else values, non_blocking=True)
