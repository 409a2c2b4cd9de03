"""Inputs: columns and targets, in every form that scikit-learn accepts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import assert_all_finite, check_array, column_or_1d

from owlmine.data.formats.memory import Labels, read_labels
from owlmine.data.rows import Int64, SparseRows, offsets_from_counts

# From this density on, a sparse matrix takes more memory than a dense one.
_FULL = 0.5


@dataclass(frozen=True)
class ColumnForm:
    """How a matrix is prepared for the model, as determined by the training points.

    If ``mean`` is given, dense rows become ((x - mean) / scale, 1): the constant replaces the bias that the encoder
    lacks.
    """

    dense: bool
    num_columns: int
    mean: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, matrix: Any, *, standardise: bool) -> ColumnForm:
        if sparse.issparse(matrix) and matrix.nnz < matrix.shape[0] * matrix.shape[1] * _FULL:
            return cls(False, matrix.shape[1])
        if not standardise:
            return cls(True, matrix.shape[1])
        matrix = matrix.toarray() if sparse.issparse(matrix) else matrix
        deviation = matrix.std(axis=0, dtype=np.float64)
        mean = matrix.mean(axis=0, dtype=np.float64)
        # Through rounding, a constant column can have a deviation of a few units in the last place.
        constant = deviation <= 10 * np.finfo(np.float32).eps * np.abs(mean)
        return cls(True, matrix.shape[1], mean, np.where(constant, 1.0, deviation))

    @property
    def num_features(self) -> int:
        """The number of the model's features."""
        return self.num_columns + (self.mean is not None)

    def apply(self, matrix: Any) -> SparseRows | NDArray[np.float32]:
        """The model's features."""
        if not self.dense:
            rows = sparse.csr_array(matrix, copy=True)
            rows.sum_duplicates()
            rows.eliminate_zeros()
            return SparseRows(rows.indptr.astype(np.int64), rows.indices, rows.data.astype(np.float32, copy=False))
        dense_NF = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)
        if self.mean is None or self.scale is None:
            return np.array(dense_NF, np.float32, order="C")  # a copy: PyTorch warns about read-only memory
        standard = np.ones((len(dense_NF), self.num_features), np.float32)
        standard[:, :-1] = (dense_NF - self.mean) / self.scale
        return standard


TARGET_KINDS = ("single", "indicator", "sparse indicator", "lists")
_NESTED = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class Targets:
    """Labels of some points, not yet numbered. For indicators, the labels are column numbers."""

    kind: str
    labels: Labels
    flat: NDArray[Any]
    """The concatenated labels of all points, in one type."""
    dtype: np.dtype[Any]
    """The dtype of the given array: an indicator is predicted in the same type."""

    def __len__(self) -> int:
        return len(self.labels)

    def known_classes(self) -> NDArray[Any]:
        """The classes of these targets, in ascending order."""
        return np.unique(self.flat) if self.labels.num_columns is None else np.arange(self.labels.num_columns)

    def label_rows(self, classes: NDArray[Any]) -> SparseRows:
        """Labels as positions in ``classes``; -1 for one that is not among them. Each counts once per point."""
        num_columns = self.labels.num_columns
        if num_columns is not None and num_columns != len(classes):
            raise ValueError(f"y has {num_columns} columns; wanted {len(classes)}, one for each class")
        places = places_in(classes, self.flat) if num_columns is None else self.flat.astype(np.int64)
        rows = np.repeat(np.arange(len(self)), np.diff(self.labels.offsets))
        keys = np.unique(rows * (len(classes) + 1) + places + 1)  # ascending by point, then by class
        rows, places = keys // (len(classes) + 1), keys % (len(classes) + 1) - 1
        return SparseRows(offsets_from_counts(np.bincount(rows, minlength=len(self))), places, None)


