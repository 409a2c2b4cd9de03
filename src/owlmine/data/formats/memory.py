"""Points that are in memory already: SciPy or NumPy queries, or texts, with labels in any usual form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
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
from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.errors import DataError

_MAX_ID = 2**31


class MemoryReader:
    """``queries``: CSR matrix, dense array or texts. ``labels``: CSR matrix, indicator array, or a list per point."""

    num_features: int | None
    num_classes: int | None

    def __init__(self, queries: Any, labels: Any, source: str) -> None:
        self.source = source
        self._queries, self.kind, self.num_features = _known_queries(queries, source)
        self._labels, self.num_classes = _known_labels(labels, source)
        num_queries, num_labels = _length(self._queries), _length(self._labels)
        if num_queries != num_labels:
            raise DataError(source, found=f"{num_labels:,} rows of labels", wanted=f"{num_queries:,}, one per query")

    def blocks(self, notes: Notes) -> Iterator[Block]:
        num_rows = _length(self._queries)
        for start in range(0, num_rows, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, num_rows)
            labels = _label_rows(self._labels, start, stop, self.num_classes, self.source, notes)
            yield Block(self._query_rows(start, stop), labels, stop / num_rows)

    def _query_rows(self, start: int, stop: int) -> Queries:
        if self.kind == "text":
            return list(self._queries[start:stop])
        if self.kind == "dense":
            rows = to_float32(self._queries[start:stop])
            check_dense(rows, self.source, start)
            return rows
        assert self.num_features is not None
        sparse_rows = _csr_rows(self._queries, start, stop)
        check_rows(sparse_rows, self.num_features, self.source, start)
        return sparse_rows


def _known_queries(queries: Any, source: str) -> tuple[Any, QueryKind, int | None]:
    if sparse.issparse(queries):
        matrix = _known_matrix(queries, "queries", source)
        if matrix.shape[1] > _MAX_ID:
            raise DataError(source, found=f"{matrix.shape[1]:,} features", wanted=f"at most {_MAX_ID:,}")
        return matrix, "sparse", int(matrix.shape[1])
    if hasattr(queries, "to_list"):  # a pandas column
        queries = queries.to_list()
    if isinstance(queries, np.ndarray) and queries.dtype.kind in "biuf" and queries.ndim == 2 and queries.shape[1]:
        return queries, "dense", int(queries.shape[1])
    if isinstance(queries, Sequence | np.ndarray) and not isinstance(queries, str):
        bad = next((row for row, text in enumerate(queries) if not isinstance(text, str)), None)
        if bad is None:
            return queries, "text", None
        raise DataError(source, found=f"{shown(queries[bad])} as query {bad}", wanted="CSR, a 2-d array, or texts")
    raise DataError(source, found=f"queries of type {type(queries).__name__}", wanted="CSR, a 2-d array, or texts")


def _known_labels(labels: Any, source: str) -> tuple[Any, int | None]:
    if sparse.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2):
        matrix = _known_matrix(labels, "labels", source)
        return matrix, int(matrix.shape[1])
    if hasattr(labels, "to_list"):
        labels = labels.to_list()
    if isinstance(labels, Sequence | np.ndarray) and not isinstance(labels, str):
        return labels, None
    raise DataError(source, found=f"labels of type {type(labels).__name__}", wanted="CSR, an indicator array, or lists")


def _known_matrix(given: Any, what: str, source: str) -> Any:
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise DataError(
            source, found=f"{what} of dtype {given.dtype}, shape {given.shape}", wanted="a matrix of real numbers"
        )
    return sparse.csr_matrix(given)


def _label_rows(labels: Any, start: int, stop: int, num_classes: int | None, source: str, notes: Notes) -> RowLabels:
    if num_classes is not None:
        rows = _csr_rows(labels, start, stop)
        check_rows(rows, num_classes, source, start)
        assert rows.values is not None
        rows = rows.select(rows.values != 0)
        return RowLabels(rows.offsets, rows.indices, rows.values)
    counts: list[int] = []
    names: list[str] = []
    for row, given in enumerate(labels[start:stop], start):
        items = given if isinstance(given, list | tuple | np.ndarray) else [given]
        try:
            unique = list(dict.fromkeys(label_of(item) for item in items))
        except BadCellError as error:
            raise DataError(source, found=f"{error.found} in row {row}", wanted=error.wanted) from None
        notes.tally("duplicate_labels", len(items) - len(unique))
        counts.append(len(unique))
        names.extend(unique)
    return RowLabels(offsets_from_counts(np.array(counts)), names)


def _csr_rows(matrix: Any, start: int, stop: int) -> SparseRows:
    low, high = int(matrix.indptr[start]), int(matrix.indptr[stop])
    return SparseRows(
        matrix.indptr[start : stop + 1].astype(np.int64) - low,
        matrix.indices[low:high].astype(np.int64),
        to_float32(matrix.data[low:high]),
    )


def _length(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
