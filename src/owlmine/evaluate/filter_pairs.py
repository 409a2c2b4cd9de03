"""Pairs that must not be judged: the (row, class) list of a ``filter_labels_*`` file.

A filtered class leaves the true labels of its row and the ranked list of its row; the classes ranked below it
move up by one place and the end of the list is filled with -1. To judge k places one therefore retrieves k
plus the largest number of pairs that a row has.

Shapes: N rows, M places, P filter pairs, K classes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from owlmine.evaluate.arrays import array_module, like
from owlmine.evaluate.label_pairs import LabelPairs
from owlmine.evaluate.pair_keys import Int64, find_keys, pair_keys


class FilterPairs:
    """Filter pairs sorted by row, so that the pairs of a batch are found by binary search.

    ``pairs`` is an integer array [P, 2] of (row, class), in any order; repeats do no harm.
    """

    def __init__(self, pairs: NDArray[Any]) -> None:
        pairs = np.asarray(pairs)
        if pairs.size == 0:
            pairs = np.empty((0, 2), np.int64)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise ValueError(
                f"filter pairs have the shape {pairs.shape} and the type {pairs.dtype}; "
                "wanted integers [pairs, 2] of (row, class)"
            )
        if len(pairs) and pairs.min() < 0:
            raise ValueError(f"filter pairs hold {pairs.min()}; wanted rows and classes of at least 0")
        pairs = pairs.astype(np.int64, copy=False)
        order_P = np.lexsort((pairs[:, 1], pairs[:, 0]))
        self.rows: Int64 = pairs[order_P, 0]
        self.classes: Int64 = pairs[order_P, 1]

    def __len__(self) -> int:
        return len(self.rows)

    def in_rows(self, start: int, stop: int) -> FilterPairs:
        """The pairs of the rows from ``start`` up to ``stop`` - 1, with ``start`` counted as row 0."""
        first, last = np.searchsorted(self.rows, (start, stop))
        return FilterPairs(np.stack((self.rows[first:last] - start, self.classes[first:last]), axis=1))


Pairs: TypeAlias = FilterPairs | NDArray[Any] | None
"""What the option ``filter_pairs`` takes: sorted pairs, an array [P, 2] of (row, class), or none."""


def without_pairs(ids_NM: Any, labels: LabelPairs, pairs: FilterPairs, *, num_classes: int) -> tuple[Any, LabelPairs]:
    """Ranked ids and labels with the filtered classes taken out."""
    if len(pairs) == 0:
        return ids_NM, labels
    if pairs.rows[-1] >= labels.num_rows:
        raise ValueError(f"filter pairs hold the row {pairs.rows[-1]}; wanted rows from 0 to {labels.num_rows - 1}")
    if pairs.classes.max() >= num_classes:
        raise ValueError(f"filter pairs hold the class {pairs.classes.max()}; wanted ids from 0 to {num_classes - 1}")
    keys_P = pair_keys(pairs.rows, pairs.classes, num_classes)
    kept_labels = labels.select(~np.isin(labels.keys(num_classes), keys_P))
    return _closed_up(ids_NM, keys_P, num_classes), kept_labels


def _closed_up(ids_NM: Any, keys_P: Int64, num_classes: int) -> Any:
    module = array_module(ids_NM)
    removed, _ = find_keys(ids_NM, keys_P, num_classes)
    kept = like(np.ones(ids_NM.shape[0] * ids_NM.shape[1], np.bool_), ids_NM)
    kept[removed] = False
    kept_NM = kept.reshape(ids_NM.shape)
    new_place_NM = kept_NM.cumsum(1) - 1
    row_R, place_R = module.where(kept_NM)
    closed_NM = module.full_like(ids_NM, -1)
    closed_NM[row_R, new_place_NM[row_R, place_R]] = ids_NM[row_R, place_R]
    return closed_NM
