"""Training points, and which of them are nearest to a query: by their features, through an inverted index, or by the
vectors that the dense model gives them.

Shapes: N queries, P training points, F features, D dimension of the whole model, W dimension of its first member, n
neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_array
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.extensions import load_extension
from owlmine.index import ExactIndex
from owlmine.mining import hardest
from owlmine.mining.coded_rows import LARGEST_CODE, LEAST_SCALE, CodedRows
from owlmine.rank.coded_entries import CodedEntries


def as_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """They share memory with the arrays where they can."""
    # PyTorch warns about read-only arrays.
    return {name: torch.from_numpy(a if a.flags.writeable else a.copy()) for name, a in arrays.items()}


def check_tensors(tensors: Mapping[str, Tensor], wanted: Mapping[str, tuple[torch.dtype, int]]) -> None:
    """Raises ValueError unless there are exactly these, each with its type and number of dimensions."""
    if set(tensors) != set(wanted):
        raise ValueError(f"tensors are {sorted(tensors)}; wanted {sorted(wanted)}")
    for name, (dtype, dim) in wanted.items():
        given = tensors[name]
        if given.dtype != dtype or given.dim() != dim or given.layout != torch.strided:
            raise ValueError(
                f"{name} is {given.dtype} of shape {list(given.shape)}; wanted {dtype} of {dim} dimensions"
            )


def as_arrays(tensors: Mapping[str, Tensor], wanted: Mapping[str, torch.dtype]) -> dict[str, NDArray[Any]]:
    """Raises ValueError unless there are exactly these, with one dimension, or none if the name starts with
    ``num_``."""
    check_tensors(tensors, {name: (dtype, 0 if name.startswith("num_") else 1) for name, dtype in wanted.items()})
    return {name: np.asarray(given.detach().cpu().numpy()) for name, given in tensors.items()}


_BLOCK_ROWS = 1 << 16


def checked_rows(rows: SparseRows, *, num_features: int) -> SparseRows:
    """The same rows in int64, int32 and float32. Raises ValueError for an invalid row or a non-finite value."""
    offsets, indices = np.asarray(rows.offsets), np.asarray(rows.indices)
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise ValueError(f"offsets have the shape {offsets.shape} in {offsets.dtype}; wanted N + 1 whole numbers")
    if indices.ndim != 1 or (len(indices) and indices.dtype.kind not in "iu"):
        raise ValueError(
            f"indices have the shape {indices.shape} in {indices.dtype}; wanted one whole number per entry"
        )
    if offsets[0] != 0 or offsets[-1] != len(indices) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets do not ascend from 0 to the number of entries, {len(indices)}")
    if len(indices) and not (indices.min() >= 0 and indices.max() < num_features):
        raise ValueError(f"indices are {indices.min()} to {indices.max()}; wanted 0 to {num_features - 1}")
    values = np.ones(len(indices), np.float32) if rows.values is None else np.asarray(rows.values)
    if values.shape != indices.shape:
        raise ValueError(f"values have the shape {values.shape}; wanted {indices.shape}, one for each index")
    with np.errstate(over="ignore"):  # values beyond float32 are detected below
        values = np.ascontiguousarray(values, np.float32)
    if len(values) and not np.isfinite([values.min(), values.max()]).all():
        raise ValueError("a value is not a finite number")
    return SparseRows(np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(indices, np.int32), values)


def squared_lengths(rows: SparseRows) -> NDArray[np.float64]:
    """[N] |x|² of each row. Raises ValueError if the features of a row must be distinct and ascending."""
    assert rows.values is not None
    squares_N = np.empty(len(rows), np.float64)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        if not ascends_in_rows(block.offsets, block.indices):
            raise ValueError("the features of a row must be distinct and ascending")
        assert block.values is not None
        squares = np.square(block.values, dtype=np.float64)
        squares_N[start : start + len(block)] = np.bincount(block.row_ids, weights=squares, minlength=len(block))
    return squares_N


def ascends_in_rows(offsets: NDArray[np.int64], indices: NDArray[np.int32]) -> bool:
    """Whether the indices of each row ascend."""
    ascends = indices[1:] > indices[:-1]
    inner_starts = offsets[1:-1]
    ascends[inner_starts[(inner_starts > 0) & (inner_starts < len(indices))] - 1] = True
    return bool(ascends.all())


_OWN = {"num_points": torch.int64}
# The only value of a row, after rounding to a code.
_LONGEST = 1 + 1e-4
# Among fewer points, computing the first and the close ones costs more than lists left out save.
_FEW_POINTS = 1 << 18


def compiled_points() -> ModuleType | None:
    return load_extension("owlmine.rank._points")


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """A row for each feature: the points that have it, and the values of their unit vectors there."""

    lists: CodedEntries
    num_points: int

    def __post_init__(self) -> None:
        largest = LARGEST_CODE * float(self.lists.scales_R.max(initial=0))
        if largest > _LONGEST:
            raise ValueError(f"a value has size {largest:g}; wanted at most 1, as unit vectors have")

    @classmethod
    def listed(cls, lists: SparseRows, num_points: int) -> SparsePoints:
        """With the nearest values that bytes can hold. Raises ValueError for inconsistent numbers."""
        _check_number(num_points)
        lists = checked_rows(lists, num_features=num_points)
        if not ascends_in_rows(lists.offsets, lists.indices):
            raise ValueError("the points of a feature must be distinct and ascending")
        return cls(CodedEntries.of(lists), num_points)

    @classmethod
    def of(cls, queries: SparseRows, *, num_features: int) -> SparsePoints:
        """An index of the queries of training points, a row each; a row of zeros has no neighbours."""
        rows = unit_rows(queries, num_features=num_features)
        lists = rows.to_scipy(num_features).tocsc()
        return cls.listed(SparseRows(lists.indptr, lists.indices, lists.data), len(rows))

    def __len__(self) -> int:
        return self.num_points

    @property
    def num_features(self) -> int:
        return len(self.lists)

    def rows(self, numbers: Int64) -> SparseRows:
        """The unit vectors of some points, rounded."""
        entries = (self.lists.values, self.lists.ids, self.lists.offsets_R1)
        lists = csc_array(entries, shape=(self.num_points, self.num_features))
        chosen = lists.tocsr()[numbers]
        return SparseRows(chosen.indptr.astype(np.int64), chosen.indices.astype(np.int32), chosen.data)

    @cached_property
    def by_point(self) -> tuple[tuple[NDArray[Any], ...], float]:
        """Offsets, features and codes of the points, one after the other, how long each is without its rare features,
        and the length of the longest: with them the compiled search leaves out lists. Empty if points are few."""
        extension = compiled_points()
        if extension is None or self.num_points < _FEW_POINTS:
            return tuple(np.zeros(0, dtype) for dtype in (np.int64, np.int32, np.int8, np.uint8)), 0.0
        lists, num_entries = self.lists, len(self.lists.ids)
        offsets_P1, masses_P = np.empty(self.num_points + 1, np.int64), np.zeros(self.num_points, np.uint8)
        rows = offsets_P1, np.empty(num_entries, np.int32), np.empty(num_entries, np.int8), masses_P
        entries = lists.offsets_R1, lists.ids, lists.codes, lists.scales_R
        return rows, extension.fill_rows(*entries, self.num_points, *rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold the lists alone."""
        return SparsePoints, (self.lists, self.num_points)

    def nearest(self, queries: SparseRows, vectors_ND: Tensor | None, count: int) -> tuple[Float32, Int64]:
        """Cosines and numbers [N, n] of the nearest points, n = min(count, P): highest first, ties by the smaller
        number. If no further point has a cosine above 0: the cosine 0 and the number 0.

        ``vectors_ND`` is for points of another kind.
        """
        del vectors_ND
        if count < 0:
            raise ValueError(f"count is {count}; wanted 0 or more")
        rows, num_nearest = unit_rows(queries, num_features=self.num_features), min(count, self.num_points)
        find = plain_nearest if compiled_points() is None else compiled_nearest
        return find(self, rows, num_nearest)

    def on(self, device: torch.device) -> SparsePoints:
        """They stay on the CPU."""
        del device
        return self

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a file; they share memory with the points where possible."""
        return as_tensors(self.lists.arrays() | {"num_points": np.array(self.num_points, np.int64)})

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> SparsePoints:
        """The inverse of ``tensors()``. Raises ValueError for invalid tensors."""
        own = as_arrays({name: tensor for name, tensor in tensors.items() if name in _OWN}, _OWN)
        num_points = int(own["num_points"])
        _check_number(num_points)
        others = {name: tensor for name, tensor in tensors.items() if name not in _OWN}
        return cls(CodedEntries.from_tensors(others, num_columns=num_points), num_points)


def _check_number(num_points: int) -> None:
    if not 0 <= num_points < 2**31:
        raise ValueError(f"num_points is {num_points}; wanted 0 to 2^31 - 1")


def unit_rows(rows: SparseRows, *, num_features: int) -> SparseRows:
    """Rows scaled to length 1, each feature once and in ascending order; rows of zeros do not change."""
    rows = checked_rows(rows, num_features=num_features)
    if not ascends_in_rows(rows.offsets, rows.indices):
        matrix = rows.to_scipy(num_features).copy()  # it is modified below
        matrix.sum_duplicates()
        rows = checked_rows(SparseRows(matrix.indptr, matrix.indices, matrix.data), num_features=num_features)
    assert rows.values is not None
    lengths_N = np.sqrt(squared_lengths(rows))
    lengths_N[lengths_N == 0] = 1
    values = (rows.values / np.repeat(lengths_N, rows.counts)).astype(np.float32)
    return SparseRows(rows.offsets, rows.indices, values)


def compiled_nearest(points: SparsePoints, rows: SparseRows, num_nearest: int) -> tuple[Float32, Int64]:
    """The same in C on all threads; ``rows`` of length 1."""
    extension = compiled_points()
    assert extension is not None
    by_point, longest = points.by_point
    cosines_Nn = np.zeros((len(rows), num_nearest), np.float32)
    points_Nn = np.zeros((len(rows), num_nearest), np.int64)
    extension.nearest(
        rows.offsets,
        rows.indices,
        rows.values,
        points.lists.offsets_R1,
        points.lists.ids,
        points.lists.codes,
        points.lists.scales_R,
        points.num_points,
        num_nearest,
        cosines_Nn,
        points_Nn,
        torch.get_num_threads(),
        *by_point,
        longest,
    )
    return cosines_Nn, points_Nn


def plain_nearest(points: SparsePoints, rows: SparseRows, num_nearest: int) -> tuple[Float32, Int64]:
    """``compiled_nearest`` in NumPy."""
    assert rows.values is not None
    lists = points.lists
    cosines_Nn = np.zeros((len(rows), num_nearest), np.float32)
    points_Nn = np.zeros((len(rows), num_nearest), np.int64)
    for n in range(len(rows)):
        cosines_P = np.zeros(points.num_points, np.float32)
        for entry in range(rows.offsets[n], rows.offsets[n + 1]):
            feature = rows.indices[entry]
            own = slice(lists.offsets_R1[feature], lists.offsets_R1[feature + 1])
            cosines_P[lists.ids[own]] += (rows.values[entry] * lists.scales_R[feature]) * lists.codes[own]
        found = np.flatnonzero(cosines_P > 0)
        best = found[np.argsort(-cosines_P[found], kind="stable")[:num_nearest]]
        cosines_Nn[n, : len(best)], points_Nn[n, : len(best)] = cosines_P[best], best
    return cosines_Nn, points_Nn


@dataclass(frozen=True, eq=False)
class DensePoints:
    """Unit vectors of the training points.

    For an ensemble, those of its first model: all of them find hardly better neighbours and take several times the
    memory.
    """

    codes_PW: Tensor
    """Vectors in the unit below: int8, and on a GPU the same whole numbers in bfloat16, which its kernels multiply."""
    unit: float

    @classmethod
    def of(cls, vectors_PW: Tensor) -> DensePoints:
        """The nearest vectors that bytes in one unit can hold."""
        bounds = torch.stack(torch.aminmax(vectors_PW)).float() if vectors_PW.numel() else torch.zeros(2)
        unit = max(float(bounds.abs().max()) / LARGEST_CODE, LEAST_SCALE)
        codes_PW = torch.empty(vectors_PW.shape, dtype=torch.int8, device=vectors_PW.device)
        for start in range(0, len(vectors_PW), _BLOCK_ROWS):
            block = vectors_PW[start : start + _BLOCK_ROWS].float()
            codes_PW[start : start + _BLOCK_ROWS] = (block / unit).round_().clamp_(-LARGEST_CODE, LARGEST_CODE)
        return cls(codes_PW, float(np.float32(unit)))

    def __len__(self) -> int:
        return len(self.codes_PW)

    @property
    def width(self) -> int:
        return self.codes_PW.shape[1]

    def on(self, device: torch.device) -> DensePoints:
        return DensePoints(self.codes_PW.to(device, torch.int8 if device.type == "cpu" else torch.bfloat16), self.unit)

    def nearest(
        self, queries: SparseRows | None, vectors_ND: Tensor | None, count: int
    ) -> tuple[Float32, NDArray[np.int64]]:
        """Cosines and numbers [N, n] of the nearest points; ``queries`` is for points of another kind."""
        del queries
        assert vectors_ND is not None
        own_NW, count = first_head(vectors_ND, self.width), min(count, len(self))
        if self.codes_PW.device.type == "cpu":
            cosines_Nn, points_Nn = self._index.search(own_NW, count)
        else:
            cosines_Nn, points_Nn = hardest(own_NW, self.codes_PW, count)
            cosines_Nn = cosines_Nn.float() * self.unit
        return cosines_Nn.float().cpu().numpy(), points_Nn.cpu().numpy()

    @cached_property
    def _index(self) -> ExactIndex:
        return ExactIndex(CodedRows(self.codes_PW, torch.full((len(self),), self.unit)))

    def tensors(self) -> dict[str, Tensor]:
        return {"codes": self.codes_PW.to("cpu", torch.int8), "unit": torch.tensor(self.unit)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> DensePoints:
        """The inverse of ``tensors()``. Raises ValueError for invalid tensors."""
        check_tensors(tensors, {"codes": (torch.int8, 2), "unit": (torch.float32, 0)})
        codes_PW, unit = tensors["codes"], float(tensors["unit"])
        if not 0 < unit <= _LONGEST / LARGEST_CODE:
            raise ValueError(f"the unit of vectors of points is {unit:g}; wanted one above 0, at most 1 / 127")
        if codes_PW.numel() and (least := int(codes_PW.min())) < -LARGEST_CODE:
            raise ValueError(f"vectors of points contain the code {least}; wanted -127 to 127")
        return cls(codes_PW, unit)


def first_head(vectors_ND: Tensor, width: int) -> Tensor:
    """The unit vectors [N, width] of the first model of the ensemble, whose vectors are concatenated in
    ``vectors_ND``."""
    assert vectors_ND.shape[1] % width == 0
    return torch.nn.functional.normalize(vectors_ND[:, :width].float(), dim=1)
