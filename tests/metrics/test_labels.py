"""Labels in every form; and filter pairs, which leave lists and labels, and what is ranked below them moves up."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.metrics import FilterPairs, RankingMetrics, ndcg_at_k, precision_at_k, recall_at_k

from .loops import NUM_CLASSES, Case, cases


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


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0], [5]], "labels contain the class 5; wanted ids from 0 to 4"),
        ([[0], [-1]], "labels contain the class -1; wanted ids from 0 to 4"),
        (csr_array(np.ones((2, 7))), "labels contain the class 6; wanted ids from 0 to 4"),
        ([[0], [1.0]], "labels have the type float64; wanted integer class ids"),
        ([[True], [False]], "labels have the type bool; wanted integer class ids"),
        ([["a"], []], "labels have the type <U1; wanted integer class ids"),
        ([0, 1], "labels contain the row 0; wanted a list of class ids"),
        (["01", "2"], "labels contain the row '01'; wanted a list of class ids"),
        (np.zeros((2, 5)), "labels are a ndarray; wanted SparseRows"),
        ("ab", "labels are a str; wanted SparseRows"),
        ([[0]], "labels have 1 rows; wanted 2"),
        (SparseRows(np.array([0, 1, 3]), np.array([1]), None), "labels hold 1 entries; wanted 3"),
    ],
)
def test_bad_labels(labels: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingMetrics(5).update(np.array([[0, 1], [2, -1]]), labels)


def without(case: Case, pairs: list[tuple[int, int]]) -> Case:
    lists = [[c for c in ranked if (i, c) not in pairs] for i, ranked in enumerate(case.lists)]
    labels = [{c for c in row if (i, c) not in pairs} for i, row in enumerate(case.labels)]
    return Case(lists, labels, case.weights, case.class_counts)


def figures(case: Case, **options) -> dict[str, float]:
    metrics = RankingMetrics(NUM_CLASSES, inverse_propensities=np.array(case.weights), class_counts=case.class_counts)
    ids = options.pop("ids", case.ranked_ids)
    metrics.update(ids, case.label_lists, **options)
    return metrics.compute()


@settings(max_examples=80, deadline=None)
@given(cases(), st.data())
def test_filtering_is_leaving_out(case: Case, data: st.DataObject) -> None:
    pair = st.tuples(st.integers(0, len(case.lists) - 1), st.integers(0, NUM_CLASSES - 1))
    pairs = data.draw(st.lists(pair, max_size=25))
    wanted = figures(without(case, pairs))
    array = np.array(pairs, np.int32).reshape(-1, 2)
    assert figures(case, filter_pairs=array) == pytest.approx(wanted, nan_ok=True)
    tensor = torch.from_numpy(case.ranked_ids)
    assert figures(case, ids=tensor, filter_pairs=FilterPairs(array)) == pytest.approx(wanted, nan_ok=True)


def test_the_next_class_moves_up() -> None:
    ids, labels = np.array([[5, 6, 7]]), [[5, 6]]
    assert precision_at_k(ids, labels, 1, filter_pairs=np.array([[0, 5]])) == 1.0
    assert recall_at_k(ids, labels, 1, filter_pairs=np.array([[0, 5]])) == 1.0
    assert precision_at_k(ids, labels, 3, filter_pairs=np.array([[0, 5]])) == 1 / 3
    assert ndcg_at_k(ids, [[7]], 1, filter_pairs=np.array([[0, 5], [0, 6]])) == 1.0
    # A pair of a class that stands in neither changes nothing.
    assert precision_at_k(ids, labels, 2, filter_pairs=np.array([[0, 90]])) == 1.0


def test_inputs_are_left_as_they_were() -> None:
    ids = np.array([[5, 6, 7]])
    for given_ids in (ids, torch.from_numpy(ids)):
        recall_at_k(given_ids, [[5]], 2, filter_pairs=np.array([[0, 5]]))
        assert given_ids.tolist() == [[5, 6, 7]]


def test_memory_order_of_the_lists_does_not_matter() -> None:
    ids = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    pairs = np.array([[0, 1], [1, 5]])
    labels = [[2], [6], [7]]
    assert precision_at_k(np.asfortranarray(ids), labels, 1, filter_pairs=pairs) == 2 / 3
    assert precision_at_k(torch.from_numpy(ids.T.copy()).T, labels, 1, filter_pairs=pairs) == 2 / 3


def test_rows_of_a_batch() -> None:
    pairs = FilterPairs(np.array([[7, 1], [2, 4], [2, 3], [5, 0]]))
    batch = pairs.in_rows(2, 6)
    assert list(zip(batch.rows.tolist(), batch.classes.tolist(), strict=True)) == [(0, 3), (0, 4), (3, 0)]
    assert len(pairs.in_rows(3, 5)) == 0
    assert len(FilterPairs(np.empty((0, 2)))) == 0


def test_batches_with_their_pairs_equal_the_whole() -> None:
    rng = np.random.default_rng(1)
    case = Case(
        [rng.permutation(NUM_CLASSES)[:8].tolist() for _ in range(20)],
        [set(rng.integers(0, NUM_CLASSES, 4).tolist()) for _ in range(20)],
        [1.0] * NUM_CLASSES,
        [50] * NUM_CLASSES,
    )
    array = np.stack((rng.integers(0, 20, 60), rng.integers(0, NUM_CLASSES, 60)), axis=1)
    pairs, metrics = FilterPairs(array), RankingMetrics(NUM_CLASSES)
    for start in range(0, 20, 6):
        stop = min(start + 6, 20)
        batch = pairs.in_rows(start, stop)
        metrics.update(case.ranked_ids[start:stop], case.label_lists[start:stop], filter_pairs=batch)
    whole = figures(case, filter_pairs=pairs)
    for name, value in metrics.compute().items():
        assert value == pytest.approx(whole[name], abs=1e-12)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (np.array([[1, 0]]), "filter pairs contain the row 1; wanted rows from 0 to 0"),
        (np.array([[0, 9]]), "filter pairs contain the class 9; wanted ids from 0 to 8"),
        (np.array([[0, -1]]), "filter pairs contain -1; wanted rows and classes of at least 0"),
        (np.array([[0.0, 1.0]]), r"shape \(1, 2\) and the type float64; wanted integers \[pairs, 2\]"),
        (np.array([0, 1]), r"shape \(2,\) and the type int64; wanted integers \[pairs, 2\]"),
        (np.array([[0, 1, 2]]), r"shape \(1, 3\) and the type int64; wanted integers \[pairs, 2\]"),
    ],
)
def test_bad_pairs(pairs: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingMetrics(9).update(np.array([[1]]), [[1]], filter_pairs=pairs)
