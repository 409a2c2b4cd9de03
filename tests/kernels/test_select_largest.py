"""The places of the largest values against a stable sort.

Shapes: N rows, M values of each, C blocks of G values.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.select_largest import MAX_WIDTH, select_largest
from tests.kernels.conftest import Fenced

INF = torch.inf
EXTREMES = [INF, -INF, 3.4e38, -3.4e38, 1e-45, -1e-45, 0.0, 1.0, -1.0, 1.0000001]


def places_by_sort(values: list[float], allowed: list[int], wanted: int, width: int) -> list[int]:
    """Ascending places of the ``wanted`` largest among the allowed places, the first of equal ones; then -1."""
    best = sorted(allowed, key=lambda place: -values[place])[:wanted]
    return sorted(best) + [-1] * (width - len(best))


def varied_rows(width: int) -> Tensor:
    """Distinct, few different, equal, -inf in places and throughout, extreme."""
    generator = torch.Generator().manual_seed(width)
    rows = torch.randn(8, width, generator=generator)
    rows[1] = (rows[1] * 1.5).round() + 0.0
    rows[2] = -2.5
    rows[3, torch.rand(width, generator=generator) < 0.6] = -INF
    rows[4] = -INF
    rows[5] = torch.tensor(EXTREMES)[torch.randint(len(EXTREMES), (width,), generator=generator)]
    rows[6] = rows[6].abs() + 1
    rows[7] = -rows[7].abs() * 1e-30
    return rows


@pytest.mark.parametrize("width", [1, 2, 3, 9])
def test_every_count_against_a_stable_sort(width: int, fenced: Fenced) -> None:
    values = varied_rows(width)
    for count in range(1, width + 1):
        got = select_largest(fenced(values), count)
        assert got.dtype == torch.int32
        order = values.sort(dim=1, descending=True, stable=True).indices[:, :count]
        assert torch.equal(got.cpu().long(), order.sort(dim=1).values)


@pytest.mark.parametrize(("width", "count"), [(64, 63), (257, 128), (1000, 1), (1000, 7)])
def test_wide_rows(width: int, count: int, fenced: Fenced) -> None:
    values = varied_rows(width)
    order = values.sort(dim=1, descending=True, stable=True).indices[:, :count]
    assert torch.equal(select_largest(fenced(values), count).cpu().long(), order.sort(dim=1).values)


def test_as_wide_as_can_be(fenced: Fenced) -> None:
    values = torch.randn(1, MAX_WIDTH, generator=torch.Generator().manual_seed(0))
    assert torch.equal(select_largest(fenced(values), 50).cpu().long()[0], values[0].topk(50).indices.sort().values)
    with pytest.raises(AssertionError):
        select_largest(torch.zeros(1, MAX_WIDTH + 1), 1)


@pytest.mark.parametrize("given", [torch.zeros(2, 3, dtype=torch.float64), torch.zeros(3, 2).T, torch.zeros(2, 0)])
def test_other_inputs_are_refused(given: Tensor) -> None:
    with pytest.raises(AssertionError):
        select_largest(given, 1)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(EXTREMES) | st.floats(width=32, allow_nan=False), min_size=1, max_size=20), st.data())
def test_any_values(fenced: Fenced, values: list[float], data: st.DataObject) -> None:
    values = [value + 0.0 for value in values]
    count = data.draw(st.integers(1, len(values)))
    got = select_largest(fenced(torch.tensor([values], dtype=torch.float32)), count)
    assert got.tolist() == [places_by_sort(values, list(range(len(values))), count, count)]


def test_rows_that_exclude_get_more(fenced: Fenced) -> None:
    values = varied_rows(11)
    offsets = torch.tensor([0, 3, 3, 4, 14])
    rows = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    for k in (1, 4, 11):
        exclude = Exclusions(fenced(rows), fenced(offsets), fenced(torch.zeros(14, dtype=torch.int64)), 10)
        got = select_largest(fenced(values), k, exclude=exclude).tolist()
        for row, places in enumerate(got):
            wanted = min(k + int(offsets[rows[row] + 1] - offsets[rows[row]]), 11)
            assert places == places_by_sort(values[row].tolist(), list(range(11)), wanted, min(k + 10, 11))


@pytest.mark.parametrize(("width", "block", "num_chosen"), [(37, 4, 5), (64, 16, 1), (300, 8, 30)])
def test_chosen_blocks_alone(width: int, block: int, num_chosen: int, fenced: Fenced) -> None:
    values = varied_rows(width)
    num_blocks = -(-width // block)
    generator = torch.Generator().manual_seed(block)
    blocks = torch.full((8, num_chosen), -1, dtype=torch.int32)
    for row in range(8):
        # None at all, then more and more; the last block, which may be short, is among them.
        number = min(row, num_chosen)
        others = torch.randperm(num_blocks - 1, generator=generator)[: max(number - 1, 0)]
        chosen = torch.cat([others.sort().values, torch.tensor([num_blocks - 1])])[:number]
        blocks[row, : len(chosen)] = chosen
    for k in (1, block + 1, num_chosen * block):
        got = select_largest(fenced(values), k, blocks_NC=fenced(blocks), block=block).tolist()
        for row, places in enumerate(got):
            allowed = [p for p in range(width) if p // block in set(blocks[row].tolist())]
            assert places == places_by_sort(values[row].tolist(), allowed, k, min(k, num_chosen * block))
