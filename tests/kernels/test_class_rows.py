"""Scores, gradients and updates of the few class rows of a step against float64.

Shapes: N queries, T class ids of each, K classes, D dimension.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from owlmine.mining.kernels.class_rows import kept_scores, query_gradients, update_classes
from tests.kernels.conftest import Fenced, Rounded

SHAPES = [(1, 1, 1, 1), (2, 17, 30, 33), (5, 2, 4, 130)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def some_step(
    num_queries: int, num_ids: int, num_classes: int, dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit queries, unit classes, ids with repeats and -1, slopes with zeros."""
    generator = torch.Generator().manual_seed(num_ids + dim)
    queries = torch.nn.functional.normalize(torch.randn(num_queries, dim, generator=generator))
    classes = torch.nn.functional.normalize(torch.randn(num_classes, dim, generator=generator)).to(dtype)
    ids = torch.randint(-1, num_classes, (num_queries, num_ids), generator=generator)
    ids[0, 0] = num_classes - 1
    slopes = torch.randn(num_queries, num_ids, generator=generator)
    slopes[torch.rand(slopes.shape, generator=generator) < 0.3] = 0.0
    return queries, classes, ids, slopes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_against_a_loop(shape: tuple[int, int, int, int], dtype: torch.dtype, fenced: Fenced) -> None:
    queries, classes, ids, _ = some_step(*shape, dtype)
    got = kept_scores(fenced(queries), fenced(classes), fenced(ids))
    assert got.dtype == torch.float32
    for query, row in enumerate(ids.tolist()):
        for slot, class_id in enumerate(row):
            products = queries[query].double() * classes[class_id].double() if class_id >= 0 else torch.zeros(1)
            slack = float(products.abs().sum()) * (shape[3] + 2) * 2.0**-24
            assert abs(float(got[query, slot]) - float(products.sum())) <= slack


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_queries(shape: tuple[int, int, int, int], dtype: torch.dtype, fenced: Fenced) -> None:
    queries, classes, ids, slopes = some_step(*shape, dtype)
    got = query_gradients(fenced(classes), fenced(ids), fenced(slopes))
    assert got.dtype == torch.float32
    leaf = queries.double().requires_grad_()
    scores_NT = torch.einsum("nd,ntd->nt", leaf, classes.double()[ids.clamp_min(0)])
    (truth,) = torch.autograd.grad((scores_NT * slopes * (ids >= 0)).sum(), leaf)
    slack = float(slopes.abs().sum(dim=1).max()) * (shape[1] + 2) * 2.0**-24
    assert torch.allclose(got.cpu().double(), truth, rtol=0, atol=slack)


def test_a_class_with_slope_zero_is_not_read(fenced: Fenced) -> None:
    classes = torch.ones(3, 4)
    classes[1] = torch.nan
    ids, slopes = torch.tensor([[0, 1, 2]]), torch.tensor([[2.0, 0.0, -1.0]])
    assert query_gradients(fenced(classes), fenced(ids), fenced(slopes)).tolist() == [[1.0] * 4]


def updated_rows(queries: Tensor, classes: Tensor, ids: Tensor, slopes: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """The table after a step in float64, and which rows were moved."""
    table, moved = classes.double(), torch.zeros(len(classes), dtype=torch.bool)
    gradients = torch.zeros_like(table)
    for query, row in enumerate(ids.tolist()):
        for slot, class_id in enumerate(row):
            if class_id >= 0:
                gradients[class_id] += slopes[query, slot].double() * queries[query].double()
                moved[class_id] = True
    rows = table[moved] + factor * gradients[moved]
    table[moved] = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return table, moved


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("dtype", "copy_dtype"),
    [(torch.float32, None), (torch.float32, torch.bfloat16), (torch.float16, None), (torch.float16, torch.float32)],
)
def test_updates_against_a_loop(
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    copy_dtype: torch.dtype | None,
    fenced: Fenced,
    rounded: Rounded,
) -> None:
    queries, classes, ids, slopes = some_step(*shape, dtype)
    table = fenced(classes)
    copy = None if copy_dtype is None else fenced(rounded(classes.float(), copy_dtype))
    factor, key = fenced(torch.tensor([-0.5])), fenced(torch.tensor([1]))
    update_classes(table, fenced(queries), fenced(ids), fenced(slopes), factor, copy_KD=copy, key=key)
    truth, moved = updated_rows(queries, classes, ids, slopes, -0.5)
    # Rows have length 1; float16 keeps 11 bits of them.
    slack = (ids.numel() + shape[3] + 8) * 2.0**-23 + (2.0**-11 if dtype == torch.float16 else 0)
    assert torch.allclose(table.cpu().double(), truth, rtol=0, atol=slack)
    assert torch.equal(table.cpu()[~moved], classes[~moved])
    if copy is not None:
        # Both are of the same number: the wider one rounds to the narrower.
        narrow, wide = (copy, table) if dtype == torch.float32 else (table, copy)
        assert torch.equal(narrow.cpu()[moved], rounded(wide.cpu()[moved], narrow.dtype))


