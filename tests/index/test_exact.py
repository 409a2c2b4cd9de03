"""Exact search by way of bytes: the answer is that of float32, whatever rounding to bytes does.

Shapes: N queries, K classes, D dimension, k best classes.
"""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.index import exact
from owlmine.index.exact import ByteTable, ExactIndex, rescored
from owlmine.mining import hardest
from owlmine.mining.int8 import cpu_multiplies_int8

pytestmark = pytest.mark.skipif(not cpu_multiplies_int8(), reason="this CPU has no products of bytes in 32 bits")


def drawn(num_rows: int, dim: int, seed: int) -> Tensor:
    return torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed))


def assert_as_in_float32(queries_ND: Tensor, table_KD: Tensor, k: int) -> None:
    """The same scores within rounding, and the same classes wherever scores are further apart than that."""
    found_Nk, ids_Nk = ByteTable(table_KD).search(queries_ND, table_KD, k)
    wanted_Nk, wanted_ids_Nk = hardest(queries_ND, table_KD, k)
    slack_N1 = 1e-6 * queries_ND.norm(dim=1, keepdim=True) * table_KD.norm(dim=1).max() + 1e-30
    assert found_Nk.shape == ids_Nk.shape == (len(queries_ND), k)
    assert ((found_Nk - wanted_Nk).abs() <= slack_N1).all()
    own_Nk = (queries_ND[:, None, :] * table_KD[ids_Nk]).sum(dim=2)
    assert ((own_Nk - found_Nk).abs() <= slack_N1).all(), "the score is that of the class"
    assert all(len(set(row)) == k for row in ids_Nk.tolist())
    # With scores further apart than rounding there is one order.
    all_NK = (queries_ND @ table_KD.T).sort(dim=1, descending=True).values[:, : k + 1]
    if all_NK.shape[1] > 1:
        is_clear_N = ((all_NK[:, :-1] - all_NK[:, 1:]) > 4 * slack_N1).all(dim=1)
        assert torch.equal(ids_Nk[is_clear_N], wanted_ids_Nk[is_clear_N])


