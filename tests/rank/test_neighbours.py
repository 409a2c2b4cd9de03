"""Votes and suggestions of the nearest training points, against a loop over all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.rank import neighbours as module
from owlmine.rank.candidates import Candidates, Encoded, find_candidates
from owlmine.rank.judge import Training
from owlmine.rank.neighbours import NeighbourJudge, VectorNeighbourJudge
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


def judge_of(points: np.ndarray, labels: SparseRows, count: int, power: float, *, is_sparse: bool) -> NeighbourJudge:
    if is_sparse:
        return NeighbourJudge(
            SparsePoints.of(sparse_rows(points), num_features=points.shape[1]), labels, count, power, NUM_CLASSES
        )
    unit_points = torch.tensor(points / np.linalg.norm(points, axis=1, keepdims=True))
    return VectorNeighbourJudge(DensePoints.of(unit_points).on(torch.device("cpu")), labels, count, power, NUM_CLASSES)


def points_of(judge: NeighbourJudge) -> np.ndarray:
    """The unit vectors of the points, as bytes have them."""
    if isinstance(judge.points, DensePoints):
        return judge.points.codes_PW.numpy() * judge.points.unit
    rows = judge.points.rows(np.arange(len(judge.points)))
    return np.asarray(rows.to_scipy(judge.points.num_features).toarray())


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
    unit_queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    neighbours = judge_of(points, labels, count, power, is_sparse=is_sparse)
    unit_points = points_of(neighbours)
    np.testing.assert_allclose(unit_points, points / np.linalg.norm(points, axis=1, keepdims=True), atol=0.005)
    found = votes(neighbours, sparse_rows(queries), torch.tensor(unit_queries), ids)
    wanted = looped(unit_queries @ unit_points.T, labels, ids, count, power)
    wanted[ids < 0] = 0
    # A cosine of float32 is off by some 1e-7, and its sixteenth power by sixteen times that share.
    np.testing.assert_allclose(found, wanted, atol=5e-6)
    assert neighbours.kind == ("sparse" if is_sparse else "dense")


def suggested_by_loop(
    cosines: np.ndarray[Any, Any], points: np.ndarray[Any, Any], labels: SparseRows, places: int
) -> list[list[int]]:
    """Of these neighbours: the classes with the most votes, among equals the smaller ones first."""
    suggested = []
    for own_cosines, own_points in zip(cosines.tolist(), points.tolist(), strict=True):
        shares = [max(cosine, 0.0) ** 4 for cosine in own_cosines]
        parts = [round(2**40 * share / (sum(shares) or 1.0)) for share in shares]
        votes = dict.fromkeys(range(NUM_CLASSES), 0)
        for part, i in zip(parts, own_points, strict=True):
            for c in labels.indices[labels.offsets[i] : labels.offsets[i + 1]].tolist():
                votes[c] += part
        best = sorted((c for c in votes if votes[c] > 0), key=lambda c: (-votes[c], c))[:places]
        suggested.append(best + [-1] * (min(places, NUM_CLASSES) - len(best)))
    return suggested


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(1, 12),
    st.integers(1, 15),
    st.sampled_from([2.0, 16.0]),
    st.sampled_from([0, 1, 3, NUM_CLASSES, 20]),
    st.booleans(),
)
@example(16520879, 9, 5, 2.0, 3, False)
@example(9, 10, 6, 2.0, 7, False)  # equal votes, added up in different orders
def test_suggestions_against_a_loop(
    seed: int, num_points: int, count: int, power: float, places: int, is_sparse: bool
) -> None:
    """By the fourth power of the cosine, whatever the power of the votes; some points are like others."""
    generator = np.random.default_rng(seed)
    points, queries = generator.normal(size=(num_points, 6)), generator.normal(size=(5, 6))
    points[generator.integers(0, num_points, num_points // 3)] = points[0]
    labels = some_labels(generator, num_points)
    judge = judge_of(points, labels, count, power, is_sparse=is_sparse)
    encoded = Encoded(sparse_rows(queries), torch.tensor(queries / np.linalg.norm(queries, axis=1, keepdims=True)))
    found = judge.suggest(encoded, places)
    assert (found.dtype, found.shape) == (np.int64, (5, min(places, NUM_CLASSES)))
    assert found.tolist() == suggested_by_loop(*judge.nearest(encoded), labels, places)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_who_has_the_most_votes_is_suggested_first(is_sparse: bool) -> None:
    """Votes by hand. Of equals the smaller id comes first; points at right angles, or beyond, suggest nothing."""
    points = np.array([[3.0, 4.0, 0.0], [3.0, -4.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    queries = sparse_rows(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]))
    labels = SparseRows(np.array([0, 2, 4, 5, 6, 7]), np.array([2, 6, 1, 6, 5, 4, 3]), None)
    judge = judge_of(points, labels, 5, 2.0, is_sparse=is_sparse)
    unit_queries = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    encoded = Encoded(queries, unit_queries)
    # Of the first query: 3 has a share of 1, 6 two of 0.6^4, 1 and 2 one each.
    wanted = [[3, 6, 1, 2, -1, -1, -1], [5, *[-1] * 6], [-1] * 7, [4, *[-1] * 6]]
    assert judge.suggest(encoded, 20).tolist() == wanted
    assert judge.suggest(encoded, 3).tolist() == [row[:3] for row in wanted]


def test_votes_of_few_near_points_may_lead_where_many_far_ones_would() -> None:
    """0.5 of one neighbour is more than 0.3 of each of two only as long as the power is above 1.4: at 4 it is so."""
    points = np.array([[0.5, np.sqrt(0.75), 0.0], [0.3, 0.0, np.sqrt(0.91)], [0.3, 0.0, -np.sqrt(0.91)]])
    labels = SparseRows(np.array([0, 1, 2, 3]), np.array([4, 2, 2]), None)
    judge = judge_of(points, labels, 3, 0.5, is_sparse=True)
    encoded = Encoded(sparse_rows(np.array([[1.0, 0.0, 0.0]])), torch.tensor([[1.0, 0.0, 0.0]]))
    assert judge.suggest(encoded, 3).tolist() == [[4, 2, -1]]
    voted = votes(judge, encoded.sparse_queries, encoded.vectors_ND, np.array([[4, 2]]))
    assert voted[0, 0] < voted[0, 1]


def test_a_class_without_points_has_no_votes() -> None:
    """Also one that was added to the model later, with an id beyond all labels."""
    labels = SparseRows(np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32), None)
    neighbours = VectorNeighbourJudge(DensePoints.of(torch.eye(2)), labels, 2, 1.0, 2)
    found = neighbours.votes_of(
        np.ones((2, 2), np.float32), np.array([[0, 1], [1, 0]]), np.array([[0, 2, 1], [3, 1, 0]])
    )
    np.testing.assert_allclose(found, [[0.5, 0, 0.5], [0, 0.5, 0.5]])


def test_no_neighbour_at_all() -> None:
    labels = SparseRows(np.array([0, 1, 1], np.int64), np.array([0], np.int32), None)
    neighbours = VectorNeighbourJudge(DensePoints.of(torch.eye(2)), labels, 2, 4.0, 3)
    ids = np.array([[0, 1, 2]])
    opposite = torch.tensor([[-1.0, -1.0]])
    np.testing.assert_array_equal(votes(neighbours, sparse_rows(np.ones((1, 2))), opposite, ids), np.zeros((1, 3)))
    unlabelled = VectorNeighbourJudge(
        DensePoints.of(torch.eye(1)), SparseRows(np.zeros(2, np.int64), np.zeros(0, np.int32), None), 1, 1.0, 3
    )
    np.testing.assert_array_equal(votes(unlabelled, sparse_rows(np.ones((1, 1))), torch.eye(1), ids), np.zeros((1, 3)))
    assert neighbours.suggest(Encoded(sparse_rows(np.ones((1, 2))), opposite), 5).tolist() == [[-1] * 3]
    assert unlabelled.suggest(Encoded(sparse_rows(np.ones((1, 1))), torch.eye(1)), 5).tolist() == [[-1] * 3]


def sizes(training: Training, **changes: Any) -> Training:
    return replace(training, sizes=replace(training.sizes, **changes))


def fitted(training: Training, chosen: Any = None) -> dict[Any, NeighbourJudge]:
    """The forms of both judges, by kind and form."""
    judges = (NeighbourJudge, VectorNeighbourJudge)
    return {(judge.kind, form): one for judge in judges for form, one in judge.fit(training, chosen).items()}


@pytest.mark.parametrize("heads", [1, 2])
def test_forms_are_powers(heads: int) -> None:
    small = world(dim=16 * heads, heads=heads)
    forms = fitted(small.training)
    assert [(judge.kind, judge.power) for judge in forms.values()] == [
        (kind, power) for kind in ("sparse", "dense") for power in (2.0, 4.0, 16.0)
    ]
    assert [form for _, form in forms] == ["power 2", "power 4", "power 16"] * 2
    assert {type(judge).name for judge in forms.values()} == {"neighbours", "vector_neighbours"}
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
        ({"neighbour_kinds": ("sparse",)}, "embedding", ["sparse"]),
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
    forms = fitted(training)
    assert list(dict.fromkeys(judge.kind for judge in forms.values())) == found
    assert len(forms) == 3 * len(found)
    monkeypatch.setattr(module, "_MOST_VECTOR_BYTES", 2 * 8 * len(training.queries))
    assert kind != "too many" or len(fitted(training)) == 6


def test_what_was_chosen_on_fewer_points_is_fitted_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal has fewer points than the fit after it, which may just be too many to be tried."""
    training = world().training
    monkeypatch.setattr(module, "_MOST_VECTOR_BYTES", 0)
    assert list(VectorNeighbourJudge.fit(training, "power 4")) == ["power 4"]


