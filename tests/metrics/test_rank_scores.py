"""Scores to ranked ids: equal scores go to the smaller class id, in every library and layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import coo_array, csr_array, csr_matrix

from owlmine.metrics import rank_scores

# Few distinct values, so that ties are the rule; both zeros, which are equal.
SCORES = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 0.5, 2.0, np.inf])
BLOCKS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9), elements=SCORES)


def by_sorting(row: dict[int, float], k: int) -> list[int]:
    return sorted(row, key=lambda c: (-row[c], c))[:k]


@settings(max_examples=150, deadline=None)
@given(BLOCKS, st.integers(1, 11))
def test_dense_block(scores: np.ndarray, k: int) -> None:
    wanted = [by_sorting(dict(enumerate(row)), k) for row in scores.tolist()]
    ranked = rank_scores(scores, k)
    assert ranked.dtype == np.int64
    assert ranked.tolist() == wanted
    assert rank_scores(np.asfortranarray(scores), k).tolist() == wanted
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        tensor = rank_scores(torch.from_numpy(scores).to(dtype), k)
        assert isinstance(tensor, torch.Tensor)
        assert tensor.dtype is torch.int64
        assert tensor.tolist() == wanted


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@settings(max_examples=100, deadline=None)
@given(BLOCKS, st.integers(1, 11), st.randoms(use_true_random=False))
def test_sparse_matrix(scores: np.ndarray, k: int, random) -> None:
    stored = np.array([[random.random() < 0.5 for _ in row] for row in scores])
    width = min(k, scores.shape[1])
    rows = [{c: v for c, v in enumerate(row) if stored[i, c]} for i, row in enumerate(scores.tolist())]
    wanted = [(by_sorting(row, k) + [-1] * width)[:width] for row in rows]
    entries = [random.sample(list(row), len(row)) for row in rows]
    offsets = np.cumsum([0] + [len(row) for row in rows])
    classes = np.array([c for row in entries for c in row], np.int32)
    values = np.array([rows[i][c] for i, row in enumerate(entries) for c in row])
    for kind in (csr_matrix, csr_array):
        ranked = rank_scores(kind((values, classes, offsets), shape=scores.shape), k)
        assert ranked.dtype == np.int64
        assert ranked.tolist() == wanted
    # Torch insists on sorted classes within a row.
    matrix = csr_matrix((values, classes, offsets), shape=scores.shape)
    matrix.sort_indices()
    parts = [torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data)]
    tensor = torch.sparse_csr_tensor(*parts, scores.shape, check_invariants=True)
    assert rank_scores(tensor, k).tolist() == wanted


def test_other_sparse_layouts_and_entries_given_twice() -> None:
    twice = coo_array((np.array([1.0, 2.0, 2.5]), (np.array([0, 0, 0]), np.array([3, 3, 1]))), shape=(2, 4))
    assert rank_scores(twice, 2).tolist() == [[3, 1], [-1, -1]]
    uncombined = csr_array((np.array([1.0, 2.0, 2.5]), np.array([3, 3, 1]), np.array([0, 3, 3])), shape=(2, 4))
    assert rank_scores(uncombined, 2).tolist() == [[3, 1], [-1, -1]]
    assert uncombined.nnz == 3


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_other_types_of_scores(dtype: type) -> None:
    scores = np.array([[1, 0, 7, 7, 1]], dtype)
    assert rank_scores(scores, 4).tolist() == [[2, 3, 0, 4]]
    assert rank_scores(torch.from_numpy(scores), 4).tolist() == [[2, 3, 0, 4]]
    assert rank_scores(csr_array(scores), 4).tolist() == [[2, 3, 0, 4]]


def test_wide_rows_of_ties() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (17, 1003)).astype(np.float32)
    wanted = np.argsort(-scores, axis=1, stable=True)[:, :37]
    assert np.array_equal(rank_scores(scores, 37), wanted)
    assert np.array_equal(rank_scores(torch.from_numpy(scores), 37).numpy(), wanted)


def test_nothing_to_rank() -> None:
    assert rank_scores(np.empty((0, 5)), 3).shape == (0, 3)
    assert rank_scores(np.empty((4, 0)), 3).shape == (4, 0)
    assert rank_scores(torch.empty((0, 5)), 3).shape == (0, 3)
    assert rank_scores(csr_array((0, 5)), 3).shape == (0, 3)


def test_a_tensor_that_asks_for_gradients() -> None:
    assert rank_scores(torch.tensor([[0.0, 1.0]], requires_grad=True), 1).tolist() == [[1]]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, 2.0]], "scores are a list; wanted an array, a tensor or a sparse matrix"),
        (np.zeros(3), r"scores have the shape \(3,\); wanted \[rows, classes\]"),
        (torch.zeros(3), r"scores have the shape \(3,\); wanted \[rows, classes\]"),
        (np.zeros((1, 2), np.bool_), "scores have the type bool; wanted real numbers"),
        (torch.zeros((1, 2), dtype=torch.complex64), "scores have the type torch.complex64; wanted real"),
        (np.array([[5.0, np.nan, 7.0, 9.0]]), "scores contain NaN; wanted"),
        (torch.tensor([[5.0, torch.nan, 7.0, 9.0]]), "scores contain NaN; wanted"),
        (csr_array(np.array([[5.0, np.nan]])), "scores contain NaN; wanted"),
    ],
)
def test_bad_scores(scores: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_scores(scores, 1)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None])
def test_bad_k(k: object) -> None:
    with pytest.raises(ValueError, match=r"k is .*; wanted a whole number of at least 1"):
        rank_scores(np.zeros((1, 2)), k)
