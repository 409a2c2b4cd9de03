"""napkinXC's metrics as an oracle.

Rows without labels agree: with its default, zero_division=0, such a row adds 0 to recall and nDCG and counts.
Three habits of its own lie outside the comparison: a repeated prediction hits every time, a label that a row
names twice counts twice, and coverage of a split without any label divides by zero.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse import csr_matrix

from owlmine.metrics import (
    PropensityConstants,
    RankingMetrics,
    coverage_at_k,
    inverse_propensities,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    rank_scores,
    recall_at_k,
)

from . import loops
from .loops import NUM_CLASSES, Case, cases

oracle = pytest.importorskip("napkinxc.metrics")

DEPTH = 6


def assert_all_agree(case: Case) -> None:
    ids, labels, weights = case.ranked_ids, case.label_lists, np.array(case.weights)
    wanted = {
        "P": oracle.precision_at_k(labels, case.lists, DEPTH),
        "R": oracle.recall_at_k(labels, case.lists, DEPTH),
        "nDCG": oracle.ndcg_at_k(labels, case.lists, DEPTH),
        "coverage": oracle.coverage_at_k(labels, case.lists, DEPTH),
        "PSP": oracle.psprecision_at_k(labels, case.lists, weights, DEPTH),
        "PSnDCG": oracle.psndcg_at_k(labels, case.lists, weights, DEPTH),
    }
    metrics = RankingMetrics(len(weights), ks=range(1, DEPTH + 1), inverse_propensities=weights)
    metrics.update(ids, labels)
    figures = metrics.compute()
    for k in range(1, DEPTH + 1):
        functions = {
            "P": precision_at_k(ids, labels, k),
            "R": recall_at_k(ids, labels, k),
            "nDCG": ndcg_at_k(ids, labels, k),
            "coverage": coverage_at_k(ids, labels, k),
            "PSP": psp_at_k(ids, labels, k, weights),
            "PSnDCG": psndcg_at_k(ids, labels, k, weights),
        }
        for name, value in functions.items():
            assert value == pytest.approx(wanted[name][k - 1], abs=1e-9), (name, k)
            assert figures[f"{name}@{k}"] == pytest.approx(100 * wanted[name][k - 1], abs=1e-9), (name, k)


@settings(max_examples=100, deadline=None)
@given(cases(unique=True))
def test_small_lists(case: Case) -> None:
    case.labels[0] = case.labels[0] or {3}
    assert_all_agree(case)


def test_a_larger_split_with_short_lists_and_empty_rows() -> None:
    rng = np.random.default_rng(5)
    num_rows, num_classes = 400, 90
    lists = [rng.permutation(num_classes)[: rng.integers(0, 9)].tolist() for _ in range(num_rows)]
    labels = [set(rng.integers(0, num_classes, rng.integers(0, 12)).tolist()) for _ in range(num_rows)]
    assert any(not row for row in labels)
    assert any(len(row) < DEPTH for row in lists)
    assert_all_agree(Case(lists, labels, rng.uniform(1, 40, num_classes).tolist(), []))


def test_without_normalisation() -> None:
    rng = np.random.default_rng(6)
    lists = [rng.permutation(NUM_CLASSES)[:5].tolist() for _ in range(30)]
    labels = [set(rng.integers(0, NUM_CLASSES, 4).tolist()) for _ in range(30)]
    case = Case(lists, labels, rng.uniform(1, 40, NUM_CLASSES).tolist(), [])
    weights = np.array(case.weights)
    for ours, theirs in ((psp_at_k, oracle.psprecision_at_k), (psndcg_at_k, oracle.psndcg_at_k)):
        wanted = theirs(case.label_lists, lists, weights, 5, normalize=False)
        got = [ours(case.ranked_ids, case.label_lists, k, weights, normalize=False) for k in range(1, 6)]
        assert got == pytest.approx(wanted, abs=1e-9)


def test_only_the_first_of_repeated_predictions_hits_here() -> None:
    assert oracle.precision_at_k([[4]], [[4, 4]], 2)[1] == 1.0
    assert precision_at_k(np.array([[4, 4]]), [[4]], 2) == loops.precision(Case([[4, 4]], [{4}], [], []), 2) == 0.5


@pytest.mark.parametrize("constants", [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)])
def test_inverse_propensities(constants: tuple[float, float]) -> None:
    rng = np.random.default_rng(7)
    labels = csr_matrix((rng.uniform(size=(50, 20)) < 0.2).astype(np.float64))
    counts = np.bincount(labels.indices, minlength=20)
    ours = inverse_propensities(counts, 50, constants=PropensityConstants(*constants))
    assert ours == pytest.approx(oracle.Jain_et_al_inverse_propensity(labels, *constants), abs=1e-12)


def test_ranking_of_sparse_scores_without_ties() -> None:
    rng = np.random.default_rng(8)
    scores = csr_matrix(np.where(rng.uniform(size=(40, 30)) < 0.2, rng.normal(size=(40, 30)), 0.0))
    labels = [set(rng.integers(0, 30, 3).tolist()) for _ in range(40)]
    wanted = oracle.ndcg_at_k([list(row) for row in labels], scores, 5)
    assert ndcg_at_k(rank_scores(scores, 5), labels, 5) == pytest.approx(wanted[4], abs=1e-12)
