"""The paper's encoder: sparse query times a table, ReLU, a linear map, unit length.

Shapes: N points, F features, D dimension, H heads, E entries of a batch of sparse rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from owlmine.data.rows import SparseRows
from owlmine.dense.compiled_rows import compiled_unit_gradient, compiled_unit_vectors, is_compiled_for
from owlmine.dense.row_table import RowTable, random_rows
from owlmine.mining.coded_rows import CodedRows, Table

_EPS = 1e-12


def unit_vectors(vectors_ND: Tensor) -> Tensor:
    """[N, D] the same directions with length 1; vectors shorter than 1e-12 are divided by that (0 stays 0)."""
    unit_ND: Tensor = _UnitVectors.apply(vectors_ND)  # type: ignore[no-untyped-call]
    return unit_ND


class _UnitVectors(torch.autograd.Function):
    """u = h / max(|h|, eps),   dL/dh = (g - u <u, g>) / |h|  where |h| >= eps,   g / eps  below.

    Autograd through norm, clamp and quotient would make six passes over the vectors; the formula needs three.
    """

    @staticmethod
    def forward(ctx: Any, vectors_ND: Tensor) -> Tensor:
        unit_ND: Tensor
        if is_compiled_for(vectors_ND):
            unit_ND, lengths_N1 = compiled_unit_vectors(vectors_ND)
        else:
            lengths_N1 = torch.linalg.vector_norm(vectors_ND, dim=1, keepdim=True)
            unit_ND = vectors_ND / lengths_N1.clamp_min(_EPS)
        ctx.save_for_backward(unit_ND, lengths_N1)
        return unit_ND

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> Tensor:
        unit_ND, lengths_N1 = ctx.saved_tensors
        if is_compiled_for(gradient_ND, unit_ND):
            return compiled_unit_gradient(gradient_ND, unit_ND, lengths_N1)
        along_N1 = (unit_ND * gradient_ND).sum(dim=1, keepdim=True)
        along_N1 = torch.where(lengths_N1 < _EPS, 0, along_N1)
        return torch.addcmul(gradient_ND, unit_ND, along_N1, value=-1).div_(lengths_N1.clamp_min(_EPS))


@dataclass(frozen=True)
class SparseBatch:
    """Sparse queries as tensors, in the form for ``embedding_bag``."""

    ids_E: Tensor
    offsets_N: Tensor
    values_E: Tensor

    @classmethod
    def of(cls, rows: SparseRows, device: torch.device) -> SparseBatch:
        values = np.ones(len(rows.indices), np.float32) if rows.values is None else rows.values
        return cls(
            torch.from_numpy(rows.indices.astype(np.int64, copy=False)).to(device),
            torch.from_numpy(rows.offsets[:-1]).to(device),
            torch.from_numpy(np.ascontiguousarray(values)).to(device),
        )

    def __len__(self) -> int:
        return len(self.offsets_N)


QueryBatch = SparseBatch | Tensor
"""Sparse queries, or dense ones [N, F]."""


def query_batch(queries: SparseRows | NDArray[Any], device: torch.device) -> QueryBatch:
    if isinstance(queries, SparseRows):
        return SparseBatch.of(queries, device)
    return torch.from_numpy(np.ascontiguousarray(queries, np.float32)).to(device)


class Encoder(nn.Module):
    """Queries to unit vectors: x E, then for each map M: ReLU, times M; then scaled to length 1.

    ``depth`` 1 is the paper's model. With H ``heads``, this applies to each of H equal parts of the dimension, each
    with its own maps (stacked in M), and the parts have length 1 / √H. The table E is a ``RowTable`` for sparse
    queries; for dense queries it is an ordinary parameter, since every step uses every row.
    """

    def __init__(self, *, num_features: int, dim: int, depth: int, dense: bool, table: Table, heads: int = 1) -> None:
        super().__init__()
        assert table.shape == (num_features, dim)
        self.num_features, self.dim, self.depth, self.dense, self.heads = num_features, dim, depth, dense, heads
        self.rows = table
        self.projection = nn.Parameter(_numbers(table)) if dense else None
        self.maps = nn.ParameterList(
            nn.Parameter(torch.empty(dim, dim // heads, device=table.device)) for _ in range(depth)
        )

    @classmethod
    def new(
        cls, *, num_features: int, dim: int, depth: int, dense: bool, generator: torch.Generator, device: torch.device
    ) -> Encoder:
        """Random rows and maps. Entries of maps have variance 2 / D, which compensates for the halving by the ReLU."""
        table = random_rows(
            num_features, dim, std=1 / math.sqrt(dim), unit_rows=False, generator=generator, device=device
        )
        encoder = cls(num_features=num_features, dim=dim, depth=depth, dense=dense, table=table)
        for matrix in encoder.maps:
            nn.init.normal_(matrix, 0, math.sqrt(2 / dim), generator=generator)
        return encoder

    @cached_property
    def table(self) -> RowTable:
        """The rows for training. Coded rows are not trained."""
        assert isinstance(self.rows, Tensor)
        return RowTable(self.rows)

    def forward(self, queries: QueryBatch) -> Tensor:
        """[N, D] unit vectors; a query without features becomes 0."""
        hidden_ND = self._project(queries)
        if self.heads > 1:
            return self._by_heads(hidden_ND)
        for matrix in self.maps:
            hidden_ND = hidden_ND.relu() @ matrix
        return unit_vectors(hidden_ND)

    def _by_heads(self, hidden_ND: Tensor) -> Tensor:
        width = self.dim // self.heads
        hidden_HNd = hidden_ND.view(-1, self.heads, width).transpose(0, 1)
        for matrix in self.maps:
            hidden_HNd = hidden_HNd.relu() @ matrix.view(self.heads, width, width)
        parts_ND = hidden_HNd.transpose(0, 1).reshape(-1, width)
        return unit_vectors(parts_ND).div(math.sqrt(self.heads)).view(-1, self.dim)

    def _project(self, queries: QueryBatch) -> Tensor:
        if isinstance(queries, Tensor):
            weight = self.rows if self.projection is None else self.projection
            return queries @ _numbers(weight)
        if isinstance(self.rows, CodedRows):
            return self.rows.sum_bags(queries.ids_E, queries.offsets_N, queries.values_E)
        return self.table.sum_bags(queries.ids_E, queries.offsets_N, queries.values_E)

    def tables(self) -> dict[str, Table]:
        return {"table": self.rows}

    def map_tensors(self) -> dict[str, Tensor]:
        return {f"map.{i}": matrix.data for i, matrix in enumerate(self.maps)}


def _numbers(table: Table) -> Tensor:
    return table.expanded() if isinstance(table, CodedRows) else table


class IdentityEncoder(nn.Module):
    """The linear scorer: a query is its own vector, so that scores are linear in the class table."""

    depth = 0

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = self.dim = num_features

    def forward(self, queries: QueryBatch) -> Tensor:
        if isinstance(queries, Tensor):
            return queries
        counts_N = torch.diff(queries.offsets_N, append=queries.offsets_N.new_tensor([len(queries.ids_E)]))
        dense_NF = queries.values_E.new_zeros(len(queries), self.num_features)
        rows_E = torch.repeat_interleave(torch.arange(len(queries), device=counts_N.device), counts_N)
        return dense_NF.index_put((rows_E, queries.ids_E), queries.values_E, accumulate=True)

    def tables(self) -> dict[str, Table]:
        return {}

    def map_tensors(self) -> dict[str, Tensor]:
        return {}
