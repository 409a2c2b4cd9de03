"""A shortlist in its new order, against a loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from owlmine.data.rows import SparseRows
from owlmine.rank import DensePoints, LinearRanker, NameMatches, Neighbours, Reranker, SparsePoints

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
NAMES = NameMatches.over(
    LinearRanker(np.array([0, 0, 2, 3]), np.array([0, 1, 2]), np.array([0.5, 1.0, 0.25]), np.zeros(3), 3)
)
MATCHES = [[0.0, 0.5, 0.125], [0.0, 0.25, 0.0]]


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


SCORES = np.array([[0.9, 0.8, 0.1, -np.inf], [0.3, 0.2, 0.1, -np.inf]], np.float32)
IDS = np.array([[2, 0, 1, -1], [0, 2, 1, -1]], np.int64)


def totals_by_loop(
    row: int, name_weight: float, best: float, scores: np.ndarray = SCORES, counts: tuple[float, ...] = (1, 1, 1)
) -> dict[int, float]:
    """By class; ``counts``: how many times the dense score of each does."""
    doubt = min(max(1 - best, 0.0), 1.0)
    return {
        c: counts[c] * float(s) + 0.1 * LINEAR[row][c] + float(OFFSETS[c]) + name_weight * doubt * MATCHES[row][c]
        for s, c in zip(scores[row], IDS[row].tolist(), strict=True)
        if c >= 0
    }


def assert_order(found: np.ndarray, found_ids: np.ndarray, totals: dict[int, float]) -> None:
    assert found_ids.tolist() == [*sorted(totals, key=lambda c: -totals[c]), -1]
    np.testing.assert_allclose(found[:-1], sorted(totals.values(), reverse=True), rtol=1e-6)
    assert np.isneginf(found[-1])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name_weight", [0.0, 0.7, 3.3])
@pytest.mark.parametrize("best", [None, [0.95, 0.25], [1.5, -0.5], [-np.inf, 1.0]])
def test_names_count_too(name_weight: float, best: list[float] | None) -> None:
    """The less the higher the best dense score of the query is: of all classes, or of those in the list."""
    reranker = Reranker(RANKER, 0.1, 3, OFFSETS, names=NAMES, name_weight=name_weight)
    assert not reranker.sees_vectors
    assert reranker.on(torch.device("cpu")).names is NAMES
    best_N = None if best is None else np.array(best, np.float32)
    before = SCORES.copy()
    for one in (reranker, Reranker.from_parts(reranker.to_dict(), reranker.tensors())):
        found, found_ids = one.reorder(QUERIES, None, SCORES, IDS, best_N=best_N)
        assert (found.dtype, found_ids.dtype) == (np.float32, np.int64)
        for row, own in enumerate([0.9, 0.3] if best is None else best):
            assert_order(found[row], found_ids[row], totals_by_loop(row, name_weight, own))
    np.testing.assert_array_equal(SCORES, before)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_best_of_a_list_need_not_be_the_first(place: int) -> None:
    """Names suggest classes behind it, and dense scores may count for less."""
    scores = SCORES.copy()
    scores[:, place] = 0.95
    reranker = Reranker(RANKER, 0.1, 3, OFFSETS, names=NAMES, name_weight=3.3)
    found, found_ids = reranker.reorder(QUERIES, None, scores, IDS)
    for row in range(2):
        assert_order(found[row], found_ids[row], totals_by_loop(row, 3.3, 0.95, scores))


@pytest.mark.parametrize("best", [None, [0.6, 0.2]])
@pytest.mark.parametrize(
    ("num_trained", "of_list"), [(None, [0.9, 0.3]), (3, [0.9, 0.3]), (2, [0.8, 0.3]), (1, [0.8, 0.3])]
)
def test_names_beside_classes_that_were_added(
    best: list[float] | None, num_trained: int | None, of_list: list[float]
) -> None:
    """How sure the dense model is depends on those that training knew, and on their scores as they are."""
    weights = (1.0, 0.75, 0.5)
    reranker = Reranker(
        RANKER,
        0.1,
        3,
        OFFSETS,
        dense_weights_K=np.array(weights, np.float32),
        names=NAMES,
        name_weight=3.3,
        num_trained=num_trained,
    )
    best_N = None if best is None else np.array(best, np.float32)
    for one in (reranker, Reranker.from_parts(reranker.to_dict(), reranker.tensors())):
        assert one.num_trained == num_trained
        np.testing.assert_array_equal(one.best_dense(SCORES, IDS), np.array(of_list, np.float32))
        found, found_ids = one.reorder(QUERIES, None, SCORES, IDS, best_N=best_N)
        for row, own in enumerate(of_list if best is None else best):
            assert_order(found[row], found_ids[row], totals_by_loop(row, 3.3, own, counts=weights))


def test_lists_of_classes_that_were_added_alone() -> None:
    """The dense model is as unsure as can be."""
    scores, ids = np.array([[0.9, -np.inf]] * 2, np.float32), np.array([[2, -1]] * 2)
    reranker = Reranker(RANKER, 0.1, 3, OFFSETS, names=NAMES, name_weight=3.3, num_trained=2)
    assert np.isneginf(reranker.best_dense(scores, ids)).all()
    found, _ = reranker.reorder(QUERIES, None, scores, ids)
    wanted = [0.9 + 0.1 * LINEAR[row][2] + float(OFFSETS[2]) + 3.3 * MATCHES[row][2] for row in range(2)]
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-6)


@pytest.mark.parametrize("num_trained", [0, -1, 4])
def test_numbers_of_trained_classes_that_cannot_be(num_trained: int) -> None:
    good = Reranker(RANKER, 0.3, 20, OFFSETS)
    assert "num_trained" not in good.to_dict()
    with pytest.raises(ValueError, match=f"{num_trained} classes of 3 were trained; wanted 1 to all"):
        Reranker.from_parts(good.to_dict() | {"num_trained": num_trained}, good.tensors())


@pytest.mark.parametrize("num_places", [0, 1])
def test_names_of_lists_without_classes(num_places: int) -> None:
    nothing, none = np.full((2, num_places), -np.inf, np.float32), np.full((2, num_places), -1)
    found, found_ids = Reranker(RANKER, 0.1, 3, OFFSETS, names=NAMES, name_weight=3.3).reorder(
        QUERIES, None, nothing, none
    )
    np.testing.assert_array_equal(found, nothing)
    np.testing.assert_array_equal(found_ids, none)


@pytest.mark.parametrize("names", [None, NAMES])
def test_vectors_are_needed_for_neighbours_that_are_found_by_them(names: NameMatches | None) -> None:
    """Names do without, and add to votes."""
    labels = SparseRows(np.array([0, 1, 2]), np.array([1, 2]), None)
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    # Either way the first query is the first point, and the second the second one.
    for points, sees in ((DensePoints(vectors), True), (SparsePoints.of(QUERIES, num_features=3), False)):
        reranker = Reranker(RANKER, 0.1, 3, OFFSETS, Neighbours(points, labels, 1, 2.0, 3), 0.4, None, names, 3.3)
        assert reranker.sees_vectors == sees
        found, found_ids = reranker.reorder(QUERIES, vectors if sees else None, SCORES, IDS)
        for row, voted in enumerate((1, 2)):
            totals = totals_by_loop(row, 3.3 if names else 0.0, float(SCORES[row, 0]))
            assert_order(found[row], found_ids[row], totals | {voted: totals[voted] + 0.4})
    assert not Reranker(RANKER, 0.1, 3, OFFSETS, names=names).sees_vectors


def test_names_there_and_back() -> None:
    reranker = Reranker(RANKER, 0.3, 20, OFFSETS, names=NAMES, name_weight=0.7)
    again = Reranker.from_parts(reranker.to_dict(), reranker.tensors())
    assert again.name_weight == 0.7
    assert again.names is not None
    np.testing.assert_array_equal(again.ranker.weights, RANKER.weights)
    for name in ("offsets_K1", "features", "weights", "biases_K"):
        np.testing.assert_array_equal(getattr(again.names.ranker, name), getattr(NAMES.ranker, name))
    without = Reranker(RANKER, 0.3, 20, OFFSETS)
    assert "name_weight" not in without.to_dict()
    assert not [name for name in without.tensors() if name.startswith("names.")]
    assert Reranker.from_parts(without.to_dict(), without.tensors()).names is None


def test_names_of_another_model_are_refused() -> None:
    for classes, features in ((2, 3), (4, 3), (3, 2), (3, 4)):
        other = NameMatches.over(
            LinearRanker(np.zeros(classes + 1, np.int64), np.zeros(0), np.zeros(0), np.zeros(classes), features)
        )
        with pytest.raises(
            ValueError, match=rf"names of \({classes}, {features}\) classes and features; wanted \(3, 3\)"
        ):
            Reranker(RANKER, 0.3, 20, OFFSETS, names=other)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_weights_of_names_that_cannot_be(weight: float) -> None:
    with pytest.raises(ValueError, match=r"the weight of names is .*; wanted a number of 0 or more"):
        Reranker(RANKER, 0.3, 20, OFFSETS, names=NAMES, name_weight=weight)
    good = Reranker(RANKER, 0.3, 20, OFFSETS, names=NAMES, name_weight=0.7)
    with pytest.raises(ValueError, match="the weight of names is"):
        Reranker.from_parts(good.to_dict() | {"name_weight": weight}, good.tensors())


def test_names_that_are_told_of_and_missing() -> None:
    without = Reranker(RANKER, 0.3, 20, OFFSETS)
    with pytest.raises(ValueError, match="tensors are"):
        Reranker.from_parts(without.to_dict() | {"name_weight": 0.7}, without.tensors())


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
