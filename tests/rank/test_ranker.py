"""Candidates in their final order, against a loop over floats; and what comes from a file is either sound or refused.

Shapes: N queries, S places of a list of candidates, K classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.index import ExactIndex, Filter
from owlmine.rank import (
    JUDGES,
    Judge,
    LinearJudge,
    Mix,
    NameJudge,
    NeighbourJudge,
    Ranker,
    RarityJudge,
    VectorNeighbourJudge,
)
from owlmine.rank.candidates import SUGGESTED, Candidates, Encoded
from owlmine.rank.points import DensePoints, SparsePoints
from owlmine.rank.sparse_weights import SparseWeights

MODEL = Retriever.new(ModelShape(3, 3, dim=2), seed=0)
INDEX = ExactIndex(MODEL.classes.weight)
QUERIES = SparseRows(
    np.array([0, 2, 3], np.int64), np.array([0, 2, 1], np.int32), np.array([1.0, 0.5, 0.25], np.float32)
)
LINEAR = LinearJudge(
    SparseWeights.of(
        SparseRows(
            np.array([0, 2, 2, 3], np.int64), np.array([0, 2, 1], np.int32), np.array([1.0, -1.0, 2.0], np.float32)
        ),
        np.array([0.5, 0.0, -0.25], np.float32),
        3,
    )
)
RARITY = RarityJudge(np.array([0.0, 0.3, -0.05], np.float32))
NAMES = NameJudge.over(
    SparseWeights.of(
        SparseRows(np.array([0, 0, 2, 3]), np.array([0, 1, 2]), np.array([64, 127, 31.75]) / 128), np.zeros(3), 3
    )
)
LABELS = SparseRows(np.array([0, 1, 2]), np.array([1, 2]), None)
VECTORS = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
# What they say of each class, by hand: of two queries, and of no query at all.
LINEAR_SCORES = [[1.0, 0.0, -0.25], [0.5, 0.0, 0.25]]
MATCHES = [[0.0, 0.5, 31.75 / 256], [0.0, 31.75 / 128, 0.0]]
RARITIES = [0.0, 0.3, -0.05]
# Either way the first query is the first point, and the second the second one.
NEIGHBOURS = NeighbourJudge(SparsePoints.of(QUERIES, num_features=3), LABELS, 1, 2.0, 3)
VECTOR_NEIGHBOURS = VectorNeighbourJudge(
    DensePoints.of(VECTORS.to(torch.bfloat16)).on(torch.device("cpu")), LABELS, 1, 2.0, 3
)

SCORES = np.array([[0.9, 0.8, 0.1, -np.inf], [0.3, 0.2, 0.1, -np.inf]], np.float32)
IDS = np.array([[2, 0, 1, -1], [0, 2, 1, -1]], np.int64)


def ranker_of(judges: Mapping[str, tuple[Judge, float]], **options: Any) -> Ranker:
    mix = Mix({name: weight for name, (_, weight) in judges.items()}, dict.fromkeys(judges))
    return Ranker({name: judge for name, (judge, _) in judges.items()}, mix, **{"shortlist": 3, **options})


def candidates_of(
    scores: np.ndarray = SCORES, ids: np.ndarray = IDS, *, best: list[float] | None = None, vectors: Tensor = VECTORS
) -> Candidates:
    best_N = scores.max(axis=1, initial=-np.inf) if best is None else np.array(best, np.float32)
    return Candidates(Encoded(QUERIES, vectors), ids, scores, best_N, ids.shape[1])


def totals_by_loop(
    row: int,
    *,
    linear: float = 0.0,
    rarity: float = 0.0,
    names: float = 0.0,
    best: float = 0.0,
    counts: tuple[float, ...] = (1, 1, 1),
    offsets: tuple[float, ...] = (0, 0, 0),
    scores: np.ndarray = SCORES,
) -> dict[int, float]:
    """By class; ``counts``: how many times the dense score of each does."""
    doubt = min(max(1 - best, 0.0), 1.0)
    return {
        c: counts[c] * float(s)
        + offsets[c]
        + linear * LINEAR_SCORES[row][c]
        + rarity * RARITIES[c]
        + names * doubt * MATCHES[row][c]
        for s, c in zip(scores[row], IDS[row].tolist(), strict=True)
        if c >= 0
    }


def through_a_file(ranker: Ranker) -> Ranker:
    tensors = {name: tensor.clone() for name, tensor in ranker.tensors().items()}
    return Ranker.load(json.loads(json.dumps(ranker.to_dict())), tensors, MODEL)


def assert_order(ranker: Ranker, candidates: Candidates, totals: list[dict[int, float]]) -> None:
    """Of the ranker, and of what a file has of it."""
    before = candidates.dense_NS.copy(), candidates.ids_NS.copy()
    for one in (ranker, through_a_file(ranker)):
        scores, ids = one.order(candidates)
        assert (scores.dtype, ids.dtype) == (np.float32, np.int64)
        for found, found_ids, own in zip(scores, ids, totals, strict=True):
            assert found_ids.tolist() == [*sorted(own, key=lambda c: -own[c]), -1]
            np.testing.assert_allclose(found[:-1], sorted(own.values(), reverse=True), rtol=1e-6)
            assert np.isneginf(found[-1])
    np.testing.assert_array_equal(candidates.dense_NS, before[0])
    np.testing.assert_array_equal(candidates.ids_NS, before[1])


def test_without_judges_the_dense_model_has_the_last_word() -> None:
    scores, ids = Ranker().order(candidates_of())
    np.testing.assert_array_equal(scores, SCORES)
    np.testing.assert_array_equal(ids, IDS)
    assert (Ranker().tensors(), through_a_file(Ranker()).to_dict()) == ({}, Ranker().to_dict())


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("linear", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("rarity", [0.0, 1.0])
def test_the_order_by_the_sum_of_all_scores(linear: float, rarity: float) -> None:
    ranker = ranker_of({"linear": (LINEAR, linear), "rarity": (RARITY, rarity)})
    totals = [totals_by_loop(row, linear=linear, rarity=rarity) for row in range(2)]
    assert_order(ranker, candidates_of(), totals)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("weight", [0.0, 0.7, 3.3])
@pytest.mark.parametrize("best", [[0.9, 0.3], [0.95, 0.25], [1.5, -0.5], [-np.inf, 1.0]])
def test_names_count_the_less_the_surer_the_dense_model_is(weight: float, best: list[float]) -> None:
    """Sure of whichever class: the best need not be on the list."""
    ranker = ranker_of({"linear": (LINEAR, 0.1), "rarity": (RARITY, 1.0), "names": (NAMES, weight)})
    totals = [totals_by_loop(row, linear=0.1, rarity=1.0, names=weight, best=best[row]) for row in range(2)]
    assert_order(ranker, candidates_of(best=best), totals)


@pytest.mark.parametrize("weights", [(0.4, None), (None, 0.4), (0.3, 0.7)])
def test_neighbours_add_their_votes(weights: tuple[float | None, float | None]) -> None:
    """Of one kind or of both."""
    judges: dict[str, tuple[Judge, float]] = {"linear": (LINEAR, 0.1)}
    for judge, weight in zip((NEIGHBOURS, VECTOR_NEIGHBOURS), weights, strict=True):
        judges |= {} if weight is None else {judge.name: (judge, weight)}
    ranker = ranker_of(judges | {"names": (NAMES, 3.3)})
    totals = [totals_by_loop(row, linear=0.1, names=3.3, best=float(SCORES[row, 0])) for row in range(2)]
    for row, voted in enumerate((1, 2)):
        totals[row][voted] += sum(weight or 0 for weight in weights)
    assert_order(ranker, candidates_of(), totals)


@pytest.mark.parametrize("judges", [{}, {"linear": (LINEAR, 0.1), "names": (NAMES, 3.3)}])
def test_what_counts_otherwise_of_classes_that_were_added(judges: dict[str, tuple[Judge, float]]) -> None:
    """Their dense scores count for less, and something is added: after that, what was best need not be any more."""
    weights, offsets = (1.0, 0.75, 0.25), (0.0, 0.3, 0.7)
    ranker = ranker_of(
        judges, num_trained=1, dense_weights_K=np.array(weights, "f4"), offsets_K=np.array(offsets, np.float32)
    )
    shares = {name: weight for name, (_, weight) in judges.items()}
    for best in ([0.9, 0.3], [0.5, 0.2]):
        totals = [totals_by_loop(row, best=best[row], counts=weights, offsets=offsets, **shares) for row in range(2)]
        assert_order(ranker, candidates_of(best=best), totals)
    again = through_a_file(ranker)
    assert again.num_trained == 1
    assert set(again.tensors()) == set(ranker.tensors()) >= {"dense_weights", "offsets"}


def test_of_equals_the_dense_model_decides() -> None:
    scores, ids = np.full((2, 3), 0.5, np.float32), np.array([[2, 0, 1], [1, 2, 0]])
    found, found_ids = ranker_of({"rarity": (RARITY, 0.0)}).order(candidates_of(scores, ids))
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_array_equal(found, scores)


@pytest.mark.parametrize("num_places", [0, 1])
def test_lists_without_a_class(num_places: int) -> None:
    nothing, none = np.full((2, num_places), -np.inf, np.float32), np.full((2, num_places), -1)
    judges = {"linear": (LINEAR, 0.1), "rarity": (RARITY, 1.0), "names": (NAMES, 3.3)}
    scores, ids = ranker_of(judges).order(candidates_of(nothing, none))
    np.testing.assert_array_equal(scores, nothing)
    np.testing.assert_array_equal(ids, none)


def test_a_judge_that_does_not_count_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearJudge, "scores", None)
    ranker_of({"linear": (LINEAR, 0.0), "rarity": (RARITY, 1.0)}).order(candidates_of())
    with pytest.raises(TypeError):
        ranker_of({"linear": (LINEAR, 0.1)}).order(candidates_of())


def test_the_judges_that_suggest_classes() -> None:
    """Their suggestions are on the lists whatever they count: that is still to be chosen."""
    assert ranker_of({"linear": (LINEAR, 0.1), "names": (NAMES, 0.0)}).suggesters == (NAMES,)
    assert ranker_of({"linear": (LINEAR, 0.1), "rarity": (RARITY, 1.0)}).suggesters == ()
    every = whole_ranker()
    assert every.suggesters == (NEIGHBOURS, VECTOR_NEIGHBOURS, NAMES)
    found = every.candidates(MODEL, Encoded.of(MODEL, QUERIES), 1, index=INDEX)
    assert found.suggested == ("neighbours", "vector_neighbours", "names")
    assert found.ids_NS.shape == (2, 3 + 3 * SUGGESTED)


@pytest.mark.parametrize("judge", [NEIGHBOURS, VECTOR_NEIGHBOURS], ids=lambda judge: judge.name)
def test_neighbours_find_a_class_that_the_dense_model_does_not_know(judge: NeighbourJudge) -> None:
    """No query is near to the vector of a class that training has hardly seen."""
    model = Retriever.new(MODEL.shape, seed=0)
    encoded = Encoded.of(model, QUERIES)
    for row, unseen in enumerate(LABELS.indices.tolist()):
        model.classes.weight.copy_(encoded.vectors_ND[row])
        model.classes.weight[unseen] *= -1
        if judge is VECTOR_NEIGHBOURS:
            judge = replace(judge, points=DensePoints.of(encoded.vectors_ND))
        known = sorted({0, 1, 2} - {unseen})
        found = {}
        for judges in ({"linear": (LINEAR, 0.0)}, {"linear": (LINEAR, 0.0), judge.name: (judge, 5.0)}):
            ranker = ranker_of(judges, shortlist=2)
            candidates = ranker.candidates(model, encoded, 2, index=ExactIndex(model.classes.weight))
            assert sorted(candidates.ids_NS[row, :2].tolist()) == known
            found[len(judges)] = ranker.order(candidates)[1][row]
        assert unseen not in found[1]
        assert found[2][0] == unseen


@pytest.mark.parametrize(
    ("k", "shortlist", "among", "length"),
    [(1, 2, None, 2), (3, 2, None, 3), (1, 2, [1], 1), (2, 1, [0, 2], 2), (1, 9, None, 3)],
)
def test_lists_are_as_long_as_the_shortlist_and_the_answer(
    k: int, shortlist: int, among: list[int] | None, length: int
) -> None:
    ranker = ranker_of({"linear": (LINEAR, 0.1)}, shortlist=shortlist)
    only = None if among is None else Filter.allowing(np.array(among), 3)
    found = ranker.candidates(MODEL, Encoded.of(MODEL, QUERIES), k, index=INDEX, only=only)
    assert found.ids_NS.shape == (2, length)
    assert set(found.ids_NS.ravel().tolist()) <= set(among or range(3))


def test_a_ranker_cannot_be_changed() -> None:
    ranker = ranker_of({"linear": (LINEAR, 0.1)})
    for name in ("judges", "mix", "shortlist", "num_trained", "dense_weights_K", "offsets_K", "more"):
        with pytest.raises(FrozenInstanceError):
            setattr(ranker, name, None)


def whole_ranker() -> Ranker:
    judges: dict[str, tuple[Judge, float]] = {
        "linear": (LINEAR, 0.3),
        "rarity": (RARITY, 0.1),
        "neighbours": (NEIGHBOURS, 0.2),
        "vector_neighbours": (VECTOR_NEIGHBOURS, 0.3),
        "names": (NAMES, 0.7),
    }
    return ranker_of(judges, num_trained=2, dense_weights_K=np.ones(3, "f4"), offsets_K=np.zeros(3, np.float32))


def test_there_and_back() -> None:
    ranker = whole_ranker()
    again = through_a_file(ranker)
    assert list(again.judges) == list(JUDGES) == list(ranker.judges)
    assert again.to_dict() == ranker.to_dict()
    assert list(again.tensors()) == list(ranker.tensors())
    for name, tensor in ranker.tensors().items():
        assert torch.equal(again.tensors()[name], tensor), name
    np.testing.assert_array_equal(again.order(candidates_of())[0], ranker.order(candidates_of())[0])


def test_what_was_read_lies_where_the_model_does() -> None:
    """Vectors of neighbours are bfloat16 in a file, and float32 on a CPU, which multiplies that faster."""
    neighbours = VectorNeighbourJudge(DensePoints.of(VECTORS.to(torch.bfloat16)), LABELS, 1, 2.0, 3)
    read = through_a_file(ranker_of({"vector_neighbours": (neighbours, 0.2)})).judges["vector_neighbours"]
    assert isinstance(read, VectorNeighbourJudge)
    assert isinstance(read.points, DensePoints)
    assert read.points.codes_PW.dtype == torch.int8


@pytest.mark.parametrize(
    "change",
    [
        {"shortlist": 0},
        {"shortlist": -1},
        {"shortlist": 4},
        {"shortlist": "3"},
        {"shortlist": True},
        {"shortlist": None},
        {"shortlist": 3.0},
        {"num_trained": 0},
        {"num_trained": -1},
        {"num_trained": 4},
        {"num_trained": 1.5},
        {"judges": None},
        {"judges": []},
        {"judges": {}},
        {"judges": {"linear": {}}},
        {"judges": {"unheard-of": {}}},
        {"judges": {"linear": {"more": 1}, "rarity": {}, "neighbours": {}, "names": {}}},
        {"mix": None},
        {"mix": {"weights": {}, "variants": {}}},
        {"more": 1},
    ],
    ids=str,
)
def test_records_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    ranker = whole_ranker()
    with pytest.raises(ValueError, match=r"wanted|and weights of"):
        Ranker.load(ranker.to_dict() | change, ranker.tensors(), MODEL)


@pytest.mark.parametrize("record", [None, [], "ranker", {}, {"shortlist": 3}])
def test_something_else_is_no_ranker(record: Any) -> None:
    with pytest.raises(ValueError, match="wanted shortlist, num_trained, mix, judges"):
        Ranker.load(record, {}, MODEL)


@pytest.mark.parametrize("name", ["dense_weights", "offsets"])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2),
        torch.ones(3, 1),
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3).to_sparse(),
        torch.tensor([1.0, torch.inf, 1.0]),
        torch.tensor([1.0, torch.nan, 1.0]),
    ],
    ids=str,
)
def test_numbers_of_classes_that_cannot_be_are_refused(name: str, tensor: Tensor) -> None:
    ranker = whole_ranker()
    with pytest.raises(ValueError, match=r"wanted|is not a finite number above 0|is not finite"):
        Ranker.load(ranker.to_dict(), ranker.tensors() | {name: tensor}, MODEL)


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_dense_scores_that_would_not_count_are_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="a dense weight is not a finite number above 0"):
        replace(whole_ranker(), dense_weights_K=np.array([1.0, weight, 1.0], np.float32))


@pytest.mark.parametrize("name", ["surplus", "surplus.offsets", "linear.surplus", "linears.offsets", "linear"])
def test_tensors_that_belong_to_nobody_are_refused(name: str) -> None:
    ranker = whole_ranker()
    with pytest.raises(ValueError, match=rf"{name.rpartition('.')[2]}.*wanted"):
        Ranker.load(ranker.to_dict(), ranker.tensors() | {name: torch.zeros(1)}, MODEL)


def test_tensors_that_are_missing() -> None:
    ranker = whole_ranker()
    for judge in ranker.judges:
        there = {name: tensor for name, tensor in ranker.tensors().items() if not name.startswith(f"{judge}.")}
        with pytest.raises(ValueError, match=r"tensors are .*; wanted"):
            Ranker.load(ranker.to_dict(), there, MODEL)


def test_a_ranker_of_another_model_is_refused() -> None:
    ranker = replace(whole_ranker(), dense_weights_K=None, offsets_K=None)
    for shape in (ModelShape(3, 4, dim=2), ModelShape(4, 3, dim=2), ModelShape(3, 3, dim=2, dense=True)):
        with pytest.raises(ValueError, match="wanted"):
            Ranker.load(ranker.to_dict(), ranker.tensors(), Retriever.new(shape, seed=0))
