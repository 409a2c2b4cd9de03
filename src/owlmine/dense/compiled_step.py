"""A training step on a CPU in a few calls into C: the same as ``TrainingStep``, up to rounding.

The plain step makes some hundred short calls, writes down every product with the pool, and sorts what it read by row.
This one finds the hardest classes while it multiplies, and moves rows where they are, entry by entry.

Shapes: N points, D dimension, W classes of the shared pool, T kept, E features of all points.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.data.store import SparseTable, Split
from owlmine.dense.compiled_rows import compiled_unit_gradient, compiled_unit_vectors, is_compiled_for
from owlmine.dense.encoder import Encoder
from owlmine.dense.objective import PoolObjective
from owlmine.dense.retriever import Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.dense.step import TrainingStep, draw_positives, rate_factor, step_seed
from owlmine.extensions import load_extension
from owlmine.mining import BatchPool

# Classes that the extension keeps in order, in one register.
_MOST_KEPT = 16
# With fewer classes in the pool, the plain step finds the hardest in float32.
_LEAST_POOL = 1023
# Rows are read by cache lines, and the bytes of a row are on the stack.
_LINE, _MOST_DIM = 16, 1024
# Classes of the pool that are multiplied at a time.
_TILE = 64


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.dense._step")


def suits(model: Retriever, settings: DenseSettings, split: Split) -> bool:
    """Whether the extension can take these steps; never decided by timing."""
    shape, extension = model.shape, compiled_module()
    return (
        extension is not None
        and bool(extension.multiplies_bytes())
        and shape.kind == "embedding"
        and shape.depth == 1
        and shape.dim % _LINE == 0
        and shape.dim <= _MOST_DIM
        and is_compiled_for(*model.tensors().values())
        and isinstance(split.queries, SparseTable)
        and settings.loss == "mined-softmax"
        and not settings.learn_scale
        and settings.optimiser == "sgd"
        and settings.shared_pool
        and settings.top <= _MOST_KEPT
        and (settings.pool_start or settings.pool) >= _LEAST_POOL
    )


class CompiledStep:
    """Takes the steps of ``TrainingStep``, whose state and random numbers it has."""

    def __init__(self, model: Retriever, settings: DenseSettings, split: Split) -> None:
        extension = compiled_module()
        assert extension is not None
        assert isinstance(model.encoder, Encoder)
        assert isinstance(model.encoder.rows, Tensor)
        assert isinstance(model.rows, Tensor)
        assert isinstance(split.queries, SparseTable)
        self._extension, self._settings, self._split = extension, settings, split
        self._points = split.queries
        self._classes_KD, self._features_FD, self._matrix_DD = model.rows, model.encoder.rows, model.encoder.maps[0]
        self._plain = TrainingStep(model, settings)
        assert isinstance(self._plain.objective, PoolObjective)
        self._objective = self._plain.objective
        self.state_tensors, self.load_state_tensors = self._plain.state_tensors, self._plain.load_state_tensors
        self._generator = torch.Generator()
        self._buffers: dict[str, Tensor] = {}
        self._codes_WD, self._scales_W = np.zeros((0, 1), np.uint8), np.zeros(0, np.float32)
        self._ids_E, self._values_E = np.empty(0, np.int32), np.empty(0, np.float32)

    @torch.no_grad()
    def __call__(self, rows: Int64, *, number: int, progress: float) -> Tensor:
        """The mean loss of the points with these row numbers."""
        settings, labels = self._settings, self._split.labels.rows(rows)
        queries = self._gather(rows)
        self._generator.manual_seed(step_seed(settings.seed, number))
        positives_N = torch.from_numpy(draw_positives(labels, np.random.default_rng([settings.seed, number, 1])))
        sums_ND = self._sums(queries)
        queries_ND, lengths_N1 = compiled_unit_vectors(
            torch.mm(sums_ND, self._matrix_DD, out=self._buffer("mapped", len(rows))), self._buffer("unit", len(rows))
        )
        pool = self._objective.draw(positives_N, self._generator)
        places_NT = self._mine(queries_ND, pool, labels)
        if places_NT is None:
            # Bytes cannot stand for numbers that are not finite: the loss of the plain step shows what went wrong.
            with torch.enable_grad():
                return self._plain(self._split.batch(rows), number=number, progress=progress)
        factor = rate_factor(settings.schedule, progress)
        losses_N, gradient_ND = self._learn(queries_ND, positives_N, pool, places_NT, settings.class_rate * factor)
        gradient_ND = compiled_unit_gradient(
            gradient_ND, queries_ND, lengths_N1, self._buffer("unit gradient", len(rows))
        )
        torch.mm(gradient_ND, self._matrix_DD.T, out=self._buffer("mapped", len(rows)))
        self._move(queries, sums_ND, self._buffer("mapped", len(rows)), settings.feature_rate * factor)
        self._matrix_DD.grad = sums_ND.T @ gradient_ND
        self._plain.update_maps(factor)
        return losses_N.mean()

    def grow(self, pool_size: int) -> None:
        self._objective.pool_size = pool_size

    def parts(self) -> list[Callable[[], object]]:
        return []

    def _gather(self, rows: Int64) -> SparseRows:
        """The queries of these points, in memory that the next step takes."""
        points, offsets_N1 = self._points, np.empty(len(rows) + 1, np.int64)
        while True:
            count = self._extension.gather(
                points.offsets,
                points.indices,
                points.values,
                rows,
                len(self._features_FD),
                offsets_N1,
                self._ids_E,
                self._values_E,
            )
            if count <= len(self._ids_E):
                break
            self._ids_E, self._values_E = np.empty(2 * count, np.int32), np.empty(2 * count, np.float32)
        if count < 0:
            self._split.batch(rows)  # raises an error that names the file
            raise AssertionError("the points of this batch are sound")
        return SparseRows(offsets_N1, self._ids_E[:count], self._values_E[:count])

    def _sums(self, queries: SparseRows) -> Tensor:
        """[N, D]: each query times the feature table, cut at 0."""
        sums_ND = self._buffer("sums", len(queries))
        self._extension.sum_bags(
            self._features_FD.numpy(),
            sums_ND.shape[1],
            queries.offsets,
            queries.indices,
            queries.values,
            sums_ND.numpy(),
            torch.get_num_threads(),
        )
        return sums_ND

    def _mine(self, queries_ND: Tensor, pool: BatchPool, labels: SparseRows) -> Tensor | None:
        """[N, T] places in the pool of the hardest classes, -1 where too few are left. None: a number is not finite."""
        places_NT = torch.empty(len(queries_ND), self._settings.top, dtype=torch.int64)
        offsets_N1, ids_P = labels.offsets, labels.indices.astype(np.int64)
        if not self._settings.exclude_known:
            offsets_N1, ids_P = np.zeros_like(offsets_N1), ids_P[:0]
        is_usable = self._extension.mine(
            self._classes_KD.numpy(),
            queries_ND.shape[1],
            queries_ND.numpy(),
            pool.shared_ids.numpy(),
            pool.dropped.numpy(),
            offsets_N1,
            ids_P,
            *self._codes_of_pool(len(pool.shared_ids)),
            places_NT.numpy(),
            torch.get_num_threads(),
        )
        return places_NT if is_usable else None

    def _codes_of_pool(self, width: int) -> tuple[NDArray[np.uint8], Float32]:
        """Memory for whole tiles of classes. What is behind the last class is never written."""
        whole = -(-width // _TILE) * _TILE
        if len(self._scales_W) != whole:
            self._codes_WD = np.zeros((whole, self._matrix_DD.shape[0]), np.uint8)
            self._scales_W = np.zeros(whole, np.float32)
        return self._codes_WD, self._scales_W

    def _learn(
        self, queries_ND: Tensor, positives_N: Tensor, pool: BatchPool, places_NT: Tensor, rate: float
    ) -> tuple[Tensor, Tensor]:
        """Losses [N], and their gradient [N, D] in the queries. Moves class rows."""
        losses_N, gradient_ND = torch.empty(len(queries_ND)), self._buffer("gradient", len(queries_ND))
        self._extension.learn(
            self._classes_KD.numpy(),
            queries_ND.shape[1],
            queries_ND.numpy(),
            positives_N.numpy(),
            pool.shared_ids.numpy(),
            pool.dropped.numpy(),
            places_NT.numpy(),
            self._settings.scale,
            rate,
            losses_N.numpy(),
            gradient_ND.numpy(),
            torch.get_num_threads(),
        )
        return losses_N, gradient_ND

    def _move(self, queries: SparseRows, sums_ND: Tensor, gradient_ND: Tensor, rate: float) -> None:
        """Moves feature rows, by the gradient of the sums before they are cut."""
        self._extension.move_bags(
            self._features_FD.numpy(),
            sums_ND.shape[1],
            queries.offsets,
            queries.indices,
            queries.values,
            sums_ND.numpy(),
            gradient_ND.numpy(),
            -rate,
            torch.get_num_threads(),
        )

    def _buffer(self, name: str, num_points: int) -> Tensor:
        """[N, D] memory that steps share: fresh pages cost more than filling them."""
        if name not in self._buffers or len(self._buffers[name]) < num_points:
            self._buffers[name] = torch.empty(num_points, self._matrix_DD.shape[0])
        return self._buffers[name][:num_points]
