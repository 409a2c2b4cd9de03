"""Vectors to unit length, in float32 and in the type that mining uses, with their lengths kept for the way back."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.launch import assert_contiguous


@triton.jit
def _unit_rows(rows_ptr, units_ptr, copies_ptr, lengths_ptr, D: tl.constexpr, TILE_D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, TILE_D)
    here = dims < D
    values = tl.load(rows_ptr + row * D + dims, mask=here, other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(values * values, axis=0)), 1e-12)
    units = values / length
    tl.store(units_ptr + row * D + dims, units, mask=here)
    tl.store(copies_ptr + row * D + dims, units.to(copies_ptr.dtype.element_ty), mask=here)
    tl.store(lengths_ptr + row, length)


@triton.jit
def _unit_rows_back(units_ptr, lengths_ptr, gradients_ptr, results_ptr, D: tl.constexpr, TILE_D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, TILE_D)
    here = dims < D
    unit = tl.load(units_ptr + row * D + dims, mask=here, other=0.0)
    gradient = tl.load(gradients_ptr + row * D + dims, mask=here, other=0.0)
    gradient = (gradient - unit * tl.sum(unit * gradient, axis=0)) / tl.load(lengths_ptr + row)
    tl.store(results_ptr + row * D + dims, gradient, mask=here)


def unit_rows(rows_ND: Tensor, *, copy_dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Unit rows [N, D] in float32, the same in ``copy_dtype``, and the lengths [N] (at least 1e-12)."""
    num_rows, dim = rows_ND.shape
    assert_contiguous(rows_ND)
    units_ND = torch.empty_like(rows_ND)
    copies_ND = torch.empty_like(rows_ND, dtype=copy_dtype)
    lengths_N = torch.empty(num_rows, dtype=torch.float32, device=rows_ND.device)
    _unit_rows[(num_rows,)](
        rows_ND, units_ND, copies_ND, lengths_N, D=dim, TILE_D=triton.next_power_of_2(dim), num_warps=4
    )
    return units_ND, copies_ND, lengths_N


def unit_rows_back(units_ND: Tensor, lengths_N: Tensor, gradients_ND: Tensor) -> Tensor:
    """Gradient with respect to the rows before scaling: the part orthogonal to the unit row, divided by the length."""
    num_rows, dim = units_ND.shape
    assert_contiguous(units_ND, gradients_ND)
    results_ND = torch.empty_like(units_ND)
    _unit_rows_back[(num_rows,)](
        units_ND, lengths_N, gradients_ND, results_ND, D=dim, TILE_D=triton.next_power_of_2(dim), num_warps=4
    )
    return results_ND
