"""What a model takes from Python: every form of its own kind of query, and a clear word about all others."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import owlmine
from owlmine.data import Store
from owlmine.data.rows import SparseRows
from owlmine.errors import OwlmineError
from owlmine.rank.predictor import Predictor

from ..small_models import MODELS, sparse_store
from .test_predictor import assert_same

TEXTS = ["the river and the castle", "pepper"]
COUNTS = np.zeros((3, 50))
COUNTS[[0, 0, 1, 2], [3, 20, 7, 44]] = [1, 2, 1, 3]
ROWS = SparseRows(np.array([0, 2, 3, 4]), np.array([3, 20, 7, 44]), np.array([1, 2, 1, 3], np.float32))
VECTORS = np.linspace(-1, 1, 18).reshape(2, 9)
MATRIX = sparse.csr_matrix(COUNTS)
GOOD = {"text": TEXTS, "sparse": ROWS, "dense": VECTORS.astype(np.float32)}
DOORS = ["predict", "predict_batch", "answer", "shortlist"]


@cache
def model(kind: str) -> Predictor:
    return owlmine.load(MODELS[kind][0]())


def damaged(**changes: Any) -> SparseRows:
    parts: dict[str, Any] = {"offsets": ROWS.offsets, "indices": ROWS.indices, "values": ROWS.values}
    return SparseRows(**parts | changes)


def with_value(array: Any, place: Any, value: float) -> Any:
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("kind", "queries"),
    [
        ("text", tuple(TEXTS)),
        ("text", np.array(TEXTS)),
        ("text", np.array(TEXTS, object)),
        ("text", pd.Series(TEXTS, index=[7, 3])),
        ("text", pd.Series(TEXTS, dtype="string")),
        ("text", pd.DataFrame({"words": TEXTS})),
        ("sparse", pd.DataFrame(COUNTS)),
        ("sparse", COUNTS.astype(np.float16)),
        ("dense", pd.DataFrame(VECTORS.astype(np.float32))),
        *(("sparse", MATRIX.asformat(form)) for form in ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")),
        ("sparse", sparse.csr_array(MATRIX).astype(np.int32)),
        ("sparse", COUNTS),
        ("sparse", COUNTS.tolist()),
        ("sparse", damaged(offsets=ROWS.offsets.astype(np.int32), indices=ROWS.indices.astype(np.int16))),
        ("dense", VECTORS.astype(np.float32).astype(np.float64)),
        ("dense", torch.from_numpy(VECTORS.astype(np.float32))),
        ("dense", VECTORS.astype(np.float32).tolist()),
        ("dense", np.asfortranarray(VECTORS, np.float32)),
    ],
)
def test_queries_in_every_form(kind: str, queries: Any) -> None:
    predictor = model(kind)
    assert_same(predictor.predict_batch(queries, 4), predictor.predict_batch(GOOD[kind], 4), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "queries", "told"),
    [
        ("text", "the river", r"a single string, 'the river'; wanted a list: \[query\]"),
        ("text", [None], "a list that holds None at 0; wanted .* the model takes text"),
        ("text", ["a", 0.5], "a list that holds 0.5 at 1"),
        ("text", np.array(["a", None], object), "an array that holds None at 1"),
        ("text", pd.Series(["a", None], dtype=object), "holds None at 1"),
        ("text", MATRIX, r"a SciPy matrix of shape \(3, 50\)"),
        ("text", VECTORS, r"an array of shape \(2, 9\) and type float64"),
        ("text", ROWS, "SparseRows of 3 rows"),
        ("text", None, "None; wanted"),
        ("text", iter(TEXTS), "a list_iterator"),
        ("sparse", TEXTS, "a list that holds 'the river and the castle' at 0; wanted sparse vectors of 50 features"),
        ("sparse", MATRIX[:, :4], r"a SciPy matrix of shape \(3, 4\)"),
        ("sparse", VECTORS, r"an array of shape \(2, 9\)"),
        ("sparse", [[1.0], [1.0, 2.0]], "rows of different lengths"),
        ("sparse", with_value(COUNTS, (1, 2), np.nan), "the value nan in row 1"),
        ("sparse", sparse.csr_matrix(with_value(COUNTS, (2, 2), np.inf)), "the value inf in row 2"),
        ("dense", TEXTS, "a list that holds 'the river and the castle' at 0; wanted dense vectors of width 9"),
        ("dense", MATRIX[:, :9], r"a SciPy matrix of shape \(3, 9\)"),
        ("dense", VECTORS[0], r"an array of shape \(9,\)"),
        ("dense", VECTORS.astype(object), r"an array of shape \(2, 9\) and type object"),
        ("dense", [[None] * 9], r"a list that holds \[None"),
        ("dense", with_value(VECTORS, (1, 2), np.nan), "the value nan in row 1; wanted finite values"),
        ("dense", VECTORS * 1e300, r"the value -1e\+300 in row 0; wanted at most 1e\+15"),
        ("dense", VECTORS.astype(np.float32) * 1e30, r"the value -1e\+30 in row 0; wanted at most 1e\+15"),
        ("dense", pd.DataFrame({"a": VECTORS[:, 0], "b": ["one", "two"]}), "a data frame of 2 columns, 'b'"),
        ("sparse", MATRIX * 1e30, r"a value of size 3e\+30 in row 2; wanted at most 1e\+15"),
    ],
)
def test_what_a_model_does_not_take_is_named(kind: str, queries: Any, told: str) -> None:
    with pytest.raises(OwlmineError, match=f"queries: found .*{told}"):
        model(kind).predict(queries)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (damaged(offsets=np.array([0, 2, -(10**8), 4])), "offsets that fall from 2 to -100000000 at row 1"),
        (damaged(offsets=np.array([0, 2, 3, 10**9])), "a last offset of 1000000000"),
        (damaged(indices=np.array([3, 50, 7, 44])), "id 50 in row 0"),
        (damaged(indices=np.array([3, 20, -(10**8), 44])), "id -100000000 in row 1"),
        (damaged(values=np.array([1, 2, 1, np.nan], np.float32)), "nan in row 2"),
        (damaged(values=np.array([1, 2, 1, 1e300])), r"1e\+300 in row 2"),
        (damaged(values=np.ones(3, np.float32)), "3 values for 4 ids"),
        (damaged(offsets=[0, 2, 3, 4]), "offsets in a list"),
    ],
)
@pytest.mark.parametrize("door", DOORS)
def test_damaged_rows_reach_no_compiled_code(rows: SparseRows, told: str, door: str) -> None:
    with pytest.raises(OwlmineError, match=f"queries: found .*{told}"):
        getattr(model("sparse"), door)(rows, 3)


@pytest.mark.parametrize("door", ["answer", "shortlist"])
def test_prepared_queries_are_of_the_kind_of_the_model(door: str) -> None:
    cases: list[tuple[str, Any]] = [("text", TEXTS), ("sparse", VECTORS), ("dense", ROWS), ("dense", VECTORS[:, :3])]
    for kind, features in cases:
        with pytest.raises(OwlmineError, match=r"queries: found .*wanted"):
            getattr(model(kind), door)(features, 1)
    with pytest.raises(OwlmineError, match="the value nan in row 0"):
        getattr(model("dense"), door)(with_value(VECTORS, (0, 0), np.nan), 1)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", None])
@pytest.mark.parametrize("door", DOORS)
def test_k_is_a_whole_number_of_1_or_more(k: Any, door: str) -> None:
    with pytest.raises(OwlmineError, match=r"k: found .*; wanted a whole number of 1 or more"):
        getattr(model("dense"), door)(GOOD["dense"], k)


def test_raw_counts_are_weighted_as_in_the_store() -> None:
    predictor = model("sparse")
    rows = SparseRows(np.array([0, 3]), np.array([30, 4, 7]), np.array([2, 0, 1], np.float32))
    prepared = predictor.prepare(rows)
    assert isinstance(prepared, SparseRows)
    assert prepared.indices.tolist() == [7, 30]  # no zeros, ascending
    assert prepared.values is not None
    assert np.linalg.norm(prepared.values) == pytest.approx(1)
    with pytest.raises(OwlmineError, match="not whole counts"):
        predictor.prepare(SparseRows(np.array([0, 1]), np.array([3]), np.array([0.5], np.float32)))


def test_rows_of_a_store_are_prepared_already() -> None:
    """From raw counts come the same features as conversion made of the file."""
    predictor, stored = model("sparse"), next(Store.open(sparse_store())["test"].blocks()).queries
    lines = (MODELS["sparse"][1]() / "test.txt").read_text().splitlines()[1:]
    entries = [dict(map(float, entry.split(":")) for entry in line.split()[1:]) for line in lines]
    counts = np.zeros((len(lines), 50), np.float32)
    for row, own in enumerate(entries):
        counts[row, [int(feature) for feature in own]] = list(own.values())
    prepared = predictor.prepare(sparse.csr_matrix(counts))
    assert isinstance(prepared, SparseRows)
    assert isinstance(stored, SparseRows)
    np.testing.assert_array_equal(prepared.offsets, stored.offsets)
    np.testing.assert_array_equal(prepared.indices, stored.indices)
    np.testing.assert_allclose(prepared.values, stored.values, rtol=1e-6)
