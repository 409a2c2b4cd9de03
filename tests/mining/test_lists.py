"""Lists of the best classes against all products of the same bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.index.exact import ByteTable
from owlmine.mining import lists
from owlmine.mining.coded_rows import CodedRows
from owlmine.mining.lists import ByteLists, compiled_module

extension = compiled_module()
needs_build = pytest.mark.skipif(
    extension is None or not extension.multiplies_bytes(),
    reason="the extension is not built (no C compiler at install time), or the CPU has no AVX-512 with VNNI",
)


def coded(queries_ND: Tensor) -> NDArray[np.float32]:
    """As the extension rounds them: 127 is the largest number of a query, halves go away from 0."""
    queries = queries_ND.numpy()
    largest = np.abs(queries).max(axis=1, keepdims=True)
    scaled = queries * np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, 1), 0)
    codes: NDArray[np.float32] = np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.float32)
    return codes


def table(num_classes: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-127, 128, (num_classes, dim), generator=generator, dtype=torch.int8)
    return codes, torch.rand(num_classes, generator=generator) + 0.5


@needs_build
@pytest.mark.parametrize(
    ("num_queries", "num_classes", "dim", "wanted"),
    [(1, 1, 4, 1), (3, 70, 8, 70), (65, 64, 16, 5), (130, 3001, 20, 100), (7, 5000, 256, 1), (5, 4000, 12, 1000)],
)
def test_lists_have_the_highest_products(num_queries: int, num_classes: int, dim: int, wanted: int) -> None:
    codes, scales = table(num_classes, dim)
    queries = torch.randn(num_queries, dim, generator=torch.Generator().manual_seed(1))
    found = ByteLists(codes, scales).best(queries, wanted)
    assert found is not None
    scores = torch.from_numpy(coded(queries) @ codes.numpy().T.astype(np.float32)) * scales
    assert all(len(set(row)) == wanted for row in found.tolist())
    # Classes with equal scores are as good as each other.
    own, highest = scores.gather(1, found).sort(dim=1).values, scores.topk(wanted, dim=1).values.sort(dim=1).values
    assert torch.equal(own, highest)


@needs_build
@pytest.mark.parametrize("order", ["rising", "equal", "two values"])
def test_scores_that_rise_or_tie(order: str) -> None:
    """Every class passes the bar, or none does."""
    num_classes, wanted = 2000, 30
    codes = torch.ones(num_classes, 4, dtype=torch.int8)
    scales = {
        "rising": torch.arange(1.0, num_classes + 1),
        "equal": torch.ones(num_classes),
        "two values": 1.0 + (torch.arange(num_classes) % 100 == 7),
    }[order]
    found = ByteLists(codes, scales).best(torch.ones(3, 4), wanted)
    assert found is not None
    for row in found.tolist():
        assert len(set(row)) == wanted
        if order == "rising":
            assert sorted(row) == list(range(num_classes - wanted, num_classes))
        if order == "two values":
            assert {id for id in row if id % 100 == 7} == {100 * i + 7 for i in range(20)}
    assert ByteLists(codes, scales).best(torch.zeros(1, 4), wanted) is not None


@needs_build
def test_the_number_of_threads_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, scales = table(3000, 24)
    queries, outcomes = torch.randn(300, 24, generator=torch.Generator().manual_seed(2)), []
    for threads in (1, 2, 3):
        monkeypatch.setattr(lists.torch, "get_num_threads", lambda threads=threads: threads)
        outcomes.append(ByteLists(codes, scales).best(queries, 40))
    assert all(torch.equal(outcome, outcomes[0]) for outcome in outcomes)


@needs_build
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_queries_that_are_not_numbers_are_left_to_others(bad: float) -> None:
    codes, scales = table(500, 16)
    queries = torch.ones(2, 16)
    queries[1, 3] = bad
    assert ByteLists(codes, scales).best(queries, 5) is None
    rows = CodedRows.of(torch.randn(500, 16))
    assert ByteTable(rows).rough(queries, 5).shape == (2, 5)


@needs_build
def test_buffers_that_do_not_fit_are_refused() -> None:
    assert extension is not None
    codes, scales = table(100, 16)
    tiles, tile_scales, ids = np.zeros((128, 16), np.uint8), np.zeros(128, np.float32), np.zeros((2, 5), np.int64)
    queries = np.ones((2, 16), np.float32)
    good = (queries, tiles, tile_scales, 100, 16, ids, 1)
    assert extension.best(*good)
    for place, wrong in (
        (1, tiles[:100]),
        (2, tile_scales[:127]),
        (3, 200),
        (4, 18),
        (5, np.zeros((2, 101), np.int64)),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            extension.best(*good[:place], wrong, *good[place + 1 :])
    with pytest.raises(ValueError, match="does not fit"):
        extension.pack(codes.numpy(), scales.numpy(), 101, 16, tiles, tile_scales, 1)


@needs_build
def test_what_does_not_suit() -> None:
    codes, _ = table(100, 16)
    assert ByteLists.suits(codes, 100)
    assert not ByteLists.suits(codes, 101)
    assert not ByteLists.suits(codes[:, :15], 10)
    assert not ByteLists.suits(codes.float(), 10)
