"""Splits given in Python: every usual form of queries and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from owlmine.data.formats import memory

from .conftest import Convert
from .points import stored_rows

X = np.array([[1, 0, 2], [0, 3, 0]])
SPARSE_X = [{"0": 1.0, "2": 2.0}, {"1": 3.0}]


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_sparse_forms(form: str, kind: str, converted: Convert) -> None:
    queries = getattr(sparse, f"{form}_{kind}")(X)
    store = converted({"train": (queries, [["a"], ["b"]])})
    assert [row for _, row in stored_rows(store)["train"]] == SPARSE_X


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64, np.uint8, np.longdouble])
def test_dtypes(dtype: Any, converted: Convert) -> None:
    assert [
        row for _, row in stored_rows(converted({"train": (sparse.csr_matrix(X.astype(dtype)), [1, 2])}))["train"]
    ] == SPARSE_X
    assert [row for _, row in stored_rows(converted({"train": (X.astype(dtype), [1, 2])}))["train"]] == X.tolist()


def test_indices_of_64_bits_in_disorder(converted: Convert) -> None:
    queries = sparse.csr_matrix(
        (np.array([2.0, 1.0, 0.0, 3.0]), np.array([2, 0, 1, 1]), np.array([0, 3, 4])), shape=(2, 3)
    )
    queries.indices, queries.indptr = queries.indices.astype(np.int64), queries.indptr.astype(np.int64)
    store = converted({"train": (queries, [["a"], ["b"]])})
    assert [row for _, row in stored_rows(store)["train"]] == SPARSE_X
    assert queries.indices.tolist() == [2, 0, 1, 1]  # the caller's matrix is untouched


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ([["a", "b"], []], [{"a": 1.0, "b": 1.0}, {}]),
        ([("a",), "b"], [{"a": 1.0}, {"b": 1.0}]),
        (["ab", "c"], [{"ab": 1.0}, {"c": 1.0}]),
        (np.array(["ab", "c"]), [{"ab": 1.0}, {"c": 1.0}]),
        (np.array([4, 2]), [{"4": 1.0}, {"2": 1.0}]),
        ([np.array([4, 2]), np.array([], np.int64)], [{"2": 1.0, "4": 1.0}, {}]),
        (pd.Series([["a"], ["b"]], index=[5, 9]), [{"a": 1.0}, {"b": 1.0}]),
        (np.array([[0, 1], [1, 1]]), [{"1": 1.0}, {"0": 1.0, "1": 1.0}]),
        (np.array([[False, True], [True, False]]), [{"1": 1.0}, {"0": 1.0}]),
        (sparse.csr_matrix([[0, 0.5], [0, 0]]), [{"1": 0.5}, {}]),
        (sparse.coo_array([[0, 2], [1, 0]]), [{"1": 2.0}, {"0": 1.0}]),
    ],
)
def test_label_forms(labels: Any, wanted: list[dict[str, float]], converted: Convert) -> None:
    store = converted({"train": (sparse.csr_matrix(X), labels)})
    assert [row for row, _ in stored_rows(store)["train"]] == wanted


@pytest.mark.parametrize(
    "texts", [["owl", "barn"], np.array(["owl", "barn"]), pd.Series(["owl", "barn"], index=[3, 1])]
)
def test_text_forms(texts: Any, converted: Convert) -> None:
    store = converted({"train": (texts, [["a"], ["b"]])})
    assert [row for _, row in stored_rows(store)["train"]] == [{"owl": 1.0}, {"barn": 1.0}]


def test_lone_surrogates_in_texts_part_words(converted: Convert) -> None:
    store = converted({"train": (["ow\ud800ls barn"], [["a"]])})
    assert stored_rows(store)["train"] == [({"a": 1.0}, {"ow": 1.0, "ls": 1.0, "barn": 1.0})]


def test_blocks(converted: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = sparse.random(37, 9, 0.3, "csr", random_state=np.random.default_rng(1), dtype=np.float32)
    labels = sparse.csr_matrix(np.arange(37 * 4).reshape(37, 4) % 3 == 0)
    wanted = stored_rows(converted({"train": (queries, labels)}))
    monkeypatch.setattr(memory, "BLOCK_ROWS", 5)
    assert stored_rows(converted({"train": (queries, labels)})) == wanted


def test_more_classes_than_a_table_can_hold(converted: Convert) -> None:
    labels = sparse.csr_matrix(([1.0, 1.0], [2**40, 7], [0, 1, 2]), shape=(2, 2**41))
    store = converted({"train": (sparse.csr_matrix(X), labels)})
    assert list(store.class_keys) == ["7", str(2**40)]
