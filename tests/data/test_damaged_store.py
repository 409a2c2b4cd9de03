"""Damage to a store is an error that names the file, before compiled code meets it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from owlmine import files
from owlmine.data import ConvertOptions, Store, convert
from owlmine.data.datasets import open_dataset
from owlmine.data.describe import describe
from owlmine.data.store import meta_checksum
from owlmine.errors import DataError

from ..conftest import Command
from ..small_models import MODELS, dense_store, sparse_model, sparse_store

Edit = Callable[[Any], Any]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return shutil.copytree(sparse_store(), tmp_path / "store")


def edit(store: Path, name: str, place: int, value: float) -> Path:
    file = store / f"{name}.npy"
    array = np.array(np.load(file))
    array.reshape(-1)[place] = value
    np.save(file, array)
    return file


def take_everything(store: Store) -> None:
    for split in (store[name] for name in store.splits):
        split.batch(np.random.default_rng(0).permutation(len(split)))
        for _ in split.blocks(7):
            pass
    for table in (store.class_keys, store.class_names):
        list(table)
        for number in range(len(table)):
            table[number]
    assert store.class_counts.sum() >= 0


@pytest.mark.parametrize(
    ("name", "place", "value", "told"),
    [
        ("test.features.offsets", 5, -(10**8), "a row from"),
        ("test.features.offsets", 5, 10**8, "a row from"),
        ("test.features.offsets", 0, 1, "offsets from 1 to"),
        ("test.features.offsets", -1, 2, "offsets from 0 to 2"),
        ("test.features.indices", 3, -1, "the numbers -1 to"),
        ("test.features.indices", 3, 50, "to 50"),
        ("test.features.values", 3, np.nan, "the value nan"),
        ("train.labels.offsets", 5, -3, "a row from"),
        ("train.labels.indices", 5, 20, "to 20"),
        ("test.filter", 0, 60, "pairs of other numbers"),
        ("classes.keys.offsets", 3, -1, "from byte|do not ascend"),
        ("classes.keys.offsets", 3, 10**8, "from byte|do not ascend"),
        ("classes.keys.bytes", 3, 255, "not UTF-8"),
        ("classes.counts", 3, -1, "the count -1"),
    ],
)
def test_what_a_store_hands_out_is_checked(name: str, place: int, value: float, told: str, store: Path) -> None:
    file = edit(store, name, place, value)
    if ".bytes" in name:
        file = store / "classes.keys.offsets.npy"
    with pytest.raises(DataError, match=told) as caught:
        take_everything(Store.open(store))
    assert str(caught.value).startswith(f"{file}: found ")
    assert f"the store is damaged; run owlmine data verify {store}" in str(caught.value)


def test_vectors_are_finite(tmp_path: Path) -> None:
    store = shutil.copytree(dense_store(), tmp_path / "store")
    file = edit(store, "test.queries", 40, np.inf)
    with pytest.raises(DataError, match="the value inf") as caught:
        take_everything(Store.open(store))
    assert str(caught.value).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"'<i8'", b"'|O'"),
        (b"'<i8'", b"'<f8'"),
        (b"(61,)", b"(-1,)"),
        (b"(61,)", b"(9,)"),
        (b"{", b"["),
        (b"\x93", b"P"),
    ],
)
def test_headers_of_arrays_are_not_trusted(old: bytes, new: bytes, store: Path) -> None:
    file = store / "test.features.offsets.npy"
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new.ljust(len(old)), 1))
    with pytest.raises(DataError) as caught:
        take_everything(Store.open(store))
    assert str(caught.value).startswith(f"{file}: found ")


def _set(*place: str, to: Any) -> Edit:
    def change(meta: Any) -> None:
        for key in place[:-1]:
            meta = meta[key]
        meta[place[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("classes", to="20"),
        _set("classes", to=19),
        _set("features", to=-1),
        _set("features", to=True),
        _set("queries", to="texts"),
        _set("splits", to=[]),
        _set("splits", "train", "points", to=0),
        _set("splits", "test", "points", to=59),
        _set("splits", "test", "labels", to=1.5),
        _set("splits", "train", "accepted", to=None),
        _set("weighting", to={}),
        _set("weighting", "documents", to=0),
        _set("weighting", "text", to={"ngrams": 10**9, "hash_bits": 0}),
        _set("keep_empty", to=None),
        _set("arrays", to={}),
        _set("arrays", "test.labels.indices", to=None),
        _set("arrays", "test.labels.indices", "dtype", to="|O"),
        _set("arrays", "test.labels.indices", "shape", to=[-1]),
        _set("arrays", "../../secret", to={"dtype": "<i8", "shape": [1], "bytes": 1, "sha256": ""}),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(change: Edit, store: Path) -> None:
    """Though its checksum is right: whoever wrote it could compute one."""
    meta = json.loads((store / "meta.json").read_text())
    change(meta)
    meta["checksum"] = meta_checksum(meta)
    (store / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError) as caught:
        describe(Store.open(store))
    assert str(caught.value).startswith(f"{store / 'meta.json'}: found ")


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_commands_refuse_a_damaged_store(command: str, store: Path, owlmine_command: Command) -> None:
    edit(store, "test.features.offsets", 5, -(10**8))
    done = owlmine_command(command, sparse_model(), store)
    assert done.returncode == 2
    told = "test.features.offsets.npy: found changed bytes; wanted the recorded checksum: the store is damaged; run"
    assert done.stderr.startswith(f"owlmine: error: {store}/{told}")
    assert done.stderr.count("\n") == 1


def test_a_changed_value_is_found_by_each_command_that_opens_the_store(store: Path, tmp_path: Path) -> None:
    """Values that no check of content can find wrong."""
    edit(store, "train.features.values", 5, 0.123)
    Store.open(store)
    with pytest.raises(DataError, match=r"train\.features\.values\.npy: found changed bytes"):
        open_dataset(store)


def test_checksums_are_computed_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_SETTLED_NS", -1)
    Store.open(store, verify=True)
    monkeypatch.setattr(files, "sha256_of", lambda path: pytest.fail(f"{path} was read again"))
    Store.open(store, verify=True)


@pytest.mark.parametrize("harm", ["value", "offset", "short", "meta", "no meta"])
def test_a_damaged_store_of_the_cache_is_made_again(harm: str, small_folder: Path) -> None:
    options = ConvertOptions(weighting="none")
    cached = open_dataset(small_folder, options)
    before = {file.name: file.read_bytes() for file in cached.path.iterdir()}
    if harm == "value":
        edit(cached.path, "train.features.values", 0, 0.123)
    elif harm == "offset":
        edit(cached.path, "train.features.offsets", 5, -(10**8))
    elif harm == "short":
        os.truncate(cached.path / "train.features.values.npy", 130)
    elif harm == "meta":
        (cached.path / "meta.json").write_text("{}")
    else:
        (cached.path / "meta.json").unlink()
    again = open_dataset(small_folder, options)
    assert again.path == cached.path
    assert {file.name: file.read_bytes() for file in again.path.iterdir()} == before
    assert not list(again.path.parent.glob("*.damaged-*"))


def test_verify_reads_content_too(store: Path, owlmine_command: Command) -> None:
    """Of a store that was written damaged, or whose writer computed new checksums."""
    file = edit(store, "test.features.offsets", 5, -(10**8))
    meta = json.loads((store / "meta.json").read_text())
    meta["arrays"]["test.features.offsets"]["sha256"] = files.sha256_of(file)
    meta["checksum"] = meta_checksum(meta)
    (store / "meta.json").write_text(json.dumps(meta))
    done = owlmine_command("data", "verify", store)
    assert done.returncode == 2
    assert done.stderr.startswith(f"owlmine: error: {file}: found a row from")


@pytest.mark.parametrize("kind", MODELS)
def test_undamaged_stores_pass(kind: str) -> None:
    take_everything(Store.open(MODELS[kind][2](), verify=True))


def test_stores_with_companions_pass(small_folder: Path, tmp_path: Path) -> None:
    (small_folder / "Yf.txt").write_text("".join(f"name of {number}\n" for number in range(20)))
    (small_folder / "lbl_X_Xf.txt").write_text("20 50\n" + "0:1 3:2\n" * 20)
    store = Store.open(convert(small_folder, tmp_path / "store").path, verify=True)
    take_everything(store)
    assert store.class_names[3] == "name of 3"
    assert store.class_features is not None
    assert store.class_features.rows(np.arange(20)).indices.tolist() == [0, 3] * 20
