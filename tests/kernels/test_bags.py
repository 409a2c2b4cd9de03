"""Sums over bags and their update against loops in float64.

Shapes: F rows of the table, D dimension, N points.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from owlmine.mining.kernels.bags import DeviceRows, add_to_bags, sum_bags
from tests.kernels.conftest import Fenced

NUM_FEATURES = 40
# More than a tile, exactly one, none, one, one with an id three times over.
COUNTS = [37, 16, 0, 1, 5]
# Not all rows, not in order, and one of them twice.
POINTS = [4, 0, 2, 4, 1]


def some_rows(*, with_values: bool, id_dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(9)
    ids = torch.randint(NUM_FEATURES, (sum(COUNTS),), generator=generator).to(id_dtype)
    ids[-3:] = 7
    values = torch.randn(len(ids), generator=generator) if with_values else None
    return torch.tensor([0, *COUNTS]).cumsum(0), ids, values


def entries_of(point: int, offsets: Tensor, ids: Tensor, values: Tensor | None) -> list[tuple[int, float]]:
    places = range(int(offsets[point]), int(offsets[point + 1]))
    return [(int(ids[p]), 1.0 if values is None else float(values[p])) for p in places]


def on_device(offsets: Tensor, ids: Tensor, values: Tensor | None, fenced: Fenced) -> DeviceRows:
    return DeviceRows(fenced(offsets), fenced(ids), None if values is None else fenced(values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [1, 5, 64, 600])
@pytest.mark.parametrize(("with_values", "relu"), [(True, False), (True, True), (False, False), (False, True)])
def test_sums_against_a_loop(dim: int, dtype: torch.dtype, with_values: bool, relu: bool, fenced: Fenced) -> None:
    table = torch.randn(NUM_FEATURES, dim, generator=torch.Generator().manual_seed(dim)).to(dtype)
    rows = some_rows(with_values=with_values, id_dtype=torch.int32 if dim == 5 else torch.int64)
    got = sum_bags(fenced(table), on_device(*rows, fenced), fenced(torch.tensor(POINTS)), relu=relu)
    assert got.dtype == torch.float32
    for number, point in enumerate(POINTS):
        total, size = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
        for feature, value in entries_of(point, *rows):
            total += value * table[feature].double()
            size += (value * table[feature].double()).abs()
        truth = total.clamp_min(0) if relu else total
        assert bool(((got[number].cpu().double() - truth).abs() <= size * (COUNTS[point] + 2) * 2.0**-24).all())


# Not one dimension: the interpreter cannot add a column that is a broadcast number.
@pytest.mark.parametrize("dim", [2, 5, 600])
@pytest.mark.parametrize("with_values", [False, True])
def test_updates_against_a_loop(dim: int, with_values: bool, fenced: Fenced) -> None:
    generator = torch.Generator().manual_seed(dim)
    table = torch.randn(NUM_FEATURES, dim, generator=generator)
    steps = torch.randn(len(POINTS), dim, generator=generator)
    rows = some_rows(with_values=with_values, id_dtype=torch.int32 if dim == 5 else torch.int64)
    changed = fenced(table)
    points, factor = fenced(torch.tensor(POINTS)), fenced(torch.tensor([-0.25]))
    add_to_bags(changed, on_device(*rows, fenced), points, fenced(steps), factor)
    truth, size = table.double(), table.double().abs()
    additions = [0] * NUM_FEATURES
    for number, point in enumerate(POINTS):
        for feature, value in entries_of(point, *rows):
            truth[feature] += -0.25 * value * steps[number].double()
            size[feature] += (0.25 * value * steps[number].double()).abs()
            additions[feature] += 1
    slack = size * (torch.tensor(additions)[:, None] + 2) * 2.0**-24
    assert bool(((changed.cpu().double() - truth).abs() <= slack).all())
    untouched = torch.tensor(additions) == 0
    assert bool(untouched.any())
    assert torch.equal(changed.cpu()[untouched], table[untouched])


def test_a_table_of_points_without_entries_stays(fenced: Fenced) -> None:
    table = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    nothing = DeviceRows(fenced(torch.zeros(3, dtype=torch.int64)), fenced(torch.zeros(0, dtype=torch.int64)), None)
    assert len(nothing) == 2
    points = fenced(torch.tensor([1, 0, 1]))
    assert bool((sum_bags(fenced(table), nothing, points, relu=False) == 0).all())
    changed = fenced(table)
    add_to_bags(changed, nothing, points, fenced(torch.ones(3, 4)), fenced(torch.tensor([1.0])))
    assert torch.equal(changed.cpu(), table)
