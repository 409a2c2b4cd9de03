"""From shortlists to what each class learns from: its own points, and those that were taken for it.

Shapes: N points, S places of a shortlist, K classes, P pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Int64, SparseRows


@dataclass(frozen=True, eq=False)
class MinedPairs:
    """Class c learns from ``points[offsets_K1[c]:offsets_K1[c + 1]]``, ascending, with targets 1 (a label) or -1."""

    offsets_K1: Int64
    points: NDArray[np.int32]
    targets: NDArray[np.int8]

    @property
    def num_classes(self) -> int:
        return len(self.offsets_K1) - 1

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def of(cls, ranked_NS: NDArray[Any], labels: SparseRows, *, num_classes: int) -> MinedPairs:
        """A pair (class, point) for each label, 1, and for each class of a shortlist that is no label, -1.

        Ids below 0 are empty places. Holds about four arrays of int64, as long as there are labels and places.
        """
        _check(ranked_NS, labels, num_classes)
        num_points = len(ranked_NS)
        # One number per pair, in the order that is wanted; a label comes before the same pair from a shortlist.
        keys_P = np.concatenate(
            [
                (np.asarray(labels.indices, np.int64) * num_points + labels.row_ids) * 2,
                _shortlist_keys(ranked_NS) * 2 + 1,
            ]
        )
        keys_P.sort()
        is_first_P = np.ones(len(keys_P), np.bool_)
        np.not_equal(keys_P[1:] >> 1, keys_P[:-1] >> 1, out=is_first_P[1:])
        keys_P = keys_P[is_first_P]
        targets_P = np.where(keys_P & 1, np.int8(-1), np.int8(1))
        keys_P >>= 1
        offsets_K1 = np.searchsorted(keys_P, np.arange(num_classes + 1, dtype=np.int64) * num_points)
        keys_P %= max(num_points, 1)
        return cls(offsets_K1.astype(np.int64), keys_P.astype(np.int32), targets_P)


def _shortlist_keys(ranked_NS: NDArray[Any]) -> Int64:
    is_place_NS = ranked_NS >= 0
    keys: Int64 = ranked_NS[is_place_NS].astype(np.int64) * len(ranked_NS)
    keys += np.repeat(np.arange(len(ranked_NS)), is_place_NS.sum(axis=1))
    return keys


def _check(ranked_NS: NDArray[Any], labels: SparseRows, num_classes: int) -> None:
    if ranked_NS.ndim != 2 or ranked_NS.dtype.kind not in "iu":
        raise ValueError(f"shortlists have the shape {ranked_NS.shape} in {ranked_NS.dtype}; wanted [N, S] class ids")
    if len(labels) != len(ranked_NS):
        raise ValueError(f"there are labels for {len(labels)} points; wanted {len(ranked_NS)}, one row a shortlist")
    if len(labels) >= 2**31 or num_classes < 0 or num_classes * len(labels) >= 2**62:
        raise ValueError(f"{num_classes} classes of {len(labels)} points; wanted products of the two below 2^62")
    for name, ids, least in (("labels", labels.indices, 0), ("shortlists", ranked_NS, None)):
        if ids.size and (ids.max() >= num_classes or (least is not None and ids.min() < least)):
            raise ValueError(f"{name} hold ids from {ids.min()} to {ids.max()}; wanted ids below {num_classes}")
