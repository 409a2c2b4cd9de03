"""Rows moved and multiplied in C against the same in PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from owlmine.dense import compiled_rows, row_table
from owlmine.dense.compiled_rows import (
    compiled_dots,
    compiled_module,
    compiled_momentum_step,
    compiled_move,
    is_compiled_for,
)
from owlmine.dense.row_table import RowTable, row_gradient

needs_build = pytest.mark.skipif(
    compiled_module() is None, reason="owlmine.dense._rows is not built (no C compiler at install time)"
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some(high: int, count: int, *, seed: int) -> Tensor:
    return torch.randint(high, (count,), generator=torch.Generator().manual_seed(seed))


@needs_build
@settings(max_examples=60, deadline=None)
@given(
    dim=st.integers(1, 70) | st.sampled_from([1023, 1024, 1025, 2100]),
    count=st.integers(0, 90),
    unit_rows=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_moved_rows_against_pytorch(dim: int, count: int, unit_rows: bool, seed: int) -> None:
    start = numbers(30, dim, seed=seed)
    ids, points = some(30, count, seed=seed), some(7, count, seed=seed + 1)
    touched = row_gradient(ids, points, numbers(count, seed=seed), numbers(7, dim, seed=seed + 2))
    own, plain = RowTable(start.clone(), unit_rows=unit_rows), RowTable(start.clone(), unit_rows=unit_rows)
    own.descend(touched, 0.3)
    plain.move(touched, touched.gradient_UD, -0.3)
    torch.testing.assert_close(own.weight, plain.weight, rtol=1e-5, atol=1e-5)
    untouched = torch.tensor(sorted(set(range(30)) - set(ids.tolist())), dtype=torch.int64)
    assert torch.equal(own.weight[untouched], start[untouched])


@needs_build
@settings(max_examples=40, deadline=None)
@given(dim=st.integers(1, 140), num_points=st.integers(0, 40), num_ids=st.integers(0, 5), seed=st.integers(0, 10**6))
def test_dots_against_float64(dim: int, num_points: int, num_ids: int, seed: int) -> None:
    table, queries = numbers(12, dim, seed=seed), numbers(num_points, dim, seed=seed + 1)
    ids = some(12, num_points * num_ids, seed=seed).reshape(num_points, num_ids)
    expected = torch.einsum("nd,ntd->nt", queries.double(), functional.embedding(ids, table.double()))
    torch.testing.assert_close(compiled_dots(table, queries, ids).double(), expected, rtol=1e-4, atol=1e-4)


@needs_build
def test_narrow_ids_and_views() -> None:
    table, queries = numbers(12, 5), numbers(4, 5, seed=1)
    ids = some(12, 16, seed=0).reshape(4, 4)
    expected = (queries[:, None] * table[ids]).sum(dim=2)
    torch.testing.assert_close(compiled_dots(table, queries, ids.int()), expected)
    torch.testing.assert_close(compiled_dots(table, queries, ids.T.contiguous().T[:, 1:3]), expected[:, 1:3])


@needs_build
def test_the_number_of_threads_does_not_show() -> None:
    ids, points = some(400, 3000, seed=0), some(50, 3000, seed=1)
    touched = row_gradient(ids, points, numbers(3000), numbers(50, 70))
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 8):
            torch.set_num_threads(number)
            table = RowTable(numbers(400, 70), unit_rows=True)
            table.descend(touched, 0.1)
            results.append((table.weight, compiled_dots(table.weight, numbers(50, 70), ids[:150].reshape(50, 3))))
    finally:
        torch.set_num_threads(threads)
    for weight, dots in results[1:]:
        assert torch.equal(weight, results[0][0])
        assert torch.equal(dots, results[0][1])


@needs_build
def test_rows_of_zeros_stay_and_what_is_no_number_shows() -> None:
    table = RowTable(torch.zeros(3, 4), unit_rows=True)
    values, vectors = torch.tensor([0.0, math.nan]), torch.ones(1, 4)
    table.descend(row_gradient(torch.tensor([0, 2]), torch.tensor([0, 0]), values, vectors), 0.5)
    assert torch.equal(table.weight[:2], torch.zeros(2, 4))
    assert table.weight[2].isnan().all()


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"rows": np.array([1, 5])},
        {"rows": np.array([-1, 3])},
        {"rows": np.array([3, 3])},
        {"rows": np.array([3, 1])},
        {"rows": np.array([1])},
        {"starts": np.array([0, 4])},
        {"starts": np.array([2, 1])},
        {"starts": np.array([-1, 1])},
        {"points": np.array([0, 1, 2])},
        {"points": np.array([0, -1, 1])},
        {"points": np.array([0, 1])},
        {"values": np.ones(4, np.float32)},
        {"vectors": np.ones(5, np.float32)},
        {"weight": np.ones(14, np.float32)},
        {"dim": 0},
        {"dim": -3},
    ],
    ids=str,
)
def test_moves_that_do_not_fit_are_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "weight": np.ones((5, 3), np.float32),
        "rows": np.array([1, 3]),
        "starts": np.array([0, 1]),
        "points": np.array([0, 1, 1]),
        "values": np.ones(3, np.float32),
        "vectors": np.ones((2, 3), np.float32),
        "dim": 3,
        "factor": 1.0,
        "unit_rows": False,
        "threads": 2,
    }
    extension.move_rows(*given.values())
    before = np.array(given["weight"])
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.move_rows(*(given | changed).values())
    assert np.array_equal(np.array(given["weight"]), before)


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"ids": np.array([0, 5, 1, 1])},
        {"ids": np.array([0, -5, 1, 1])},
        {"ids": np.array([0, 1, 1])},
        {"queries": np.ones(7, np.float32)},
        {"dots": np.ones(3, np.float32)},
        {"dim": 4},
    ],
    ids=str,
)
def test_dots_that_do_not_fit_are_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "weight": np.ones((5, 3), np.float32),
        "dim": 3,
        "queries": np.ones((2, 3), np.float32),
        "ids": np.array([0, 4, 1, 1]),
        "dots": np.zeros(4, np.float32),
        "threads": 2,
    }
    extension.dot_rows(*given.values())
    assert np.array_equal(np.array(given["dots"]), np.full(4, 3.0))
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.dot_rows(*(given | changed).values())


@needs_build
@pytest.mark.parametrize("changed", [{"dim": 3}, {"dim": 0}, {"unit": 5}, {"lengths": 3}], ids=str)
def test_unit_vectors_that_do_not_fit_are_refused(changed: dict[str, int]) -> None:
    extension = compiled_module()
    assert extension is not None
    given = {"dim": 4, "unit": 8, "lengths": 2} | changed
    unit, lengths = np.ones(given["unit"], np.float32), np.ones(given["lengths"], np.float32)
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.unit_vectors(np.ones((2, 4), np.float32), given["dim"], unit, lengths, 1)
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.unit_gradient(np.ones((2, 4), np.float32), given["dim"], unit, lengths, np.ones(8, np.float32), 1)


@needs_build
def test_what_is_compiled() -> None:
    table = torch.zeros(4, 3)
    assert is_compiled_for(table)
    assert not is_compiled_for(table, table.double())
    assert not is_compiled_for(table.T)


@pytest.mark.parametrize("unit_rows", [False, True])
def test_without_the_build(monkeypatch: pytest.MonkeyPatch, unit_rows: bool) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("C was called without a build")

    monkeypatch.setattr(compiled_rows, "compiled_module", lambda: None)
    monkeypatch.setattr(row_table, "compiled_move", refuse)
    monkeypatch.setattr(row_table, "compiled_dots", refuse)
    start = functional.normalize(numbers(6, 4), dim=1)
    table = RowTable(start.clone(), unit_rows=unit_rows)
    queries, ids = numbers(2, 4, seed=1), torch.tensor([[5, 0], [5, 5]])
    dots = table.dots(queries, ids)
    torch.testing.assert_close(dots, (queries[:, None] * start[ids]).sum(dim=2))
    dots.sum().backward()
    (touched,) = table.take_touched()
    table.descend(touched, 0.5)
    expected = start.clone()
    for row, gradient in ((5, queries[0] + 2 * queries[1]), (0, queries[0])):
        moved = start[row] - 0.5 * gradient
        expected[row] = moved / moved.norm() if unit_rows else moved
    torch.testing.assert_close(table.weight, expected)


@needs_build
def test_entries_are_taken_as_they_come() -> None:
    """A row's entries, and where they begin, against a loop."""
    table, vectors = numbers(5, 3), numbers(2, 3, seed=1)
    expected = table.clone()
    entries = [(1, 0, 0.5), (1, 1, -2.0), (4, 1, 3.0)]
    for row, point, value in entries:
        expected[row] += 0.25 * value * vectors[point]
    points, values = torch.tensor([point for _, point, _ in entries]), torch.tensor([value for *_, value in entries])
    compiled_move(
        table, torch.tensor([1, 4]), torch.tensor([0, 2]), (points, values, vectors), factor=0.25, unit_rows=False
    )
    torch.testing.assert_close(table, expected)


@needs_build
@pytest.mark.parametrize("size", [0, 1, 33, 300_000])
def test_momentum_against_pytorch(size: int) -> None:
    parameter, velocity = numbers(size), torch.zeros(size)
    expected = torch.nn.Parameter(parameter.clone())
    optimizer = torch.optim.SGD([expected], lr=0.3, momentum=0.9)
    for number in range(3):
        gradient = numbers(size, seed=number)
        compiled_momentum_step(parameter, velocity, gradient, momentum=0.9, rate=0.3)
        expected.grad = gradient
        optimizer.step()
    torch.testing.assert_close(parameter, expected.detach(), rtol=1e-5, atol=1e-5)
    extension = compiled_module()
    assert extension is not None
    with pytest.raises(ValueError, match="a buffer does not fit"):
        extension.momentum_step(parameter.numpy(), velocity.numpy(), np.ones(size + 1, np.float32), 0.9, 0.3, 1)
