"""A store is finished or it is not there; what is there can be checked and read back exactly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from owlmine.data import ConvertOptions, SparseRows, Store, convert
from owlmine.data.arrays import ArrayWriter, StringTable
from owlmine.data.store import FORMAT_VERSION, meta_checksum
from owlmine.data.store_writer import StoreWriter
from owlmine.errors import DataError, OwlmineError


@pytest.fixture
def store(small_folder: Path, tmp_path: Path) -> Store:
    return convert(small_folder, tmp_path / "store", ConvertOptions(weighting="none"))


def rewrite_meta(store: Store, **changes: object) -> None:
    meta = json.loads((store.path / "meta.json").read_text()) | changes
    meta["checksum"] = meta_checksum(meta)
    (store.path / "meta.json").write_text(json.dumps(meta))


def test_rows_come_back_in_any_order(store: Store, small_folder: Path) -> None:
    lines = (small_folder / "train.txt").read_text().splitlines()[1:]
    rows = np.array([199, 0, 7, 7, 42])
    batch = store["train"].batch(rows)
    for place, row in enumerate(rows):
        labels, *features = lines[row].split()
        assert isinstance(batch.queries, SparseRows)
        got = batch.queries[place : place + 1]
        assert got.values is not None
        pairs = [f"{i}:{v}" for i, v in zip(got.indices.tolist(), got.values.tolist(), strict=True)]
        assert pairs == features
        assert ",".join(map(str, batch.labels[place : place + 1].indices)) == labels


def test_blocks_are_all_rows_in_order(store: Store) -> None:
    split = store["train"]
    whole = split.batch(np.arange(len(split)))
    blocks = list(split.blocks(num_rows=17))
    assert sum(map(len, blocks)) == len(split) == 200
    assert isinstance(whole.queries, SparseRows)
    indices = np.concatenate([block.queries.indices for block in blocks])  # type: ignore[union-attr]
    np.testing.assert_array_equal(indices, whole.queries.indices)
    np.testing.assert_array_equal(np.concatenate([b.labels.counts for b in blocks]), whole.labels.counts)


def test_class_counts_are_training_points(store: Store) -> None:
    labels = store["train"].batch(np.arange(200)).labels
    np.testing.assert_array_equal(store.class_counts, np.bincount(labels.indices, minlength=20))


def test_every_flipped_byte_is_found(store: Store) -> None:
    assert store.verify() == []
    for name, entry in store.meta["arrays"].items():
        file = store.path / f"{name}.npy"
        good = file.read_bytes()
        place = entry["bytes"] - 1
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert store.verify() == [name]
        file.write_bytes(good)


def test_flipped_byte_in_meta_is_found(store: Store) -> None:
    text = (store.path / "meta.json").read_text()
    (store.path / "meta.json").write_text(text.replace('"features": 50', '"features": 51'))
    with pytest.raises(DataError, match="checksum that does not match"):
        Store.open(store.path)


def test_other_version_is_refused(store: Store) -> None:
    rewrite_meta(store, version=FORMAT_VERSION + 1)
    with pytest.raises(DataError, match=rf"found store version {FORMAT_VERSION + 1}; wanted version {FORMAT_VERSION}"):
        Store.open(store.path)


def test_another_kind_of_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"format": "something else"}')
    with pytest.raises(DataError, match="another kind of file"):
        Store.open(tmp_path)
    (tmp_path / "meta.json").write_text("{not json")
    with pytest.raises(DataError, match="not JSON"):
        Store.open(tmp_path)


@pytest.mark.parametrize("harm", ["missing", "short"])
def test_missing_or_short_array_is_told_at_opening(store: Store, harm: str) -> None:
    file = store.path / "train.labels.indices.npy"
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"train\.labels\.indices\.npy: found"):
        Store.open(store.path)


def test_unknown_split_is_told(store: Store) -> None:
    with pytest.raises(OwlmineError, match="no split 'dev'; it has train, test"):
        store["dev"]


def test_existing_output_is_left_alone(small_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "precious"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    with pytest.raises(OwlmineError, match="already exists"):
        convert(small_folder, out)
    assert [file.name for file in out.iterdir()] == ["letter.txt"]


def test_failed_writing_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with StoreWriter(tmp_path / "a" / "b" / "out") as writer:
            writer.whole_array("x", np.arange(3))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_abandoned_folders_go_and_living_ones_stay(tmp_path: Path) -> None:
    out, abandoned, not_ours = tmp_path / "out", tmp_path / ".out.partial-dead", tmp_path / ".out.partial-letters"
    not_ours.mkdir()
    (not_ours / "letter.txt").write_text("dear")
    with StoreWriter(out) as living:
        shutil.copytree(living.scratch.parent, abandoned)  # what it would leave behind, killed
        with StoreWriter(out):
            assert living.scratch.exists()
            assert not abandoned.exists()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.txt")] == [".out.partial-letters/letter.txt"]
    assert list(tmp_path.iterdir()) == [not_ours]


def test_offsets_past_two_to_the_31(tmp_path: Path) -> None:
    """Rows that start beyond 2**31 entries; the files are holes but for their ends and take no room."""
    far = 2**31 + 5
    with StoreWriter(tmp_path / "out") as writer:
        features = writer.sparse("train.features", with_values=True)
        features.append(SparseRows(np.array([0, 1]), np.array([9]), np.array([0.5], np.float32)))
        for array in (features._indices, features._values):
            assert array is not None
            array._file.seek((far - 1) * 4, 1)
            array.num_rows += far - 1
        features._offsets.append(np.array([far]))  # one row owns the whole hole; nobody reads it
        features.num_entries = far
        features.append(SparseRows(np.array([0, 2]), np.array([3, 4]), np.array([1, 2], np.float32)))
        labels = writer.sparse("train.labels", with_values=False)
        labels.append(SparseRows(np.array([0, 1, 2, 3]), np.array([0, 1, 1]), None))
        for array in writer._arrays.values():
            array.close()
        entries = {
            name: {
                "dtype": array.dtype.str,
                "shape": [array.num_rows],
                "bytes": array.path.stat().st_size,
                "sha256": "",
            }
            for name, array in writer._arrays.items()
        }
        meta = {
            "queries": "sparse",
            "features": 10,
            "classes": 2,
            "splits": {"train": {"points": 3}},
            "arrays": entries,
        }
        batch = Store(writer._folder, meta)["train"].batch(np.array([2]))
    assert isinstance(batch.queries, SparseRows)
    assert batch.queries.values is not None
    assert batch.queries.indices.tolist() == [3, 4]
    assert batch.queries.values.tolist() == [1.0, 2.0]


def test_array_header_grows_in_place(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path / "a.npy", np.int32, (3,))
    for _ in range(5):
        writer.append(np.ones((7, 3), np.int64))
    writer.append(np.zeros((0, 3), np.int32))
    writer.close()
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.ones((35, 3), np.int32))


def test_string_table() -> None:
    strings = ["", "Plug-in-Hybrid", "Käse", "音楽", ""]
    table = StringTable.of(strings)
    assert list(table) == [table[i] for i in range(len(table))] == strings
    with pytest.raises(IndexError):
        table[5]
