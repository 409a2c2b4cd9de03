"""Rows in the form in which products read them, and products that add up in float32."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def is_operand(rows: Tensor, dtype: torch.dtype) -> bool:
    """Whether the bulk copy engine can read the rows as they are: of this type, each at a multiple of 16 bytes."""
    return rows.dtype == dtype and rows.shape[1] * dtype.itemsize % 16 == 0 and rows.data_ptr() % 16 == 0


def operand(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows themselves if they can be read as they are, otherwise a copy padded with zeros."""
    if is_operand(rows, dtype):
        return rows
    return functional.pad(rows.to(dtype), (0, -rows.shape[1] % (16 // dtype.itemsize)))


def product(left: Tensor, right: Tensor) -> Tensor:
    """In float32, whatever the type of the operands."""
    if left.is_cuda and left.dtype != torch.float32:
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.mm(left.float(), right.float())
