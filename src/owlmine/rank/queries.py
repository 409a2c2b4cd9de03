"""Queries from Python: texts, sparse vectors and dense ones, in any common container.

Each function accepts what its kind of model takes, and describes anything else in its error.

Shapes: N queries, F features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from owlmine.data.formats.memory import without_pandas
from owlmine.data.rows import SparseRows, check_rows
from owlmine.dense.finite import LARGEST
from owlmine.errors import DataError, OwlmineError, excerpt

WHAT = "queries"
_IN_RANGE = f"at most {LARGEST:g}; scale the queries like the training data"


def as_texts(queries: Any) -> list[str]:
    """A list, a tuple, a NumPy array, a pandas Series or a data frame of one column."""
    wanted = "a list, array or Series of strings, since the model takes text"
    queries = without_pandas(queries, WHAT, wanted)
    if isinstance(queries, str):
        raise DataError(WHAT, found=f"a single string, {excerpt(queries)}", wanted="a list: [query]")
    if not isinstance(queries, list | tuple) and not (isinstance(queries, np.ndarray) and queries.ndim == 1):
        raise DataError(WHAT, found=described(queries), wanted=wanted)
    texts = queries if isinstance(queries, list) else list(queries)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(WHAT, found=_holding(queries, number), wanted=wanted)
    return texts


def as_sparse(queries: Any, *, num_features: int) -> SparseRows:
    """``SparseRows``, a SciPy matrix of any format, or dense rows."""
    wanted = f"sparse vectors of {num_features:,} features: a SciPy matrix, SparseRows or a 2-d array"
    if isinstance(queries, SparseRows):
        return checked_features(queries, num_features=num_features)
    if not sparse.issparse(queries):
        dense_NF = _numbers(queries, num_features, wanted)
        _check_values(dense_NF)
        queries = sparse.csr_array(dense_NF)
    if queries.ndim != 2 or queries.shape[1] != num_features or queries.dtype.kind not in "biuf":
        raise DataError(WHAT, found=described(queries), wanted=wanted)
    if hasattr(queries, "check_format"):
        try:
            queries.check_format(full_check=True)
        except ValueError as error:
            raise DataError(WHAT, found=f"{described(queries)} that is damaged ({error})", wanted=wanted) from error
    with np.errstate(over="ignore"):  # values beyond float32 are detected below
        matrix = queries.tocsr().astype(np.float32, copy=False)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    rows = SparseRows(matrix.indptr, matrix.indices, matrix.data)
    return checked_features(rows, num_features=num_features)


def as_dense(queries: Any, *, num_features: int) -> NDArray[np.float32]:
    """A 2-d array, a tensor or lists of numbers."""
    wanted = f"dense vectors of width {num_features:,}: a 2-d array, a tensor or lists of numbers"
    return checked_dense(_numbers(queries, num_features, wanted))


def one_query(query: Any, *, from_text: bool) -> Any:
    """A single text or vector as ``prepare`` takes it."""
    if from_text:
        if not isinstance(query, str):
            raise DataError("query", found=described(query), wanted="one text, since the model takes text")
        return [query]
    if isinstance(query, SparseRows) or (sparse.issparse(query) and query.ndim == 2):
        return query
    if sparse.issparse(query):
        return query.reshape(1, -1).tocsr()
    rows = query.to_numpy() if hasattr(query, "to_numpy") else query
    is_vector = rows.ndim == 1 if hasattr(rows, "ndim") else _holds_numbers(rows)
    return rows[None] if is_vector and hasattr(rows, "ndim") else [rows] if is_vector else rows


def _holds_numbers(values: Any) -> bool:
    return isinstance(values, list | tuple) and len(values) > 0 and isinstance(values[0], int | float | np.number)


def checked_features(rows: SparseRows, *, num_features: int) -> SparseRows:
    """Rows of the model's features, checked and in the types for PyTorch and compiled code."""
    check_rows(rows, num_columns=num_features, what=WHAT)
    values = None
    if rows.values is not None:
        given = np.asarray(rows.values)
        if len(given) and (largest := float(np.abs(given).max())) > LARGEST:
            row = int(rows.row_ids[int(np.abs(given).argmax())])
            raise DataError(WHAT, found=f"a value of size {largest:g} in row {row}", wanted=_IN_RANGE)
        values = np.asarray(given, np.float32)
    return SparseRows(np.asarray(rows.offsets, np.int64), rows.indices, values)


