"""Classifiers of new classes against loops, and what they add to the scores of a larger model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import owlmine
from owlmine.add_classes import add
from owlmine.add_classes.add import add_classes
from owlmine.add_classes.classifiers import FeatureJudgement, FeatureSpace
from owlmine.add_classes.examples import PLACES, Examples
from owlmine.add_classes.vectors import QuerySpace, left_out_ranks
from owlmine.data.rows import SparseRows
from owlmine.rank.linear import LinearJudge
from owlmine.rank.mix import Mix
from owlmine.rank.predictor import Predictor
from owlmine.rank.sparse_weights import SparseWeights

from .models import PAIRED, composed_model, texts_of

NUM_FEATURES = 6
KNOWN = SparseWeights.of(
    SparseRows(
        np.array([0, 2, 2, 5], np.int64),
        np.array([0, 2, 0, 1, 4], np.int32),
        np.array([1.0, -1.0, 2.0, 0.5, 0.25], np.float32),
    ),
    np.array([0.5, 0.0, -0.25], np.float32),
    NUM_FEATURES,
)


def sparse(dense: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> SparseRows:
    matrix = csr_matrix(dense.astype(np.float32))
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)


def weights_by_loops(
    rows: list[list[float]], weights: list[float], rarities: list[float], length: float
) -> list[float]:
    """w of one class from x and g of its examples and its name."""
    total = sum(weights)
    return [
        length * rarities[f] * math.sqrt(sum(g * row[f] ** 2 for g, row in zip(weights, rows, strict=True)) / total)
        if total
        else 0.0
        for f in range(NUM_FEATURES)
    ]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_examples=st.integers(1, 6), num_new=st.integers(1, 3), scale=st.floats(0.1, 9))
def test_against_loops(seed: int, num_examples: int, num_new: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    given_rows = scale * np.where(
        random.random((num_examples, NUM_FEATURES)) < 0.6, random.normal(size=NUM_FEATURES), 0
    )
    given_rows[:, 3] = scale
    labels = random.random((num_examples, num_new)) < 0.6
    named = ~labels.any(axis=0) | (random.random(num_new) < 0.4)
    names = scale * random.random((int(named.sum()), NUM_FEATURES))
    rows_p, classes_p = np.nonzero(labels)
    space = FeatureSpace.of(KNOWN, sparse(given_rows), length=2.5)
    positive = np.maximum(given_rows, 0)
    mean_length = float(np.mean([math.sqrt(sum(v * v for v in row)) for row in positive.tolist()]))
    used = [2, 1, 1, 0, 1, 0]
    squared = [math.log(1 + 3 / (1 + n)) ** 2 for n in used]
    x = (positive / mean_length).tolist()
    mean = sum(r * v * v for row in x for r, v in zip(squared, row, strict=True)) / num_examples
    rarities = [r / mean for r in squared]
    # Features are handed over in float32, which is off by a share of 6e-8.
    np.testing.assert_allclose(space.squared_rarities_F, rarities, rtol=1e-6)
    evidence = FeatureJudgement.of(
        space, sparse(given_rows), rows_p, classes_p, names=sparse(names), named_C=named, name_weight=1.5
    )
    named_rows = iter((names / mean_length).tolist())
    own: list[tuple[list[int], list[list[float]]]] = [
        (np.flatnonzero(labels[:, c]).tolist(), [next(named_rows)] if named[c] else []) for c in range(num_new)
    ]
    found = evidence.classifiers.toarray()
    for c, (examples, name) in enumerate(own):
        rows, weights = [x[i] for i in examples] + name, [1.0] * len(examples) + [1.5] * len(name)
        np.testing.assert_allclose(found[c], weights_by_loops(rows, weights, rarities, 2.5), rtol=1e-6)
    np.testing.assert_allclose(evidence.scores(np.arange(num_examples)), np.array(x) @ found.T, rtol=1e-6)
    for score, i, c in zip(
        evidence.left_out_scores(rows_p, classes_p), rows_p.tolist(), classes_p.tolist(), strict=True
    ):
        examples, name = own[c]
        rows = [x[j] for j in examples if j != i] + name
        weights = [1.0] * (len(examples) - 1) + [1.5] * len(name)
        expected = sum(w * v for w, v in zip(weights_by_loops(rows, weights, rarities, 2.5), x[i], strict=True))
        # What is left when a square is taken from a sum may be its rounding alone: its root is up to that of float32's
        # rounding, 2.4e-4.
        assert score == pytest.approx(expected, rel=1e-5, abs=2e-4)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), num_examples=st.integers(2, 7), num_new=st.integers(1, 3))
def test_left_out_ranks_by_vectors_and_features_against_loops(seed: int, num_examples: int, num_new: int) -> None:
    random, dim, num_known = np.random.default_rng(seed), 4, 9
    classes = torch.from_numpy(random.normal(size=(num_known, dim)))
    examples = torch.from_numpy(random.normal(size=(num_examples, dim)))
    features = sparse(random.random((num_examples, NUM_FEATURES)) * (random.random((num_examples, NUM_FEATURES)) < 0.7))
    labels = random.random((num_examples, num_new)) < 0.7
    rows, own = np.nonzero(labels)
    vectors = QuerySpace.of(classes, torch.ones(num_known), examples, level=1.0, caution=1.5)
    space, unnamed = FeatureSpace.of(KNOWN, features, length=0.7), np.zeros(num_new, bool)

    def evidence(rows: np.ndarray, own: np.ndarray) -> FeatureJudgement:
        return FeatureJudgement.of(space, features, rows, own, names=None, named_C=unnamed, name_weight=0.0)

    sums = torch.from_numpy(labels.T.astype(float)) @ examples
    known = (examples @ classes.T).topk(PLACES, dim=1).values
    floor = known[:, -1]
    ranks = left_out_ranks(vectors, examples, rows, own, sums, known, judgements=[evidence(rows, own)], floor_N=floor)
    for rank, row, new in zip(ranks.tolist(), rows.tolist(), own.tolist(), strict=True):
        if labels[:, new].sum() == 1:
            assert rank == 0
            continue
        others = rows != row
        made = torch.from_numpy((labels & (np.arange(num_examples) != row)[:, None]).T.astype(float)) @ examples
        by_vector = vectors.class_vectors(made) @ examples[row]
        left = evidence(rows[others], own[others])
        scores = by_vector + torch.from_numpy((left.classifiers @ space.rows(features)[row].T).toarray()[:, 0])
        there = [c for c in range(num_new) if c != new and (labels[:, c].sum() > labels[row, c] or not labels[row, c])]
        rivals = torch.cat([scores[there], known[row]])
        least, most = (1 + int((rivals > scores[new] + slack).sum()) for slack in (1e-6, -1e-6))
        listed = [bool(by_vector[new] + slack >= floor[row]) for slack in (1e-9, -1e-9)]
        assert (any(listed) and (least <= rank <= most or rank > PLACES < most)) or (not all(listed) and rank > PLACES)


def test_classifiers_come_behind_the_known_ones() -> None:
    new = csr_matrix(np.array([[0, 0, 0, 1.5, 0, 0], [0] * 6, [2.0, 0, 0, 0, 0, 3.0]]))
    larger = KNOWN.with_more(new)
    queries = sparse(np.array([[1.0, 2.0, 0, 4.0, 0, 1.0]]))
    assert larger.num_classes == 6
    # Bytes round the 2 beside a 3, by half a step of 3 / 127 at most.
    wanted, found = [6.0, 0.0, 5.0], larger.scores(queries, np.arange(6)[None])[0, 3:]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1.5 / 127)
    known = np.arange(3)[None]
    np.testing.assert_array_equal(larger.scores(queries, known), KNOWN.scores(queries, known))


def test_queries_without_features_that_count() -> None:
    space = FeatureSpace.of(KNOWN, sparse(-np.ones((2, NUM_FEATURES))), length=1.0)
    assert (space.mean_length, np.isfinite(space.squared_rarities_F).all()) == (1.0, True)
    assert space.rows(sparse(-np.ones((2, NUM_FEATURES)))).nnz == 0


def linear_judge(model: Predictor) -> LinearJudge:
    judge = model.ranker.judges["linear"]
    assert isinstance(judge, LinearJudge)
    return judge


def test_what_features_add_in_a_larger_model() -> None:
    before = owlmine.load(composed_model())
    after = add_classes(before, Examples.of(before, *texts_of("new", PAIRED))).predictor
    queries = before.prepare(["the violin with the copper", "the glacier and the river"])
    assert isinstance(queries, SparseRows)
    number, num_classes = np.full((2, 1), len(before.classes)), len(after.classes)
    near, far = linear_judge(after).weights.scores(queries, number)[:, 0]
    assert near > 2 * far >= 0
    found, (dense, dense_ids) = after.answer(queries, num_classes), after.shortlist(queries, num_classes)
    by_vector = dense[dense_ids == number]
    weights_K, offsets_K = after.ranker.dense_weights_K, after.ranker.offsets_K
    assert weights_K is not None
    assert offsets_K is not None
    assert weights_K[:-1].tolist() == [1.0] * (num_classes - 1)
    weight = after.ranker.mix.weights["linear"]
    expected = by_vector * weights_K[-1] + weight * np.array([near, far]) + offsets_K[-1]
    np.testing.assert_allclose(found.scores_Nk[found.ids_Nk == number], expected, rtol=1e-5)


def test_the_score_of_a_new_class_by_its_formula() -> None:
    before = owlmine.load(composed_model())
    examples = Examples.of(before, *texts_of("new", PAIRED))
    after, asked = add_classes(before, examples).predictor, examples.queries
    assert asked.features is not None
    counts = torch.from_numpy(np.array(before.classes.counts)).float()
    known = before.dense.classes.weight
    space = QuerySpace.of(known, counts, asked.vectors_ND, level=float(asked.level_N.mean()))
    features = FeatureSpace.of(linear_judge(before).weights, asked.features, length=21 * space.length)
    judgement = FeatureJudgement.of(
        features,
        asked.features,
        examples.rows_P,
        examples.classes_P,
        names=None,
        named_C=np.zeros(1, bool),
        name_weight=0.0,
    )
    vector = space.class_vectors(asked.vectors_ND.sum(dim=0, keepdim=True))
    # Long, so as to be listed; and judged by less.
    torch.testing.assert_close(after.dense.classes.weight[-1:], 0.8 * 1.5 * vector)
    answers = after.answer(asked.features, len(after.classes))
    wanted = 0.8 * (asked.vectors_ND @ vector.T)[:, 0].numpy() + judgement.scores(np.arange(len(PAIRED)))[:, 0]
    wanted += float(asked.lift_N.mean())
    found = answers.scores_Nk[answers.ids_Nk == len(before.classes)]
    # Half a step of bytes is a part in 254 of the largest weight.
    np.testing.assert_allclose(found, wanted, rtol=1 / 254)


def test_left_out_examples_are_listed_by_the_long_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    floors = []

    def ranks(*given: Any, floor_N: torch.Tensor, **options: Any) -> Any:
        floors.append(floor_N)
        return left_out_ranks(*given, floor_N=floor_N, **options)

    monkeypatch.setattr(add, "left_out_ranks", ranks)
    model = owlmine.load(composed_model())
    examples = Examples.of(model, *texts_of("new", PAIRED))
    add_classes(model, examples)
    torch.testing.assert_close(floors, [examples.queries.floor_N / 1.5])


def test_a_second_addition_goes_by_the_trained_classes() -> None:
    before = owlmine.load(composed_model())
    first = Examples.of(before, *texts_of("new", PAIRED)).queries
    after = add_classes(before, Examples.of(before, *texts_of("new", PAIRED))).predictor
    # The class that was added is ahead of trained ones for these very texts.
    ids = after.shortlist(after.prepare(PAIRED), 2)[1]
    assert (ids == len(before.classes)).any()
    second = Examples.of(after, *texts_of("newer", PAIRED)).queries
    for part in ("level_N", "lift_N", "floor_N"):
        torch.testing.assert_close(getattr(second, part), getattr(first, part))
    assert torch.isfinite(first.floor_N).all()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_ranker_in_which_features_do_not_count(is_there: bool) -> None:
    """The judge has the weight 0, or there is none."""
    before = owlmine.load(composed_model())
    mix, judges = before.ranker.mix, dict(before.ranker.judges)
    weights, variants = {**mix.weights, "linear": 0.0}, dict(mix.variants)
    if not is_there:
        for part in (judges, weights, variants):
            del part["linear"]
    before = replace(before, ranker=replace(before.ranker, judges=judges, mix=Mix(weights, variants)))
    after = add_classes(before, Examples.of(before, *texts_of("new", PAIRED))).predictor
    assert after.ranker.dense_weights_K is None
    assert after.ranker.offsets_K is not None
    if is_there:
        assert len(linear_judge(after).weights.entries.codes) == len(linear_judge(before).weights.entries.codes)
    assert after.predict(PAIRED[:1], k=2)
