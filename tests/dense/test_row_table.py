"""Gradients gathered row by row, against loops and against autograd through dense tables."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from owlmine.dense.row_table import RowTable, group_rows, group_rows_plain, random_rows, row_gradient


def gradient_of(table: RowTable) -> Tensor:
    """What ``backward`` left with the table, as a dense gradient."""
    dense = torch.zeros_like(table.weight)
    for touched in table.take_touched():
        assert len(touched.ids_U.unique()) == len(touched.ids_U)
        dense[touched.ids_U] += touched.gradient_UD
    return dense


def doubles(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 9) | st.just(2**40), max_size=40))
def test_groups_against_a_loop(ids: list[int]) -> None:
    for group in (group_rows, group_rows_plain):
        ids_U, starts_U, order_E = group(torch.tensor(ids, dtype=torch.int64))
        assert ids_U.tolist() == sorted(set(ids))
        ends = [*starts_U.tolist()[1:], len(ids)][: len(ids_U)]
        for row, start, end in zip(ids_U.tolist(), starts_U.tolist(), ends, strict=True):
            assert order_E.tolist()[start:end] == [place for place, other in enumerate(ids) if other == row]


def test_narrow_ids_are_grouped_without_overflow() -> None:
    ids = torch.arange(100, 0, -1, dtype=torch.int32) * 20_000_000
    ids_U, _, order_E = group_rows(ids)
    assert ids_U.tolist() == sorted(ids.tolist())
    assert order_E.tolist() == list(range(99, -1, -1))


def test_row_gradient_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    ids, points = (torch.randint(high, (50,), generator=generator) for high in (12, 7))
    values, vectors = doubles(50), doubles(7, 3)
    expected: dict[int, Tensor] = {}
    for row, point, value in zip(ids.tolist(), points.tolist(), values.tolist(), strict=True):
        expected[row] = expected.get(row, torch.zeros(3, dtype=torch.float64)) + value * vectors[point]
    touched = row_gradient(ids, points, values, vectors)
    assert touched.ids_U.tolist() == sorted(expected)
    torch.testing.assert_close(touched.gradient_UD, torch.stack([expected[row] for row in sorted(expected)]))


@pytest.mark.parametrize("num_ids", [1, 2, 5])
def test_dots_and_their_gradients(num_ids: int) -> None:
    """Ids repeat within a point and between points."""
    table, queries = RowTable(doubles(6, 4)), doubles(8, 4, seed=1).requires_grad_()
    ids = torch.randint(6, (8, num_ids), generator=torch.Generator().manual_seed(2))
    weight = table.weight.clone().requires_grad_()
    expected = (queries[:, None] * functional.embedding(ids, weight)).sum(dim=2)
    dots = table.dots(queries, ids)
    torch.testing.assert_close(dots, expected)
    (own,) = torch.autograd.grad((dots**3).sum(), [queries])
    plain, rows = torch.autograd.grad((expected**3).sum(), [queries, weight])
    torch.testing.assert_close(own, plain)
    torch.testing.assert_close(gradient_of(table), rows)
    assert torch.autograd.gradcheck(lambda vectors: table.dots(vectors, ids), [queries])


def test_rows_have_a_gradient_where_queries_have_none() -> None:
    table, queries, ids = RowTable(doubles(5, 3)), doubles(2, 3, seed=1), torch.tensor([[4, 1], [1, 1]])
    table.dots(queries, ids).sum().backward()
    expected = torch.zeros(5, 3, dtype=torch.float64)
    expected[4], expected[1] = queries[0], queries[0] + 2 * queries[1]
    torch.testing.assert_close(gradient_of(table), expected)


def test_bags_with_empty_ones_and_their_gradients() -> None:
    table = RowTable(doubles(6, 4))
    ids, offsets = torch.tensor([3, 0, 3, 5, 5]), torch.tensor([0, 0, 2, 5, 5])
    values, outer = doubles(5, seed=1), doubles(5, 4, seed=2)
    weight = table.weight.clone().requires_grad_()
    plain = functional.embedding_bag(ids, weight, offsets, mode="sum", per_sample_weights=values)
    summed = table.sum_bags(ids, offsets, values)
    torch.testing.assert_close(summed, plain)
    (summed * outer).sum().backward()
    (plain * outer).sum().backward()
    torch.testing.assert_close(gradient_of(table), weight.grad)


def test_reading_without_gradient_gathers_nothing() -> None:
    table = RowTable(doubles(5, 3))
    with torch.no_grad():
        table.dots(doubles(2, 3), torch.tensor([[4, 1], [1, 1]]))
        table.sum_bags(torch.tensor([1, 2]), torch.tensor([0]), doubles(2))
    assert table.take_touched() == []


def test_a_gradient_may_come_after_an_earlier_one_was_taken() -> None:
    table = RowTable(doubles(5, 3))
    dots = table.dots(doubles(1, 3), torch.tensor([[4]]))
    assert table.take_touched() == []
    dots.sum().backward()
    assert [touched.ids_U.tolist() for touched in table.take_touched()] == [[4]]


@pytest.mark.parametrize("unit_rows", [False, True])
def test_moved_rows(unit_rows: bool) -> None:
    start = functional.normalize(doubles(6, 4), dim=1)
    table = RowTable(start.clone(), unit_rows=unit_rows)
    queries, ids = doubles(2, 4, seed=1), torch.tensor([[5, 0], [5, 5]])
    table.dots(queries, ids).sum().backward()
    (touched,) = table.take_touched()
    table.move(touched, touched.gradient_UD, -0.5)
    expected = start.clone()
    for row, gradient in ((5, queries[0] + 2 * queries[1]), (0, queries[0])):
        moved = start[row] - 0.5 * gradient
        expected[row] = moved / moved.norm() if unit_rows else moved
    torch.testing.assert_close(table.weight, expected)


def test_random_rows_follow_the_generator() -> None:
    tables = [
        random_rows(
            70, 3, std=2.0, unit_rows=False, generator=torch.Generator().manual_seed(5), device=torch.device("cpu")
        )
        for _ in range(2)
    ]
    assert torch.equal(*tables)
    assert tables[0].dtype == torch.float32
    assert 1.5 < tables[0].std().item() < 2.5


def test_a_batch_without_entries() -> None:
    table = RowTable(doubles(6, 4))
    nothing = torch.empty(0, dtype=torch.int64)
    summed = table.sum_bags(nothing, torch.zeros(3, dtype=torch.int64), doubles(0))
    assert torch.equal(summed, torch.zeros(3, 4, dtype=torch.float64))
    summed.sum().backward()
    assert torch.equal(gradient_of(table), torch.zeros(6, 4, dtype=torch.float64))
