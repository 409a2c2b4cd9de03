"""Sparse rows in memory: the form of readers and batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from owlmine.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class SparseRows:
    """Compressed rows: row i has ``indices[offsets[i]:offsets[i + 1]]`` and the values at the same places.

    ``values`` is None if every stored entry counts as 1 (labels without weights).
    """

    offsets: Int64
    indices: NDArray[Any]
    values: Float32 | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> Int64:
        """Entries per row."""
        return np.diff(self.offsets)

    @property
    def row_ids(self) -> Int64:
        """The row of each entry."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)

    def __getitem__(self, rows: slice) -> SparseRows:
        """Consecutive rows."""
        start, stop, step = rows.indices(len(self))
        assert step == 1
        low, high = int(self.offsets[start]), int(self.offsets[max(start, stop)])
        return SparseRows(
            self.offsets[start : max(start, stop) + 1] - low,
            self.indices[low:high],
            None if self.values is None else self.values[low:high],
        )

    def take(self, row_ids: Int64) -> SparseRows:
        """The given rows, in the given order."""
        offsets, positions = gather_rows(self.offsets, row_ids)
        return SparseRows(offsets, self.indices[positions], None if self.values is None else self.values[positions])

    def select(self, keep: NDArray[np.bool_]) -> SparseRows:
        """The same rows with only the entries marked in ``keep``."""
        counts = np.bincount(self.row_ids[keep], minlength=len(self))
        return SparseRows(
            offsets_from_counts(counts),
            self.indices[keep],
            None if self.values is None else self.values[keep],
        )

    def to_scipy(self, num_columns: int) -> csr_matrix:
        from scipy.sparse import csr_matrix

        values = np.ones(len(self.indices), np.float32) if self.values is None else self.values
        return csr_matrix((values, self.indices, self.offsets), shape=(len(self), num_columns))


def concatenate(parts: Sequence[SparseRows]) -> SparseRows:
    """The concatenated rows of all parts; either all have values or none has."""
    with_values = [part.values for part in parts if part.values is not None]
    assert len(with_values) in (0, len(parts))
    return SparseRows(
        offsets_from_counts(np.concatenate([part.counts for part in parts])),
        np.concatenate([part.indices for part in parts]),
        np.concatenate(with_values) if with_values else None,
    )


def check_rows(rows: SparseRows, *, num_columns: int, what: object) -> None:
    """Raises a DataError that names ``what`` and the row unless these are valid rows of ``num_columns`` columns.

    Rows that pass are safe for compiled code, which does not check again: offsets ascend from 0 to the number of
    entries, ids are below ``num_columns``, values are finite and there are as many as ids.
    """
    offsets, indices, values = rows.offsets, rows.indices, rows.values
    _check_vector(offsets, "iu", "offsets", "integers", what)
    _check_vector(indices, "iu", "ids", "integers", what)
    if len(offsets) == 0:
        raise DataError(what, found="no offsets", wanted="one more than there are rows")
    if offsets[0] != 0:
        raise DataError(what, found=f"rows that start at offset {offsets[0]}", wanted="offset 0")
    if len(falling := np.flatnonzero(offsets[1:] < offsets[:-1])):
        row = int(falling[0])
        found = f"offsets that fall from {offsets[row]} to {offsets[row + 1]} at row {row}"
        raise DataError(what, found=found, wanted="offsets that ascend")
    if offsets[-1] != len(indices):
        found = f"{len(indices)} ids and a last offset of {offsets[-1]}"
        raise DataError(what, found=found, wanted="a last offset equal to the number of ids")
    if len(indices) and (indices.min() < 0 or indices.max() >= num_columns):
        place = int(np.argmax((indices < 0) | (indices >= num_columns)))
        wanted = f"ids from 0 to {num_columns - 1}" if num_columns else "no ids"
        raise DataError(what, found=f"id {indices[place]} in row {_row_of(offsets, place)}", wanted=wanted)
    if values is not None:
        _check_vector(values, "iuf", "values", "numbers", what)
        if len(values) != len(indices):
            found = f"{len(values)} values for {len(indices)} ids"
            raise DataError(what, found=found, wanted="one value per id")
        if not (finite := np.isfinite(values)).all():
            place = int(np.argmin(finite))
            found = f"the value {values[place]} in row {_row_of(offsets, place)}"
            raise DataError(what, found=found, wanted="finite values")


def _check_vector(array: NDArray[Any], kinds: str, name: str, wanted: str, what: object) -> None:
    if not isinstance(array, np.ndarray):
        raise DataError(what, found=f"{name} in a {type(array).__name__}", wanted=f"a NumPy array of {wanted}")
    if array.ndim != 1 or array.dtype.kind not in kinds:
        found = f"{name} of shape {array.shape} and type {array.dtype}"
        raise DataError(what, found=found, wanted=f"one row of {wanted}")


def _row_of(offsets: Int64, place: int) -> int:
    return int(np.searchsorted(offsets, place, side="right")) - 1


def offsets_from_counts(counts: NDArray[Any]) -> Int64:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def gather_rows(offsets: Int64, rows: NDArray[np.int64]) -> tuple[Int64, Int64]:
    """The offsets of the gathered rows, and the position of each of their entries."""
    starts = offsets[rows]
    new_offsets = offsets_from_counts(offsets[rows + 1] - starts)
    positions = np.repeat(starts - new_offsets[:-1], np.diff(new_offsets))
    positions += np.arange(new_offsets[-1])
    return new_offsets, positions
