"""Matrices of features as the model takes them: sparse rows as they are, dense rows standardised.

Shapes: N points, K classes asked for, F features, U features in use, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store import SparseTable
from owlmine.dense.encoder import Encoder, IdentityEncoder, SparseBatch, query_batch
from owlmine.dense.retriever import Retriever

# Queries encoded at once, and the numbers of a block where a query is as wide as all features.
_BLOCK_ROWS = 1024
_BLOCK_NUMBERS = 1 << 24
# From this share of stored entries on, a sparse matrix takes more memory than a dense one.
_FULL = 0.5


@dataclass(frozen=True)
class QueryForm:
    """What happens to a matrix before the model sees it. It is settled by the matrix that the model first learns from.

    Where ``mean`` is given, dense rows become ((x - mean) / scale, 1): the constant stands for the bias that the
    encoder lacks.
    """

    dense: bool
    num_columns: int
    mean: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, matrix: Any, *, standardise: bool) -> QueryForm:
        if sparse.issparse(matrix) and matrix.nnz < matrix.shape[0] * matrix.shape[1] * _FULL:
            return cls(False, matrix.shape[1])
        if not standardise:
            return cls(True, matrix.shape[1])
        matrix = matrix.toarray() if sparse.issparse(matrix) else matrix
        deviation = matrix.std(axis=0, dtype=np.float64)
        mean = matrix.mean(axis=0, dtype=np.float64)
        # Rounding leaves a constant column with a deviation of a few units in the last place.
        constant = deviation <= 10 * np.finfo(np.float32).eps * np.abs(mean)
        return cls(True, matrix.shape[1], mean, np.where(constant, 1.0, deviation))

    @property
    def num_features(self) -> int:
        """The width of what the model sees."""
        return self.num_columns + (self.mean is not None)

    def table(self, matrix: Any) -> SparseTable | NDArray[np.float32]:
        """All rows, to learn from."""
        if not self.dense:
            rows = self._apply(matrix)
            assert isinstance(rows, SparseRows)
            return SparseTable(rows.offsets, rows.indices, rows.values)
        table = np.empty((matrix.shape[0], self.num_features), np.float32)
        start = 0
        for block in self.blocks(matrix, wide=False):
            assert isinstance(block, np.ndarray)
            table[start : start + len(block)] = block
            start += len(block)
        return table

    def blocks(self, matrix: Any, *, wide: bool) -> Iterator[SparseRows | NDArray[np.float32]]:
        """A bounded number of rows at a time; ``wide`` where the model spreads a query over all features."""
        num_rows = min(_BLOCK_ROWS, max(_BLOCK_NUMBERS // self.num_features, 1)) if wide else _BLOCK_ROWS
        for start in range(0, matrix.shape[0], num_rows):
            yield self._apply(matrix[start : start + num_rows])

    def _apply(self, matrix: Any) -> SparseRows | NDArray[np.float32]:
        if not self.dense:
            rows = sparse.csr_array(matrix)
            if not rows.has_canonical_format:
                rows = rows.copy()
                rows.sum_duplicates()
            return SparseRows(rows.indptr.astype(np.int64), rows.indices, rows.data.astype(np.float32, copy=False))
        dense_NF = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)
        if self.mean is None or self.scale is None:
            return np.array(dense_NF, np.float32, order="C")  # a copy: PyTorch warns of read-only memory
        standard = np.ones((len(dense_NF), self.num_features), np.float32)
        standard[:, :-1] = (dense_NF - self.mean) / self.scale
        return standard


@torch.no_grad()
def exact_scores(model: Retriever, queries: SparseRows | NDArray[np.float32], class_ids: Int64) -> NDArray[np.float64]:
    """[N, K] scores in double precision, so that those of a query do not depend on the queries beside it.

    Only the rows in use are widened: neither table is copied whole, unless all of it is asked for.
    """
    encoder, batch = model.encoder, query_batch(queries, model.device)
    if isinstance(batch, SparseBatch):
        ids_U, places_E = batch.ids_E, batch.ids_E
        if isinstance(encoder, Encoder):
            ids_U, places_E = torch.unique(batch.ids_E, return_inverse=True)
            ids_U = ids_U if len(ids_U) else ids_U.new_zeros(1)  # queries without any feature still need a table
        batch = SparseBatch(places_E, batch.offsets_N, batch.values_E.double())
    else:
        ids_U, batch = torch.arange(model.shape.num_features, device=model.device), batch.double()
    wide: Encoder | IdentityEncoder = IdentityEncoder(model.shape.num_features)
    if isinstance(encoder, Encoder):
        table_UD = encoder.table.weight[ids_U].double()
        wide = Encoder(num_features=len(ids_U), dim=encoder.dim, depth=encoder.depth, dense=False, table=table_UD)
        for own, matrix in zip(wide.maps, encoder.maps, strict=True):
            own.data = matrix.detach().double()
    classes_KD = model.classes.weight[torch.from_numpy(class_ids).to(model.device)].double()
    scores: NDArray[np.float64] = (wide(batch) @ classes_KD.T).cpu().numpy()
    return scores
