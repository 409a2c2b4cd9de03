"""The approximate index: exact scores, nearly all of the best classes, and bytes that hold it whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.errors import OwlmineError
from owlmine.index import approximate
from owlmine.index.approximate import KINDS, LEAST_CLASSES, ApproximateIndex, check_version
from owlmine.mining import hardest

from .clusters import clustered

faiss = pytest.importorskip("faiss")

NUM_CLASSES, DIM = 4_000, 33


@pytest.fixture(scope="module")
def table_KD() -> Tensor:
    return clustered(NUM_CLASSES, DIM, 1)


@pytest.fixture(scope="module")
def queries_ND() -> Tensor:
    return clustered(100, DIM, 2)


@pytest.fixture(scope="module", params=list(KINDS))
def index(request: pytest.FixtureRequest, table_KD: Tensor) -> ApproximateIndex:
    return ApproximateIndex.build(table_KD, kind=request.param)


@pytest.fixture(scope="module")
def groups(table_KD: Tensor) -> ApproximateIndex:
    return ApproximateIndex.build(table_KD)


def test_nearly_all_of_the_best_are_found(index: ApproximateIndex, queries_ND: Tensor, table_KD: Tensor) -> None:
    exact_Nk = hardest(queries_ND, table_KD, 10)[1]
    found_Nk = index.search(queries_ND, 10)[1]
    rough_NR = index.rough(queries_ND, 100)
    recall = (found_Nk[:, :, None] == exact_Nk[:, None, :]).any(dim=1).float().mean()
    rough_recall = (rough_NR[:, :, None] == exact_Nk[:, None, :]).any(dim=1).float().mean()
    assert recall > 0.9, "0.97 on the CPU that this was measured on"
    assert 0.2 < rough_recall <= recall


def test_one_query_is_answered_as_in_a_batch(index: ApproximateIndex, queries_ND: Tensor, table_KD: Tensor) -> None:
    together = index.search(queries_ND, 10)[1]
    alone = torch.cat([index.search(queries_ND[n : n + 1], 10)[1] for n in range(len(queries_ND))])
    assert torch.equal(together, alone)


def test_equal_scores_come_by_smaller_id(queries_ND: Tensor, table_KD: Tensor) -> None:
    twice_KD = torch.cat([table_KD[:1000], table_KD[:1000]])
    ids_Nk = ApproximateIndex.build(twice_KD).search(queries_ND, 6)[1]
    for row in ids_Nk.tolist():
        for first, second in pairwise(row):
            if second % 1000 == first % 1000:
                assert first < second


def test_lists_are_full_even_if_the_groups_searched_are_not(
    queries_ND: Tensor, table_KD: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = ApproximateIndex.build(table_KD)
    monkeypatch.setattr(approximate, "_PROBED", 0.1)
    monkeypatch.setattr(approximate, "_MOST_ANSWERS", NUM_CLASSES)
    scores_Nk, ids_Nk = index.search(queries_ND[:5], 500)
    wanted_Nk, wanted_ids_Nk = hardest(queries_ND[:5], table_KD, 500)
    assert torch.equal(ids_Nk, wanted_ids_Nk)
    torch.testing.assert_close(scores_Nk, wanted_Nk)
    assert (index.rough(queries_ND[:5], 500) < 0).any(), "training has empty places instead"


def test_long_lists_are_exact(index: ApproximateIndex, queries_ND: Tensor, table_KD: Tensor) -> None:
    ids_Nk = index.search(queries_ND[:5], 2_000)[1]
    assert torch.equal(ids_Nk, hardest(queries_ND[:5], table_KD, 2_000)[1])


def test_threads_of_pytorch_stay_as_they_are(index: ApproximateIndex, queries_ND: Tensor) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for rows in (slice(0, 1), slice(0, 100)):
            index.search(queries_ND[rows], 5)
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_the_same_bits_for_the_same_seed(table_KD: Tensor, groups: ApproximateIndex) -> None:
    assert groups.kind == "ivf"
    assert np.array_equal(ApproximateIndex.build(table_KD).to_bytes(), groups.to_bytes())
    assert not np.array_equal(ApproximateIndex.build(table_KD, seed=1).to_bytes(), groups.to_bytes())


def test_an_unknown_kind_is_refused(table_KD: Tensor) -> None:
    with pytest.raises(OwlmineError, match="the kind of index is 'flat'; wanted ivf or hnsw"):
        ApproximateIndex.build(table_KD, kind="flat")


def test_bytes_hold_the_whole_index(index: ApproximateIndex, queries_ND: Tensor, table_KD: Tensor) -> None:
    again = ApproximateIndex.from_bytes(index.to_bytes(), table_KD)
    assert torch.equal(again.search(queries_ND, 10)[1], index.search(queries_ND, 10)[1])
    assert again.to_dict() == index.to_dict()


@pytest.mark.parametrize(
    ("num_classes", "dim", "wanted"),
    [
        (NUM_CLASSES + 1, DIM, {"ivf": "4001 of 34", "hnsw": "4001 of 33"}),
        (NUM_CLASSES, DIM + 2, {"ivf": "4000 of 36", "hnsw": "4000 of 35"}),
    ],
)
def test_an_index_of_another_table_is_refused(
    index: ApproximateIndex, num_classes: int, dim: int, wanted: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=f"^4000 classes of .* dimensions; wanted {wanted[index.kind]}$"):
        ApproximateIndex.from_bytes(index.to_bytes(), torch.zeros(num_classes, dim))


def test_other_bytes_are_refused(index: ApproximateIndex, table_KD: Tensor) -> None:
    code = index.to_bytes()
    for damaged in (code[:0], code[:7], code[: len(code) // 2], np.zeros(100, np.uint8)):
        with pytest.raises(ValueError, match="faiss cannot read it"):
            ApproximateIndex.from_bytes(damaged, table_KD)
    flat = faiss.IndexFlatIP(DIM)
    flat.add(table_KD.numpy())
    with pytest.raises(ValueError, match="a IndexFlatIP; wanted an IndexIVFPQFastScan or an IndexHNSWSQ"):
        ApproximateIndex.from_bytes(faiss.serialize_index(flat), table_KD)


def test_another_version_is_refused(index: ApproximateIndex) -> None:
    check_version(index.to_dict())
    with pytest.raises(ValueError, match=r"built by faiss 0\.1; wanted"):
        check_version(index.to_dict() | {"faiss": "0.1"})


def test_appended_classes_are_found(index: ApproximateIndex, table_KD: Tensor) -> None:
    new_CD = clustered(50, DIM, 3)
    larger = index.of_larger(torch.cat([table_KD, new_CD]))
    assert (larger.num_classes, index.num_classes) == (NUM_CLASSES + 50, NUM_CLASSES)
    best_C = larger.search(new_CD, 1)[1][:, 0]
    assert torch.equal(best_C, torch.arange(NUM_CLASSES, NUM_CLASSES + 50))


def test_a_small_table_needs_none() -> None:
    with pytest.raises(OwlmineError, match="an index of 999 classes; wanted 1,000 or more"):
        ApproximateIndex.build(clustered(LEAST_CLASSES - 1, 8, 1))


def test_without_faiss_it_says_what_to_install(table_KD: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "faiss_module", lambda: None)
    with pytest.raises(OwlmineError, match=r"an index needs faiss; install it with: pip install '\.\[index\]'"):
        ApproximateIndex.build(table_KD)
