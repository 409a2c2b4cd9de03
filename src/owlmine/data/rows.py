"""Rows in memory: the small blocks that readers hand out and batches are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class SparseRows:
    """Compressed rows: row i owns ``indices[offsets[i]:offsets[i + 1]]`` and the values at the same places.

    ``values`` is None where every stored entry counts as 1 (labels without weights).
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
    """The rows of all parts, one part after the other; either all have values or none has."""
    with_values = [part.values for part in parts if part.values is not None]
    assert len(with_values) in (0, len(parts))
    return SparseRows(
        offsets_from_counts(np.concatenate([part.counts for part in parts])),
        np.concatenate([part.indices for part in parts]),
        np.concatenate(with_values) if with_values else None,
    )


def offsets_from_counts(counts: NDArray[Any]) -> Int64:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def gather_rows(offsets: Int64, rows: NDArray[np.int64]) -> tuple[Int64, Int64]:
    """Where the entries of ``rows`` lie: the new offsets, and one position per entry."""
    starts = offsets[rows]
    new_offsets = offsets_from_counts(offsets[rows + 1] - starts)
    positions = np.repeat(starts - new_offsets[:-1], np.diff(new_offsets))
    positions += np.arange(new_offsets[-1])
    return new_offsets, positions
