"""What every index promises, whatever it leaves out."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from owlmine.index import ApproximateIndex, ExactIndex, Index
from owlmine.index.approximate import KINDS, faiss_module

from ..index.clusters import clustered

INDEXES: dict[str, Callable[[Tensor], Index]] = {"exact": ExactIndex} | {
    kind: partial(ApproximateIndex.build, kind=kind) for kind in KINDS
}
NUM_CLASSES = 40_000


@pytest.fixture(scope="module", params=list(INDEXES))
def index(request: pytest.FixtureRequest) -> Index:
    if request.param != "exact" and faiss_module() is None:
        pytest.skip("needs faiss")
    return INDEXES[request.param](clustered(NUM_CLASSES, 33, 1))


@pytest.fixture(scope="module")
def queries_ND() -> Tensor:
    return clustered(60, 33, 2)


@pytest.mark.parametrize("num_queries", [0, 1, 16, 60])
@pytest.mark.parametrize("k", [1, 10])
def test_answers_have_exact_scores_in_order(index: Index, queries_ND: Tensor, num_queries: int, k: int) -> None:
    queries_ND = queries_ND[:num_queries]
    scores_Nk, ids_Nk = index.search(queries_ND, k)
    assert scores_Nk.shape == ids_Nk.shape == (num_queries, k)
    exact_Nk = (queries_ND.double() @ index.table_KD.double().T).gather(1, ids_Nk)
    torch.testing.assert_close(scores_Nk.double(), exact_Nk, rtol=0, atol=1e-6)
    assert (scores_Nk[:, 1:] <= scores_Nk[:, :-1]).all()
    assert all(len(set(row)) == k for row in ids_Nk.tolist())


def test_nearly_all_of_the_best_are_found(index: Index, queries_ND: Tensor) -> None:
    best_Nk = (queries_ND.double() @ index.table_KD.double().T).topk(10, dim=1).indices
    found_Nk = index.search(queries_ND, 10)[1]
    assert (found_Nk[:, :, None] == best_Nk[:, None, :]).any(dim=1).float().mean() > 0.9


def test_one_query_is_answered_as_in_a_batch(index: Index, queries_ND: Tensor) -> None:
    alone = [index.search(queries_ND[n : n + 1], 10) for n in range(len(queries_ND))]
    scores_Nk, ids_Nk = index.search(queries_ND, 10)
    assert torch.equal(ids_Nk, torch.cat([ids for _, ids in alone]))
    torch.testing.assert_close(scores_Nk, torch.cat([scores for scores, _ in alone]), rtol=0, atol=1e-6)


def test_equal_classes_come_by_id(index: Index, queries_ND: Tensor) -> None:
    table_KD = index.table_KD[:1_000].repeat(2, 1)
    twice = ApproximateIndex.build(table_KD, kind=index.kind) if isinstance(index, ApproximateIndex) else None
    for row in (twice or ExactIndex(table_KD)).search(queries_ND, 6)[1].tolist():
        twins = [(a, b) for a, b in pairwise(row) if a % 1_000 == b % 1_000]
        assert all(a < b for a, b in twins)


def test_training_gets_most_of_the_best(index: Index, queries_ND: Tensor) -> None:
    best_Nk = (queries_ND.double() @ index.table_KD.double().T).topk(10, dim=1).indices
    rough_NR = index.rough(queries_ND, 100)
    assert rough_NR.shape == (len(queries_ND), 100)
    assert ((rough_NR >= -1) & (rough_NR < NUM_CLASSES)).all()
    assert (rough_NR[:, :, None] == best_Nk[:, None, :]).any(dim=1).float().mean() > 0.5
    for row in rough_NR.tolist():
        found = [number for number in row if number >= 0]
        assert len(set(found)) == len(found)


def test_a_larger_table_has_the_new_classes_too(index: Index) -> None:
    new_CD = clustered(50, 33, 3)
    larger = index.of_larger(torch.cat([index.table_KD, new_CD]))
    assert torch.equal(larger.search(new_CD, 1)[1][:, 0], torch.arange(NUM_CLASSES, NUM_CLASSES + 50))
    assert int(index.search(new_CD, 5)[1].max()) < NUM_CLASSES, "the smaller one is as it was"


def test_many_threads_get_equal_answers(index: Index, queries_ND: Tensor) -> None:
    fresh = copy.copy(index)  # what is prepared on first use is not there yet

    def found(thread: int) -> Tensor:
        return fresh.search(queries_ND[:9] if thread % 2 else queries_ND, 10)[1][:9]

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(found, range(40)))
    wanted_Nk = index.search(queries_ND, 10)[1][:9]
    assert all(torch.equal(answer, wanted_Nk) for answer in answers)


def test_a_pickle_answers_the_same(index: Index, queries_ND: Tensor) -> None:
    index.search(queries_ND[:1], 1)
    again = pickle.loads(pickle.dumps(index))
    assert torch.equal(again.search(queries_ND, 10)[1], index.search(queries_ND, 10)[1])
