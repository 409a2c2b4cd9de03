"""Points in memory: SciPy or NumPy queries, texts, pandas, with labels in any usual form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from owlmine.data.formats.array_files import check_dense, check_rows, to_float32
from owlmine.data.formats.block import (
    BLOCK_ROWS,
    BadCellError,
    Block,
    Notes,
    Queries,
    QueryKind,
    RowLabels,
    label_of,
    shown,
)
from owlmine.data.rows import Int64, SparseRows, offsets_from_counts
from owlmine.errors import DataError

_MAX_ID = 2**31
_WANTED_QUERIES = "texts, a SciPy matrix, a 2-d array or a data frame of numbers"
_WANTED_LABELS = "labels, lists of labels, or an indicator matrix"


@dataclass(frozen=True)
class Labels:
    """The concatenated labels of some points, as given, without class numbers yet."""

    offsets: Int64
    flat: Sequence[Any] | NDArray[Any]
    """Column numbers, if they come from an indicator matrix."""
    num_columns: int | None = None
    """Of an indicator matrix; None for labels by name."""
    weights: NDArray[Any] | None = None
    is_single: bool = False
    """Whether each point was given one label, and not a list."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def read_labels(labels: Any, source: str) -> Labels:
    """Labels in a list, an array or a pandas column: one of each point, or a list or set of them.

    Or a matrix, sparse or dense, with a column per class and the weight of each label, which is usually 1.
    """
    if hasattr(labels, "iloc") and getattr(labels, "ndim", 0) == 2:
        labels = labels.iloc[:, 0] if labels.shape[1] == 1 else _numbers_of_frame(labels, source, _WANTED_LABELS)
    if sparse.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2):
        matrix = _known_matrix(labels, "labels", source)
        return Labels(matrix.indptr.astype(np.int64), matrix.indices, int(matrix.shape[1]), matrix.data)
    if hasattr(labels, "to_list"):
        labels = labels.to_list()
    is_listed = isinstance(labels, Sequence) or (isinstance(labels, np.ndarray) and labels.ndim == 1)
    if not is_listed or isinstance(labels, str | bytes):
        raise DataError(source, found=f"labels of type {type(labels).__name__}", wanted=_WANTED_LABELS)
    if not any(isinstance(given, _SEVERAL) for given in labels):
        return Labels(np.arange(len(labels) + 1), labels, is_single=True)
    # A set has no order of its own, and class numbers follow the order of labels.
    rows = [sorted(given, key=str) if isinstance(given, set | frozenset) else given for given in labels]
    rows = [given if isinstance(given, _SEVERAL) else [given] for given in rows]
    return Labels(offsets_from_counts(np.array([len(row) for row in rows])), [label for row in rows for label in row])


_SEVERAL = (list, tuple, set, frozenset, np.ndarray)


class MemoryReader:
    """``queries``: see ``_known_queries``. ``labels``: an input or the result of ``read_labels``."""

    num_features: int | None
    num_classes: int | None

    def __init__(self, queries: Any, labels: Any, source: str, *, labels_source: str | None = None) -> None:
        self.source, self._labels_source = source, labels_source or source
        self._queries, self.kind, self.num_features = _known_queries(queries, source)
        self._labels = labels if isinstance(labels, Labels) else read_labels(labels, self._labels_source)
        self.num_classes = self._labels.num_columns
        num_queries, num_labels = _length(self._queries), len(self._labels)
        if num_queries != num_labels:
            wanted = f"{num_queries:,}, one per query"
            raise DataError(self._labels_source, found=f"{num_labels:,} rows of labels", wanted=wanted)

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def num_labels(self) -> int:
        """Labels of all points."""
        return len(self._labels.flat) if self._labels.weights is None else int(np.count_nonzero(self._labels.weights))

    def blocks(self, notes: Notes) -> Iterator[Block]:
        for start in range(0, len(self), BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, len(self))
            yield Block(self._query_rows(start, stop), self._label_rows(start, stop, notes), stop / len(self))

    def _query_rows(self, start: int, stop: int) -> Queries:
        if self.kind == "text":
            return list(self._queries[start:stop])
        if self.kind == "dense":
            rows = to_float32(self._queries[start:stop])
            check_dense(rows, self.source, start)
            return rows
        assert self.num_features is not None
        sparse_rows = _rows_between(
            self._queries.indptr, self._queries.indices, self._queries.data, start=start, stop=stop
        )
        check_rows(sparse_rows, self.num_features, self.source, start)
        return sparse_rows

    def _label_rows(self, start: int, stop: int, notes: Notes) -> RowLabels:
        labels, source = self._labels, self._labels_source
        if labels.num_columns is not None:
            assert isinstance(labels.flat, np.ndarray)
            assert labels.weights is not None
            rows = _rows_between(labels.offsets, labels.flat, labels.weights, start=start, stop=stop)
            check_rows(rows, labels.num_columns, source, start)
            assert rows.values is not None
            if (rows.values < 0).any():
                raise DataError(source, found=f"the label weight {rows.values.min()}", wanted="positive weights")
            rows = rows.select(rows.values != 0)
            return RowLabels(rows.offsets, rows.indices, rows.values)
        counts: list[int] = []
        names: list[str] = []
        offsets = labels.offsets[start : stop + 1].tolist()
        for row, (low, high) in enumerate(pairwise(offsets), start):
            try:
                unique = list(dict.fromkeys(label_of(item) for item in labels.flat[low:high]))
            except BadCellError as error:
                raise DataError(source, found=f"{error.found} in row {row}", wanted=error.wanted) from None
            notes.tally("duplicate_labels", high - low - len(unique))
            counts.append(len(unique))
            names.extend(unique)
        return RowLabels(offsets_from_counts(np.array(counts)), names)


