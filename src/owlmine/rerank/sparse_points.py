"""Training points by the sparse vectors of their queries: the nearest by cosine, through an inverted index.

Shapes: N queries, P training points, F features, n neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.extensions import load_extension
from owlmine.rerank.sparse_rows import ascends_in_rows, checked_rows, squared_lengths
from owlmine.rerank.tensor_parts import as_arrays, as_tensors

_DTYPES = {
    "offsets": torch.int64,
    "points": torch.int32,
    "values": torch.float32,
    "num_points": torch.int64,
}
# The only value of a row, after rounding to float32.
_LONGEST = 1 + 1e-6


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.rerank._points")


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """Feature f is had by ``points[offsets_F1[f]:offsets_F1[f + 1]]``, ascending, with the values at the same places.

    The values are those of the points' unit vectors.
    """

    offsets_F1: Int64
    points: NDArray[np.int32]
    values: Float32
    num_points: int

    def __post_init__(self) -> None:
        """ValueError where numbers do not fit each other, from wherever they come."""
        if not 0 <= self.num_points < 2**31:
            raise ValueError(f"num_points is {self.num_points}; wanted 0 to 2^31 - 1")
        lists = checked_rows(SparseRows(self.offsets_F1, self.points, self.values), num_features=self.num_points)
        if not ascends_in_rows(lists.offsets, lists.indices):
            raise ValueError("a feature does not have each point once, in ascending order")
        assert lists.values is not None
        if len(lists.values) and (largest := np.abs([lists.values.min(), lists.values.max()]).max()) > _LONGEST:
            raise ValueError(f"a value is {largest:g} away from 0; a unit vector has none above 1")
        for name, array in (("offsets_F1", lists.offsets), ("points", lists.indices), ("values", lists.values)):
            object.__setattr__(self, name, array)

    @classmethod
    def of(cls, queries: SparseRows, *, num_features: int) -> SparsePoints:
        """An index of the queries of training points, a row each; a row of zeros is near to nothing."""
        rows = unit_rows(queries, num_features=num_features)
        lists = rows.to_scipy(num_features).tocsc()
        return cls(lists.indptr.astype(np.int64), lists.indices, lists.data, len(rows))

    def __len__(self) -> int:
        return self.num_points

    @property
    def num_features(self) -> int:
        return len(self.offsets_F1) - 1

    def nearest(self, queries: SparseRows, vectors_ND: Tensor | None, count: int) -> tuple[Float32, Int64]:
        """Cosines and numbers [N, n] of the nearest points, n = min(count, P): highest first, among equals the smaller
        number. Where no further point has a cosine above 0: the cosine 0 and the number 0.

        ``vectors_ND`` is for points of another kind.
        """
        del vectors_ND
        if count < 0:
            raise ValueError(f"count is {count}; wanted 0 or more")
        rows, num_nearest = unit_rows(queries, num_features=self.num_features), min(count, self.num_points)
        find = plain_nearest if compiled_module() is None else compiled_nearest
        return find(self, rows, num_nearest)

    def on(self, device: torch.device) -> SparsePoints:
        """They stay on the CPU."""
        del device
        return self

    def tensors(self) -> dict[str, Tensor]:
        """What a file keeps; they share memory with the points where they can."""
        return as_tensors(
            {
                "offsets": self.offsets_F1,
                "points": self.points,
                "values": self.values,
                "num_points": np.array(self.num_points, np.int64),
            }
        )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> SparsePoints:
        """Back from ``tensors()``; ValueError where that cannot be what they are."""
        arrays = as_arrays(tensors, _DTYPES)
        return cls(arrays["offsets"], arrays["points"], arrays["values"], int(arrays["num_points"]))


def unit_rows(rows: SparseRows, *, num_features: int) -> SparseRows:
    """Rows scaled to length 1, each feature once and in ascending order; rows of zeros stay as they are."""
    rows = checked_rows(rows, num_features=num_features)
    if not ascends_in_rows(rows.offsets, rows.indices):
        matrix = rows.to_scipy(num_features).copy()  # what follows writes to it
        matrix.sum_duplicates()
        rows = checked_rows(SparseRows(matrix.indptr, matrix.indices, matrix.data), num_features=num_features)
    assert rows.values is not None
    lengths_N = np.sqrt(squared_lengths(rows))
    lengths_N[lengths_N == 0] = 1
    values = (rows.values / np.repeat(lengths_N, rows.counts)).astype(np.float32)
    return SparseRows(rows.offsets, rows.indices, values)


def compiled_nearest(points: SparsePoints, rows: SparseRows, num_nearest: int) -> tuple[Float32, Int64]:
    """The same in C on all threads; ``rows`` of length 1."""
    extension = compiled_module()
    assert extension is not None
    cosines_Nn = np.zeros((len(rows), num_nearest), np.float32)
    points_Nn = np.zeros((len(rows), num_nearest), np.int64)
    extension.nearest(
        rows.offsets,
        rows.indices,
        rows.values,
        points.offsets_F1,
        points.points,
        points.values,
        points.num_points,
        num_nearest,
        cosines_Nn,
        points_Nn,
        torch.get_num_threads(),
    )
    return cosines_Nn, points_Nn


def plain_nearest(points: SparsePoints, rows: SparseRows, num_nearest: int) -> tuple[Float32, Int64]:
    """What ``compiled_nearest`` does, in NumPy."""
    assert rows.values is not None
    cosines_Nn = np.zeros((len(rows), num_nearest), np.float32)
    points_Nn = np.zeros((len(rows), num_nearest), np.int64)
    for n in range(len(rows)):
        cosines_P = np.zeros(points.num_points, np.float32)
        for entry in range(rows.offsets[n], rows.offsets[n + 1]):
            own = slice(points.offsets_F1[rows.indices[entry]], points.offsets_F1[rows.indices[entry] + 1])
            cosines_P[points.points[own]] += rows.values[entry] * points.values[own]
        found = np.flatnonzero(cosines_P > 0)
        best = found[np.argsort(-cosines_P[found], kind="stable")[:num_nearest]]
        cosines_Nn[n, : len(best)], points_Nn[n, : len(best)] = cosines_P[best], best
    return cosines_Nn, points_Nn
