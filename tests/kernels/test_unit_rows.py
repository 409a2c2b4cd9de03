"""Unit rows, and the way back through them, against float64.

Shapes: N rows, D dimension.
"""

from __future__ import annotations

import pytest
import torch

from owlmine.mining.kernels.unit_rows import unit_rows, unit_rows_back
from tests.kernels.conftest import Fenced, Rounded


@pytest.mark.parametrize("copy_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_rows", "dim"), [(1, 1), (1, 8), (5, 3), (7, 72), (3, 130), (2, 1025)])
def test_against_float64(num_rows: int, dim: int, copy_dtype: torch.dtype, fenced: Fenced, rounded: Rounded) -> None:
    rows = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(dim)) * 3
    units, copies, lengths = unit_rows(fenced(rows), copy_dtype=copy_dtype)
    assert (units.dtype, copies.dtype, lengths.dtype) == (torch.float32, copy_dtype, torch.float32)
    true_lengths = rows.double().norm(dim=1)
    # A sum of D squares, a root and a division, each step off by at most half a unit of the last place.
    slack = (dim + 4) * 2.0**-24
    assert torch.allclose(lengths.cpu().double(), true_lengths, rtol=slack, atol=0)
    assert torch.allclose(units.cpu().double(), rows.double() / true_lengths[:, None], rtol=2 * slack, atol=0)
    assert torch.equal(copies, rounded(units, copy_dtype))


def test_zeros_and_very_short_rows_are_divided_by_the_least_length(fenced: Fenced) -> None:
    rows = torch.tensor([[0.0, 0.0, 0.0], [3e-13, 0.0, -4e-13], [3e-5, 0.0, 4e-5], [3e15, -4e15, 0.0]])
    units, _, lengths = unit_rows(fenced(rows), copy_dtype=torch.bfloat16)
    assert lengths.tolist() == pytest.approx([1e-12, 1e-12, 5e-5, 5e15], rel=1e-6)
    expected = [[0, 0, 0], [0.3, 0, -0.4], [0.6, 0, 0.8], [0.6, -0.8, 0]]
    assert torch.allclose(units.cpu(), torch.tensor(expected), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("num_rows", "dim"), [(1, 1), (1, 8), (5, 3), (7, 72), (2, 1025)])
def test_the_way_back_is_the_gradient(num_rows: int, dim: int, fenced: Fenced) -> None:
    generator = torch.Generator().manual_seed(dim)
    rows = torch.randn(num_rows, dim, generator=generator, dtype=torch.float64) * 3
    gradients = torch.randn(num_rows, dim, generator=generator)
    leaf = rows.requires_grad_()
    lengths = leaf.norm(dim=1)
    units = leaf / lengths[:, None]
    (truth,) = torch.autograd.grad((units * gradients).sum(), leaf)
    got = unit_rows_back(fenced(units.detach().float()), fenced(lengths.detach().float()), fenced(gradients))
    assert got.dtype == torch.float32
    # What is subtracted may be as large as the gradient itself.
    slack = (dim + 8) * 2.0**-24 * gradients.double().norm(dim=1) / lengths.detach()
    assert bool(((got.cpu().double() - truth).abs() <= slack[:, None]).all())


def test_the_way_back_from_a_row_of_zeros_is_finite(fenced: Fenced) -> None:
    units, _, lengths = unit_rows(fenced(torch.zeros(1, 3)), copy_dtype=torch.float32)
    got = unit_rows_back(units, lengths, fenced(torch.tensor([[1.0, -2.0, 0.0]])))
    assert got.tolist() == [pytest.approx([1e12, -2e12, 0.0])]
