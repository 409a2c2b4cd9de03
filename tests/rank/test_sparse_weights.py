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

from .small_tasks import WAYS, assert_same_tensors, needs_build, sparse_rows


def small_weights(seed: int = 0, *, num_classes: int = 5, num_features: int = 12) -> SparseWeights:
    weights = sparse_rows(seed, num_rows=num_classes, num_features=num_features)
    assert weights.values is not None
    biases = np.random.default_rng(seed).standard_normal(num_classes).astype(np.float32)
    return SparseWeights.of(weights, biases, num_features)


def score_by_loop(weights: SparseWeights, query: dict[int, float], class_id: int) -> float:
    if class_id < 0:
        return 0.0
    rows, score = weights.rows, float(weights.biases_K[class_id])
    assert rows.values is not None
    for entry in range(rows.offsets[class_id], rows.offsets[class_id + 1]):
        score += float(rows.values[entry]) * query.get(int(rows.indices[entry]), 0.0)
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
    direct_NS = score(queries, weights.entries, weights.biases_K, ids_NS, num_features=num_features)
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
    rows = SparseRows(np.array([0, 2]), np.array([1, 3]), np.array([-16.0, 127.0], np.float32))
    weights = SparseWeights.of(rows, np.array([0.5]), 4)
    queries = SparseRows(np.array([0, 4, 4]), np.array([3, 1, 0, 1], np.int32), np.array([1, 2, 9, 3], np.float32))
    assert weights.scores(queries, np.array([[0, -1], [0, 0]])).tolist() == [[47.5, 0.0], [0.5, 0.5]]
    assert weights.scores(SparseRows(queries.offsets, queries.indices, None), np.array([[0], [0]])).tolist() == [
        [95.5],
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
    assert_same_tensors(weights, again)
    assert weights.num_bytes == 6 * 8 + len(weights.entries.codes) * 5 + 5 * 4 + 5 * 4
    assert weights.num_classes == 5


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("counts", [2, 2], "rows of 4 entries in total; wanted 3"),
        ("counts", [3], "counts of 1 rows and scales of 2"),
        ("counts", [], "rows of 0 entries in total"),
        ("steps", [0, 3, 1], "an id is 4; wanted one below 4"),
        ("steps", [0, 1], "2 steps; wanted one for each of 3 entries"),
        ("steps", [0, 255, 1], "0 long steps; wanted more"),
        ("long_steps", [7], "1 long steps; wanted 0"),
        ("codes", [127, -128, 127], "a code is -128"),
        ("codes", [127, 1], "rows of 3 entries in total; wanted 2"),
        ("scales", [1.0], "counts of 2 rows and scales of 1"),
        ("scales", [1.0, float("nan")], "a scale of sparse rows is not a finite number"),
        ("scales", [1.0, float("inf")], "a scale of sparse rows is not a finite number"),
        ("scales", [1.0, 3e38], "a scale of sparse rows is not a finite number"),
        ("scales", [1.0, -1.0], "a scale of sparse rows is not a finite number"),
        ("scales", [1.0, 0.1], "a scale of sparse rows is not a finite number of 16 bits"),
        ("biases", [1.0], r"biases have the shape \(1,\)"),
        ("biases", [1.0, float("inf")], "a finite number for each of 2"),
        ("num_features", -1, "num_features is -1"),
        ("num_features", 2**31, "num_features is 2147483648"),
        ("num_features", [4], "wanted torch.int64 of 0 dimensions"),
    ],
)
def test_a_file_that_cannot_be_is_refused(name: str, changed: object, message: str) -> None:
    good = {
        "counts": torch.tensor([2, 1], dtype=torch.uint8),
        "steps": torch.tensor([0, 2, 1], dtype=torch.uint8),
        "long_steps": torch.tensor([], dtype=torch.uint8),
        "codes": torch.tensor([127, -127, 127], dtype=torch.int8),
        "scales": torch.ones(2),
        "biases": torch.ones(2),
        "num_features": torch.tensor(4),
    }
    assert SparseWeights.from_tensors(good).rows.indices.tolist() == [0, 3, 1]
    with pytest.raises(ValueError, match=message):
        SparseWeights.from_tensors(good | {name: torch.tensor(changed, dtype=good[name].dtype)})


def test_negative_numbers_in_wide_types_are_refused() -> None:
    good = small_weights().tensors()
    for name in ("counts", "steps"):
        wide = good[name].int()
        SparseWeights.from_tensors(good | {name: wide})
        wide[0] = -1
        with pytest.raises(ValueError, match=r"a row has -1 entries|a step is -1"):
            SparseWeights.from_tensors(good | {name: wide})


def test_tensors_of_other_kinds_are_refused() -> None:
    good = small_weights().tensors()
    others: list[tuple[str, Tensor]] = [
        ("counts", good["counts"].long()),
        ("steps", good["steps"].float()),
        ("codes", good["codes"].float()),
        ("codes", good["codes"][:, None]),
        ("scales", good["scales"].bfloat16()),
        ("biases", good["biases"][:, None]),
        ("biases", good["biases"].to_sparse()),
    ]
    for name, other in others:
        with pytest.raises(ValueError, match=f"{name} is torch"):
            SparseWeights.from_tensors(good | {name: other})
    for name in ("biases", "codes"):
        with pytest.raises(ValueError, match="tensors are"):
            SparseWeights.from_tensors({own: tensor for own, tensor in good.items() if own != name})
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
        {"codes": ones(3)},
        {"codes": np.ones(2, np.int8)},
        {"scales": ones(1)},
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
        "codes": np.array([1, 2, 4], np.int8),
        "scales": np.array([1, 0.5], np.float32),
        "biases": np.array([10, 20], np.float32),
        "ids": np.array([0, 1]),
        "starts": np.array([0, 1, 3]),
        "places": np.array([1, 0, 2]),
        "per_query": 3,
        "scores": ones(3),
        "threads": 2,
    }
    extension.score(*given.values())
    assert np.array_equal(np.array(given["scores"]), [23, 10, 23])
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.score(*(given | changed).values())
