"""Candidates of queries: the best classes of the dense model, and after them those that judges suggest.

Shapes: N queries, S places of a list, n places for suggested classes, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data.rows import Int64, SparseRows
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.index import ExactIndex
from owlmine.index import exact as module
from owlmine.rank.candidates import SUGGESTED, Candidates, Encoded, Suggests, find_candidates
from owlmine.rank.names import NameJudge
from owlmine.rank.neighbours import NeighbourJudge
from owlmine.rank.points import SparsePoints
from owlmine.rank.sparse_weights import SparseWeights

from .small_tasks import dense, only, sparse_rows

NUM_FEATURES, NUM_CLASSES, NUM_QUERIES = 14, 45, 9
SOME = np.array([3, 5, 17, 29, 40, 44], np.int64)


def some_queries(seed: int = 1, num_rows: int = NUM_QUERIES) -> SparseRows:
    """Positive, as those of texts are; the last one has no features at all."""
    rows = sparse_rows(seed, num_rows=num_rows, num_features=NUM_FEATURES)
    assert rows.values is not None
    offsets = rows.offsets.copy()
    offsets[-1] = offsets[-2]
    return SparseRows(offsets, rows.indices[: offsets[-1]], np.abs(rows.values[: offsets[-1]]))


def some_model(num_classes: int = NUM_CLASSES) -> Retriever:
    """Of some queries it is surer than of others."""
    model = Retriever.new(ModelShape(NUM_FEATURES, num_classes, dim=6), seed=4)
    lengths_K = 0.1 + 1.6 * torch.rand(num_classes, generator=torch.Generator().manual_seed(4)) ** 2
    model.classes.weight.mul_(lengths_K[:, None])
    return model


def some_names(num_classes: int = NUM_CLASSES, share: float = 0.25) -> NameJudge:
    rows = sparse_rows(7, num_rows=num_classes, num_features=NUM_FEATURES, share=share)
    weights = np.random.default_rng(7).random(len(rows.indices)).astype(np.float32)
    none_K = np.zeros(num_classes, np.float32)
    return NameJudge.over(SparseWeights.of(replace(rows, values=weights), none_K, NUM_FEATURES))


def some_neighbours(num_classes: int = NUM_CLASSES) -> NeighbourJudge:
    points, generator = some_queries(8, 40), np.random.default_rng(8)
    labels = [np.sort(generator.permutation(num_classes)[:6]) for _ in range(40)]
    label_rows = SparseRows(np.arange(41) * 6, np.concatenate(labels), None)
    return NeighbourJudge(SparsePoints.of(points, num_features=NUM_FEATURES), label_rows, 5, 2.0, num_classes)


def dense_scores(model: Retriever, queries: SparseRows) -> np.ndarray[Any, Any]:
    vectors_ND = model.encode(query_batch(queries, model.device))
    return (vectors_ND.double() @ model.classes.weight.double().T).numpy()


def suggested(
    names: NameJudge, query_F: np.ndarray[Any, Any], allowed: Sequence[int], listed: Sequence[int]
) -> list[int]:
    """Of the 20 classes that names know best, those that may join."""
    scores_K = dense(names.lists.lists.rows, NUM_CLASSES).T @ query_F
    best = [c for c in np.argsort(-scores_K, kind="stable")[:SUGGESTED].tolist() if scores_K[c] > 0]
    return [c for c in best if c in allowed and c not in listed]


def found(model: Retriever, queries: SparseRows, count: int, **options: Any) -> Candidates:
    return find_candidates(model, Encoded.of(model, queries), count, index=ExactIndex(model.classes.weight), **options)


@pytest.mark.parametrize("among", [None, SOME])
@pytest.mark.parametrize("block", [1, 40, 1 << 24])
def test_lists_against_a_loop(monkeypatch: pytest.MonkeyPatch, among: Int64 | None, block: int) -> None:
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", block)
    model, names, queries = some_model(), some_names(), some_queries()
    allowed = list(range(NUM_CLASSES)) if among is None else among.tolist()
    exact_NK, queries_NF = dense_scores(model, queries), dense(queries, NUM_FEATURES)
    plain = found(model, queries, 5, only=only(among, NUM_CLASSES))
    whole = found(model, queries, 5, only=only(among, NUM_CLASSES), suggesters=[names])
    assert (whole.dense_NS.dtype, whole.ids_NS.dtype) == (np.float32, np.int64)
    assert whole.dense_NS.shape == whole.ids_NS.shape == (NUM_QUERIES, 5 + SUGGESTED)
    assert (plain.num_listed, whole.num_listed) == (5, 5)
    assert (plain.suggested, whole.suggested) == ((), ("names",))
    np.testing.assert_array_equal(whole.ids_NS[:, :5], plain.ids_NS)
    np.testing.assert_array_equal(whole.dense_NS[:, :5], plain.dense_NS)
    joined = 0
    for row in range(NUM_QUERIES):
        listed = sorted(allowed, key=lambda c: -exact_NK[row, c])[:5]
        assert plain.ids_NS[row].tolist() == listed
        # Products of unit vectors in float32.
        np.testing.assert_allclose(plain.dense_NS[row], exact_NK[row, listed], rtol=0, atol=3e-7)
        own_ids, own = whole.ids_NS[row, 5:], whole.dense_NS[row, 5:]
        wanted = suggested(names, queries_NF[row], allowed, listed)
        assert own_ids[own_ids >= 0].tolist() == wanted
        np.testing.assert_allclose(own[own_ids >= 0], exact_NK[row, wanted], rtol=0, atol=3e-7)
        assert np.isneginf(own[own_ids < 0]).all()
        assert set(own_ids[own_ids < 0].tolist()) <= {-1}
        joined += len(wanted)
    assert joined > (NUM_QUERIES if among is None else 1)


@pytest.mark.parametrize("among", [None, SOME, SOME[:1]])
@pytest.mark.parametrize("num_trained", [None, 30, 1])
@pytest.mark.parametrize("count", [1, 6])
def test_the_best_score_is_that_of_all_trained_classes(
    among: Int64 | None, num_trained: int | None, count: int
) -> None:
    """Whoever is asked for, and whoever was added: how much names count must not depend on that."""
    model, queries = some_model(), some_queries()
    # Added ones are listed first.
    model.classes.weight[30:] *= 3
    count = min(count, NUM_CLASSES if among is None else len(among))
    candidates = found(
        model, queries, count, only=only(among, NUM_CLASSES), num_trained=num_trained, suggesters=[some_names()]
    )
    best_N = dense_scores(model, queries)[:, :num_trained].max(axis=1)
    np.testing.assert_allclose(candidates.best_N, best_N, rtol=0, atol=1e-6)


def test_without_suggestions_the_best_is_that_of_the_list() -> None:
    """Nobody else asks for it, and it would take a search of its own."""
    candidates = found(some_model(), some_queries(), 2, only=only(SOME, NUM_CLASSES))
    np.testing.assert_array_equal(candidates.best_N, candidates.dense_NS[:, 0])


def test_nothing_joins_where_all_are_listed() -> None:
    candidates = found(some_model(8), some_queries(), 8, suggesters=[some_names(8)])
    assert candidates.ids_NS.shape == (NUM_QUERIES, 8 + SUGGESTED)
    assert (candidates.ids_NS[:, 8:] == -1).all()
    assert np.isneginf(candidates.dense_NS[:, 8:]).all()


@pytest.mark.parametrize("among", [None, SOME])
def test_no_queries(among: Int64 | None) -> None:
    candidates = found(some_model(), some_queries()[:0], 5, only=only(among, NUM_CLASSES), suggesters=[some_names()])
    assert candidates.dense_NS.shape == candidates.ids_NS.shape == (0, 5 + SUGGESTED)
    assert candidates.best_N.shape == (0,)


def test_suggestions_stay_as_they_are() -> None:
    """They may belong to whoever made them, and may be none at all."""

    class Suggestions:
        name = "seven"

        def __init__(self, width: int) -> None:
            self.ids_Nn = np.full((NUM_QUERIES, width), -1)
            self.ids_Nn[:, :1] = 7
            self.ids_Nn.flags.writeable = False

        def suggest(self, encoded: Encoded, count: int) -> Int64:
            assert (len(encoded), count) == (NUM_QUERIES, SUGGESTED)
            return self.ids_Nn

    for width in (0, 1, SUGGESTED):
        suggestions = Suggestions(width)
        candidates = found(some_model(), some_queries(), 1, suggesters=[suggestions])
        assert candidates.ids_NS.shape == (NUM_QUERIES, 1 + SUGGESTED)
        assert (candidates.ids_NS[:, 2:] == -1).all()
        assert (candidates.ids_NS == 7).any(axis=1).all() == (width > 0)
        assert (np.sort(candidates.lookup_ids, axis=1)[:, 0] >= 0).all()


@pytest.mark.parametrize("among", [None, SOME])
@pytest.mark.parametrize("order", [("names", "neighbours"), ("neighbours", "names")])
def test_two_judges_suggest_for_one_list(order: tuple[str, str], among: Int64 | None) -> None:
    """Each has places of its own, and a class that both suggest has one of the first one's."""
    model, queries = some_model(), some_queries()
    judges: dict[str, Suggests] = {"names": some_names(), "neighbours": some_neighbours()}
    allowed = list(range(NUM_CLASSES)) if among is None else among.tolist()
    plain = found(model, queries, 5, only=only(among, NUM_CLASSES))
    whole = found(model, queries, 5, only=only(among, NUM_CLASSES), suggesters=[judges[name] for name in order])
    assert (whole.num_listed, whole.suggested) == (5, order)
    assert whole.ids_NS.shape == whole.dense_NS.shape == (NUM_QUERIES, 5 + 2 * SUGGESTED)
    np.testing.assert_array_equal(whole.ids_NS[:, :5], plain.ids_NS)
    exact_NK, shared = dense_scores(model, queries), 0
    encoded = Encoded.of(model, queries)
    theirs = [judges[name].suggest(encoded, SUGGESTED).tolist() for name in order]
    for row in range(NUM_QUERIES):
        first, second = ([c for c in own[row] if c in allowed and c not in plain.ids_NS[row]] for own in theirs)
        ids, scores = whole.ids_NS[row, 5:], whole.dense_NS[row, 5:]
        assert [c for c in ids[:SUGGESTED] if c >= 0] == first
        assert [c for c in ids[SUGGESTED:] if c >= 0] == [c for c in second if c not in first]
        assert len(set(ids[ids >= 0])) == (ids >= 0).sum()
        np.testing.assert_allclose(scores[ids >= 0], exact_NK[row, ids[ids >= 0]], rtol=0, atol=3e-7)
        assert np.isneginf(scores[ids < 0]).all()
        shared += len(set(first) & set(second))
    assert shared > (NUM_QUERIES if among is None else 0)
    # Without the first one the second one has those places.
    alone = found(model, queries, 5, only=only(among, NUM_CLASSES), suggesters=[judges[order[1]]])
    for row in range(NUM_QUERIES):
        second = [c for c in theirs[1][row] if c in allowed and c not in plain.ids_NS[row]]
        assert [c for c in alone.ids_NS[row, 5:] if c >= 0] == second


def test_a_query_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = some_model(), []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda batch: calls.append(len(batch)) or encode(batch))
    found(
        model,
        some_queries(),
        5,
        only=only(SOME, NUM_CLASSES),
        suggesters=[some_names(), some_neighbours()],
        num_trained=30,
    )
    assert calls == [NUM_QUERIES]
