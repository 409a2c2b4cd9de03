"""Votes of the nearest training points, against a loop over all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.rank import neighbours as module
from owlmine.rank.candidates import Candidates, Encoded
from owlmine.rank.judge import Training
from owlmine.rank.neighbours import NeighbourJudge
from owlmine.rank.points import DensePoints, SparsePoints

from .small_world import world

NUM_CLASSES = 7


def sparse_rows(matrix: np.ndarray[Any, Any]) -> SparseRows:
    rows, columns = np.nonzero(matrix)
    counts = np.bincount(rows, minlength=len(matrix))
    return SparseRows(offsets_from_counts(counts), columns.astype(np.int32), matrix[rows, columns].astype(np.float32))


def some_labels(generator: np.random.Generator, num_points: int) -> SparseRows:
    lists = [np.flatnonzero(generator.random(NUM_CLASSES) < 0.3) for _ in range(num_points)]
    return SparseRows(offsets_from_counts(np.array([len(x) for x in lists])), np.concatenate(lists), None)


def votes(judge: NeighbourJudge, queries: SparseRows, vectors: torch.Tensor, ids: np.ndarray) -> np.ndarray:
    nothing = np.full(ids.shape, -np.inf, np.float32)
    return judge.scores(Candidates(Encoded(queries, vectors), ids, nothing, nothing[:, 0], ids.shape[1]))


def looped(
    cosines: np.ndarray[Any, Any], labels: SparseRows, ids: np.ndarray[Any, Any], count: int, power: float
) -> np.ndarray[Any, Any]:
    voted = np.zeros(ids.shape)
    for n, row in enumerate(cosines):
        nearest = sorted(range(len(row)), key=lambda i: (-row[i], i))[:count]
        shares = {i: max(float(row[i]), 0.0) ** power for i in nearest}
        total = sum(shares.values())
        for s, c in enumerate(ids[n]):
            for i, share in shares.items():
                if total > 0 and c in labels.indices[labels.offsets[i] : labels.offsets[i + 1]]:
                    voted[n, s] += share / total
    return voted


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
    neighbours = NeighbourJudge(kind.on(torch.device("cpu")), labels, count, power, NUM_CLASSES)
    found = votes(neighbours, sparse_rows(queries), torch.tensor(unit_queries), ids)
    wanted = looped(unit_queries @ unit_points.T, labels, ids, count, power)
    wanted[ids < 0] = 0
    # A cosine of float32 is off by some 1e-7, and its sixteenth power by sixteen times that share.
    np.testing.assert_allclose(found, wanted, atol=5e-6)
    assert neighbours.kind == ("sparse" if is_sparse else "dense")


def test_a_class_without_points_has_no_votes() -> None:
    """Also one that was added to the model later, with an id beyond all labels."""
    labels = SparseRows(np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32), None)
    neighbours = NeighbourJudge(DensePoints(torch.eye(2)), labels, 2, 1.0, 2)
    found = neighbours.votes_of(
        np.ones((2, 2), np.float32), np.array([[0, 1], [1, 0]]), np.array([[0, 2, 1], [3, 1, 0]])
    )
    np.testing.assert_allclose(found, [[0.5, 0, 0.5], [0, 0.5, 0.5]])


def test_no_neighbour_at_all() -> None:
    labels = SparseRows(np.array([0, 1, 1], np.int64), np.array([0], np.int32), None)
    neighbours = NeighbourJudge(DensePoints(torch.eye(2)), labels, 2, 4.0, 3)
    ids = np.array([[0, 1, 2]])
    opposite = torch.tensor([[-1.0, -1.0]])
    np.testing.assert_array_equal(votes(neighbours, sparse_rows(np.ones((1, 2))), opposite, ids), np.zeros((1, 3)))
    unlabelled = NeighbourJudge(
        DensePoints(torch.eye(1)), SparseRows(np.zeros(2, np.int64), np.zeros(0, np.int32), None), 1, 1.0, 3
    )
    np.testing.assert_array_equal(votes(unlabelled, sparse_rows(np.ones((1, 1))), torch.eye(1), ids), np.zeros((1, 3)))


def sizes(training: Training, **changes: Any) -> Training:
    return replace(training, sizes=replace(training.sizes, **changes))


@pytest.mark.parametrize("heads", [1, 2])
def test_forms_are_kinds_and_powers(heads: int) -> None:
    small = world(dim=16 * heads, heads=heads)
    forms = NeighbourJudge.fit(small.training, None)
    assert [(judge.kind, judge.power) for judge in forms.values()] == [
        (kind, power) for kind in ("sparse", "dense") for power in (2.0, 4.0, 16.0)
    ]
    assert list(forms)[:2] == ["sparse, power 2", "sparse, power 4"]
    assert {judge.count for judge in forms.values()} == {7}
    # A training point is its own nearest neighbour.
    queries = small.training.queries
    encoded = Encoded.of(small.model, queries)
    for judge in forms.values():
        cosines, points = judge.points.nearest(queries, encoded.vectors_ND, 1)
        np.testing.assert_allclose(cosines, 1, atol=0.02)
        assert np.mean(points[:, 0] == np.arange(len(queries))) > 0.9


@pytest.mark.parametrize(
    ("changes", "kind", "found"),
    [
        ({"neighbours": 0}, "embedding", []),
        ({"neighbour_kinds": ()}, "embedding", []),
        ({"neighbour_kinds": ("dense",)}, "embedding", ["dense"]),
        ({"neighbour_kinds": ("sparse", "dense")}, "linear", ["sparse"]),
        ({}, "too many", ["sparse"]),
    ],
)
def test_the_kinds_to_choose_from(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], kind: str, found: list[str]
) -> None:
    """Vectors of a linear model are as long as there are features, and those of many points are too many."""
    training = sizes(world(kind="linear" if kind == "linear" else "embedding").training, **changes)
    if kind == "too many":
        # Two bytes a number, eight numbers a point.
        monkeypatch.setattr(module, "_MOST_VECTOR_BYTES", 2 * 8 * len(training.queries) - 1)
    forms = NeighbourJudge.fit(training, None)
    assert list(dict.fromkeys(judge.kind for judge in forms.values())) == found
    monkeypatch.setattr(module, "_MOST_VECTOR_BYTES", 2 * 8 * len(training.queries))
    assert kind != "too many" or len(NeighbourJudge.fit(training, None)) == 6


def test_what_was_chosen_on_fewer_points_is_fitted_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal has fewer points than the fit behind it, which may just be too many to be tried."""
    training = world().training
    monkeypatch.setattr(module, "_MOST_VECTOR_BYTES", 0)
    assert list(NeighbourJudge.fit(training, "dense, power 4")) == ["dense, power 4"]


@pytest.mark.parametrize("chosen", ["dense, power 3", "other, power 2", 2.0])
def test_a_form_that_is_not_there_is_not_fitted(chosen: Any) -> None:
    assert NeighbourJudge.fit(world().training, chosen) == {}


def test_neighbours_of_a_kind_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    small, calls = world(), []
    forms, nearest = NeighbourJudge.fit(small.training, None), NeighbourJudge.nearest
    monkeypatch.setattr(NeighbourJudge, "nearest", lambda *given: calls.append(given[0].kind) or nearest(*given))
    NeighbourJudge.scores_of_all(forms, small.candidates())
    assert calls == ["sparse", "dense"]
