"""A dataset in memory hands out what a store of the same arrays does, and refuses arrays that are not sound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy import sparse

from owlmine.data import Batch, Batches, ConvertOptions, Dataset, MemoryDataset, Split, Store, convert
from owlmine.data.rows import SparseRows
from owlmine.data.store import SparseTable
from owlmine.errors import DataError, OwlmineError

NUM_FEATURES, NUM_CLASSES = 30, 7


@pytest.fixture(params=["sparse", "dense", "text"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    rng = np.random.default_rng(5)
    matrix = sparse.random(103, NUM_FEATURES, 0.2, format="csr", random_state=rng)
    labels = [[] if row % 10 == 3 else [str(row % NUM_CLASSES), "0"] for row in range(103)]
    queries: Any = {
        "sparse": matrix,
        "dense": matrix.toarray(),
        "text": np.array([" ".join(f"w{i}" for i in row.indices) for row in matrix], object),
    }[request.param]
    splits = {"train": (queries[:80], labels[:80]), "test": (queries[80:], labels[80:])}
    return convert(splits, tmp_path / "store", ConvertOptions(min_df=1))


def in_memory(store: Store) -> MemoryDataset:
    return MemoryDataset(
        {name: store[name] for name in store.splits},
        num_features=store.num_features,
        class_keys=list(store.class_keys),
        queries=store.meta["queries"],
        weighting=store.meta["weighting"],
        vocabulary=None if store.vocabulary is None else list(store.vocabulary),
        frequencies=store.array("weighting.frequencies"),
    )


def assert_equal_rows(rows: SparseRows | np.ndarray[Any, Any], wanted: SparseRows | np.ndarray[Any, Any]) -> None:
    if isinstance(rows, SparseRows):
        assert isinstance(wanted, SparseRows)
        pairs = ((rows.offsets, wanted.offsets), (rows.indices, wanted.indices), (rows.values, wanted.values))
    else:
        pairs = ((rows, wanted),)  # type: ignore[assignment]
    for array, wanted_array in pairs:
        assert (array is None) == (wanted_array is None)
        if array is not None and wanted_array is not None:
            assert array.dtype == wanted_array.dtype
            np.testing.assert_array_equal(array, wanted_array)


def assert_equal_batches(batch: Batch, wanted: Batch) -> None:
    assert_equal_rows(batch.queries, wanted.queries)
    assert_equal_rows(batch.labels, wanted.labels)


def test_batches_equal_those_of_the_store(store: Store) -> None:
    dataset = in_memory(store)
    for name in store.splits:
        batches = Batches(dataset[name], batch_size=10, seed=1)
        wanted = Batches(store[name], batch_size=10, seed=1)
        for _ in range(15):
            rows, batch = batches.next()
            wanted_rows, wanted_batch = wanted.next()
            np.testing.assert_array_equal(rows, wanted_rows)
            assert_equal_batches(batch, wanted_batch)
        for block, wanted_block in zip(dataset[name].blocks(17), store[name].blocks(17), strict=True):
            assert_equal_batches(block, wanted_block)


def test_description_equals_that_of_the_store(store: Store) -> None:
    datasets: list[Dataset] = [in_memory(store), store]
    dataset, wanted = datasets
    assert dataset.splits == wanted.splits == ("train", "test")
    assert (dataset.num_features, dataset.num_classes) == (wanted.num_features, wanted.num_classes)
    assert list(dataset.class_keys) == list(dataset.class_names) == list(wanted.class_keys)
    np.testing.assert_array_equal(dataset.class_counts, wanted.class_counts)
    assert (dataset.vocabulary is None) == (wanted.vocabulary is None)
    assert list(dataset.vocabulary or ()) == list(wanted.vocabulary or ())
    for key in ("queries", "features", "classes", "weighting"):
        assert dataset.meta[key] == wanted.meta[key]
    for name in dataset.splits:
        assert dataset.meta["splits"][name]["points"] == wanted.meta["splits"][name]["points"] == len(dataset[name])
    for name in (*wanted.meta["arrays"], "classes.names.bytes", "no such array"):
        array, wanted_array = dataset.array(name), wanted.array(name)
        assert (array is None) == (wanted_array is None)
        if array is not None and wanted_array is not None:
            np.testing.assert_array_equal(array, wanted_array)


def test_equal_content_has_equal_checksums_and_other_content_has_not(store: Store) -> None:
    dataset = in_memory(store)
    assert dataset.meta["checksum"] == in_memory(store).meta["checksum"]
    labels = store["train"].labels
    changed = SparseTable(labels.offsets, np.array(labels.indices[::-1]), labels.values)
    splits = {name: store[name] for name in store.splits}
    splits["train"] = Split("train", splits["train"].queries, changed, None)
    other = MemoryDataset(
        splits,
        num_features=store.num_features,
        class_keys=list(store.class_keys),
        queries=store.meta["queries"],
        weighting=store.meta["weighting"],
        vocabulary=None if store.vocabulary is None else list(store.vocabulary),
        frequencies=store.array("weighting.frequencies"),
    )
    assert other.meta["checksum"] != dataset.meta["checksum"]


def table(rows: list[list[int]], values: list[float] | None = None) -> SparseTable:
    offsets = np.cumsum([0, *map(len, rows)])
    ids = np.array([i for row in rows for i in row], np.int64)
    return SparseTable(offsets, cast(Any, ids), None if values is None else cast(Any, np.array(values)))


def small(**changes: Any) -> MemoryDataset:
    arguments: dict[str, Any] = {
        "splits": {"train": Split("train", table([[0, 2], [1]], [1, 2, 3]), table([[0], [1, 2]]), None)},
        "num_features": 3,
        "class_keys": ["a", "b", "c"],
        "queries": "sparse",
        "weighting": {"kind": "none", "why": "as given"},
    }
    return MemoryDataset(**(arguments | changes))


def train_of(queries: Any, labels: SparseTable, filter_pairs: Any = None) -> dict[str, Any]:
    return {"splits": {"train": Split("train", queries, labels, filter_pairs)}}


def test_other_number_types_become_those_of_a_store() -> None:
    dataset = small(class_names=["Anna", "Bert", "Carl"])
    batch = dataset["train"].batch(np.array([1, 0]))
    assert isinstance(batch.queries, SparseRows)
    assert batch.queries.values is not None
    assert (batch.queries.indices.dtype, batch.queries.values.dtype) == (np.int32, np.float32)
    assert batch.queries.indices.tolist() == [1, 0, 2]
    assert batch.labels.indices.tolist() == [1, 2, 0]
    assert dataset.class_counts.tolist() == [1, 1, 1]
    assert list(dataset.class_names) == ["Anna", "Bert", "Carl"]
    assert dataset.meta["checksum"] != small().meta["checksum"]


def test_arrays_are_not_copied_where_their_types_fit() -> None:
    queries = np.ones((2, 3), np.float32)
    dataset = small(queries="dense", **train_of(queries, table([[0], [1]])))
    assert np.shares_memory(cast(Any, dataset["train"].queries), queries)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda: train_of(table([[0, 3], [1]], [1, 1, 1]), table([[0], [1]])), "queries of train: found id 3 in row 0"),
        (lambda: train_of(table([[0], [1]], [1, np.nan]), table([[0], [1]])), "queries of train: found the value nan"),
        (lambda: train_of(table([[0], [1]], [1, 1e300]), table([[0], [1]])), "queries of train: found the value inf"),
        (lambda: train_of(table([[0], [1]], [1, 1]), table([[0], [7]])), "labels of train: found id 7 in row 1"),
        (lambda: train_of(table([[0], [1]], [1, 1]), table([[0]])), "labels of train: found 1 rows; wanted 2"),
        (lambda: train_of(table([], []), table([])), "labels of train: found no rows; wanted at least one"),
        (lambda: train_of(np.ones((2, 3)), table([[0], [1]])), "found ndarray; wanted sparse queries"),
        (
            lambda: {"queries": "dense", **train_of(np.ones((2, 4)), table([[0], [1]]))},
            r"found shape \(2, 4\) and type float64; wanted numbers, points x 3",
        ),
        (
            lambda: {"queries": "dense", **train_of(np.full((1, 3), np.inf), table([[0]]))},
            "found no finite vector in row 0",
        ),
        (
            lambda: train_of(table([[0]], [1]), table([[0]]), np.array([[0, 3]])),
            "filter pairs of train: found other numbers; wanted points below 1 and classes below 3",
        ),
        (lambda: {"splits": {}}, "splits: found none; wanted train"),
        (lambda: {"num_features": 2**31 + 1}, "num_features: found 2,147,483,649; wanted 0 to"),
        (lambda: {"class_names": ["x"]}, "class_names: found 1 entries; wanted 3"),
        (lambda: {"class_keys": []}, "class_keys: found no classes"),
        (lambda: {"weighting": {"kind": "tfidf"}}, "frequencies: found 0 entries; wanted 3"),
        (lambda: {"weighting": {}}, "weighting: found the kind None; wanted none or tfidf"),
    ],
)  # fmt: skip
def test_unsound_arrays_are_refused(changes: Callable[[], dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        small(**changes())


def test_unknown_kind_of_queries_and_unknown_split_are_refused() -> None:
    with pytest.raises(ValueError, match="queries is 'text'; wanted sparse or dense"):
        small(queries="text")
    with pytest.raises(OwlmineError, match="no split 'dev'; it has train"):
        small()["dev"]
