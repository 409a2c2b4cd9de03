"""Pools drawn on the device against the permutation in plain PyTorch.

Shapes: K classes, W places of the pool, D dimension, N queries.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from owlmine.kernels.exclusions import Exclusions
from owlmine.kernels.pool_rows import excluded_from_pool, gather_rows, pool_rows
from owlmine.mining.permutation import permuted
from tests.kernels.conftest import Fenced, Rounded


@pytest.mark.parametrize(
    ("num_classes", "width", "dim"),
    [(1, 1, 1), (5, 4, 8), (8, 8, 5), (33, 17, 33), (300, 41, 72), (1000, 7, 1025)],
)
@pytest.mark.parametrize("key", [0, (1 << 32) - 1])
def test_the_pool_is_the_beginning_of_the_permutation(
    num_classes: int, width: int, dim: int, key: int, fenced: Fenced
) -> None:
    classes = torch.randn(num_classes, dim, generator=torch.Generator().manual_seed(num_classes))
    ids, rows = pool_rows(fenced(classes), fenced(torch.tensor([key])), width=width, dtype=torch.float32)
    assert ids.dtype == torch.int64
    assert ids.tolist() == permuted(torch.arange(width), key=key, num_classes=num_classes).tolist()
    assert torch.equal(rows.cpu(), classes[ids.cpu()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_in_another_type(dtype: torch.dtype, fenced: Fenced, rounded: Rounded) -> None:
    classes = torch.randn(50, 24, generator=torch.Generator().manual_seed(1))
    ids, rows = pool_rows(fenced(classes), fenced(torch.tensor([77])), width=19, dtype=dtype)
    assert torch.equal(rows.cpu(), rounded(classes, dtype)[ids.cpu()])
    _, same = pool_rows(fenced(classes.to(dtype)), fenced(torch.tensor([77])), width=19, dtype=dtype)
    assert torch.equal(same.cpu(), classes.to(dtype)[ids.cpu()])


@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
def test_gathered_rows(id_dtype: torch.dtype, fenced: Fenced, rounded: Rounded) -> None:
    classes = torch.randn(30, 11, generator=torch.Generator().manual_seed(2))
    ids = torch.tensor([29, 0, 0, 7, 29, *range(20)], dtype=id_dtype)
    for dtype in (torch.float32, torch.bfloat16):
        got = gather_rows(fenced(classes), fenced(ids), dtype=dtype)
        assert torch.equal(got.cpu(), rounded(classes, dtype)[ids.long()])


@pytest.mark.parametrize(("num_classes", "width"), [(2, 1), (8, 8), (50, 16), (300, 299)])
def test_excluded_places_are_those_of_excluded_classes(num_classes: int, width: int, fenced: Fenced) -> None:
    generator = torch.Generator().manual_seed(num_classes)
    # No class, one twice, and more than a tile of them; -1 stands for nothing.
    lists = [[], [0, -1, 0], torch.randint(-1, num_classes, (21,), generator=generator).tolist()]
    offsets = torch.tensor([0, *(len(excluded) for excluded in lists)]).cumsum(0)
    rows = [2, 0, 1]
    ids = torch.tensor([i for excluded in lists for i in excluded])
    exclude = Exclusions(fenced(torch.tensor(rows)), fenced(offsets), fenced(ids), 21)
    key = (1 << 32) - 1 - num_classes
    pool = permuted(torch.arange(width), key=key, num_classes=num_classes).tolist()
    marks = excluded_from_pool(exclude, fenced(torch.tensor([key])), num_classes=num_classes, width=width)
    assert marks.dtype == torch.bool
    assert marks.tolist() == [[class_id in lists[row] for class_id in pool] for row in rows]


def test_every_class_excluded(fenced: Fenced) -> None:
    exclude = Exclusions.of_padded(fenced(torch.arange(40).reshape(1, 40)))
    marks = excluded_from_pool(exclude, fenced(torch.tensor([5])), num_classes=40, width=40)
    assert bool(marks.all())


def test_classes_past_32_bits(long_table: Tensor) -> None:
    ids = torch.tensor([len(long_table) - 1, 0], device=long_table.device)
    for given in (ids, ids.int()):
        rows = gather_rows(long_table, given, dtype=torch.float32)
        assert rows.unique(dim=1).tolist() == [[0.125], [0.0]]
