"""The matrices that all tools share, and their checksums."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import matrices
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, load_npz

from owlmine.data import Store, convert


@st.composite
def small_matrices(draw: st.DrawFn) -> np.ndarray:
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    cells = draw(
        st.lists(st.sampled_from([0.0, 0.0, 1.0, -2.5, 0.125]), min_size=rows * columns, max_size=rows * columns)
    )
    return np.array(cells, np.float32).reshape(rows, columns)


def stored_otherwise(dense: np.ndarray, seed: int) -> csr_matrix:
    """The same numbers as float64, in a random order within rows, zeros stored, large values in two parts."""
    random = np.random.default_rng(seed)
    indices, data, indptr = [], [], [0]
    for row in dense:
        parts = [(c, v / 2) for c, v in enumerate(row)] * 2
        for place in random.permutation(len(parts)):
            indices.append(parts[place][0])
            data.append(parts[place][1])
        indptr.append(len(indices))
    columns = np.array(indices, np.int64)
    return csr_matrix((np.array(data, np.float64), columns, np.array(indptr, np.int64)), shape=dense.shape)


def checksum_by_hand(dense: np.ndarray) -> str:
    entries = [[(c, v) for c, v in enumerate(row) if v] for row in dense.tolist()]
    ends = [sum(len(row) for row in entries[:count]) for count in range(len(entries) + 1)]
    flat = [entry for row in entries for entry in row]
    packed = struct.pack(f"<{2 + len(ends) + len(flat)}q", *dense.shape, *ends, *(c for c, _ in flat))
    return hashlib.sha256(packed + struct.pack(f"<{len(flat)}f", *(v for _, v in flat))).hexdigest()


@settings(max_examples=50, deadline=None)
@given(small_matrices(), st.integers(0, 1000))
def test_checksum_knows_the_numbers_alone(dense: np.ndarray, seed: int) -> None:
    wanted = checksum_by_hand(dense)
    assert matrices.checksum(csr_matrix(dense)) == wanted
    assert matrices.checksum(csr_matrix(dense.astype(np.float64))) == wanted
    assert matrices.checksum(stored_otherwise(dense, seed)) == wanted


@settings(max_examples=50, deadline=None)
@given(small_matrices(), st.data())
def test_checksum_changes_with_any_value(dense: np.ndarray, data: st.DataObject) -> None:
    row, column = (data.draw(st.integers(0, size - 1)) for size in dense.shape)
    changed = dense.copy()
    # The next float32: no change is too small.
    changed[row, column] = np.nextafter(dense[row, column], np.float32(np.inf))
    assert matrices.checksum(csr_matrix(changed)) != matrices.checksum(csr_matrix(dense))


def test_checksum_changes_with_the_shape() -> None:
    empty = [matrices.checksum(csr_matrix(shape, dtype=np.float32)) for shape in ((2, 3), (3, 2), (2, 4), (3, 3))]
    assert len(set(empty)) == 4


def test_export_holds_the_rows_of_the_store(small_store: Store, tmp_path: Path) -> None:
    sums = matrices.export(small_store, tmp_path / "matrices")
    assert sums == matrices.checksums(small_store)
    for split in ("train", "test"):
        X, Y = (load_npz(tmp_path / "matrices" / f"{kind}.{split}.npz") for kind in "XY")
        batch = small_store[split].batch(np.arange(len(small_store[split])))
        np.testing.assert_array_equal(X.toarray(), batch.queries.to_scipy(small_store.num_features).toarray())
        np.testing.assert_array_equal(Y.toarray(), batch.labels.to_scipy(small_store.num_classes).toarray())
        assert (X.dtype, Y.dtype) == (np.float32, np.float32)
        assert matrices.checksum(X) == sums[f"X.{split}"]
        assert matrices.checksum(Y) == sums[f"Y.{split}"]


def test_export_is_made_once_and_again_for_another_store(
    small_store: Store, small_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "matrices"
    matrices.export(small_store, folder)
    written = (folder / "X.train.npz").stat().st_mtime_ns
    matrices.export(small_store, folder)
    assert (folder / "X.train.npz").stat().st_mtime_ns == written
    lines = (small_folder / "test.txt").read_text().splitlines()
    (small_folder / "test.txt").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    other = convert(small_folder, tmp_path / "other")
    sums = matrices.export(other, folder)
    assert sums == matrices.checksums(other)
    assert sums["X.test"] != matrices.checksums(small_store)["X.test"]
    assert matrices.checksum(load_npz(folder / "X.test.npz")) == sums["X.test"]


def test_interrupted_export_is_made_again(small_store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "matrices"
    sums = matrices.export(small_store, folder)
    (folder / "checksums.json").unlink()
    (folder / "Y.test.npz").unlink()
    assert matrices.export(small_store, folder) == sums
    assert (folder / "Y.test.npz").is_file()


def test_dense_queries_are_refused(tmp_path: Path) -> None:
    vectors, labels = np.eye(4, dtype=np.float32), [[0], [1], [0], [1]]
    store = convert({"train": (vectors, labels), "test": (vectors, labels)}, tmp_path / "dense")
    with pytest.raises(ValueError, match="has dense queries; wanted sparse"):
        matrices.matrix(store, "X.train")
