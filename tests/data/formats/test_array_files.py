"""npz, npy, and files with a line per point: dtypes, orders, and what may be odd without being wrong."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from owlmine.data.formats import array_files

from .bad_files import npy, npz
from .conftest import Convert
from .points import stored_rows


def saved(matrix: Any, *, compressed: bool = True) -> bytes:
    buffer = io.BytesIO()
    sparse.save_npz(buffer, matrix, compressed=compressed)
    return buffer.getvalue()


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", ">f4", ">i8", "g"])
@pytest.mark.parametrize("index", ["i4", "i8", ">i4", "u4"])
def test_sparse_dtypes(dtype: str, index: str, converted: Convert) -> None:
    x = npz(indptr=np.array([0, 1, 2], index), indices=np.array([0, 2], index), data=np.array([1, 1], dtype))
    assert stored_rows(converted({"X.trn.npz": x, "Y.trn.npz": npz()}))["train"] == [
        ({"0": 1.0}, {"0": 1.0}),
        ({"2": 1.0}, {"2": 1.0}),
    ]


def test_sparse_arrays_unsorted_with_zeros_and_old_spelling(converted: Convert) -> None:
    x = npz(
        format=np.array("csr"),
        indptr=np.array([0, 3, 3]),
        indices=np.array([2, 0, 1]),
        data=np.array([3.0, 1.0, 0.0]),
    )
    y = saved(sparse.csr_array(np.array([[0, 1, 0.25], [0, 0, 0]])), compressed=False)
    store = converted({"trn_X_Xf.npz": x, "trn_X_Y.npz": y})
    assert stored_rows(store)["train"] == [({"1": 1.0, "2": 0.25}, {"0": 1.0, "2": 3.0}), ({}, {})]


def test_blocks_of_few_rows_and_few_entries(converted: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((53, 17)) < 0.3, rng.integers(1, 9, (53, 17)), 0).astype(np.float32)
    dense[5], dense[30] = 1, 0
    labels = sparse.csr_matrix(rng.random((53, 4)) < 0.5)
    wanted = stored_rows(converted({"X.trn.npz": saved(sparse.csr_matrix(dense)), "Y.trn.npz": saved(labels)}))
    monkeypatch.setattr(array_files, "BLOCK_ROWS", 10)
    monkeypatch.setattr(array_files, "_BLOCK_ENTRIES", 12)
    files = {"X.trn.npz": saved(sparse.csr_matrix(dense)), "Y.trn.npz": saved(labels)}
    assert stored_rows(converted(files)) == wanted
    vectors = stored_rows(converted({"X.trn.npy": npy(dense), "Y.trn.npz": saved(labels)}))["train"]
    assert [row for _, row in vectors] == dense.tolist()
    assert [row for row, _ in vectors] == [row for row, _ in wanted["train"]]


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", ">f4", ">i2", "g"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_dtypes_and_orders(dtype: str, order: Any, converted: Convert) -> None:
    vectors = np.array([[1, 0, 1], [0, 0, 1]], dtype, order=order)
    store = converted({"train.npy": npy(vectors), "train.labels.npy": npy(np.array([1, -1]))})
    assert stored_rows(store)["train"] == [({"1": 1.0}, [1.0, 0.0, 1.0]), ({}, [0.0, 0.0, 1.0])]


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i4", "u4", "i8", "u8"])
def test_label_dtypes(dtype: str, converted: Convert) -> None:
    store = converted({"X.trn.npy": npy(np.eye(3)), "Y.trn.npy": npy(np.array([5, 0, 100], dtype))})
    assert list(store.class_keys) == ["0", "5", "100"]


def test_old_versions_of_the_npy_header(converted: Convert) -> None:
    def versioned(array: Any, version: tuple[int, int]) -> bytes:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(array), version=version)
        return buffer.getvalue()

    for version in ((1, 0), (2, 0), (3, 0)):
        store = converted({"X.trn.npy": versioned(np.eye(2), version), "Y.trn.npy": versioned([0, 1], version)})
        assert len(store["train"]) == 2


def test_labels_line_by_line(converted: Convert) -> None:
    files = {"X.trn.txt": "barn owl\n\nowl\nsnow\n\n\n", "Y.trn.txt": "3,1\r\n7\n\n 0002  2 2\n"}
    store = converted(files)
    assert stored_rows(store)["train"] == [
        ({"1": 1.0, "3": 1.0}, {"barn": 1.0, "owl": 1.0}),
        ({}, {"owl": 1.0}),
        ({"2": 1.0}, {"snow": 1.0}),
    ]
    assert store.meta["splits"]["train"]["accepted"] == {"crlf_lines": 1, "duplicate_labels": 2, "blank_lines": 2}


def test_blank_lines_after_the_labels(converted: Convert) -> None:
    store = converted({"train.npy": npy(np.eye(2)), "train.labels.txt": "0\n1\n\n\n"})
    assert len(store["train"]) == 2
    assert store.meta["splits"]["train"]["accepted"] == {"blank_lines": 2}
