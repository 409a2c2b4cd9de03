"""Targets in every form that scikit-learn's users have: one label per point, an indicator matrix, lists of labels."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import assert_all_finite, check_array, column_or_1d

from owlmine.data.rows import Int64, SparseRows, offsets_from_counts

KINDS = ("single", "indicator", "sparse indicator", "lists")
_NESTED = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class Targets:
    """Labels of some points, not yet numbered. ``flat`` has the labels of all points end to end.

    For indicators the labels are column numbers, and ``num_columns`` is how many there are.
    """

    kind: str
    flat: NDArray[Any]
    offsets: Int64
    dtype: np.dtype[Any]
    """Of the array that was given: an indicator is predicted in the same type."""
    num_columns: int | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def known_classes(self) -> NDArray[Any]:
        """The classes that can be told from these targets, in ascending order."""
        return np.unique(self.flat) if self.num_columns is None else np.arange(self.num_columns)

    def label_rows(self, classes: NDArray[Any]) -> SparseRows:
        """Labels as places in ``classes``; -1 for one that is not among them. Each counts once for a point."""
        if self.num_columns is not None:
            if self.num_columns != len(classes):
                raise ValueError(f"y has {self.num_columns} columns; wanted {len(classes)}, one for each class")
            places: Int64 = self.flat.astype(np.int64)
        else:
            places = places_in(classes, self.flat)
        rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        keys = np.unique(rows * (len(classes) + 1) + places + 1)  # ascending by point, then by class
        rows, places = keys // (len(classes) + 1), keys % (len(classes) + 1) - 1
        return SparseRows(offsets_from_counts(np.bincount(rows, minlength=len(self))), places, None)


def read_targets(y: Any) -> Targets:
    """Recognises the form of ``y``; ValueError where it is none of those that this estimator takes."""
    if sparse.issparse(y):
        return _indicator(y, "sparse indicator")
    nested = _nested_rows(y)
    if nested is not None:
        as_indicator = _as_indicator(nested)
        return _lists(nested) if as_indicator is None else _indicator(as_indicator, "indicator")
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] > 1:
        return _indicator(array, "indicator")
    flat = column_or_1d(y, warn=True)
    if flat.dtype.kind == "f":
        assert_all_finite(flat, input_name="y")
    with warnings.catch_warnings():
        # That there are nearly as many classes as points is no sign of regression here.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        found = type_of_target(flat, input_name="y")
    if found not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: {found}; wanted whole numbers, truth values or strings")
    return Targets("single", flat, np.arange(len(flat) + 1), flat.dtype)


def places_in(classes: NDArray[Any], labels: NDArray[Any]) -> Int64:
    """Where each label is in the ascending ``classes``, -1 where it is not."""
    numbers = [array.dtype.kind in "biuf" for array in (classes, labels)]
    if numbers[0] != numbers[1] and object not in (classes.dtype, labels.dtype):
        return np.full(len(labels), -1, np.int64)  # NumPy would compare 1 and "1" as strings
    try:
        places = np.clip(np.searchsorted(classes, labels), 0, len(classes) - 1)
    except TypeError as error:
        raise ValueError(f"labels cannot be compared with the classes: {error}") from error
    return np.where(classes[places] == labels, places, -1).astype(np.int64)


def _indicator(y: Any, kind: str) -> Targets:
    found = type_of_target(y, input_name="y", raise_unknown=True)
    if found != "multilabel-indicator":
        raise ValueError(f"y is {found} of shape {y.shape}; wanted one column, or a matrix of 0 and 1")
    y = check_array(y, accept_sparse="csr", dtype=None, input_name="y")
    matrix = sparse.csr_array(y)
    if (matrix.data == 0).any():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return Targets(kind, matrix.indices, matrix.indptr.astype(np.int64), y.dtype, matrix.shape[1])


def _nested_rows(y: Any) -> list[Collection[Any]] | None:
    """The rows of a sequence of sequences; None for everything else."""
    if hasattr(y, "dtype") and (y.ndim != 1 or y.dtype != object):
        return None
    if not (isinstance(y, (list, tuple)) or hasattr(y, "dtype")) or not len(y):
        return None
    rows = list(y)
    if not isinstance(rows[0], _NESTED):
        return None
    for number, row in enumerate(rows):
        if not isinstance(row, _NESTED) or np.ndim(row if isinstance(row, np.ndarray) else 0) > 1:
            raise ValueError(f"row {number} of y is {row!r}; wanted a list of labels, like row 0")
    return rows


def _as_indicator(rows: list[Collection[Any]]) -> NDArray[Any] | None:
    """Rows of 0 and 1 of one length, as scikit-learn reads them.

    Lists of distinct labels look like this only where every point has exactly the labels 0 and 1.
    """
    widths = {len(row) for row in rows}
    if len(widths) > 1 or max(widths) < 2 or any(isinstance(row, (set, frozenset)) for row in rows):
        return None
    array = np.array([list(row) for row in rows])
    return array if array.dtype.kind in "biuf" and np.isin(array, (0, 1)).all() else None


def _lists(rows: list[Collection[Any]]) -> Targets:
    labels = [label for row in rows for label in row]
    flat = np.array(labels) if labels else np.zeros(0, np.int64)
    strings = sum(isinstance(label, str) for label in labels)
    if strings not in (0, len(labels)) or flat.ndim != 1 or flat.dtype.kind not in "biuU":
        raise ValueError(f"labels in y are of type {flat.dtype}; wanted all strings or all whole numbers")
    return Targets("lists", flat, offsets_from_counts(np.array([len(row) for row in rows])), flat.dtype)
