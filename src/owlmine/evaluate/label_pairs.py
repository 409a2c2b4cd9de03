"""True labels in whatever form they come, as sorted (row, class) pairs.

Shapes: N rows, L pairs, K classes.
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
from owlmine.evaluate.arrays import is_scipy_sparse
from owlmine.evaluate.pair_keys import Int64, pair_keys

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
    """Read ``labels``; ValueError unless the ids are integers from 0 to ``num_classes`` - 1.

    A label that a row names twice counts once. A stored value of 0 is no label.
    """
    counts_N, class_L = _entries(labels)
    if len(class_L):
        lowest, highest = int(class_L.min()), int(class_L.max())
        bound = np.iinfo(np.int64).max if num_classes is None else num_classes
        if lowest < 0 or highest >= bound:
            raise ValueError(
                f"labels hold the class {lowest if lowest < 0 else highest}; wanted ids from 0 to {bound - 1}"
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
            raise ValueError(f"labels hold the row {row!r}; wanted a list of class ids")
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
