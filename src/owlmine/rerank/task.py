"""What there is to learn: the queries, and the pairs of each class, checked once.

Shapes: N points, K classes, C classes of a chunk, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Int64, SparseRows, offsets_from_counts
from owlmine.rerank.mined_pairs import MinedPairs
from owlmine.rerank.sparse_rows import checked_rows, squared_lengths

# Weights that a chunk of classes could write: 128 MiB at 8 bytes each.
_CHUNK_ROOM = 1 << 24
# Entries that a chunk reads in one pass: a few seconds until progress is told again.
_CHUNK_ENTRIES = 1 << 27


@dataclass(frozen=True)
class Task:
    """``squares_N``: |x|² of each query with its constant feature 1."""

    queries: SparseRows
    squares_N: NDArray[np.float64]
    pairs: MinedPairs
    num_features: int

    @classmethod
    def of(cls, queries: SparseRows, pairs: MinedPairs, *, num_features: int) -> Task:
        """ValueError where ids are out of range, or a row does not have each feature once, in ascending order."""
        if not 0 <= num_features < 2**31:
            raise ValueError(f"num_features is {num_features}; wanted 0 to 2^31 - 1")
        queries = checked_rows(queries, num_features=num_features)
        if len(queries) >= 2**31:
            raise ValueError(f"there are {len(queries)} queries; wanted fewer than 2^31")
        pairs = _checked_pairs(pairs, num_points=len(queries))
        return cls(queries, squared_lengths(queries) + 1, pairs, num_features)

    def chunks(self) -> Iterator[tuple[range, Int64]]:
        """Consecutive classes, and offsets [C + 1] of the room that their weights could need."""
        offsets_K1 = self.pairs.offsets_K1
        entries_K1 = offsets_from_counts(self.queries.counts[self.pairs.points])[offsets_K1]
        room_K1 = offsets_from_counts(np.minimum(np.diff(entries_K1), self.num_features))
        start = 0
        while start < self.pairs.num_classes:
            stop = min(
                int(np.searchsorted(room_K1, room_K1[start] + _CHUNK_ROOM, side="right")),
                int(np.searchsorted(entries_K1, entries_K1[start] + _CHUNK_ENTRIES, side="right")),
            )
            stop = max(stop - 1, start + 1)
            yield range(start, stop), room_K1[start : stop + 1] - room_K1[start]
            start = stop


def _checked_pairs(pairs: MinedPairs, *, num_points: int) -> MinedPairs:
    offsets_K1, points, targets = (np.asarray(array) for array in (pairs.offsets_K1, pairs.points, pairs.targets))
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (offsets_K1, points, targets)):
        raise ValueError("offsets, points and targets of pairs must be lists of whole numbers")
    if points.shape != targets.shape:
        raise ValueError(f"there are {len(targets)} targets; wanted {len(points)}, one for each point")
    if len(offsets_K1) == 0 or offsets_K1[0] != 0 or offsets_K1[-1] != len(points):
        raise ValueError(f"offsets of pairs must be K + 1 numbers from 0 to the number of pairs, {len(points)}")
    if (np.diff(offsets_K1.astype(np.int64)) < 0).any():
        raise ValueError("offsets of pairs do not ascend")
    if len(points) and not (points.min() >= 0 and points.max() < num_points):
        raise ValueError(f"pairs speak of points {points.min()} to {points.max()}; there are {num_points} queries")
    if not np.isin(targets, (-1, 1)).all():
        raise ValueError("a target is neither 1 nor -1")
    return MinedPairs(
        np.ascontiguousarray(offsets_K1, np.int64),
        np.ascontiguousarray(points, np.int32),
        np.ascontiguousarray(targets, np.int8),
    )
