"""What a model answers: against a loop over all parts of a score, whatever else is asked and by whomever.

Shapes: N queries, k answers, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.arrays import StringTable
from owlmine.data.rows import Int64, SparseRows
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import OwlmineError
from owlmine.index import ExactIndex
from owlmine.metrics import inverse_propensities
from owlmine.metrics.propensity import PropensityConstants
from owlmine.rank import LinearJudge, Mix, Ranker, RarityJudge
from owlmine.rank import predictor as module
from owlmine.rank.predictor import Predictions, Predictor
from owlmine.rank.probabilities import Calibration
from owlmine.rank.record import Record
from owlmine.rank.sparse_weights import SparseWeights
from owlmine.rank.words import ClassWords, FeatureWords

from .small_tasks import dense, dense_weights, only, sparse_rows
from .test_candidates import (
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_QUERIES,
    SOME,
    dense_scores,
    some_model,
    some_names,
    some_queries,
    suggested,
)

CALIBRATION = Calibration(2.0, 0.5, -0.5, 0.1, -1.0, depth=10, num_points=50)
# Rare and frequent classes; more than a hundred training points, as the record says.
COUNTS = np.random.default_rng(2).integers(0, 40, NUM_CLASSES)


def some_predictor(
    num_classes: int = NUM_CLASSES,
    *,
    shortlist: int = 6,
    num_trained: int | None = None,
    calibration: Calibration | None = None,
) -> Predictor:
    """Where only ``num_trained`` are trained, others were added, with longer vectors of which less counts."""
    generator = np.random.default_rng(5)
    rows = sparse_rows(9, num_rows=num_classes, num_features=NUM_FEATURES)
    assert rows.values is not None
    biases_K = generator.normal(size=num_classes).astype(np.float32)
    linear = LinearJudge(SparseWeights.of(rows, biases_K, NUM_FEATURES))
    model, weights_K, offsets_K = some_model(num_classes), None, None
    if num_trained is not None:
        model.classes.weight[num_trained:] *= 2
        is_trained_K = np.arange(num_classes) < num_trained
        weights_K, offsets_K = np.where(is_trained_K, 1, 0.5).astype("f4"), np.where(is_trained_K, 0, 0.2).astype("f4")
    judges = {"linear": linear, "rarity": RarityJudge(generator.random(num_classes).astype("f4"))}
    keys = StringTable.of(f"c{number}" for number in range(num_classes))
    return Predictor(
        model,
        Ranker(
            judges | {"names": some_names(num_classes)},
            Mix({"linear": 0.2, "rarity": 0.7, "names": 1.5}, {"linear": 1.0, "rarity": None, "names": None}),
            shortlist,
            num_trained,
            weights_K,
            offsets_K,
        ),
        ClassWords(keys, StringTable.of(f"Class {key}" for key in keys), COUNTS[:num_classes], 100),
        FeatureWords({"kind": "none"}, None, None, None),
        Record("some data", None, calibration=calibration),
        ExactIndex(model.classes.weight),
    )


def dense_predictor() -> Predictor:
    """Of dense vectors, without judges."""
    keys = StringTable.of(["a", "b", "c"])
    model = Retriever.new(ModelShape(9, 3, dense=True, dim=6), seed=0)
    return Predictor(
        model,
        Ranker(),
        ClassWords(keys, keys, np.ones(3, np.int64), 3),
        FeatureWords({"kind": "none"}, None, None, None),
        Record("vectors", None),
        ExactIndex(model.classes.weight),
    )


def assert_same(one: Predictions, other: Predictions, *, atol: float = 0.0) -> None:
    np.testing.assert_array_equal(one.ids_Nk, other.ids_Nk)
    np.testing.assert_allclose(one.scores_Nk, other.scores_Nk, rtol=0, atol=atol)
    assert (one.probabilities_Nk is None) == (other.probabilities_Nk is None)
    if one.probabilities_Nk is not None:
        np.testing.assert_allclose(one.probabilities_Nk, other.probabilities_Nk, rtol=0, atol=atol)


@pytest.mark.parametrize("among", [None, SOME])
@pytest.mark.parametrize("num_trained", [None, 30])
def test_answers_against_a_loop(among: Int64 | None, num_trained: int | None) -> None:
    """The shortlist and what names suggest, by the sum of all parts; nothing else, and no place is empty. Whoever is
    asked for, the best dense score of all classes that were trained tells how much names count."""
    model, queries = some_predictor(num_trained=num_trained), some_queries()
    linear, rarity, names = model.ranker.judges.values()
    allowed = range(NUM_CLASSES) if among is None else among.tolist()
    exact_NK, queries_NF = dense_scores(model.dense, queries), dense(queries, NUM_FEATURES)
    weights_KF, biases_K = np.split(dense_weights(linear.weights), [NUM_FEATURES], axis=1)  # type: ignore[attr-defined]
    names_KF = dense_weights(names.weights)[:, :-1]  # type: ignore[attr-defined]
    doubts_N1 = np.array([[min(max(1 - best, 0.0), 1.0)] for best in exact_NK[:, :num_trained].max(axis=1).tolist()])
    assert len(np.unique(doubts_N1.round(2))) > 5
    assert ((doubts_N1 > 0) & (doubts_N1 < 1)).sum() > 4
    counting_K = 1.0 if num_trained is None else model.ranker.dense_weights_K
    total_NK = counting_K * exact_NK + (0.0 if num_trained is None else model.ranker.offsets_K)
    total_NK += 0.2 * (queries_NF @ weights_KF.T + biases_K.T) + 0.7 * rarity.offsets_K  # type: ignore[attr-defined]
    total_NK += 1.5 * doubts_N1 * (queries_NF @ names_KF.T)
    # Below the shortlist, at it and above it.
    for k in sorted({k for k in (1, 2, 5, 6, 7, 21, len(allowed)) if k <= len(allowed)}):
        answers = model.answer(queries, k, only=only(among, NUM_CLASSES))
        scores, ids = answers.scores_Nk, answers.ids_Nk
        assert scores.shape == ids.shape == (NUM_QUERIES, k)
        assert (scores.dtype, ids.dtype, len(answers)) == (np.float32, np.int64, NUM_QUERIES)
        for row in range(NUM_QUERIES):
            listed = sorted(allowed, key=lambda c: -exact_NK[row, c])[: max(k, 6)]
            candidates = listed + suggested(names, queries_NF[row], allowed, listed)  # type: ignore[arg-type]
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
    listed, found = model.shortlist(queries, 6)[1], model.answer(queries, 6).ids_Nk
    assert sum(len(set(found[row]) - set(listed[row])) for row in range(NUM_QUERIES)) > NUM_QUERIES


@pytest.mark.parametrize("among", [None, SOME])
def test_the_shortlist_is_the_dense_models_own(among: Int64 | None) -> None:
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()
    scores, ids = model.shortlist(queries, 4, only=only(among, NUM_CLASSES))
    exact_NK = dense_scores(model.dense, queries)
    allowed = range(NUM_CLASSES) if among is None else among.tolist()
    for row in range(NUM_QUERIES):
        assert ids[row].tolist() == sorted(allowed, key=lambda c: -exact_NK[row, c])[:4]
        np.testing.assert_allclose(scores[row], exact_NK[row, ids[row]], rtol=0, atol=3e-7)


@pytest.mark.parametrize("calibration", [None, CALIBRATION])
@pytest.mark.parametrize(("shortlist", "num_trained"), [(2, None), (6, None), (6, 30), (2, 30)])
def test_a_class_has_one_score_and_probability_whoever_else_is_asked_for(
    shortlist: int, num_trained: int | None, calibration: Calibration | None
) -> None:
    """And however many answers are wanted; also where classes were added, which may fill the list."""
    model = some_predictor(shortlist=shortlist, num_trained=num_trained, calibration=calibration)
    queries = some_queries()
    whole, depth = model.answer(queries, NUM_CLASSES), 0 if calibration is None else calibration.depth
    scores_NK = np.empty_like(whole.scores_Nk)
    np.put_along_axis(scores_NK, whole.ids_Nk, whole.scores_Nk, axis=1)
    asked: list[tuple[int, Int64 | None]] = [(k, None) for k in (1, 2, 6, 20)]
    asked += [(k, some) for some in (SOME, SOME[:1], np.arange(1, NUM_CLASSES, 3)) for k in (1, len(some))]
    for k, among in asked:
        found = model.answer(queries, k, only=only(among, NUM_CLASSES))
        # Two roundings of float32 at 3.
        np.testing.assert_allclose(
            found.scores_Nk, np.take_along_axis(scores_NK, found.ids_Nk, axis=1), rtol=0, atol=5e-7
        )
        if calibration is None:
            assert found.probabilities_Nk is None
            continue
        # A last bit may move a class by one place of the formula where it is not the one that it has among the best.
        best = model.answer(queries, max(k, depth)) if among is None else model.answer(queries, depth)
        wanted = calibration.probabilities(found.scores_Nk, best_NT=best.scores_Nk)
        np.testing.assert_allclose(found.probabilities_Nk, wanted, rtol=0, atol=2e-2 if among is not None else 1e-6)


def test_probabilities_among_some_classes_are_those_among_all() -> None:
    """Every class on the list whatever is asked: then nothing but rounding is left."""
    model, queries = some_predictor(shortlist=NUM_CLASSES, calibration=CALIBRATION), some_queries()
    whole = model.answer(queries, NUM_CLASSES)
    assert whole.probabilities_Nk is not None
    assert (np.diff(whole.probabilities_Nk, axis=1) <= 0).all()
    np.testing.assert_array_equal(whole.probabilities_Nk, CALIBRATION.probabilities(whole.scores_Nk))
    by_class = np.empty_like(whole.probabilities_Nk)
    np.put_along_axis(by_class, whole.ids_Nk, whole.probabilities_Nk, axis=1)
    for k in (1, 5, 10):
        few = model.answer(queries, k)
        assert_same(few, Predictions(whole.ids_Nk[:, :k], whole.scores_Nk[:, :k], whole.probabilities_Nk[:, :k]))
    for among in (SOME, SOME[:1], np.unique(whole.ids_Nk[:, 4:12])):
        found = model.answer(queries, len(among), only=only(among, NUM_CLASSES))
        assert found.probabilities_Nk is not None
        np.testing.assert_allclose(
            found.probabilities_Nk, np.take_along_axis(by_class, found.ids_Nk, axis=1), rtol=0, atol=1e-6
        )


def test_allowed_classes_may_come_in_any_order_and_more_than_once() -> None:
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()
    twice = np.concatenate([SOME[::-1], SOME]).astype(np.int32)
    assert_same(
        model.answer(queries, 4, only=only(twice, NUM_CLASSES)), model.answer(queries, 4, only=only(SOME, NUM_CLASSES))
    )


@pytest.mark.parametrize("num_rows", [1, 4])
def test_blocks_of_queries_do_not_show(monkeypatch: pytest.MonkeyPatch, num_rows: int) -> None:
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()

    def answers() -> list[Predictions]:
        return [
            model.answer(queries, 7),
            model.answer(queries, 4, only=only(SOME, NUM_CLASSES)),
            model.answer(queries, 5, tail=0.5),
        ]

    whole = answers()
    monkeypatch.setattr(module, "_BLOCK_ROWS", num_rows)
    for found, wanted in zip(answers(), whole, strict=True):
        # Products of other shapes round elsewhere.
        assert_same(found, wanted, atol=1e-6)


def test_a_linear_model_is_asked_in_blocks_that_fit_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queries are as long as there are features."""
    shape = ModelShape(NUM_FEATURES, NUM_CLASSES, kind="linear")
    wide = Retriever.new(shape, seed=0)
    wide.classes.weight.copy_(torch.randn(wide.classes.weight.shape, generator=torch.Generator().manual_seed(0)))
    model, queries = (
        replace(some_predictor(), dense=wide, ranker=Ranker(), index=ExactIndex(wide.classes.weight)),
        some_queries(),
    )
    whole = model.answer(queries, 5)
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", NUM_FEATURES * 2)
    sizes: list[int] = []
    encode = wide.encode
    monkeypatch.setattr(wide, "encode", lambda batch: sizes.append(len(batch)) or encode(batch))
    assert_same(model.answer(queries, 5), whole, atol=1e-6)
    assert sizes == [2, 2, 2, 2, 1]