def read_targets(y: Any) -> Targets:
    """Recognises the form of ``y`` as scikit-learn does. Raises ValueError for an unsupported one."""
    if hasattr(y, "iloc") and y.ndim == 2:
        y = y.to_numpy()
    if sparse.issparse(y):
        return _indicator(y, "sparse indicator")
    if _is_nested(y):
        as_indicator = _as_indicator(list(y))
        return _lists(y) if as_indicator is None else _indicator(as_indicator, "indicator")
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] > 1:
        return _indicator(array, "indicator")
    flat = column_or_1d(y, warn=True)
    if flat.dtype.kind == "f":
        assert_all_finite(flat, input_name="y")
    with warnings.catch_warnings():
        # Having nearly as many classes as points is no sign of regression here.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        found = type_of_target(flat, input_name="y")
    if found not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: {found}; wanted whole numbers, truth values or strings")
    return Targets("single", Labels(np.arange(len(flat) + 1), flat, is_single=True), flat, flat.dtype)


def places_in(classes: NDArray[Any], labels: NDArray[Any]) -> Int64:
    """The position of each label in the ascending ``classes``, -1 if it is not there."""
    numbers = [array.dtype.kind in "biuf" for array in (classes, labels)]
    if numbers[0] != numbers[1] and object not in (classes.dtype, labels.dtype):
        return np.full(len(labels), -1, np.int64)  # NumPy would compare 1 and "1" as strings
    try:
        places = np.clip(np.searchsorted(classes, labels), 0, len(classes) - 1)
    except TypeError as error:
        raise ValueError(f"labels cannot be compared with the classes: {error}") from error
    return np.where(classes[places] == labels, places, -1).astype(np.int64)


def class_keys(classes: NDArray[Any]) -> list[str]:
    """The model's key of each class."""
    return [str(label) for label in classes.tolist()]


def _indicator(y: Any, kind: str) -> Targets:
    found = type_of_target(y, input_name="y", raise_unknown=True)
    if found != "multilabel-indicator":
        raise ValueError(f"y is {found} of shape {y.shape}; wanted one column, or a matrix of 0 and 1")
    y = check_array(y, accept_sparse="csr", dtype=None, input_name="y")
    matrix = sparse.csr_array(y, copy=True)
    matrix.eliminate_zeros()
    return Targets(kind, read_labels(matrix, "y"), matrix.indices, y.dtype)


def _is_nested(y: Any) -> bool:
    """Whether ``y`` is a sequence of sequences, and not an array of numbers or strings."""
    if hasattr(y, "dtype") and (y.ndim != 1 or y.dtype != object):
        return False
    return (isinstance(y, list | tuple) or hasattr(y, "dtype")) and any(isinstance(row, _NESTED) for row in y)


def _as_indicator(rows: list[Any]) -> NDArray[Any] | None:
    """Rows of 0 and 1 of one length, as scikit-learn reads them.

    Lists of distinct labels look like this only if every point has exactly the labels 0 and 1.
    """
    if not all(isinstance(row, list | tuple | np.ndarray) for row in rows):
        return None
    widths = {len(row) for row in rows}
    if len(widths) > 1 or max(widths) < 2 or any(np.ndim(item) for row in rows for item in row):
        return None
    array = np.array([list(row) for row in rows])
    return array if array.dtype.kind in "biuf" and np.isin(array, (0, 1)).all() else None


def _lists(y: Any) -> Targets:
    for number, row in enumerate(y):
        if not isinstance(row, _NESTED):
            raise ValueError(f"row {number} of y is {row!r}; wanted a list of labels, as in other rows")
    labels = read_labels(y, "y")
    for kinds in (str, int | np.integer | np.bool_):
        if all(isinstance(label, kinds) for label in labels.flat):
            flat = np.array(labels.flat) if len(labels.flat) else np.zeros(0, np.int64)
            return Targets("lists", labels, flat, flat.dtype)
    types = " and ".join(sorted({type(label).__name__ for label in labels.flat}))
    raise ValueError(f"labels in y are of type {types}; wanted all strings or all whole numbers")
