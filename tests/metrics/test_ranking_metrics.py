"""The accumulator: any cut into batches, any order, any merge gives the same figures."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.metrics import BIN_NAMES, FrequencyCuts, RankingMetrics
from owlmine.metrics.ranking_metrics import RunningSum

from . import loops
from .loops import NUM_CLASSES, Case, cases

KS = (1, 3, 5, 10)


def empty(case: Case, **options) -> RankingMetrics:
    return RankingMetrics(
        NUM_CLASSES, inverse_propensities=np.array(case.weights), class_counts=case.class_counts, **options
    )


def gathered(case: Case, cuts: list[int], *, torch_ids: bool = False) -> RankingMetrics:
    metrics = empty(case)
    ids = torch.from_numpy(case.ranked_ids) if torch_ids else case.ranked_ids
    for start, stop in zip([0, *cuts], [*cuts, len(case.lists)], strict=True):
        metrics.update(ids[start:stop], case.label_lists[start:stop])
    return metrics


def assert_same(one: dict[str, float], other: dict[str, float]) -> None:
    assert one.keys() == other.keys()
    assert list(one.values()) == pytest.approx(list(other.values()), rel=0, abs=1e-12, nan_ok=True)


@settings(max_examples=80, deadline=None)
@given(cases())
def test_figures_meet_the_loops(case: Case) -> None:
    figures = gathered(case, []).compute()
    bins = {
        "head": {c for c, n in enumerate(case.class_counts) if n >= 100},
        "torso": {c for c, n in enumerate(case.class_counts) if 10 <= n < 100},
        "tail": {c for c, n in enumerate(case.class_counts) if n < 10},
    }
    wanted = {}
    for k in KS:
        wanted[f"P@{k}"] = loops.precision(case, k)
        wanted[f"R@{k}"] = loops.recall(case, k)
        wanted[f"nDCG@{k}"] = loops.ndcg(case, k)
        wanted[f"loss@{k}"] = 1.0 - loops.recall(case, k)
        wanted[f"coverage@{k}"] = loops.coverage(case, k)
        wanted[f"PSP@{k}"] = loops.psp(case, k)
        wanted[f"PSnDCG@{k}"] = loops.psndcg(case, k)
        for name in BIN_NAMES:
            wanted[f"P@{k}/{name}"] = loops.bin_precision(case, k, bins[name])
            wanted[f"R@{k}/{name}"] = loops.bin_recall(case, k, bins[name])
    assert figures.keys() == wanted.keys()
    for name, value in wanted.items():
        assert figures[name] == pytest.approx(100 * value, abs=1e-10, nan_ok=True), name
        assert type(figures[name]) is float


@settings(max_examples=60, deadline=None)
@given(cases(max_rows=9), st.data())
def test_batch_cuts_row_order_and_library_do_not_matter(case: Case, data: st.DataObject) -> None:
    num_rows = len(case.lists)
    cuts = sorted(data.draw(st.lists(st.integers(0, num_rows), max_size=5)))
    order = data.draw(st.permutations(range(num_rows)))
    whole = gathered(case, []).compute()
    assert_same(gathered(case, cuts).compute(), whole)
    assert_same(gathered(case, cuts, torch_ids=True).compute(), whole)
    assert_same(gathered(case.rows(order), cuts).compute(), whole)


@settings(max_examples=40, deadline=None)
@given(cases(max_rows=9), st.data())
def test_merge_is_one_accumulator(case: Case, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(case.lists)))
    ids, labels = case.ranked_ids, case.label_lists
    first, second = empty(case), empty(case)
    first.update(ids[:cut], labels[:cut])
    second.update(ids[cut:], labels[cut:])
    second.merge(pickle.loads(pickle.dumps(first)))
    assert second.num_rows == len(case.lists)
    assert_same(second.compute(), gathered(case, []).compute())


def test_hundreds_of_single_rows_give_the_figures_of_one_batch() -> None:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, NUM_CLASSES, (800, 10))
    labels = [set(rng.integers(0, NUM_CLASSES, rng.integers(0, 8)).tolist()) for _ in ids]
    case = Case(ids.tolist(), labels, rng.uniform(1, 50, NUM_CLASSES).tolist(), list(range(0, 120, 10)))
    assert_same(gathered(case, list(range(1, len(ids)))).compute(), gathered(case, []).compute())


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_bins_add_up_to_precision(case: Case) -> None:
    figures = gathered(case, []).compute()
    for k in KS:
        parts = [figures[f"P@{k}/{name}"] for name in BIN_NAMES]
        assert sum(parts) == pytest.approx(figures[f"P@{k}"], abs=1e-12)


def test_one_bin_that_holds_every_class_has_the_recall_of_all() -> None:
    metrics = RankingMetrics(4, ks=[2], class_counts=np.full(4, 7), cuts=FrequencyCuts(head=6, torso=2))
    metrics.update(np.array([[0, 1], [2, 3]]), [[0, 1, 2], [3]])
    figures = metrics.compute()
    assert figures["R@2/head"] == figures["R@2"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert figures["P@2/head"] == figures["P@2"] == 75.0
    assert np.isnan(figures["R@2/tail"])
    assert figures["P@2/tail"] == 0.0


def test_keys_follow_what_was_asked_for() -> None:
    metrics = RankingMetrics(3, ks=(2,))
    metrics.update(np.array([[1, 0]]), [[0]])
    assert metrics.compute() == {
        "P@2": 50.0,
        "R@2": 100.0,
        "nDCG@2": pytest.approx(100 / np.log2(3), abs=1e-12),
        "loss@2": 0.0,
        "coverage@2": 100.0,
    }


def test_coverage_counts_classes_over_all_batches() -> None:
    metrics = RankingMetrics(5, ks=(1,))
    metrics.update(np.array([[0], [0]]), [[0, 1], [0]])
    assert metrics.compute()["coverage@1"] == 50.0
    metrics.update(np.array([[1], [3]]), [[1], [2, 4]])
    assert metrics.compute()["coverage@1"] == 50.0


def test_a_batch_that_is_refused_leaves_no_trace() -> None:
    metrics = RankingMetrics(3, ks=(1,))
    metrics.update(np.array([[1]]), [[1]])
    before = metrics.compute()
    with pytest.raises(ValueError, match="labels contain the class 3"):
        metrics.update(np.array([[1]]), [[3]])
    assert metrics.compute() == before


def test_empty_batches_are_allowed_and_an_empty_split_is_not() -> None:
    metrics = RankingMetrics(3, inverse_propensities=np.ones(3), class_counts=np.ones(3, np.int64))
    metrics.update(np.empty((0, 4), np.int64), [])
    with pytest.raises(ValueError, match="no rows were given; wanted at least one"):
        metrics.compute()
    metrics.update(np.array([[2]]), [[2]])
    assert metrics.compute()["P@1"] == 100.0


@pytest.mark.parametrize(
    "other",
    [
        RankingMetrics(4, class_counts=[1, 5, 50, 500]),
        RankingMetrics(4, ks=(1, 2), class_counts=[1, 5, 50, 500], inverse_propensities=np.ones(4)),
        RankingMetrics(5, class_counts=[1, 5, 50, 500, 0], inverse_propensities=np.ones(5)),
        RankingMetrics(4, class_counts=[1, 50, 50, 500], inverse_propensities=np.ones(4)),
        RankingMetrics(4, class_counts=[1, 5, 50, 500], inverse_propensities=np.full(4, 2.0)),
        RankingMetrics(4, inverse_propensities=np.ones(4)),
    ],
)
def test_only_equal_settings_merge(other: RankingMetrics) -> None:
    metrics = RankingMetrics(4, class_counts=[1, 5, 50, 500], inverse_propensities=np.ones(4))
    with pytest.raises(ValueError, match=r"the two differ in .* wanted the same settings"):
        metrics.merge(other)


def test_running_sum_keeps_what_rounding_drops() -> None:
    running = RunningSum(1)
    for term in (1.0, 1e100, 1.0, -1e100):
        running.add(np.array([term]))
    assert running.value[0] == 2.0
    other = RunningSum(1)
    other.merge(running)
    assert other.value[0] == 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ks": ()}, "ks is empty; wanted at least one cut-off"),
        ({"num_classes": 0}, "num_classes is 0; wanted a whole number of at least 1"),
        ({"num_classes": 5.0}, "num_classes is 5.0; wanted a whole number"),
        ({"inverse_propensities": np.ones(4)}, r"inverse_propensities have the shape \(4,\); wanted \[5\]"),
        ({"inverse_propensities": np.array([1, 1, 0, 1, 1])}, "inverse_propensities contain 0; wanted finite"),
        ({"inverse_propensities": np.array([1, 1, 1, 1, np.nan])}, "inverse_propensities contain nan; wanted"),
        ({"inverse_propensities": np.array(list("abcde"))}, "inverse_propensities have the type <U1; wanted"),
        ({"class_counts": np.ones(6, np.int64)}, r"class_counts have the shape \(6,\); wanted \[5\]"),
        ({"class_counts": np.ones(5)}, "class_counts have the type float64; wanted integers"),
    ],
)
def test_bad_settings(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingMetrics(**{"num_classes": 5, **options})


def test_cuts_at_their_edges() -> None:
    masks = FrequencyCuts().masks(np.array([0, 9, 10, 99, 100, 5000]))
    assert masks["head"].tolist() == [False, False, False, False, True, True]
    assert masks["torso"].tolist() == [False, False, True, True, False, False]
    assert masks["tail"].tolist() == [True, True, False, False, False, False]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=20), st.integers(1, 20), st.integers(1, 20))
def test_every_class_is_in_one_bin(counts: list[int], torso: int, more: int) -> None:
    masks = FrequencyCuts(head=torso + more, torso=torso).masks(np.array(counts, np.int64))
    assert (sum(mask.astype(int) for mask in masks.values()) == 1).all()


@pytest.mark.parametrize(("head", "torso"), [(10, 10), (5, 10), (10, 0), (0, -1)])
def test_bad_cuts(head: int, torso: int) -> None:
    with pytest.raises(ValueError, match=f"head {head} and torso {torso}; wanted head > torso >= 1"):
        FrequencyCuts(head=head, torso=torso)
