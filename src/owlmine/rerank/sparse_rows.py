"""Sparse rows as the compiled part takes them, and what must be true of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import SparseRows

_BLOCK_ROWS = 1 << 16


def checked_rows(rows: SparseRows, *, num_features: int) -> SparseRows:
    """The same rows in int64, int32 and float32; ValueError where a row could not be read, or a value is not finite."""
    offsets, indices = np.asarray(rows.offsets), np.asarray(rows.indices)
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise ValueError(f"offsets have the shape {offsets.shape} in {offsets.dtype}; wanted N + 1 whole numbers")
    if indices.ndim != 1 or (len(indices) and indices.dtype.kind not in "iu"):
        raise ValueError(f"indices have the shape {indices.shape} in {indices.dtype}; wanted one whole number an entry")
    if offsets[0] != 0 or offsets[-1] != len(indices) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets do not ascend from 0 to the number of entries, {len(indices)}")
    if len(indices) and not (indices.min() >= 0 and indices.max() < num_features):
        raise ValueError(f"indices are {indices.min()} to {indices.max()}; wanted 0 to {num_features - 1}")
    values = np.ones(len(indices), np.float32) if rows.values is None else np.asarray(rows.values)
    if values.shape != indices.shape:
        raise ValueError(f"values have the shape {values.shape}; wanted {indices.shape}, one for each index")
    with np.errstate(over="ignore"):  # what float32 cannot hold is seen below
        values = np.ascontiguousarray(values, np.float32)
    if len(values) and not np.isfinite([values.min(), values.max()]).all():
        raise ValueError("a value is not a finite number")
    return SparseRows(np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(indices, np.int32), values)


def squared_lengths(rows: SparseRows) -> NDArray[np.float64]:
    """[N] |x|² of each row; ValueError where a row does not have each feature once, in ascending order."""
    assert rows.values is not None
    squares_N = np.empty(len(rows), np.float64)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        if not ascends_in_rows(block.offsets, block.indices):
            raise ValueError("a row does not have each feature once, in ascending order")
        assert block.values is not None
        squares = np.square(block.values, dtype=np.float64)
        squares_N[start : start + len(block)] = np.bincount(block.row_ids, weights=squares, minlength=len(block))
    return squares_N


def ascends_in_rows(offsets: NDArray[np.int64], indices: NDArray[np.int32]) -> bool:
    """Whether each index of a row is above the one before it."""
    ascends = indices[1:] > indices[:-1]
    inner_starts = offsets[1:-1]
    ascends[inner_starts[(inner_starts > 0) & (inner_starts < len(indices))] - 1] = True
    return bool(ascends.all())
