"""A shortlist in its new order, against a loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from owlmine.data.rows import SparseRows
from owlmine.rerank import LinearRanker, Reranker

RANKER = LinearRanker(
    np.array([0, 2, 2, 3], np.int64),
    np.array([0, 2, 1], np.int32),
    np.array([1.0, -1.0, 2.0], np.float32),
    np.array([0.5, 0.0, -0.25], np.float32),
    3,
)
QUERIES = SparseRows(
    np.array([0, 2, 3], np.int64), np.array([0, 2, 1], np.int32), np.array([1.0, 0.5, 0.25], np.float32)
)
LINEAR = [[1.0, 0.0, -0.25], [0.5, 0.0, 0.25]]
OFFSETS = np.array([0.0, 0.3, -0.05], np.float32)


@pytest.mark.parametrize("weight", [0.0, 0.1, 2.0])
def test_order_by_both_scores(weight: float) -> None:
    scores = np.array([[0.9, 0.8, 0.1], [0.3, 0.2, 0.1]], np.float32)
    ids = np.array([[2, 0, 1], [1, 2, 0]], np.int64)
    found, found_ids = Reranker(RANKER, weight, 3, OFFSETS).reorder(QUERIES, None, scores, ids)
    for row in range(2):
        pairs = sorted(
            (
                (-(float(s) + weight * LINEAR[row][c] + float(OFFSETS[c])), c)
                for s, c in zip(scores[row], ids[row], strict=True)
            ),
            key=lambda pair: pair[0],
        )
        assert found_ids[row].tolist() == [c for _, c in pairs]
        np.testing.assert_allclose(found[row], [-s for s, _ in pairs], rtol=1e-6)


def test_empty_places_stay_last() -> None:
    scores, ids = np.array([[-0.5, -np.inf]] * 2, np.float32), np.array([[2, -1]] * 2, np.int64)
    found, found_ids = Reranker(RANKER, 1.0, 2, OFFSETS).reorder(QUERIES, None, scores, ids)
    assert found_ids.tolist() == [[2, -1]] * 2
    assert np.isneginf(found[:, 1]).all()


def test_dense_scores_that_count_for_less() -> None:
    scores, ids = np.array([[0.9, 0.8, -np.inf]] * 2, np.float32), np.array([[2, 0, -1]] * 2, np.int64)
    weights = np.array([1.0, 1.0, 0.5], np.float32)
    reranker = Reranker(RANKER, 0.0, 3, np.zeros(3, np.float32), dense_weights_K=weights)
    again = Reranker.from_parts(reranker.to_dict(), reranker.tensors())
    for one in (reranker, again):
        found, found_ids = one.reorder(QUERIES, None, scores, ids)
        assert found_ids.tolist() == [[0, 2, -1]] * 2
        np.testing.assert_allclose(found[:, :2], [[0.8, 0.45]] * 2)
    assert "dense_weights" not in Reranker(RANKER, 0.0, 3, OFFSETS).tensors()


@pytest.mark.parametrize(
    "weights",
    [
        torch.ones(2),
        torch.tensor([1.0, 0.0, 1.0]),
        torch.tensor([1.0, torch.inf, 1.0]),
        torch.ones(3, dtype=torch.float64),
    ],
)
def test_dense_weights_that_cannot_be(weights: torch.Tensor) -> None:
    reranker = Reranker(RANKER, 0.3, 20, OFFSETS)
    with pytest.raises(ValueError, match="dense weights"):
        Reranker.from_parts(reranker.to_dict(), reranker.tensors() | {"dense_weights": weights})


def test_there_and_back() -> None:
    reranker = Reranker(RANKER, 0.3, 20, OFFSETS)
    again = Reranker.from_parts(reranker.to_dict(), reranker.tensors())
    assert (again.weight, again.shortlist) == (0.3, 20)
    np.testing.assert_array_equal(again.ranker.weights, RANKER.weights)
    np.testing.assert_array_equal(again.offsets_K, OFFSETS)


@pytest.mark.parametrize(
    "offsets", [torch.zeros(2), torch.tensor([0.0, torch.nan, 0.0]), torch.zeros(3, dtype=torch.float64)]
)
def test_bad_offsets(offsets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"offsets (have the shape|are torch.float64)"):
        Reranker.from_parts({"weight": 1.0, "shortlist": 5}, RANKER.tensors() | {"class_offsets": offsets})


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"weight": -1.0, "shortlist": 5}, "weight of the linear model is -1.0; wanted a number of 0 or more"),
        ({"weight": float("nan"), "shortlist": 5}, "weight of the linear model is nan"),
        ({"weight": 1.0, "shortlist": 0}, "shortlist is 0; wanted 1 or more"),
    ],
)
def test_bad_numbers(told: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reranker.from_parts(told, RANKER.tensors() | {"class_offsets": torch.from_numpy(OFFSETS)})
