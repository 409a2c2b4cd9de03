"""Rows as bytes: how far numbers move, the same bits again, and sums and products against those of numbers.

Shapes: R rows, D dimension, N queries, E entries of all bags.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import embedding_bag

from owlmine.index import ExactIndex
from owlmine.index import exact as exact_index
from owlmine.mining import hardest
from owlmine.mining.coded_rows import (
    LARGEST_CODE,
    LEAST_CODED,
    CodedRows,
    compiled_dots,
    compiled_module,
    compiled_sums,
    first_rows,
    plain_dots,
    plain_sums,
)

IS_BUILT = compiled_module() is not None
_sums = st.sampled_from([compiled_sums, plain_sums] if IS_BUILT else [plain_sums])
_dots = st.sampled_from([compiled_dots, plain_dots] if IS_BUILT else [plain_dots])
needs_build = pytest.mark.skipif(not IS_BUILT, reason="the compiled part is missing")


def some_rows(seed: int, num_rows: int, dim: int, size: float = 1.0) -> Tensor:
    """Normal numbers of very different sizes from row to row; the first row is 0."""
    generator = torch.Generator().manual_seed(seed)
    sizes_R1 = size * torch.exp(4 * torch.randn(num_rows, 1, generator=generator))
    rows_RD = sizes_R1 * torch.randn(num_rows, dim, generator=generator)
    rows_RD[:1] = 0
    return rows_RD


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_rows=st.integers(0, 9),
    dim=st.integers(1, 70),
    size=st.sampled_from([1.0, 1e-25, 1e25]),
)
def test_numbers_move_by_half_a_scale_at_most_and_stay_from_then_on(
    seed: int, num_rows: int, dim: int, size: float
) -> None:
    rows_RD = some_rows(seed, num_rows, dim, size)
    coded = CodedRows.of(rows_RD)
    assert (coded.codes_RD.dtype, coded.shape, len(coded)) == (torch.int8, rows_RD.shape, num_rows)
    exact_RD = coded.codes_RD.double() * coded.scales_R.double()[:, None]
    # One part in 1,000 more, as a scale has 16 bits; smaller numbers than any code become 0.
    most_R1 = (0.501 * coded.scales_R[:, None]).clamp_min(LEAST_CODED)
    assert bool(((exact_RD - rows_RD.double()).abs() <= most_R1).all())
    assert torch.equal(coded.expanded().double(), exact_RD), "every product is exact in float32"
    largest_R = rows_RD.abs().amax(dim=1)
    torch.testing.assert_close(LARGEST_CODE * coded.scales_R, largest_R, rtol=2e-5, atol=LEAST_CODED)
    again = CodedRows.of(coded.expanded())
    assert torch.equal(again.codes_RD, coded.codes_RD)
    assert torch.equal(again.scales_R, coded.scales_R)
    loaded = CodedRows.from_tensors(coded.tensors())
    assert torch.equal(loaded.expanded(), coded.expanded())


def test_a_block_of_rows_is_coded_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_RD = some_rows(0, 9, 20)
    whole = CodedRows.of(rows_RD)
    monkeypatch.setattr("owlmine.mining.coded_rows._BLOCK_ROWS", 4)
    assert torch.equal(CodedRows.of(rows_RD).expanded(), whole.expanded())
    parts = CodedRows.joined([CodedRows.of(rows_RD[:3]), CodedRows.of(rows_RD[3:])])
    assert torch.equal(parts.expanded(), whole.expanded())
    assert torch.equal(whole[2:5], whole.expanded()[2:5])
    ids = torch.tensor([[8, 0], [3, 3]])
    assert torch.equal(whole[ids], whole.expanded()[ids])
    for count in (None, 0, 4):
        assert torch.equal(first_rows(whole, count)[:], first_rows(whole.expanded(), count)[:])


def test_numbers_too_small_for_a_scale_become_0_and_others_are_refused() -> None:
    coded = CodedRows.of(torch.tensor([[LEAST_CODED / 2, 0], [LEAST_CODED, -LEAST_CODED]]))
    assert coded.codes_RD.tolist() == [[0, 0], [127, -127]]
    assert coded.scales_R[0] == 0
    CodedRows.from_tensors(coded.tensors())
    for number in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(ValueError, match="not finite"):
            CodedRows.of(torch.tensor([[1.0, 0.0], [number, 1.0]]))


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("codes", torch.tensor([[127, 0], [-128, 127]], dtype=torch.int8), "largest code of a row is not 127"),
        ("codes", torch.tensor([[127, 0], [-126, 5]], dtype=torch.int8), "largest code of a row is not 127"),
        ("codes", torch.tensor([[127, 0], [0, 0]], dtype=torch.int8), "largest code of a row is not 127"),
        ("codes", torch.tensor([[127, 0]], dtype=torch.int8), "scales of the shape"),
        ("codes", torch.tensor([127, 0], dtype=torch.int8), "wanted int8"),
        ("codes", torch.tensor([[127.0, 0], [0, 127]]), "wanted int8"),
        ("scales", torch.tensor([1.0, 0.0]), "not 0 where the scale is 0"),
        ("scales", torch.tensor([1.0, 0.1]), "16 bits"),
        ("scales", torch.tensor([1.0, -1.0]), "16 bits"),
        ("scales", torch.tensor([1.0, torch.nan]), "16 bits"),
        ("scales", torch.tensor([1.0, torch.inf]), "16 bits"),
        ("scales", torch.tensor([1.0, 2.0**127]), "16 bits"),
        ("scales", torch.tensor([1.0, 2.0**-120]), "16 bits"),
        ("scales", torch.tensor([1.0, 1.0], dtype=torch.float64), "wanted int8"),
        ("scales", torch.tensor([1.0]), "scales of the shape"),
    ],
)
def test_a_file_that_cannot_be_is_refused(name: str, changed: Tensor, message: str) -> None:
    good = {"codes": torch.tensor([[127, 0], [-5, 127]], dtype=torch.int8), "scales": torch.tensor([1.0, 0.5])}
    CodedRows.from_tensors(good)
    with pytest.raises(ValueError, match=message):
        CodedRows.from_tensors(good | {name: changed})


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(0, 5), max_size=9),
    num_rows=st.integers(1, 9),
    dim=st.integers(1, 70),
    sums=_sums,
)
def test_sums_are_those_of_numbers(seed: int, counts: list[int], num_rows: int, dim: int, sums: Callable) -> None:
    rows = CodedRows.of(torch.from_numpy(np.random.default_rng(seed).normal(size=(num_rows, dim)).astype("f4")))
    generator = torch.Generator().manual_seed(seed)
    ids_E = torch.randint(0, num_rows, (sum(counts),), generator=generator)
    values_E = torch.randn(sum(counts), generator=generator)
    starts_N = torch.tensor([sum(counts[:n]) for n in range(len(counts))], dtype=torch.int64)
    numbers, values = rows.expanded().double(), values_E.double()
    wanted = embedding_bag(ids_E, numbers, starts_N, mode="sum", per_sample_weights=values)
    torch.testing.assert_close(sums(rows, ids_E, starts_N, values_E).double(), wanted, rtol=0, atol=5e-6)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_queries=st.integers(0, 6),
    per_query=st.integers(0, 5),
    dim=st.integers(1, 100),
    dots=_dots,
)
def test_dots_are_those_of_numbers(seed: int, num_queries: int, per_query: int, dim: int, dots: Callable) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = CodedRows.of(torch.randn(8, dim, generator=generator))
    queries_ND = torch.randn(num_queries, dim, generator=generator)
    ids_NT = torch.randint(0, 8, (num_queries, per_query), generator=generator)
    wanted = torch.einsum("nd,ntd->nt", queries_ND.double(), rows.expanded().double()[ids_NT])
    torch.testing.assert_close(dots(rows, queries_ND, ids_NT).double(), wanted, rtol=0, atol=3e-5)


@needs_build
def test_calls_that_do_not_fit_are_refused() -> None:
    extension = compiled_module()
    assert extension is not None
    codes, scales, ids = np.ones((3, 4), np.int8), np.ones(3, np.float32), np.array([0, 2])
    ones, sums = np.ones(2, np.float32), np.zeros((2, 4), np.float32)
    starts, dots = np.array([0, 1]), np.zeros((2, 1), np.float32)
    for changed in (
        {0: codes[:2]},
        {2: 0},
        {2: 3},
        {3: np.array([0, 3])},
        {3: np.array([-1, 0])},
        {4: np.array([1, 1])},
        {4: np.array([0, 3])},
        {4: np.array([0, -1])},
        {5: ones[:1]},
        {6: sums[:1]},
    ):
        given = dict(enumerate((codes, scales, 4, ids, starts, ones, sums, 1)))
        extension.sum_rows(*given.values())
        with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
            extension.sum_rows(*(given | changed).values())
    for changed in ({1: scales[:2]}, {2: -1}, {3: sums[:1, :3]}, {4: np.array([0, 3])}, {4: ids[:1]}, {5: dots[:1]}):
        given = dict(enumerate((codes, scales, 4, sums, ids, dots, 1)))
        extension.dot_rows(*given.values())
        with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
            extension.dot_rows(*(given | changed).values())


@pytest.mark.parametrize("suits_bytes", [True, False])
@pytest.mark.parametrize("num_queries", [0, 1, 20, 200])
@pytest.mark.parametrize("dim", [7, 48])
def test_search_is_exact(monkeypatch: pytest.MonkeyPatch, suits_bytes: bool, num_queries: int, dim: int) -> None:
    """Whether bytes choose first, or rows are expanded tile by tile; rows have lengths of their own."""
    if not suits_bytes:
        monkeypatch.setattr(exact_index, "cpu_multiplies_int8", lambda: False)
    monkeypatch.setattr("owlmine.mining.coded_rows._TILE_NUMBERS", 1000)
    generator = torch.Generator().manual_seed(dim)
    rows_KD = torch.randn(900, dim, generator=generator) * torch.rand(900, 1, generator=generator)
    rows_KD[17] = rows_KD[16]
    queries_ND = torch.randn(num_queries, dim, generator=generator)
    coded = CodedRows.of(rows_KD)
    scores, ids = (queries_ND.double() @ coded.expanded().double().T).sort(dim=1, descending=True, stable=True)
    scores, ids = scores[:, :20], ids[:, :20]
    for found, found_ids in (ExactIndex(coded).search(queries_ND, 20), hardest(queries_ND, coded, 20)):
        torch.testing.assert_close(found.double(), scores, rtol=0, atol=2e-5)
        assert float((found_ids == ids).float().mean() if num_queries else 1) > 0.995
    rough = ExactIndex(coded).rough(queries_ND, 20)
    overlap = [len(set(r.tolist()) & set(i.tolist())) / 20 for r, i in zip(rough, ids, strict=True)]
    assert not overlap or sum(overlap) / len(overlap) > 0.9
