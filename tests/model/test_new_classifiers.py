"""Classifiers of new classes against loops, and what they add to the scores of a grown model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import owlmine
from owlmine.data.rows import SparseRows
from owlmine.model.added_classes import add_classes
from owlmine.model.examples import Examples
from owlmine.model.new_classifiers import FeatureEvidence, FeatureSpace, with_classifiers
from owlmine.rerank import LinearRanker

from .test_new_classes import PAIRED, composed_model, texts_of

NUM_FEATURES = 6
RANKER = LinearRanker(
    np.array([0, 2, 2, 5], np.int64),
    np.array([0, 2, 0, 1, 4], np.int32),
    np.array([1.0, -1.0, 2.0, 0.5, 0.25], np.float32),
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
    space = FeatureSpace.of(RANKER, sparse(given_rows), length=2.5)
    positive = np.maximum(given_rows, 0)
    mean_length = float(np.mean([math.sqrt(sum(v * v for v in row)) for row in positive.tolist()]))
    used = [2, 1, 1, 0, 1, 0]
    squared = [math.log(1 + 3 / (1 + n)) ** 2 for n in used]
    x = (positive / mean_length).tolist()
    mean = sum(r * v * v for row in x for r, v in zip(squared, row, strict=True)) / num_examples
    rarities = [r / mean for r in squared]
    np.testing.assert_allclose(space.squared_rarities_F, rarities, rtol=1e-5)
    evidence = FeatureEvidence.of(
        space, sparse(given_rows), rows_p, classes_p, names=sparse(names), named_C=named, name_weight=1.5
    )
    named_rows = iter((names / mean_length).tolist())
    own: list[tuple[list[int], list[list[float]]]] = [
        (np.flatnonzero(labels[:, c]).tolist(), [next(named_rows)] if named[c] else []) for c in range(num_new)
    ]
    found = evidence.classifiers.toarray()
    for c, (examples, name) in enumerate(own):
        rows, weights = [x[i] for i in examples] + name, [1.0] * len(examples) + [1.5] * len(name)
        np.testing.assert_allclose(found[c], weights_by_loops(rows, weights, rarities, 2.5), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(evidence.scores(np.arange(num_examples)), np.array(x) @ found.T, rtol=1e-5, atol=1e-9)
    for score, i, c in zip(
        evidence.left_out_scores(rows_p, classes_p), rows_p.tolist(), classes_p.tolist(), strict=True
    ):
        examples, name = own[c]
        rows = [x[j] for j in examples if j != i] + name
        weights = [1.0] * (len(examples) - 1) + [1.5] * len(name)
        expected = sum(w * v for w, v in zip(weights_by_loops(rows, weights, rarities, 2.5), x[i], strict=True))
        assert score == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_classifiers_come_behind_the_known_ones() -> None:
    new = csr_matrix(np.array([[0, 0, 0, 1.5, 0, 0], [0] * 6, [2.0, 0, 0, 0, 0, 3.0]]))
    wider = with_classifiers(RANKER, new)
    queries = sparse(np.array([[1.0, 2.0, 0, 4.0, 0, 1.0]]))
    assert wider.num_classes == 6
    np.testing.assert_allclose(wider.scores(queries, np.arange(6)[None])[0, 3:], [6.0, 0.0, 5.0])
    known = np.arange(3)[None]
    np.testing.assert_array_equal(wider.scores(queries, known), RANKER.scores(queries, known))


def test_queries_without_features_that_count() -> None:
    space = FeatureSpace.of(RANKER, sparse(-np.ones((2, NUM_FEATURES))), length=1.0)
    assert (space.mean_length, np.isfinite(space.squared_rarities_F).all()) == (1.0, True)
    assert space.rows(sparse(-np.ones((2, NUM_FEATURES)))).nnz == 0


def test_what_features_add_in_a_grown_model() -> None:
    before = owlmine.load(composed_model())
    after = add_classes(before, Examples.of(before, *texts_of("new", PAIRED))).predictor
    assert before.reranker is not None
    assert after.reranker is not None
    queries = before.prepare(["the violin with the copper", "the glacier and the river"])
    assert isinstance(queries, SparseRows)
    number, num_classes = np.full((2, 1), len(before.classes.keys)), len(after.classes.keys)
    near, far = after.reranker.ranker.scores(queries, number)[:, 0]
    assert near > 2 * far >= 0
    scores, ids = after.top(queries, num_classes)
    dense, dense_ids = after.shortlist(queries, num_classes)
    by_vector = dense[dense_ids == number]
    weights = after.reranker.dense_weights_K
    assert weights is not None
    assert weights[:-1].tolist() == [1.0] * (num_classes - 1)
    expected = by_vector * weights[-1] + after.reranker.weight * np.array([near, far]) + after.reranker.offsets_K[-1]
    np.testing.assert_allclose(scores[ids == number], expected, rtol=1e-4)


def test_a_re_ranker_in_which_features_do_not_count() -> None:
    before = owlmine.load(composed_model())
    assert before.reranker is not None
    object.__setattr__(before.reranker, "weight", 0.0)
    after = add_classes(before, Examples.of(before, *texts_of("new", PAIRED))).predictor
    assert after.reranker is not None
    assert after.reranker.dense_weights_K is None
    assert len(after.reranker.ranker.weights) == len(before.reranker.ranker.weights)
    assert after.predict(PAIRED[:1], k=2)
