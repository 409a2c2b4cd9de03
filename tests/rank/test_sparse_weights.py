"""Scores against a loop over floats; and what comes from a file is either sound or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.rank import sparse_weights
from owlmine.rank.sparse_weights import SparseWeights, compiled_module, compiled_scores, plain_scores

from .small_tasks import WAYS, needs_build, sparse_rows


def small_weights(seed: int = 0, *, num_classes: int = 5, num_features: int = 12) -> SparseWeights:
    weights = sparse_rows(seed, num_rows=num_classes, num_features=num_features)
    assert weights.values is not None
    biases = np.random.default_rng(seed).standard_normal(num_classes).astype(np.float32)
    return SparseWeights(weights.offsets, weights.indices, weights.values, biases, num_features)


def score_by_loop(weights: SparseWeights, query: dict[int, float], class_id: int) -> float:
    if class_id < 0:
        return 0.0
    score = float(weights.biases_K[class_id])
    for entry in range(weights.offsets_K1[class_id], weights.offsets_K1[class_id + 1]):
        score += float(weights.weights[entry]) * query.get(int(weights.features[entry]), 0.0)
    return score


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_queries=st.integers(0, 12),
    width=st.integers(0, 7),
    num_features=st.integers(1, 150),
    is_compiled=st.sampled_from(WAYS),
    dtype=st.sampled_from([np.int64, np.int32]),
)
def test_scores_against_a_loop(
    seed: int, num_queries: int, width: int, num_features: int, is_compiled: bool, dtype: type
) -> None:
    weights = small_weights(seed, num_features=num_features)
    queries = sparse_rows(seed + 1, num_rows=num_queries, num_features=num_features)
    assert queries.values is not None
    ids_NS = np.random.default_rng(seed).integers(-2, 5, (num_queries, width)).astype(np.int64)
    score = compiled_scores if is_compiled else plain_scores
    rows = SparseRows(weights.offsets_K1, weights.features, weights.weights)
    direct_NS = score(queries, rows, weights.biases_K, ids_NS, num_features=num_features)
    found_NS = weights.scores(queries, ids_NS.astype(dtype))
    assert (found_NS.dtype, found_NS.shape) == (np.float32, ids_NS.shape)
    for n in range(num_queries):
        own = slice(queries.offsets[n], queries.offsets[n + 1])
        query = dict(zip(queries.indices[own].tolist(), queries.values[own].tolist(), strict=True))
        expected = [score_by_loop(weights, query, class_id) for class_id in ids_NS[n].tolist()]
        np.testing.assert_allclose(direct_NS[n], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found_NS[n], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("way")
def test_features_in_any_order_and_more_than_once() -> None:
    """What a query says twice counts twice, as in any dot product."""
    weights = SparseWeights(np.array([0, 2]), np.array([1, 3]), np.array([2.0, 10.0]), np.array([0.5]), 4)
    queries = SparseRows(np.array([0, 4, 4]), np.array([3, 1, 0, 1], np.int32), np.array([1, 2, 9, 3], np.float32))
    assert weights.scores(queries, np.array([[0, -1], [0, 0]])).tolist() == [[20.5, 0.0], [0.5, 0.5]]
    assert weights.scores(SparseRows(queries.offsets, queries.indices, None), np.array([[0], [0]])).tolist() == [
        [14.5],
        [0.5],
    ]


@pytest.mark.usefixtures("way")
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, queries = small_weights(), sparse_rows(1, num_rows=11, num_features=12)
    ids_NS = np.random.default_rng(0).integers(-1, 5, (11, 4))
    whole = weights.scores(queries, ids_NS)
    for places in (1, 12):
        monkeypatch.setattr(sparse_weights, "_BLOCK_PLACES", places)
        assert np.array_equal(weights.scores(queries, ids_NS), whole)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("indices", "ids", "message"),
    [
        ([12], [[0]], "indices are 12 to 12; wanted 0 to 11"),
        ([-1], [[0]], "indices are -1"),
        ([0], [[5]], "ids go up to 5; there are 5 classes"),
        ([0], [[0], [1]], r"wanted \[1, S\] class ids"),
        ([0], [0], r"wanted \[1, S\] class ids"),
        ([0], [[0.0]], "in float64"),
    ],
)
def test_bad_inputs(indices: list[int], ids: list[list[int]], message: str) -> None:
    queries = SparseRows(np.array([0, 1]), np.array(indices), None)
    with pytest.raises(ValueError, match=message):
        small_weights().scores(queries, np.array(ids))


def test_tensors_and_back() -> None:
    weights = small_weights()
    weights.biases_K.flags.writeable = False
    tensors = weights.tensors()
    again = SparseWeights.from_tensors(tensors)
    assert again.num_features == 12
    for name in ("offsets_K1", "features", "weights", "biases_K"):
        assert np.array_equal(getattr(weights, name), getattr(again, name))
    assert weights.num_bytes == 6 * 8 + len(weights.weights) * 8 + 5 * 4
    assert weights.num_classes == 5


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("offsets", [0, 2, 4], "do not ascend from 0 to the number of entries, 3"),
        ("offsets", [1, 2, 3], "do not ascend from 0"),
        ("offsets", [0, 5, 3], "do not ascend from 0"),
        ("offsets", [0, -1, 3], "do not ascend from 0"),
        ("offsets", [0, 1, 2, 3], "biases have the shape"),
        ("offsets", [], r"offsets have the shape \(0,\)"),
        ("features", [0, 4, 1], "indices are 0 to 4; wanted 0 to 3"),
        ("features", [0, -4, 1], "indices are -4 to 1"),
        ("features", [1, 0, 1], "must be distinct and ascending"),
        ("features", [1, 1, 1], "must be distinct and ascending"),
        ("features", [0, 1], "do not ascend from 0 to the number of entries, 2"),
        ("weights", [1.0, 2.0], r"values have the shape \(2,\)"),
        ("weights", [1.0, float("nan"), 1.0], "a value is not a finite number"),
        ("biases", [1.0], r"biases have the shape \(1,\)"),
        ("biases", [1.0, float("inf")], "a finite number for each of 2"),
        ("num_features", -1, "num_features is -1"),
        ("num_features", 2**31, "num_features is 2147483648"),
        ("num_features", [4], "wanted torch.int64 of 0 dimensions"),
    ],
)
def test_a_file_that_cannot_be_is_refused(name: str, changed: object, message: str) -> None:
    good = {
        "offsets": torch.tensor([0, 2, 3]),
        "features": torch.tensor([0, 3, 1], dtype=torch.int32),
        "weights": torch.ones(3),
        "biases": torch.ones(2),
        "num_features": torch.tensor(4),
    }
    SparseWeights.from_tensors(good)
    with pytest.raises(ValueError, match=message):
        SparseWeights.from_tensors(good | {name: torch.tensor(changed, dtype=good[name].dtype)})


def test_tensors_of_other_kinds_are_refused() -> None:
    good = small_weights().tensors()
    others: list[tuple[str, Tensor]] = [
        ("offsets", good["offsets"].int()),
        ("features", good["features"].long()),
        ("weights", good["weights"].bfloat16()),
        ("biases", good["biases"][:, None]),
        ("biases", good["biases"].to_sparse()),
    ]
    for name, other in others:
        with pytest.raises(ValueError, match=f"{name} is torch"):
            SparseWeights.from_tensors(good | {name: other})
    with pytest.raises(ValueError, match="tensors are"):
        SparseWeights.from_tensors({name: good[name] for name in good if name != "biases"})
    with pytest.raises(ValueError, match="tensors are"):
        SparseWeights.from_tensors(good | {"more": good["biases"]})


def int32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


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