@pytest.mark.parametrize("chosen", ["power 3", "dense, power 2", 2.0])
def test_a_form_that_is_not_there_is_not_fitted(chosen: Any) -> None:
    assert fitted(world().training, chosen) == {}


def test_neighbours_of_a_kind_are_looked_up_once_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """By all forms, to suggest and to vote; also where the lists are made anew. Another batch is another matter."""
    small, calls = world(), []
    forms = {judge: judge.fit(small.training, None) for judge in (NeighbourJudge, VectorNeighbourJudge)}
    for points in (SparsePoints, DensePoints):
        monkeypatch.setattr(points, "nearest", counted(points.nearest, calls))
    suggesters = [next(iter(own.values())) for own in forms.values()]
    for _ in range(2):
        encoded = Encoded.of(small.model, small.queries)
        for judges in (suggesters, suggesters[1:]):
            candidates = find_candidates(small.model, encoded, 5, index=small.training.index, suggesters=judges)
            for own in forms.values():
                assert all(judge.scores(candidates).any() for judge in own.values())
    assert calls == 2 * ["SparsePoints", "DensePoints"]


def counted(nearest: Any, calls: list[str]) -> Any:
    return lambda *given: calls.append(type(given[0]).__name__) or nearest(*given)


def test_more_neighbours_are_another_lookup() -> None:
    """What was looked up for one judge is no answer for another one of other points, or of more of them."""
    small = world()
    encoded = Encoded.of(small.model, small.queries)
    judge = NeighbourJudge.fit(small.training, "power 4")["power 4"]
    for other in (
        replace(judge, count=3),
        NeighbourJudge.fit(world(seed=1).training, "power 4")["power 4"],
        VectorNeighbourJudge.fit(small.training, "power 4")["power 4"],
    ):
        judge.nearest(encoded)
        shared, alone = other.nearest(encoded), other.nearest(Encoded.of(small.model, small.queries))
        for found, wanted in zip(shared, alone, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert not np.array_equal(shared[0], judge.nearest(encoded)[0])
