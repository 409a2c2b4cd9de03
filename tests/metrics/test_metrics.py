"""The plain functions against loops over Python floats."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from owlmine.metrics import (
    RankingMetrics,
    coverage_at_k,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
    retrieval_loss_at_k,
)

from . import loops
from .loops import Case, cases

IDS = np.array([[0, 1], [2, -1]])
LABELS = [[0], [1, 2]]
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


@pytest.mark.parametrize("labels", [[[]], [set()], csr_array((1, 5), dtype=np.float32)])
def test_without_any_label_everything_is_zero(labels: object) -> None:
    ids = np.array([[1, 2]])
    for fast, _ in PLAIN[:-1]:
        assert fast(ids, labels, 2) == 0.0
    for fast, _ in PROPENSITY_SCORED:
        assert fast(ids, labels, 2, np.ones(5)) == 0.0
    assert retrieval_loss_at_k(ids, labels, 2) == 1.0


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


@pytest.mark.parametrize("k", [0, -3, 2.0, True, "5"])
def test_bad_cut_offs(k: object) -> None:
    with pytest.raises(ValueError, match=r"k is .*; wanted a whole number of at least 1"):
        RankingMetrics(5, ks=(1, k))
    with pytest.raises(ValueError, match=r"k is .*; wanted a whole number of at least 1"):
        precision_at_k(IDS, LABELS, k)


def test_plain_functions_have_the_same_doors() -> None:
    with pytest.raises(ValueError, match="ranked_ids has 0 rows; wanted at least one"):
        recall_at_k(np.empty((0, 3), np.int64), [], 1)
    with pytest.raises(ValueError, match="labels contain the class -1"):
        recall_at_k(IDS, [[0], [-1]], 1)
    for metric in (psp_at_k, psndcg_at_k):
        with pytest.raises(ValueError, match="ranked_ids holds 2; wanted class ids from 0 to 1"):
            metric(IDS, LABELS, 1, np.ones(2))
