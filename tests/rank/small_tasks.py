"""Small things to learn from, drawn from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from owlmine.data.rows import Int64, SparseRows, offsets_from_counts
from owlmine.index import Filter
from owlmine.rank import linear_training, points, sparse_weights
from owlmine.rank.linear_training import MinedPairs
from owlmine.rank.points import compiled_points
from owlmine.rank.sparse_weights import SparseWeights, compiled_module

IS_BUILT = compiled_module() is not None and compiled_points() is not None
WAYS = [True, False] if IS_BUILT else [False]
needs_build = pytest.mark.skipif(
    not IS_BUILT, reason="the compiled parts of owlmine.rank are not built (no C compiler at install time)"
)


def without_extensions(patch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (linear_training, "compiled_module"),
        (sparse_weights, "compiled_module"),
        (points, "compiled_points"),
    ):
        patch.setattr(module, name, lambda: None)


def sparse_rows(seed: int, *, num_rows: int, num_features: int, share: float = 0.4) -> SparseRows:
    """Rows of normal numbers, some of them empty."""
    generator = np.random.default_rng(seed)
    is_there = generator.random((num_rows, num_features)) < share
    values = generator.standard_normal(int(is_there.sum())).astype(np.float32)
    return SparseRows(offsets_from_counts(is_there.sum(axis=1)), np.nonzero(is_there)[1].astype(np.int32), values)


def random_pairs(seed: int, *, num_classes: int, num_points: int) -> MinedPairs:
    """Each class with points of its own, which may be none, or of one kind."""
    generator = np.random.default_rng(seed + 1)
    own = [
        np.flatnonzero(generator.random(num_points) < share).astype(np.int32) for share in generator.random(num_classes)
    ]
    targets = [np.where(generator.random(len(points)) < 0.4, 1, -1).astype(np.int8) for points in own]
    return MinedPairs(
        offsets_from_counts(np.array([len(points) for points in own], np.int64)),
        np.concatenate([np.zeros(0, np.int32), *own]),
        np.concatenate([np.zeros(0, np.int8), *targets]),
    )


def dense(rows: SparseRows, num_columns: int) -> NDArray[np.float64]:
    assert rows.values is not None
    result = np.zeros((len(rows), num_columns))
    result[rows.row_ids, rows.indices] = rows.values
    return result


def assert_same_tensors(left: Any, right: Any) -> None:
    """Of two judges or their parts, to the bit."""
    own, other = left.tensors(), right.tensors()
    assert set(own) == set(other)
    for name, tensor in own.items():
        assert tensor.dtype == other[name].dtype, name
        assert np.array_equal(tensor.numpy(), other[name].numpy()), name


def dense_weights(ranker: SparseWeights) -> NDArray[np.float64]:
    """[K, F + 1]: weights, and the bias in the last column."""
    return np.hstack([dense(ranker.rows, ranker.num_features), ranker.biases_K[:, None]])


def only(among: Int64 | None, num_classes: int) -> Filter | None:
    """The filter that allows these classes, for all queries; None for all."""
    return None if among is None else Filter.allowing(among, num_classes)