def _known_queries(queries: Any, source: str) -> tuple[Any, QueryKind, int | None]:
    """A CSR matrix, a 2-d array or a sequence of texts, which of these it is, and the width it states."""
    if sparse.issparse(queries):
        matrix = _known_matrix(queries, "queries", source)
        if matrix.shape[1] > _MAX_ID:
            raise DataError(source, found=f"{matrix.shape[1]:,} features", wanted=f"at most {_MAX_ID:,}")
        return matrix, "sparse", int(matrix.shape[1])
    queries = _as_array(without_pandas(queries, source, _WANTED_QUERIES))
    if isinstance(queries, np.ndarray) and queries.dtype.kind in "biuf" and queries.ndim == 2 and queries.shape[1]:
        return queries, "dense", int(queries.shape[1])
    if isinstance(queries, np.ndarray) and queries.ndim != 1:
        found = f"an array of dtype {queries.dtype}, shape {queries.shape}"
        raise DataError(source, found=found, wanted=_WANTED_QUERIES)
    if isinstance(queries, Sequence | np.ndarray) and not isinstance(queries, str | bytes):
        bad = next((row for row, text in enumerate(queries) if not isinstance(text, str)), None)
        if bad is None:
            return queries, "text", None
        raise DataError(source, found=f"{shown(queries[bad])} as query {bad}", wanted=_WANTED_QUERIES)
    found = f"a single string, {shown(queries)}" if isinstance(queries, str) else f"a {type(queries).__name__}"
    raise DataError(source, found=found, wanted=_WANTED_QUERIES)


def without_pandas(queries: Any, source: str, wanted: str) -> Any:
    """A data frame as an array of numbers, or as a list if it has one column of anything else; a Series as a list."""
    if hasattr(queries, "iloc") and getattr(queries, "ndim", 0) == 2:
        is_column = queries.shape[1] == 1 and getattr(queries.dtypes.iloc[0], "kind", "O") not in "biuf"
        queries = queries.iloc[:, 0] if is_column else _numbers_of_frame(queries, source, wanted)
    return queries.to_list() if hasattr(queries, "to_list") else queries


def _as_array(queries: Any) -> Any:
    """Rows of numbers in lists, and what can turn itself into an array (such as a tensor), as an array; anything else
    as it is."""
    rows_of_numbers = isinstance(queries, list | tuple) and len(queries) and isinstance(queries[0], list | tuple)
    if not rows_of_numbers and (isinstance(queries, np.ndarray | str | bytes) or not hasattr(queries, "__array__")):
        return queries
    try:
        return np.asarray(queries)
    except (ValueError, TypeError):  # rows of different lengths, memory of a GPU
        return queries


def _numbers_of_frame(frame: Any, source: str, wanted: str) -> NDArray[Any]:
    kinds = {str(name): str(dtype) for name, dtype in frame.dtypes.items() if getattr(dtype, "kind", "O") not in "biuf"}
    if kinds or not frame.shape[1]:
        bad = ", ".join(f"{name!r} ({kind})" for name, kind in kinds.items())
        raise DataError(source, found=f"a data frame of {frame.shape[1]} columns, {bad or 'none'}", wanted=wanted)
    numbers: NDArray[np.float64] = frame.to_numpy(np.float64, na_value=np.nan)
    return numbers


def _known_matrix(given: Any, what: str, source: str) -> Any:
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise DataError(
            source, found=f"{what} of dtype {given.dtype}, shape {given.shape}", wanted="a matrix of real numbers"
        )
    return sparse.csr_matrix(given)


def _rows_between(
    offsets: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], *, start: int, stop: int
) -> SparseRows:
    low, high = int(offsets[start]), int(offsets[stop])
    return SparseRows(
        offsets[start : stop + 1].astype(np.int64) - low,
        indices[low:high].astype(np.int64),
        to_float32(values[low:high]),
    )


def _length(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