@given(
    num_queries=st.integers(0, 40),
    num_classes=st.integers(1, 700),
    dim=st.integers(16, 70),
    share=st.floats(0.01, 1),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_answers_are_those_of_float32(num_queries: int, num_classes: int, dim: int, share: float, seed: int) -> None:
    queries_ND, table_KD = drawn(num_queries, dim, seed), drawn(num_classes, dim, seed + 1)
    assert_as_in_float32(queries_ND, table_KD, max(int(share * num_classes), 1))


@pytest.mark.parametrize("outlier", [1e3, 1e4, 1e6])
def test_bytes_that_say_nothing_do_not_harm(outlier: float) -> None:
    """One large number makes the unit so coarse that nearly all codes are 0."""
    table_KD = drawn(3_000, 32, 0)
    table_KD[17, 3] = outlier
    assert (exact._coded(table_KD, one_unit=True)[0] != 0).float().mean() < 0.6
    assert_as_in_float32(drawn(20, 32, 1), table_KD, 5)


def test_close_scores_are_searched_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """What bytes cannot tell apart is not proved; what they can is not searched again."""
    searched: list[int] = []

    def listening(queries_ND: Tensor, table_KD: Tensor, k: int) -> tuple[Tensor, Tensor]:
        searched.append(len(queries_ND))
        return hardest(queries_ND, table_KD, k)

    monkeypatch.setattr(exact, "hardest", listening)
    apart_KD = torch.zeros(2_000, 32)
    apart_KD[:, 0] = torch.linspace(1, 10, 2_000)
    query_1D = torch.zeros(1, 32)
    query_1D[0, 0] = 1
    _, ids_1k = ByteTable(apart_KD).search(query_1D, apart_KD, 3)
    assert ids_1k.tolist() == [[1_999, 1_998, 1_997]]
    assert searched == []
    # A hundred classes within one code of each other: which are chosen is chance.
    for spread in (0.01, 0.8):
        searched.clear()
        close_KD = torch.full((2_000, 32), 1.27)
        close_KD[:, 1] = 0.64 + 0.01 * spread * (torch.rand(2_000, generator=torch.Generator().manual_seed(2)) - 0.5)
        assert (exact._coded(close_KD, one_unit=True)[0] == close_KD.mul(100).round()).all()
        assert_as_in_float32(torch.ones(3, 32), close_KD, 3)
        assert searched == [3]


@pytest.mark.parametrize("k", [1, 4, 30])
def test_equal_classes_come_by_id(k: int) -> None:
    table_KD = drawn(30, 16, 0).repeat_interleave(40, dim=0)
    _, ids_Nk = ByteTable(table_KD).search(drawn(5, 16, 1), table_KD, k)
    _, wanted_Nk = hardest(drawn(5, 16, 1), table_KD, k)
    assert torch.equal(ids_Nk, wanted_Nk)


def test_tiles_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    queries_ND, table_KD = drawn(50, 24, 0), drawn(1_000, 24, 1)
    whole = ByteTable(table_KD).search(queries_ND, table_KD, 7)
    monkeypatch.setattr(exact, "_MOST_CLASSES", 64)
    monkeypatch.setattr(exact, "_MOST_PRODUCTS", 64)
    monkeypatch.setattr(exact, "_MOST_QUERIES", 8)
    monkeypatch.setattr(exact, "_BLOCK_NUMBERS", 2_000)
    tiled = ByteTable(table_KD).search(queries_ND, table_KD, 7)
    assert torch.equal(whole[1], tiled[1])
    torch.testing.assert_close(whole[0], tiled[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-20, 1e12])
def test_very_small_and_very_large_numbers(size: float) -> None:
    assert_as_in_float32(drawn(4, 16, 0), size * drawn(500, 16, 1), 9)
    assert_as_in_float32(size * drawn(4, 16, 0), drawn(500, 16, 1), 9)


def test_queries_that_are_not_numbers_are_answered_as_in_float32() -> None:
    queries_ND, table_KD = drawn(3, 16, 0), drawn(500, 16, 1)
    queries_ND[1, 2] = torch.nan
    scores_Nk, ids_Nk = ByteTable(table_KD).search(queries_ND, table_KD, 4)
    wanted_Nk, wanted_ids_Nk = hardest(queries_ND, table_KD, 4)
    assert scores_Nk[1].isnan().all()
    assert torch.equal(ids_Nk[[0, 2]], wanted_ids_Nk[[0, 2]])
    torch.testing.assert_close(scores_Nk[[0, 2]], wanted_Nk[[0, 2]])


def test_many_threads_get_equal_answers() -> None:
    queries_ND, table_KD = drawn(16, 32, 0), drawn(4_000, 32, 1)
    table, found = ByteTable(table_KD), dict[int, list[list[int]]]()
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: table.search(queries_ND, table_KD, 5)[1].tolist()}))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(ids == found[0] for ids in found.values())


def test_only_few_queries_of_a_large_table_go_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is searched in float32, without a table of bytes."""
    asked: list[int] = []

    def listening(queries_ND: Tensor, table_KD: Tensor, k: int) -> tuple[Tensor, Tensor]:
        asked.append(len(queries_ND))
        return hardest(queries_ND, table_KD, k)

    monkeypatch.setattr(exact, "hardest", listening)
    large = drawn(exact._LEAST_NUMBERS // 16, 16, 0)
    for table_KD, num_queries, in_float in (
        (large, 16, False),
        (large, 17, True),
        (large[:-1], 16, True),
        (large.to(torch.bfloat16), 16, True),
        (drawn(exact._LEAST_NUMBERS // 4, 4, 0), 16, True),
    ):
        asked.clear()
        index, queries_ND = ExactIndex(table_KD), drawn(num_queries, table_KD.shape[1], 1)
        scores_Nk, ids_Nk = index.search(queries_ND, 3)
        assert (asked == [num_queries]) == in_float
        assert (index._bytes is None) == in_float
        torch.testing.assert_close(scores_Nk.float(), hardest(queries_ND, table_KD, 3)[0].float())
        assert torch.equal(ids_Nk, hardest(queries_ND, table_KD, 3)[1])


def test_empty_places_are_last() -> None:
    queries_ND, table_KD = drawn(2, 16, 0), drawn(9, 16, 1)
    scores_Nk, ids_Nk = rescored(queries_ND, table_KD, torch.tensor([[3, -1, 0], [-1, -1, -1]]), 3)
    assert ids_Nk[0, 2] == -1
    assert sorted(ids_Nk[0, :2].tolist()) == [0, 3]
    assert (ids_Nk[1] == -1).all()
    assert scores_Nk.isinf().tolist() == [[False, False, True], [True, True, True]]
