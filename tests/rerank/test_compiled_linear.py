"""The extension refuses what does not fit, whoever calls it."""

from __future__ import annotations

import numpy as np
import pytest

from owlmine.rank.linear import compiled_module

from .small_tasks import needs_build


def int32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"offsets": np.array([0, 2, 4])},
        {"offsets": np.array([0, 3, 2])},
        {"offsets": np.array([-1, 2, 3])},
        {"offsets": np.array([0, 3])},
        {"offsets": np.zeros(0, np.int64)},
        {"features": int32(0, 3, 1)},
        {"features": int32(0, -1, 1)},
        {"features": int32(0, 2)},
        {"values": ones(2)},
        {"num_features": 2},
        {"num_features": -1},
        {"num_features": 2**31},
        {"squares": np.ones(3)},
        {"pair_starts": np.array([0, 3])},
        {"pair_starts": np.array([2, 0])},
        {"pair_starts": np.array([-1, 2])},
        {"pair_starts": np.array([0])},
        {"pair_starts": np.zeros(0, np.int64)},
        {"points": int32(0, 2)},
        {"points": int32(0, -1)},
        {"points": int32(0)},
        {"targets": np.ones(1, np.int8)},
        {"out_starts": np.array([0, 2])},
        {"out_starts": np.array([1, 4])},
        {"out_starts": np.array([-1, 3])},
        {"out_features": int32(0, 0)},
        {"out_weights": ones(2)},
        {"out_counts": np.zeros(2, np.int64)},
        {"biases": ones(2)},
    ],
    ids=str,
)
def test_training_that_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "offsets": np.array([0, 2, 3]),
        "features": int32(0, 2, 1),
        "values": ones(3),
        "num_features": 3,
        "squares": np.array([3.0, 2.0]),
        "pair_starts": np.array([0, 2]),
        "points": int32(0, 1),
        "targets": np.array([1, -1], np.int8),
        "first_class": 0,
        "options": (np.inf, 0.5, 0.1, 0.05),
        "max_passes": 20,
        "seed": 0,
        "out_starts": np.array([0, 3]),
        "out_features": int32(0, 0, 0),
        "out_weights": ones(3),
        "out_counts": np.zeros(1, np.int64),
        "biases": ones(1),
        "threads": 2,
    }
    assert extension.train(*given.values()) == 3
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.train(*(given | changed).values())


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"query_offsets": np.array([0, 4])},
        {"query_offsets": np.array([1, 0])},
        {"query_offsets": np.array([0, 1, 2])},
        {"query_features": int32(0, 3)},
        {"query_features": int32(0, -3)},
        {"query_values": ones(1)},
        {"num_features": 2},
        {"num_features": -1},
        {"offsets": np.array([0, 1, 4])},
        {"offsets": np.array([0, 4, 3])},
        {"offsets": np.array([-1, 1, 3])},
        {"offsets": np.array([0, 3])},
        {"features": int32(1, 3, 2)},
        {"features": int32(1, -1, 2)},
        {"weights": ones(2)},
        {"biases": ones(1)},
        {"ids": np.array([0, 2])},
        {"ids": np.array([-1, 1])},
        {"ids": np.array([0])},
        {"starts": np.array([0, 1, 4])},
        {"starts": np.array([0, 2, 1])},
        {"starts": np.array([-1, 1, 3])},
        {"places": np.array([0, 3, 1])},
        {"places": np.array([0, -1, 1])},
        {"per_query": 0},
        {"per_query": 2},
        {"per_query": -3},
        {"scores": ones(2)},
    ],
    ids=str,
)
def test_scoring_that_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "query_offsets": np.array([0, 2]),
        "query_features": int32(0, 2),
        "query_values": ones(2),
        "num_features": 3,
        "offsets": np.array([0, 1, 3]),
        "features": int32(1, 0, 2),
        "weights": ones(3),
        "biases": np.array([10, 20], np.float32),
        "ids": np.array([0, 1]),
        "starts": np.array([0, 1, 3]),
        "places": np.array([1, 0, 2]),
        "per_query": 3,
        "scores": ones(3),
        "threads": 2,
    }
    extension.score(*given.values())
    assert np.array_equal(np.array(given["scores"]), [22, 10, 22])
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.score(*(given | changed).values())
