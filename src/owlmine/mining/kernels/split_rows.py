"""Rows as the products of mining read them: in 16 bits, float32 ones as the sum of two such numbers.

A float32 number is high + low up to a 2^-17th of it, both in bfloat16, so

    <query, row> = <query high, row high> + <query low, row high> + <query high, row low>

up to an error like that of a float32 sum. Concatenated, the three are one product of three times the dimension. High
parts alone are wrong in the third digit, and would sometimes miss one of the hardest classes.

Shapes: R rows, D dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_MINED = (torch.bfloat16, torch.float16)


def mined_rows(rows_RD: Tensor) -> Tensor:
    """Rows of classes; the same tensor if it can be read as it is."""
    if rows_RD.dtype in _MINED:
        return fit_for_tiles(rows_RD)
    high_RD, low_RD = _parts(rows_RD)
    return fit_for_tiles(torch.cat([high_RD, high_RD, low_RD], dim=1))


def mined_queries(queries_ND: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of queries, to be multiplied with what ``mined_rows`` made of classes of this type."""
    if dtype in _MINED:
        return fit_for_tiles(queries_ND.to(dtype))
    high_ND, low_ND = _parts(queries_ND)
    return fit_for_tiles(torch.cat([high_ND, low_ND, high_ND], dim=1))


def fit_for_tiles(rows_RD: Tensor) -> Tensor:
    """Contiguous rows, a multiple of 16 bytes long; the same tensor if they are so already."""
    missing = -rows_RD.shape[1] % 8
    return functional.pad(rows_RD, (0, missing)) if missing else rows_RD.contiguous()


def _parts(rows_RD: Tensor) -> tuple[Tensor, Tensor]:
    rows_RD = rows_RD.to(torch.float32)
    high_RD = rows_RD.to(torch.bfloat16)
    return high_RD, (rows_RD - high_RD.float()).to(torch.bfloat16)