def test_each_block_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed of it: candidates, suggestions, votes and the best of all classes."""
    model, sizes = some_predictor(calibration=CALIBRATION, num_trained=30), []
    encode = model.dense.encode
    monkeypatch.setattr(model.dense, "encode", lambda batch: sizes.append(len(batch)) or encode(batch))
    monkeypatch.setattr(module, "_BLOCK_ROWS", 5)
    model.answer(some_queries(), 3, only=only(SOME, NUM_CLASSES), tail=0.5)
    assert sizes == [5, 4]


@pytest.mark.parametrize(("k", "among"), [(1, None), (5, None), (44, None), (1, SOME), (6, SOME)])
@pytest.mark.parametrize("tail", [0.0, 0.5])
def test_no_queries_have_no_answers(k: int, among: Int64 | None, tail: float) -> None:
    model = some_predictor(calibration=CALIBRATION)
    answers = model.answer(some_queries()[:0], k, only=only(among, NUM_CLASSES), tail=tail)
    assert answers.probabilities_Nk is not None
    assert answers.scores_Nk.shape == answers.ids_Nk.shape == answers.probabilities_Nk.shape == (0, k)
    assert model.name(answers) == []
    assert some_predictor().answer(some_queries()[:0], k, only=only(among, NUM_CLASSES)).probabilities_Nk is None


@pytest.mark.parametrize("tail", [0.0, 0.5])
@pytest.mark.parametrize("among", [None, SOME])
def test_probabilities_of_classes_that_names_suggest(tail: float, among: Int64 | None) -> None:
    model, queries = some_predictor(shortlist=2, calibration=CALIBRATION), some_queries()
    for k in (1, 3, NUM_CLASSES if among is None else len(among)):
        answers = model.answer(queries, k, only=only(among, NUM_CLASSES), tail=tail)
        assert answers.probabilities_Nk is not None
        assert (answers.ids_Nk >= 0).all()
        assert np.isfinite(answers.scores_Nk).all()
        assert ((answers.probabilities_Nk > 0) & (answers.probabilities_Nk < 1)).all()


@pytest.mark.parametrize(("num_classes", "among"), [(3, None), (NUM_CLASSES, SOME[:3])])
@pytest.mark.parametrize("k", [5, np.int64(4), 10**9])
def test_fewer_classes_than_asked_for_are_all_listed(num_classes: int, among: Int64 | None, k: int) -> None:
    """``predict`` asks for five where nobody says how many."""
    model, queries = some_predictor(num_classes), some_queries()
    answers = model.answer(queries, k, only=only(among, num_classes))
    assert answers.scores_Nk.shape == answers.ids_Nk.shape == (NUM_QUERIES, 3)
    assert (answers.ids_Nk >= 0).all()
    assert model.shortlist(queries, k, only=only(among, num_classes))[1].shape == (NUM_QUERIES, 3)


def lifted_by_loop(whole: Predictions, tail: float, constants: PropensityConstants, k: int) -> list[list[int]]:
    """Of the hundred best, all in this model: by probability times inverse propensity^tail."""
    assert whole.probabilities_Nk is not None
    weights_K = inverse_propensities(COUNTS, 100, constants=constants).tolist()
    found = []
    for ids, probabilities in zip(whole.ids_Nk.tolist(), whole.probabilities_Nk.tolist(), strict=True):
        worth = [p * weights_K[c] ** tail for c, p in zip(ids, probabilities, strict=True)]
        found.append([ids[place] for place in sorted(range(len(ids)), key=lambda place: -worth[place])[:k]])
    return found


@pytest.mark.parametrize("tail", [0.3, 1.0])
@pytest.mark.parametrize("constants", [None, PropensityConstants(0.5, 0.4)])
@pytest.mark.parametrize("k", [1, 7])
def test_rare_classes_are_lifted_as_a_loop_does(tail: float, constants: PropensityConstants | None, k: int) -> None:
    """With the constants that are given, or else those of the record."""
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()
    own = PropensityConstants(0.6, 2.6)
    model = replace(model, record=replace(model.record, propensity=own))
    whole = model.answer(queries, NUM_CLASSES)
    lifted = model.answer(queries, k, tail=tail, propensity=constants)
    # A class that does not come into the list of its own accord is asked of the list of all.
    assert lifted.ids_Nk.tolist() == lifted_by_loop(whole, tail, constants or own, k)
    by_class = np.empty_like(whole.scores_Nk)
    np.put_along_axis(by_class, whole.ids_Nk, whole.scores_Nk, axis=1)
    np.testing.assert_allclose(lifted.scores_Nk, np.take_along_axis(by_class, lifted.ids_Nk, axis=1), atol=5e-7)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_lifted_order_against_a_loop(data: st.DataObject) -> None:
    """Empty places last, equals as they were."""
    count = data.draw(st.integers(1, 6))
    probabilities = data.draw(st.lists(st.floats(0.0, 1.0, width=32), min_size=count, max_size=count))
    ids = data.draw(st.lists(st.integers(-1, 7), min_size=count, max_size=count))
    tail = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    weights = inverse_propensities(COUNTS, 100).tolist()
    given_ids, scores = np.array([ids]), np.arange(count, dtype=np.float32)[None]
    predictions = Predictions(given_ids, scores, np.array([probabilities], np.float32))
    found = some_predictor()._lifted(predictions, tail, PropensityConstants())
    worth = [-1.0 if c < 0 else p * weights[c] ** tail for p, c in zip(probabilities, ids, strict=True)]
    order = sorted(range(count), key=lambda place: -worth[place])
    assert found.scores_Nk[0].tolist() == order
    assert found.ids_Nk[0].tolist() == [ids[place] for place in order]
    assert found.probabilities_Nk is not None
    assert found.probabilities_Nk[0].tolist() == [probabilities[place] for place in order]


def test_precision_is_traded_for_propensity_scored_precision() -> None:
    """Judged by what the model expects: probabilities in place of hits, so that chance has no say."""
    model, weights_K = some_predictor(calibration=CALIBRATION), inverse_propensities(COUNTS, 100)
    expected = []
    for tail in (0.0, 0.5, 1.0):
        answers = model.answer(some_queries(num_rows=60), 3, tail=tail)
        assert answers.probabilities_Nk is not None
        expected.append((answers.probabilities_Nk.sum(), (answers.probabilities_Nk * weights_K[answers.ids_Nk]).sum()))
    precision, scored = zip(*expected, strict=True)
    assert precision[0] > precision[1] > precision[2]
    assert scored[0] < scored[1] < scored[2]


def test_nothing_changes_without_tail() -> None:
    """Not even where there are no propensities: a model of two points has none."""
    model, queries = some_predictor(), some_queries()
    model = replace(model, classes=replace(model.classes, num_points=2))
    assert_same(model.answer(queries, 5, tail=0.0), model.answer(queries, 5))
    with_calibration = replace(model, record=replace(model.record, calibration=CALIBRATION))
    assert_same(with_calibration.answer(queries, 5, tail=0.0), with_calibration.answer(queries, 5))
    with pytest.raises(OwlmineError, match=r"rare classes cannot be lifted: num_points is 2; wanted at least 3"):
        with_calibration.answer(queries, 5, tail=0.5)


@pytest.mark.parametrize("tail", [-0.1, 1.5, float("nan"), "0.5", None])
def test_tails_that_cannot_be(tail: Any) -> None:
    with pytest.raises(OwlmineError, match=r"tail is .*; wanted a number from 0 to 1"):
        some_predictor(calibration=CALIBRATION).predict(some_queries(), tail=tail)


def test_without_probabilities_nothing_is_lifted() -> None:
    with pytest.raises(OwlmineError, match=r"the model has no probabilities, .*; train it with validation points"):
        some_predictor().predict(some_queries(), tail=0.5)


def _rows(answers: Predictions, rows_N: np.ndarray) -> Predictions:
    chances = answers.probabilities_Nk
    return Predictions(answers.ids_Nk[rows_N], answers.scores_Nk[rows_N], None if chances is None else chances[rows_N])


def test_words_for_the_answers() -> None:
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()
    rows, answers = model.predict(queries, 3), model.predict_batch(queries, 3)
    whole, known_N = model.answer(model.prepare(queries), 3), queries.counts > 0
    assert_same(_rows(answers, known_N), _rows(whole, known_N))
    assert not known_N.all()
    for row, ids, scores, probabilities in zip(
        rows, answers.ids_Nk.tolist(), answers.scores_Nk.tolist(), answers.probabilities_Nk.tolist(), strict=True
    ):
        if -1 in ids:  # a query without a known feature
            assert (row, ids, set(scores), set(probabilities)) == ([], [-1] * 3, {-np.inf}, {0.0})
            continue
        assert [one.key for one in row] == [f"c{number}" for number in ids]
        assert [one.name for one in row] == [f"Class c{number}" for number in ids]
        assert [one.score for one in row] == scores
        assert [one.probability for one in row] == probabilities
    assert some_predictor().predict(queries, 1)[0][0].probability is None
    lifted = model.predict(queries, 2, tail=1.0)
    named = model.name(model.answer(queries, 2, tail=1.0))
    assert lifted == [row if known else [] for row, known in zip(named, known_N, strict=True)]
    assert lifted != model.predict(queries, 2)


def test_an_empty_place_has_no_words() -> None:
    model = some_predictor()
    answers = Predictions(np.array([[3, -1]]), np.array([[0.5, -np.inf]], np.float32), None)
    assert [one.key for one in model.name(answers)[0]] == ["c3"]


def test_scores_that_are_not_finite_are_refused() -> None:
    """Numbers that a model may hold, and their sum may not."""
    model, queries = some_predictor(), some_queries()
    weights = model.ranker.judges["linear"].weights  # type: ignore[attr-defined]
    large = LinearJudge(replace(weights, biases_K=np.full(NUM_CLASSES, 3e38, np.float32)))
    mix = replace(model.ranker.mix, weights={**model.ranker.mix.weights, "linear": 2.0})
    with pytest.raises(OwlmineError, match="a score of query 0 that is not finite"):
        replace(model, ranker=Ranker(model.ranker.judges | {"linear": large}, mix, 6)).answer(queries, 3)  # type: ignore[operator]


def test_sixteen_threads_get_the_answers_of_one() -> None:
    """A model does not change, so they need no lock."""
    model, queries = some_predictor(calibration=CALIBRATION, num_trained=30), some_queries(num_rows=40)
    few = [queries[start : start + 5] for start in range(0, 40, 5)]
    constants = [None, PropensityConstants(0.5, 0.4), PropensityConstants(0.6, 2.6)]
    calls: list[Callable[[], Predictions]] = []
    for number, rows in enumerate(few):
        calls += [
            lambda rows=rows: model.answer(rows, 5),
            lambda rows=rows: model.answer(rows, 3, only=only(SOME, NUM_CLASSES)),
            lambda rows=rows, number=number: model.answer(rows, 5, tail=0.7, propensity=constants[number % 3]),
            lambda rows=rows: model.predict_batch(rows, 4, tail=1.0),
        ]
    wanted = [call() for call in calls]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(4):
            for found, own in zip(pool.map(lambda call: call(), calls), wanted, strict=True):
                assert_same(found, own)


def test_a_predictor_cannot_be_changed() -> None:
    """And nothing that it answers leaves a trace in it."""
    model = some_predictor(calibration=CALIBRATION)
    before = {field.name: getattr(model, field.name) for field in fields(model)}
    model.predict(some_queries(), tail=0.5)
    model.answer(some_queries(), 3, only=only(SOME, NUM_CLASSES))
    assert {field.name: getattr(model, field.name) for field in fields(model)} == before
    for name in [field.name for field in fields(model)] + ["tail"]:
        with pytest.raises(FrozenInstanceError):
            setattr(model, name, None)
    for part in (model.ranker, model.classes, model.features, model.record, model.ranker.mix):
        for field in fields(part):  # type: ignore[arg-type]
            with pytest.raises(FrozenInstanceError):
                setattr(part, field.name, None)


def test_it_says_what_it_is() -> None:
    model = some_predictor()
    number = f"{model.dense.shape.num_parameters:,}"
    assert repr(model) == (
        "<Predictor of 45 classes for sparse vectors, trained on 'some data'"
        f" ({number} parameters; judges: linear, rarity, names)>"
    )
    assert repr(dense_predictor()).startswith("<Predictor of 3 classes for dense vectors, trained on 'vectors' (")
    assert "judges" not in repr(dense_predictor())


def test_on_a_device_is_the_same_model() -> None:
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()

    class Own(Predictor):
        pass

    moved = Own(**{field.name: getattr(model, field.name) for field in fields(model)}).on(torch.device("cpu"))
    assert type(moved) is Own
    assert_same(moved.answer(queries, 5), model.answer(queries, 5))


def store_of(model: Predictor, **changes: Any) -> Any:
    """What a model asks of a store."""
    own: dict[str, Any] = {
        "path": "a.store",
        "num_classes": model.dense.shape.num_classes,
        "num_features": model.dense.shape.num_features,
        "class_keys": model.classes.keys,
        "vocabulary": model.features.vocabulary,
        "meta": {"queries": "sparse", "weighting": model.features.weighting},
        "array": lambda name: model.features.frequencies,
    }
    return SimpleNamespace(**own | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 44}, "found 44 classes; the model was trained with 45"),
        ({"num_features": 13}, "found features 13; the model was trained with 14"),
        ({"meta": {"queries": "dense", "weighting": {"kind": "none"}}}, "found queries dense"),
        ({"meta": {"queries": "sparse", "weighting": {"kind": "tfidf"}}}, "found weighting tfidf"),
        ({"vocabulary": StringTable.of(["a"])}, "different documents"),
        ({"array": lambda name: np.ones(3)}, "different documents"),
        (
            {"class_keys": StringTable.of([*(f"c{n}" for n in range(44)), "x"])},
            "class 44 is 'x'; in the model it is 'c44'",
        ),
    ],
)
def test_a_store_of_something_else(changes: dict[str, Any], message: str) -> None:
    model = some_predictor()
    model.check_fits(store_of(model))
    with pytest.raises(OwlmineError, match=f"a.store: .*{message}"):
        model.check_fits(store_of(model, **changes))
    if "num_classes" not in changes and "class_keys" not in changes:
        with pytest.raises(OwlmineError, match=message):
            model.check_features_fit(store_of(model, **changes))
    else:
        model.check_features_fit(store_of(model, **changes))


def test_other_words_of_queries_are_noticed() -> None:
    model = some_predictor()
    words = StringTable.of(["a", "b"])
    model = replace(model, features=replace(model.features, vocabulary=words, frequencies=np.array([1, 2])))
    model.check_features_fit(store_of(model))
    model.check_features_fit(store_of(model, vocabulary=StringTable.of(["a", "b"])))
    for changes in ({"vocabulary": StringTable.of(["a", "c"])}, {"array": lambda name: np.array([1, 3])}):
        with pytest.raises(OwlmineError, match="different documents"):
            model.check_features_fit(store_of(model, **changes))


def test_features_of_another_kind_are_refused() -> None:
    rows = SparseRows(np.array([0, 1]), np.array([0]), None)
    for model, features in ((dense_predictor(), rows), (some_predictor(), np.zeros((1, NUM_FEATURES), np.float32))):
        with pytest.raises(OwlmineError, match=r"queries: found .*; wanted .* vectors as prepare\(\) gives them"):
            model.answer(features, 1)
