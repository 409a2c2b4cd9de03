"""The plain functions against loops over Python floats, for every kind of input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.metrics import (
    coverage_at_k,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
    retrieval_loss_at_k,
)

from . import evaluate_loops as loops
from .evaluate_loops import NUM_CLASSES, Case, cases

PLAIN = [
    (precision_at_k, loops.precision),
    (recall_at_k, loops.recall),
    (ndcg_at_k, loops.ndcg),
    (coverage_at_k, loops.coverage),
    (retrieval_loss_at_k, lambda case, k: 1.0 - loops.recall(case, k)),
]
PROPENSITY_SCORED = [(psp_at_k, loops.psp), (psndcg_at_k, loops.psndcg)]


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 9))
def test_each_metric_meets_its_loop(case: Case, k: int) -> None:
    weights = np.array(case.weights)
    for ids in (case.ranked_ids, torch.from_numpy(case.ranked_ids)):
        for fast, slow in PLAIN:
            assert fast(ids, case.label_lists, k) == pytest.approx(slow(case, k), abs=1e-12)
        for fast, slow in PROPENSITY_SCORED:
            assert fast(ids, case.label_lists, k, weights) == pytest.approx(slow(case, k), abs=1e-12)


def test_a_small_case_by_hand() -> None:
    ids = np.array([[2, 0, 1], [3, 1, -1]])
    labels = [[0, 1, 3], [1]]
    assert precision_at_k(ids, labels, 2) == (1 / 2 + 1 / 2) / 2
    assert recall_at_k(ids, labels, 2) == (1 / 3 + 1) / 2
    assert retrieval_loss_at_k(ids, labels, 1) == 1.0
    gain = 1 / np.log2(3)
    assert ndcg_at_k(ids, labels, 2) == pytest.approx((gain / (1 + gain) + gain) / 2, abs=1e-15)
    assert coverage_at_k(ids, labels, 3) == 2 / 3
    assert psp_at_k(ids, labels, 1, np.array([1.0, 2, 3, 4]), normalize=False) == 0.0
    assert psp_at_k(ids, labels, 2, np.array([1.0, 2, 3, 4]), normalize=False) == (1 / 2 + 2 / 2) / 2
    assert psp_at_k(ids, labels, 2, np.array([1.0, 2, 3, 4])) == (1 + 2) / (4 + 2 + 2)
    ps_gain = (1 * gain / (1 + gain) + 2 * gain) / 2
    assert psndcg_at_k(ids, labels, 2, np.array([1.0, 2, 3, 4]), normalize=False) == pytest.approx(ps_gain)


def test_a_repeat_hits_once_and_keeps_its_place() -> None:
    ids = np.array([[4, 4, 7, 7]])
    assert precision_at_k(ids, [[4, 7]], 2) == 1 / 2
    assert recall_at_k(ids, [[4, 7]], 3) == 1.0
    # 7 stands at rank 3, not at the rank 2 it would have without the repeat.
    assert ndcg_at_k(ids, [[4, 7]], 4) == pytest.approx((1 + 1 / 2) / (1 + 1 / np.log2(3)), abs=1e-15)


def test_an_empty_place_is_not_the_last_class_of_the_row_before() -> None:
    assert precision_at_k(np.array([[0], [-1]]), [[0, 1], []], 1) == 1 / 2
    assert precision_at_k(np.array([[-1], [-1]]), [[1], [1]], 1) == 0.0
    assert precision_at_k(np.array([[-1, 1]]), [[1]], 2) == 1 / 2


@pytest.mark.parametrize("labels", [[[]], [set()], csr_array((1, 5), dtype=np.float32)])
def test_without_any_label_everything_is_zero(labels: object) -> None:
    ids = np.array([[1, 2]])
    for fast, _ in PLAIN[:-1]:
        assert fast(ids, labels, 2) == 0.0
    for fast, _ in PROPENSITY_SCORED:
        assert fast(ids, labels, 2, np.ones(5)) == 0.0
    assert retrieval_loss_at_k(ids, labels, 2) == 1.0


def test_lists_without_places_score_zero() -> None:
    assert recall_at_k(np.empty((3, 0), np.int64), [[1], [2], []], 4) == 0.0
    assert recall_at_k(torch.empty((3, 0), dtype=torch.long), [[1], [2], []], 4) == 0.0


@settings(max_examples=40, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_form_of_the_labels_does_not_matter(case: Case, random) -> None:
    shuffled = [random.sample(row, len(row)) for row in case.label_lists]
    flat = np.array([c for row in shuffled for c in row], np.int32)
    offsets = offsets_from_counts(np.array([len(row) for row in shuffled]))
    shape = (len(shuffled), NUM_CLASSES)
    forms = [
        case.labels,
        [tuple(row) for row in shuffled],
        [np.array(row, np.int16) for row in shuffled],
        [row + row for row in shuffled],
        SparseRows(offsets, flat, None),
        SparseRows(offsets, flat.astype(np.uint64), np.ones(len(flat), np.float32)),
        csr_matrix((np.ones(len(flat)), flat, offsets), shape=shape),
        csr_array((np.ones(len(flat)), flat, offsets), shape=shape),
        coo_array(csr_array((np.ones(len(flat)), flat, offsets), shape=shape)),
    ]
    for labels in forms:
        assert ndcg_at_k(case.ranked_ids, labels, 4) == ndcg_at_k(case.ranked_ids, case.label_lists, 4)


def test_a_stored_zero_is_no_label() -> None:
    ids, offsets, classes = np.array([[0, 1]]), np.array([0, 2]), np.array([0, 1])
    assert recall_at_k(ids, SparseRows(offsets, classes, np.array([0.0, 1.0], np.float32)), 1) == 0.0
    assert recall_at_k(ids, csr_array((np.array([1, 0]), classes, offsets), shape=(1, 2)), 1) == 1.0


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_any_integer_type_and_memory_order_of_ids(dtype: type) -> None:
    ids = np.array([[3, 1, 2], [0, 2, 1]])
    expected = ndcg_at_k(ids, [[1, 2], [1]], 3)
    assert ndcg_at_k(np.asfortranarray(ids.astype(dtype)), [[1, 2], [1]], 3) == expected
    if dtype is not np.uint64:
        transposed = torch.from_numpy(np.ascontiguousarray(ids.T.astype(dtype))).T
        assert ndcg_at_k(transposed, [[1, 2], [1]], 3) == expected


def test_ids_may_be_large_where_no_number_of_classes_is_given() -> None:
    big = 2**40
    assert recall_at_k(np.array([[big, 5], [7, big]]), [[big], [big + 1]], 2) == 1 / 2


@settings(max_examples=60, deadline=None)
@given(cases())
def test_bounds_and_growth_with_k(case: Case) -> None:
    weights = np.array(case.weights)
    recalls = [recall_at_k(case.ranked_ids, case.label_lists, k) for k in range(1, 10)]
    covered = [coverage_at_k(case.ranked_ids, case.label_lists, k) for k in range(1, 10)]
    assert recalls == sorted(recalls)
    assert covered == sorted(covered)
    for k in (1, 2, 5, 9):
        for fast, _ in PLAIN:
            assert 0.0 <= fast(case.ranked_ids, case.label_lists, k) <= 1.0
        for fast, _ in PROPENSITY_SCORED:
            assert 0.0 <= fast(case.ranked_ids, case.label_lists, k, weights) <= 1.0 + 1e-12


@settings(max_examples=60, deadline=None)
@given(cases(max_rows=4), st.integers(1, 6))
def test_the_best_list_scores_exactly_one(case: Case, k: int) -> None:
    labels = [row or {0} for row in case.labels]
    best = Case([sorted(row, key=lambda c: -case.weights[c]) for row in labels], labels, case.weights, [])
    assert ndcg_at_k(best.ranked_ids, labels, k) == 1.0
    assert recall_at_k(best.ranked_ids, labels, 12) == 1.0
    for fast, _ in PROPENSITY_SCORED:
        assert fast(best.ranked_ids, labels, k, np.array(case.weights)) == 1.0
