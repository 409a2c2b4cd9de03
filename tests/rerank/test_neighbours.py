"""Votes of the nearest training points, against a loop over all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.rank import DensePoints, Neighbours, SparsePoints
from owlmine.rank.points import first_head

NUM_CLASSES = 7


def sparse_rows(matrix: np.ndarray[Any, Any]) -> SparseRows:
    rows, columns = np.nonzero(matrix)
    counts = np.bincount(rows, minlength=len(matrix))
    return SparseRows(offsets_from_counts(counts), columns.astype(np.int32), matrix[rows, columns].astype(np.float32))


def some_labels(generator: np.random.Generator, num_points: int) -> SparseRows:
    lists = [np.flatnonzero(generator.random(NUM_CLASSES) < 0.3) for _ in range(num_points)]
    return SparseRows(offsets_from_counts(np.array([len(x) for x in lists])), np.concatenate(lists), None)


def looped(
    cosines: np.ndarray[Any, Any], labels: SparseRows, ids: np.ndarray[Any, Any], count: int, power: float
) -> np.ndarray[Any, Any]:
    votes = np.zeros(ids.shape)
    for n, row in enumerate(cosines):
        nearest = sorted(range(len(row)), key=lambda i: (-row[i], i))[:count]
        shares = {i: max(float(row[i]), 0.0) ** power for i in nearest}
        total = sum(shares.values())
        for s, c in enumerate(ids[n]):
            for i, share in shares.items():
                if total > 0 and c in labels.indices[labels.offsets[i] : labels.offsets[i + 1]]:
                    votes[n, s] += share / total
    return votes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 15), st.sampled_from([1.0, 2.0, 16.0]), st.booleans())
def test_votes_against_a_loop(seed: int, num_points: int, count: int, power: float, is_sparse: bool) -> None:
    generator = np.random.default_rng(seed)
    points, queries = generator.normal(size=(num_points, 6)), generator.normal(size=(4, 6))
    labels = some_labels(generator, num_points)
    ids = np.stack([generator.permutation(NUM_CLASSES)[:5] for _ in range(4)])
    ids[0, 3] = -1
    unit_points, unit_queries = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in (points, queries))
    kind = SparsePoints.of(sparse_rows(points), num_features=6) if is_sparse else DensePoints(torch.tensor(unit_points))
    neighbours = Neighbours(kind.on(torch.device("cpu")), labels, count, power, NUM_CLASSES)
    found = neighbours.votes(sparse_rows(queries), torch.tensor(unit_queries), ids)
    wanted = looped(unit_queries @ unit_points.T, labels, ids, count, power)
    wanted[ids < 0] = 0
    # A cosine of float32 is off by some 1e-7, and its sixteenth power by sixteen times that share.
    np.testing.assert_allclose(found, wanted, atol=5e-6)
    assert neighbours.kind == ("sparse" if is_sparse else "dense")


def test_the_first_of_several_heads_is_compared() -> None:
    """Joined models hold unit vectors side by side, divided by the root of their number."""
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.nn.functional.normalize(torch.randn(5, 4, generator=generator), dim=1) for _ in range(2))
    torch.testing.assert_close(first_head(torch.cat([one, other], dim=1) / 2**0.5, 4), one)


def test_a_class_without_points_has_no_votes() -> None:
    """Also one that was added to the model later, with an id beyond all labels."""
    labels = SparseRows(np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32), None)
    neighbours = Neighbours(DensePoints(torch.eye(2)), labels, 2, 1.0, 2)
    votes = neighbours.votes_of(
        np.ones((2, 2), np.float32), np.array([[0, 1], [1, 0]]), np.array([[0, 2, 1], [3, 1, 0]])
    )
    np.testing.assert_allclose(votes, [[0.5, 0, 0.5], [0, 0.5, 0.5]])


def test_no_neighbour_at_all() -> None:
    labels = SparseRows(np.array([0, 1, 1], np.int64), np.array([0], np.int32), None)
    neighbours = Neighbours(DensePoints(torch.eye(2)), labels, 2, 4.0, 3)
    ids = np.array([[0, 1, 2]])
    opposite = torch.tensor([[-1.0, -1.0]])
    np.testing.assert_array_equal(neighbours.votes(sparse_rows(np.ones((1, 2))), opposite, ids), np.zeros((1, 3)))
    unlabelled = Neighbours(
        DensePoints(torch.eye(1)), SparseRows(np.zeros(2, np.int64), np.zeros(0, np.int32), None), 1, 1.0, 3
    )
    np.testing.assert_array_equal(unlabelled.votes(sparse_rows(np.ones((1, 1))), torch.eye(1), ids), np.zeros((1, 3)))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_there_and_back(kind: str) -> None:
    generator = np.random.default_rng(1)
    matrix, labels = generator.normal(size=(9, 4)), some_labels(generator, 9)
    points = (
        SparsePoints.of(sparse_rows(matrix), num_features=4)
        if kind == "sparse"
        else DensePoints(torch.tensor(matrix).to(torch.bfloat16))
    )
    neighbours = Neighbours(points, labels, 3, 2.0, NUM_CLASSES)
    again = Neighbours.from_parts(neighbours.to_dict(), neighbours.tensors())
    assert again.to_dict() == neighbours.to_dict()
    for name, tensor in neighbours.tensors().items():
        assert torch.equal(again.tensors()[name], tensor), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", torch.tensor([0, 9], dtype=torch.int32)),
        ("labels", torch.tensor([0, -1], dtype=torch.int32)),
        ("label_offsets", torch.tensor([0, 1, 3])),
        ("label_offsets", torch.tensor([0, 2])),
        ("points.vectors", torch.zeros(3, 2, dtype=torch.bfloat16)),
        ("points.vectors", torch.zeros(2, dtype=torch.bfloat16)),
        ("points.vectors", torch.zeros(2, 2, dtype=torch.int8)),
    ],
)
def test_harmed_tensors_are_refused(name: str, value: torch.Tensor) -> None:
    labels = SparseRows(np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32), None)
    whole = Neighbours(DensePoints(torch.eye(2)), labels, 2, 1.0, 2)
    with pytest.raises(ValueError, match=r"wanted|do not"):
        Neighbours.from_parts(whole.to_dict(), whole.tensors() | {name: value})


@pytest.mark.parametrize("change", [{"kind": "other"}, {"count": 0}, {"power": 0.0}, {"power": float("nan")}])
def test_harmed_numbers_are_refused(change: dict[str, Any]) -> None:
    labels = SparseRows(np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32), None)
    whole = Neighbours(DensePoints(torch.eye(2)), labels, 2, 1.0, 2)
    with pytest.raises(ValueError, match="wanted"):
        Neighbours.from_parts(whole.to_dict() | change, whole.tensors())