def checked_dense(queries_NF: NDArray[Any]) -> NDArray[np.float32]:
    """float32 in memory that PyTorch may use, in the range of training data."""
    _check_values(queries_NF)
    vectors_NF: NDArray[np.float32] = np.require(queries_NF, np.float32, ["C", "W"])
    return vectors_NF


def check_tail(tail: Any) -> None:
    """Raises OwlmineError unless rare classes can be lifted by so much."""
    if isinstance(tail, bool) or not isinstance(tail, int | float | np.number) or not 0 <= tail <= 1:
        raise OwlmineError(f"tail is {tail!r}; wanted a number from 0 to 1")


def checked_k(k: Any, available: int) -> int:
    """The number of classes to return: as many as requested, at most all."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise DataError("k", found=_shown(k), wanted="a whole number of 1 or more")
    return min(int(k), available)


def knows(features: SparseRows | NDArray[Any]) -> NDArray[np.bool_]:
    """[N] whether the model knows any feature of a query. It always does of a dense vector."""
    return features.counts > 0 if isinstance(features, SparseRows) else np.ones(len(features), np.bool_)


def check_scores(scores_NS: NDArray[Any], first_row: int, *, filled_NS: NDArray[np.bool_] | None = None) -> None:
    """Checks scores: finite numbers in the model and in a query may still overflow in their product."""
    good_NS = np.isfinite(scores_NS)
    if filled_NS is not None:
        good_NS |= ~filled_NS
    if not good_NS.all():
        row = first_row + int(np.argmin(good_NS.all(axis=1)))
        wanted = "finite scores: smaller numbers in the query, or an intact model"
        raise DataError("the model", found=f"a score of query {row} that is not finite", wanted=wanted)


def described(value: Any) -> str:
    """Describes a value, for errors."""
    if sparse.issparse(value):
        kind = "a SciPy matrix"
    elif isinstance(value, np.ndarray | torch.Tensor):
        kind = "an array" if isinstance(value, np.ndarray) else "a tensor"
    elif isinstance(value, SparseRows):
        return f"SparseRows of {len(value)} rows"
    elif isinstance(value, list | tuple):
        return _holding(value, 0) if value else f"an empty {type(value).__name__}"
    else:
        return _shown(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return f"{kind} of shape {tuple(value.shape)} and type {value.dtype}"


def _holding(values: Any, number: int) -> str:
    kind = {"list": "a list", "tuple": "a tuple", "ndarray": "an array"}.get(type(values).__name__, "a Series")
    return f"{kind} that holds {_shown(values[number])} at {number}"


def _shown(value: Any) -> str:
    """Its repr, shortened."""
    return excerpt(repr(value))[1:-1]


def _numbers(queries: Any, num_features: int, wanted: str) -> NDArray[Any]:
    """[N, F] of any type."""
    given = queries = without_pandas(queries, WHAT, wanted)
    if isinstance(queries, torch.Tensor):
        if queries.layout != torch.strided or queries.is_complex():
            raise DataError(WHAT, found=described(given), wanted=wanted)
        queries = queries.detach().cpu()
        queries = (queries.float() if queries.is_floating_point() else queries).numpy()
    if isinstance(queries, list | tuple):
        try:
            queries = np.array(queries) if len(queries) else np.zeros((0, num_features), np.float32)
        except ValueError as error:
            raise DataError(WHAT, found="rows of different lengths", wanted=wanted) from error
        if queries.ndim != 2 or queries.dtype.kind not in "biuf":
            raise DataError(WHAT, found=described(given), wanted=wanted)
    if not isinstance(queries, np.ndarray) or queries.ndim != 2 or queries.dtype.kind not in "biuf":
        raise DataError(WHAT, found=described(given), wanted=wanted)
    if queries.shape[1] != num_features:
        raise DataError(WHAT, found=described(queries), wanted=wanted)
    return queries.astype(np.float32) if queries.dtype == np.float16 else queries


def _check_values(queries_NF: NDArray[Any]) -> None:
    """The range is that of training: larger values overflow inside the model."""
    if (good_NF := np.abs(queries_NF) <= LARGEST).all():
        return
    row = int(np.argmin(good_NF.all(axis=1)))
    value = queries_NF[row][~good_NF[row]][0]
    wanted = _IN_RANGE if np.isfinite(value) else "finite values"
    raise DataError(WHAT, found=f"the value {value:g} in row {row}", wanted=wanted)
