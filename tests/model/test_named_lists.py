"""Classes that names suggest join shortlists: which, with which scores, and what a model then answers.

Shapes: N queries, S places of a shortlist, n places for names, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from owlmine.data.arrays import StringTable
from owlmine.data.rows import SparseRows
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.model import named_lists, predictor
from owlmine.model.named_lists import NAMED, with_named
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.rank import LinearRanker, NameMatches, Reranker
from owlmine.rank.probabilities import Calibration

from ..rerank.small_tasks import dense, dense_weights, sparse_rows

NUM_FEATURES, NUM_CLASSES, NUM_QUERIES = 14, 45, 9
SOME = np.array([40, 3, 3, 17, 5, 29, 44], np.int64)


def some_queries(seed: int = 1, num_rows: int = NUM_QUERIES) -> SparseRows:
    """Positive, as those of texts are; the last one has no features at all."""
    rows = sparse_rows(seed, num_rows=num_rows, num_features=NUM_FEATURES)
    assert rows.values is not None
    offsets = rows.offsets.copy()
    offsets[-1] = offsets[-2]
    return SparseRows(offsets, rows.indices[: offsets[-1]], np.abs(rows.values[: offsets[-1]]))


def some_retriever(num_classes: int = NUM_CLASSES) -> Retriever:
    """Of some queries it is surer than of others."""
    retriever = Retriever.new(ModelShape(NUM_FEATURES, num_classes, dim=6), seed=4)
    lengths_K = 0.1 + 1.6 * torch.rand(num_classes, generator=torch.Generator().manual_seed(4)) ** 2
    retriever.classes.weight.mul_(lengths_K[:, None])
    return retriever


def some_names(num_classes: int = NUM_CLASSES, share: float = 0.25) -> NameMatches:
    rows = sparse_rows(7, num_rows=num_classes, num_features=NUM_FEATURES, share=share)
    weights = np.random.default_rng(7).random(len(rows.indices)).astype(np.float32)
    none_K = np.zeros(num_classes, np.float32)
    return NameMatches.over(LinearRanker(rows.offsets, rows.indices, weights, none_K, NUM_FEATURES))


def some_predictor(num_classes: int = NUM_CLASSES, *, shortlist: int = 6, num_trained: int | None = None) -> Predictor:
    """Where only ``num_trained`` are trained, others were added, with longer vectors of which less counts."""
    generator = np.random.default_rng(5)
    rows = sparse_rows(9, num_rows=num_classes, num_features=NUM_FEATURES)
    assert rows.values is not None
    linear = LinearRanker(rows.offsets, rows.indices, rows.values, generator.normal(size=num_classes), NUM_FEATURES)
    offsets_K = generator.random(num_classes).astype(np.float32)
    names, retriever, weights_K = some_names(num_classes), some_retriever(num_classes), None
    if num_trained is not None:
        retriever.classes.weight[num_trained:] *= 2
        weights_K = np.where(np.arange(num_classes) < num_trained, np.float32(1), np.float32(0.5))
    keys = StringTable.of(f"c{number}" for number in range(num_classes))
    return Predictor(
        retriever,
        ClassWords(keys, keys, np.ones(num_classes, np.int64), 100),
        FeatureWords({"kind": "none"}, None, None, None, None),
        {},
        reranker=Reranker(
            linear,
            0.2,
            shortlist,
            offsets_K,
            dense_weights_K=weights_K,
            names=names,
            name_weight=1.5,
            num_trained=num_trained,
        ),
    )


def dense_scores(retriever: Retriever, queries: SparseRows) -> np.ndarray:
    vectors_ND = retriever.encode(query_batch(queries, retriever.device))
    return (vectors_ND.double() @ retriever.classes.weight.double().T).numpy()


def suggested(names: NameMatches, query_F: np.ndarray, allowed: Sequence[int], listed: Sequence[int]) -> list[int]:
    """Of the 20 classes that names know best, those that may join."""
    scores_K = dense_weights(names.ranker)[:, :-1] @ query_F
    best = [c for c in np.argsort(-scores_K, kind="stable")[:NAMED].tolist() if scores_K[c] > 0]
    return [c for c in best if c in allowed and c not in listed]


@pytest.mark.parametrize("among", [None, SOME])
@pytest.mark.parametrize("block", [1, 40, 1 << 24])
def test_what_joins_against_a_loop(monkeypatch: pytest.MonkeyPatch, among: np.ndarray | None, block: int) -> None:
    monkeypatch.setattr(named_lists, "_BLOCK_NUMBERS", block)
    retriever, names, queries = some_retriever(), some_names(), some_queries()
    allowed = range(NUM_CLASSES) if among is None else among.tolist()
    exact_NK, queries_NF = dense_scores(retriever, queries), dense(queries, NUM_FEATURES)
    ids_NS = np.argsort(-exact_NK[:, np.unique(allowed)], axis=1, kind="stable")[:, :5]
    ids_NS = np.unique(allowed)[ids_NS]
    scores_NS = np.take_along_axis(exact_NK, ids_NS, axis=1).astype(np.float32)
    vectors_ND = retriever.encode(query_batch(queries, retriever.device))
    scores, ids = with_named(retriever, names, queries, vectors_ND, scores_NS, ids_NS, among=among)
    assert (scores.dtype, ids.dtype) == (np.float32, np.int64)
    assert scores.shape == ids.shape == (NUM_QUERIES, 5 + NAMED)
    np.testing.assert_array_equal(ids[:, :5], ids_NS)
    np.testing.assert_array_equal(scores[:, :5], scores_NS)
    joined = 0
    for row in range(NUM_QUERIES):
        named = ids[row, 5:]
        wanted = suggested(names, queries_NF[row], allowed, ids_NS[row].tolist())
        assert named[named >= 0].tolist() == wanted
        # Products of unit vectors in float32.
        np.testing.assert_allclose(scores[row, 5:][named >= 0], exact_NK[row, wanted], rtol=0, atol=3e-7)
        assert np.isneginf(scores[row, 5:][named < 0]).all()
        assert set(named[named < 0].tolist()) <= {-1}
        joined += len(wanted)
    assert joined > (NUM_QUERIES if among is None else 1)


def test_nothing_joins_where_all_are_listed() -> None:
    retriever, names, queries = some_retriever(8), some_names(8), some_queries()
    exact_NK = dense_scores(retriever, queries)
    ids_NS = np.argsort(-exact_NK, axis=1)
    scores_NS = np.take_along_axis(exact_NK, ids_NS, axis=1).astype(np.float32)
    vectors_ND = retriever.encode(query_batch(queries, retriever.device))
    scores, ids = with_named(retriever, names, queries, vectors_ND, scores_NS, ids_NS)
    assert ids.shape == (NUM_QUERIES, 16)
    assert (ids[:, 8:] == -1).all()
    assert np.isneginf(scores[:, 8:]).all()


def test_no_queries() -> None:
    retriever, nothing = some_retriever(), some_queries()[:0]
    vectors_ND = retriever.encode(query_batch(nothing, retriever.device))
    scores, ids = with_named(
        retriever, some_names(), nothing, vectors_ND, np.zeros((0, 5), np.float32), np.zeros((0, 5), np.int64)
    )
    assert scores.shape == ids.shape == (0, 5 + NAMED)


@pytest.mark.parametrize("among", [None, SOME])
@pytest.mark.parametrize("num_trained", [None, 30])
def test_answers_against_a_loop(among: np.ndarray | None, num_trained: int | None) -> None:
    """The shortlist and what names suggest, by the sum of all parts; nothing else, and no place is empty. Whoever is
    asked for, the best dense score of all classes that were trained tells how much names count."""
    model, queries = some_predictor(num_trained=num_trained), some_queries()
    reranker = model.reranker
    assert reranker is not None
    assert reranker.names is not None
    allowed = range(NUM_CLASSES) if among is None else sorted(set(among.tolist()))
    exact_NK, queries_NF = dense_scores(model.retriever, queries), dense(queries, NUM_FEATURES)
    weights_KF, biases_K = np.split(dense_weights(reranker.ranker), [NUM_FEATURES], axis=1)
    names_KF = dense_weights(reranker.names.ranker)[:, :-1]
    doubts_N1 = np.array([[min(max(1 - best, 0.0), 1.0)] for best in exact_NK[:, :num_trained].max(axis=1).tolist()])
    assert len(np.unique(doubts_N1.round(2))) > 5
    assert ((doubts_N1 > 0) & (doubts_N1 < 1)).sum() > 4
    counting_K = 1.0 if reranker.dense_weights_K is None else reranker.dense_weights_K
    total_NK = counting_K * exact_NK + 0.2 * (queries_NF @ weights_KF.T + biases_K.T) + reranker.offsets_K
    total_NK += 1.5 * doubts_N1 * (queries_NF @ names_KF.T)
    # Below the shortlist, at it and above it.
    for k in sorted({k for k in (1, 2, 5, 6, 7, 21, len(allowed)) if k <= len(allowed)}):
        scores, ids = model.top(queries, k, among=among)
        assert scores.shape == ids.shape == (NUM_QUERIES, k)
        for row in range(NUM_QUERIES):
            listed = sorted(allowed, key=lambda c: -exact_NK[row, c])[: max(k, 6)]
            candidates = listed + suggested(reranker.names, queries_NF[row], allowed, listed)
            wanted = sorted(total_NK[row, candidates], reverse=True)[:k]
            # Sums of a few numbers up to 3, each rounded to float32.
            np.testing.assert_allclose(scores[row], wanted, rtol=0, atol=1e-6)
            assert set(ids[row].tolist()) <= set(allowed)
            assert len(set(ids[row].tolist())) == k
            # Two classes change places where both scores are off by as much, towards each other.
            np.testing.assert_allclose(total_NK[row, ids[row]], wanted, rtol=0, atol=2e-6)


def test_a_class_far_down_the_list_is_answered() -> None:
    """A test of the test above: names decide there."""
    model, queries = some_predictor(), some_queries()
    listed = model.shortlist(queries, 6)[1]
    found = model.top(queries, 6)[1]
    assert sum(len(set(found[row]) - set(listed[row])) for row in range(NUM_QUERIES)) > NUM_QUERIES


@pytest.mark.parametrize(
    ("shortlist", "num_trained"),
    [
        (2, None),
        (6, None),
        (6, 30),
        (2, 30),
    ],
)
def test_a_class_has_the_same_score_whoever_else_is_asked_for(shortlist: int, num_trained: int | None) -> None:
    """And however many answers are wanted; also where classes were added, which may fill the list."""
    model, queries = some_predictor(shortlist=shortlist, num_trained=num_trained), some_queries()
    scores, ids = model.top(queries, NUM_CLASSES)
    whole_NK = np.empty_like(scores)
    np.put_along_axis(whole_NK, ids, scores, axis=1)
    asked: list[tuple[int, np.ndarray | None]] = [(k, None) for k in (1, 2, 6, 20)]
    asked += [(k, some) for some in (SOME, SOME[:1], np.arange(1, NUM_CLASSES, 3)) for k in (1, len(np.unique(some)))]
    for k, among in asked:
        scores, ids = model.top(queries, k, among=among)
        # Two roundings of float32 at 3.
        np.testing.assert_allclose(scores, np.take_along_axis(whole_NK, ids, axis=1), rtol=0, atol=5e-7)


@pytest.mark.parametrize("num_rows", [1, 4])
def test_blocks_of_queries_do_not_show(monkeypatch: pytest.MonkeyPatch, num_rows: int) -> None:
    model, queries = some_predictor(), some_queries()
    whole = [model.top(queries, 7), model.top(queries, 4, among=SOME)]
    monkeypatch.setattr(predictor, "_BLOCK_ROWS", num_rows)
    again = [model.top(queries, 7), model.top(queries, 4, among=SOME)]
    for (scores, ids), (wanted, wanted_ids) in zip(again, whole, strict=True):
        # Products of other shapes round elsewhere.
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(ids, wanted_ids)


@pytest.mark.parametrize(("k", "among"), [(1, None), (5, None), (44, None), (1, SOME), (6, SOME)])
def test_no_queries_have_no_answers(k: int, among: np.ndarray | None) -> None:
    scores, ids = some_predictor().top(some_queries()[:0], k, among=among)
    assert scores.shape == ids.shape == (0, k)


@pytest.mark.parametrize("tail", [0.0, 0.5])
@pytest.mark.parametrize("among", [None, SOME])
def test_probabilities_of_classes_that_joined(tail: float, among: np.ndarray | None) -> None:
    model, queries = some_predictor(shortlist=2), some_queries()
    model.config["calibration"] = Calibration(2.0, 0.5, -0.5, 0.1, -1.0, depth=10, num_points=50).to_dict()
    model.lift_tail(tail)
    available = NUM_CLASSES if among is None else len(set(among.tolist()))
    for k in (1, 3, available):
        scores, ids, probabilities = model.top_with_probabilities(queries, k, among=among)
        assert probabilities is not None
        assert (ids >= 0).all()
        assert np.isfinite(scores).all()
        assert ((probabilities > 0) & (probabilities < 1)).all()


@pytest.mark.parametrize(("num_classes", "among"), [(3, None), (NUM_CLASSES, SOME[:3])])
def test_more_answers_than_there_are_classes(num_classes: int, among: np.ndarray | None) -> None:
    """All of them, as without names: ``predict`` asks for five where nobody says how many."""
    model, queries = some_predictor(num_classes), some_queries()
    available = num_classes if among is None else len(set(among.tolist()))
    scores, ids = model.top(queries, 5, among=among)
    assert scores.shape == ids.shape == (NUM_QUERIES, available)
    assert (ids >= 0).all()
