"""Data that scores can be computed from, and models that still say something."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from owlmine.data.memory import MemoryDataset
from owlmine.data.store import SparseTable, Split
from owlmine.dense import finite
from owlmine.dense.finite import first_not_finite, has_directions, num_without_direction, require_workable_values
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import DataError

NUM_FEATURES = 3


def points(values: list[float], *, sparse: bool, name: str = "train") -> Split:
    """Each value of a point of its own, beside one that is no larger than a half."""
    size = len(values)
    offsets = np.arange(size + 1, dtype=np.int64)
    labels = SparseTable(offsets, (np.arange(size) % 6).astype(np.int32), None)
    rows = np.array([[value, min(value, 0.5)] for value in values], np.float32)
    if not sparse:
        return Split(name, np.hstack([np.zeros((size, 1), np.float32), rows]), labels, None)
    ids = np.array([[n % NUM_FEATURES, (n + 1) % NUM_FEATURES] for n in range(size)], np.int32)
    return Split(name, SparseTable(2 * offsets, ids.ravel(), rows.ravel()), labels, None)


def dataset(*splits: Split) -> MemoryDataset:
    queries = "sparse" if isinstance(splits[0].queries, SparseTable) else "dense"
    return MemoryDataset(
        {split.name: split for split in splits},
        num_features=NUM_FEATURES,
        class_keys=list("abcdef"),
        queries=queries,
        weighting={"kind": "none", "why": "of a test"},
    )


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("values", "row", "message"),
    [
        ([1e30] * 60, 0, "a feature of size 1e+30; wanted at most 1e+15; scale the features down"),
        ([1.0] * 41 + [-1e16] + [1.0] * 18, 41, "a feature of size 1e+16; wanted at most 1e+15"),
        # Rows are read in blocks of 2^14.
        ([1.0] * 16_400 + [1e16], 16_400, "a feature of size 1e+16; wanted at most 1e+15"),
        ([1e-20] * 60, None, "no feature larger than 1e-20; wanted at least 1e-12; scale the features up"),
    ],
    ids=["huge", "huge in a row", "huge in a later block", "tiny"],
)
def test_values_without_scores(sparse: bool, values: list[float], row: int | None, message: str) -> None:
    """Finite as they are; their squares are not, or vanish, and all scores would be 0."""
    place = "train" if row is None else rf"train, row {row} \(from 0\)"
    with pytest.raises(DataError, match=f"^mine: {place}: found {re.escape(message)}"):
        require_workable_values(dataset(points(values, sparse=sparse)), name="mine")


@pytest.mark.parametrize("sparse", [False, True])
def test_values_that_can_be_computed_with(sparse: bool) -> None:
    """One large enough is enough."""
    require_workable_values(dataset(points([1e-20] * 6 + [1e-11] * 6, sparse=sparse)), name="mine")
    require_workable_values(dataset(points([1e14] * 12, sparse=sparse)), name="mine")


def test_the_dev_split_is_looked_at_but_the_test_split_is_not() -> None:
    """A prediction for bad test points is their own affair. Tiny values of dev points harm nothing."""
    train, tiny = points([1.0] * 12, sparse=True), points([1e-20] * 12, sparse=True, name="dev")
    huge = [points([1.0] * 5 + [1e30], sparse=True, name=name) for name in ("dev", "test")]
    require_workable_values(dataset(train, tiny, huge[1]), name="mine")
    with pytest.raises(DataError, match=r"^mine: dev, row 5 \(from 0\): found a feature of size 1e\+30"):
        require_workable_values(dataset(train, huge[0]), name="mine")


def test_features_that_count_one_need_no_look() -> None:
    offsets = np.arange(7, dtype=np.int64)
    ids = np.arange(6, dtype=np.int32)
    split = Split("train", SparseTable(offsets, ids % 3, None), SparseTable(offsets, ids, None), None)
    require_workable_values(dataset(split), name="mine")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_number_that_is_not_finite_names_its_tensor(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """Wherever it is among the blocks."""
    monkeypatch.setattr(finite, "_BLOCK_ROWS", 4)
    for name in ("table", "map.0", "map.1", "classes"):
        model = Retriever.new(ModelShape(num_features=9, num_classes=11, dim=6, depth=2), seed=0)
        assert first_not_finite(model) is None
        model.tensors()[name][5, 2] = value
        assert first_not_finite(model) == name


def test_vectors_that_are_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite, "_BLOCK_ROWS", 4)
    data = dataset(points([1.0, 2.0], sparse=True))
    model = Retriever.new(ModelShape(num_features=NUM_FEATURES, num_classes=11, dim=6), seed=0)
    batch = data["train"].batch(np.arange(2))
    assert num_without_direction(model) == 0
    assert has_directions(model, batch)
    model.classes.weight[[1, 7, 10]] = 0
    model.encoder.maps[0].data.zero_()
    assert num_without_direction(model) == 3
    assert not has_directions(model, batch)
