"""Pools drawn on the device against the permutation in plain PyTorch.

Shapes: K classes, W places of the pool, D dimension, N queries.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from owlmine.mining.distinct import permuted
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.pool_rows import gather_rows, left_out_of_pool, pool_rows
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


@pytest.mark.parametrize(("num_classes", "width"), [(2, 2), (8, 8), (50, 16), (300, 299)])
def test_what_a_query_leaves_out(num_classes: int, width: int, fenced: Fenced) -> None:
    generator = torch.Generator().manual_seed(num_classes)
    key = (1 << 32) - 1 - num_classes
    order = permuted(torch.arange(num_classes), key=key, num_classes=num_classes).tolist()
    pool = order[:width]
    # Positives in the pool, in its last place, and outside where there is one. No class excluded, one twice, and more
    # than a tile of them; -1 and K stand for nothing.
    positives = [pool[0], pool[-1], order[-1]]
    lists = [[], [0, -1, 0, num_classes], torch.randint(-1, num_classes, (21,), generator=generator).tolist()]
    offsets = torch.tensor([0, *(len(excluded) for excluded in lists)]).cumsum(0)
    rows = [2, 0, 1]
    ids = torch.tensor([i for excluded in lists for i in excluded], dtype=torch.int32)
    exclude = Exclusions(fenced(torch.tensor(rows)), fenced(offsets), fenced(ids), 21)
    left_out = left_out_of_pool(
        fenced(torch.tensor(positives)), exclude, fenced(torch.tensor([key])), num_classes=num_classes, width=width
    )
    where = {class_id: place for place, class_id in enumerate(pool)}
    assert left_out.positives_N.tolist() == [where.get(positive, -1) for positive in positives]
    named = left_out.named(torch.tensor(pool, device=left_out.positives_N.device))
    marks = left_out.mask(width)
    assert marks.dtype == torch.bool
    for n, (row, positive) in enumerate(zip(rows, positives, strict=True)):
        wanted = {where[positive] if positive in where else width - 1} | {where[i] for i in lists[row] if i in where}
        assert set(marks[n].nonzero().flatten().tolist()) == wanted
        for found, true in ((left_out.places, wanted), (named, {pool[place] for place in wanted})):
            first, end = found.offsets[found.rows_N[n]], found.offsets[found.rows_N[n] + 1]
            assert set(found.ids[first:end].tolist()) == true
            assert end - first <= found.most


def test_every_class_left_out(fenced: Fenced) -> None:
    exclude = Exclusions.of_padded(fenced(torch.arange(40).reshape(1, 40)))
    positive, key = fenced(torch.tensor([7])), fenced(torch.tensor([5]))
    assert bool(left_out_of_pool(positive, exclude, key, num_classes=40, width=40).mask(40).all())


def test_classes_past_32_bits(long_table: Tensor) -> None:
    ids = torch.tensor([len(long_table) - 1, 0], device=long_table.device)
    for given in (ids, ids.int()):
        rows = gather_rows(long_table, given, dtype=torch.float32)
        assert rows.unique(dim=1).tolist() == [[0.125], [0.0]]
