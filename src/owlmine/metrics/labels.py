"""True labels as sorted (row, class) pairs, from any form, and pairs to leave out of evaluation.

The key of a pair is row * K + class. Sorted keys answer "is this class a label of this row?" for a whole batch by
binary search, in memory that grows with the pairs and never with rows times classes.

Shapes: N rows, M places of a ranked list, L label pairs, P filter pairs, K classes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import SparseRows
from owlmine.metrics.arrays import array_module, is_scipy_sparse, like

Int64: TypeAlias = NDArray[np.int64]


def pair_keys(row_L: Int64, class_L: Int64, num_classes: int) -> Int64:
    """row * K + class of each pair."""
    return row_L * np.int64(num_classes) + class_L


def check_keys_fit(num_rows: int, num_classes: int) -> None:
    """Raises ValueError if the largest key does not fit into 64 bits."""
    if num_rows * num_classes > np.iinfo(np.int64).max:
        raise ValueError(f"{num_rows} rows times {num_classes} classes is too many; wanted less than 2**63")


def find_keys(ids_NM: Any, keys_L: Int64, num_classes: int) -> tuple[Any, Any]:
    """Where ranked ids meet sorted keys: flat positions in [N, M], rising, and which key each of them met.

    Runs in the library and on the device of ``ids_NM``, in time N M log L.
    """
    module = array_module(ids_NM)
    ids = ids_NM.reshape(-1)
    if len(keys_L) == 0:
        return ids[:0], ids[:0]
    keys = like(keys_L, ids)
    rows_N1 = like(np.arange(len(ids_NM), dtype=np.int64)[:, None], ids)
    wanted = (rows_N1 * num_classes + ids_NM).reshape(-1)
    met = module.clip(module.searchsorted(keys, wanted), None, len(keys_L) - 1)
    # The key of an empty place, -1, would be that of the last class in the row before.
    found = (keys[met] == wanted) & (ids >= 0)
    (position,) = module.where(found)
    return position, met[position]


# True labels from any form, as sorted (row, class) pairs.
#
# Shapes: N rows, L pairs, K classes.


Labels: TypeAlias = "SparseRows | Sequence[Collection[int]] | Any"
"""``SparseRows``, a SciPy sparse matrix [N, K], or one collection of class ids per row."""


@dataclass(frozen=True)
class LabelPairs:
    """The distinct (row, class) pairs [L], sorted by row and then by class."""

    num_rows: int
    rows: Int64
    classes: Int64

    @cached_property
    def counts(self) -> Int64:
        """Labels per row [N]."""
        return np.bincount(self.rows, minlength=self.num_rows)

    def select(self, keep_L: NDArray[np.bool_]) -> LabelPairs:
        """The same rows with only the labels marked in ``keep_L``."""
        return LabelPairs(self.num_rows, self.rows[keep_L], self.classes[keep_L])

    def keys(self, num_classes: int) -> Int64:
        return pair_keys(self.rows, self.classes, num_classes)


def label_pairs(labels: Labels, *, num_classes: int | None) -> LabelPairs:
    """Reads ``labels``. Raises ValueError unless the ids are integers from 0 to ``num_classes`` - 1.

    A label that a row names twice counts once. A stored value of 0 is not a label.
    """
    counts_N, class_L = _entries(labels)
    if len(class_L):
        lowest, highest = int(class_L.min()), int(class_L.max())
        bound = np.iinfo(np.int64).max if num_classes is None else num_classes
        if lowest < 0 or highest >= bound:
            raise ValueError(
                f"labels contain the class {lowest if lowest < 0 else highest}; wanted ids from 0 to {bound - 1}"
            )
    row_L = np.repeat(np.arange(len(counts_N), dtype=np.int64), counts_N)
    return _sorted_pairs(len(counts_N), row_L, class_L.astype(np.int64, copy=False))


def _entries(labels: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Number of entries per row, and the class of each entry."""
    if is_scipy_sparse(labels):
        matrix = labels.tocsr()
        labels = SparseRows(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)
    if isinstance(labels, SparseRows):
        return _stored_entries(labels)
    if not isinstance(labels, Sequence) or isinstance(labels, str | bytes):
        raise ValueError(
            f"labels are a {type(labels).__name__}; "
            "wanted SparseRows, a SciPy sparse matrix, or a list with one list of class ids per row"
        )
    for row in labels:
        if isinstance(row, str | bytes) or not isinstance(row, Collection):
            raise ValueError(f"labels contain the row {row!r}; wanted a list of class ids")
    counts_N = np.fromiter((len(row) for row in labels), np.int64, len(labels))
    return counts_N, _integers(np.array(list(chain.from_iterable(labels))))


def _stored_entries(labels: SparseRows) -> tuple[NDArray[Any], NDArray[Any]]:
    if labels.counts.sum() != len(labels.indices):
        raise ValueError(f"labels hold {len(labels.indices)} entries; wanted {labels.counts.sum()}, as the offsets say")
    if labels.values is not None and not labels.values.all():
        labels = labels.select(labels.values != 0)
    return labels.counts, _integers(labels.indices)


def _integers(classes: NDArray[Any]) -> NDArray[Any]:
    if len(classes) and classes.dtype.kind not in "iu":
        raise ValueError(f"labels have the type {classes.dtype}; wanted integer class ids")
    return classes


def _sorted_pairs(num_rows: int, row_L: Int64, class_L: Int64) -> LabelPairs:
    same_row_L = row_L[1:] == row_L[:-1]
    if np.all(class_L[1:] > class_L[:-1], where=same_row_L):
        return LabelPairs(num_rows, row_L, class_L)
    order_L = np.lexsort((class_L, row_L))
    row_L, class_L = row_L[order_L], class_L[order_L]
    first_L = np.ones(len(row_L), np.bool_)
    first_L[1:] = (row_L[1:] != row_L[:-1]) | (class_L[1:] != class_L[:-1])
    return LabelPairs(num_rows, row_L[first_L], class_L[first_L])


# Pairs to leave out of evaluation: the (row, class) list of a ``filter_labels_*`` file.
#
# A filtered class leaves the true labels of its row and the ranked list of its row; the classes ranked below it
# move up by one place and the end of the list is filled with -1. To evaluate k places one therefore retrieves k
# plus the largest number of pairs that a row has.
#
# Shapes: N rows, M places, P filter pairs, K classes.


class FilterPairs:
    """Filter pairs sorted by row, so that the pairs of a batch are found by binary search.

    ``pairs`` is an integer array [P, 2] of (row, class), in any order; repeats are allowed.
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
            raise ValueError(f"filter pairs contain {pairs.min()}; wanted rows and classes of at least 0")
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
"""The value of the option ``filter_pairs``: sorted pairs, an array [P, 2] of (row, class), or none."""


def without_pairs(ids_NM: Any, labels: LabelPairs, pairs: FilterPairs, *, num_classes: int) -> tuple[Any, LabelPairs]:
    """Ranked ids and labels without the filtered classes."""
    if len(pairs) == 0:
        return ids_NM, labels
    if pairs.rows[-1] >= labels.num_rows:
        raise ValueError(f"filter pairs contain the row {pairs.rows[-1]}; wanted rows from 0 to {labels.num_rows - 1}")
    if pairs.classes.max() >= num_classes:
        wanted = f"ids from 0 to {num_classes - 1}"
        raise ValueError(f"filter pairs contain the class {pairs.classes.max()}; wanted {wanted}")
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