def test_one_class_of_every_entry(fenced: Fenced) -> None:
    queries, classes, _, slopes = some_step(6, 3, 5, 24, torch.float32)
    for ids in (torch.full((6, 3), 4), torch.full((6, 3), -1), torch.arange(18).reshape(6, 3) % 2 * 5 - 1):
        table = fenced(classes)
        factor, key = fenced(torch.tensor([0.3])), fenced(torch.tensor([1]))
        update_classes(table, fenced(queries), fenced(ids), fenced(slopes), factor, copy_KD=None, key=key)
        truth, moved = updated_rows(queries, classes, ids, slopes, 0.3)
        assert torch.allclose(table.cpu().double(), truth, rtol=0, atol=1e-6)
        assert torch.equal(table.cpu()[~moved], classes[~moved])


def test_a_row_that_becomes_zero_stays_finite(fenced: Fenced) -> None:
    table = fenced(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    update_classes(
        table,
        fenced(torch.tensor([[1.0, 0.0]])),
        fenced(torch.tensor([[0]])),
        fenced(torch.tensor([[1.0]])),
        fenced(torch.tensor([-1.0])),
        copy_KD=None,
        key=fenced(torch.tensor([1])),
    )
    assert table.tolist() == [[0.0, 0.0], [0.0, 1.0]]


def rounded_updates(num_keys: int, fenced: Fenced) -> tuple[Tensor, Tensor]:
    """[keys, K, D] bfloat16 tables after the same step with different keys, and the exact table."""
    queries, classes, _, slopes = some_step(1, 2, 2, 70, torch.bfloat16)
    # The same row for both classes, so that each number is rounded twice for each key.
    classes[:] = classes[0].clone()
    slopes[:] = 0.2
    ids = torch.tensor([[0, 1]])
    tables = []
    for key in range(num_keys):
        table, copy = fenced(classes), fenced(classes.float())
        update_classes(
            table,
            fenced(queries),
            fenced(ids),
            fenced(slopes),
            fenced(torch.tensor([-1.0])),
            copy_KD=copy,
            key=fenced(torch.tensor([key])),
        )
        assert torch.equal(copy, table.float())
        tables.append(table.cpu())
    return torch.stack(tables), updated_rows(queries, classes, ids, slopes, -1.0)[0]


def test_bfloat16_is_rounded_to_a_neighbour_and_right_in_the_mean(fenced: Fenced) -> None:
    num_keys = 40
    tables, exact_KD = rounded_updates(num_keys, fenced)
    # Steps of bfloat16 at a number: 8 bits counting the leading one.
    steps_KD = torch.exp2(exact_KD.abs().log2().floor() - 7)
    below_KD = (exact_KD / steps_KD).floor() * steps_KD
    error = 1e-6
    distance = (tables.double() - below_KD) / steps_KD
    is_neighbour = (distance == 0) | (distance == 1)
    # The number in float32 may lie on the other side of a bfloat16 number that it nearly equals.
    is_near = (tables.double() - exact_KD).abs() <= steps_KD + error
    assert bool((is_neighbour | is_near).all())
    assert float(is_neighbour.double().mean()) > 0.99
    means_D, exact_D = tables.double().mean(dim=(0, 1)), exact_KD[0]
    chance_D = ((exact_KD - below_KD) / steps_KD)[0]
    deviation_D = steps_KD[0] * (chance_D * (1 - chance_D) / (2 * num_keys)).sqrt() + error
    assert float(((means_D - exact_D) / deviation_D).abs().max()) < 4
    # All numbers together: always up, down or to the nearest would be off by many deviations.
    assert abs(float(((means_D - exact_D) / deviation_D).sum())) < 4 * math.sqrt(len(exact_D))
    assert float(((tables.double() - exact_KD) / steps_KD).std()) > 0.3


def test_rounding_is_settled_by_the_key(fenced: Fenced) -> None:
    first, _ = rounded_updates(2, fenced)
    again, _ = rounded_updates(1, fenced)
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], first[1])
    # Classes with equal rows do not share their noise.
    assert not torch.equal(first[0, 0], first[0, 1])


def test_what_bfloat16_holds_is_not_moved(fenced: Fenced) -> None:
    classes = torch.tensor([[0.5, -0.5, 0.5, -0.5], [0.0, 1.0, 0.0, 0.0]], dtype=torch.bfloat16)
    for key in range(5):
        table = fenced(classes)
        update_classes(
            table,
            fenced(torch.ones(1, 4)),
            fenced(torch.tensor([[0, 1]])),
            fenced(torch.zeros(1, 2)),
            fenced(torch.tensor([-1.0])),
            copy_KD=None,
            key=fenced(torch.tensor([key])),
        )
        assert torch.equal(table.cpu(), classes)


def test_classes_past_32_bits(long_table: Tensor) -> None:
    device, last = long_table.device, len(long_table) - 1
    queries = torch.full((1, 2048), 2048**-0.5, device=device)
    ids, slopes = torch.tensor([[last, 0]], device=device), torch.tensor([[2.0, 0.0]], device=device)
    assert kept_scores(queries, long_table, ids).tolist() == [[pytest.approx(0.125 * 2048**0.5), 0.0]]
    assert query_gradients(long_table, ids, slopes).unique().tolist() == [0.25]
    factor, key = torch.tensor([-1.0], device=device), torch.tensor([1], device=device)
    update_classes(long_table, queries, ids, slopes, factor, copy_KD=None, key=key)
    assert torch.allclose(long_table[last].float(), queries[0], rtol=2.0**-7, atol=0)
    assert bool((long_table[:last] == 0).all())
