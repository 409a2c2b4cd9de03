"""Classes that score about highest, where the last bit does not matter: in bytes on a CPU that multiplies them, in
bfloat16 on a GPU.

Shapes: N queries, K classes, D dimension, k best classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.mining.hardest_classes import hardest
from owlmine.mining.int8 import bytes_may_hold, cpu_multiplies_int8, multiply_bytes

# Scores made at once. With so many classes that few queries make as many, ``hardest`` takes the classes in parts.
_BLOCK_SCORES = 1 << 25
_FEWEST_QUERIES = 32


class RoughSearch:
    """Among the rows of one table of classes."""

    def __init__(self, table_KD: Tensor) -> None:
        self._codes: tuple[Tensor, Tensor] | None = None
        self._table_KD = table_KD if table_KD.device.type == "cpu" else table_KD.to(torch.bfloat16)
        self._block = _BLOCK_SCORES // max(len(table_KD), 1)
        if (
            table_KD.device.type == "cpu"
            and cpu_multiplies_int8()
            and bytes_may_hold(table_KD.shape[1])
            and self._block >= _FEWEST_QUERIES
        ):
            self._codes = _coded(table_KD)

    @torch.no_grad()
    def __call__(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k], highest first. Scores nearer to each other than the arithmetic's error may change places."""
        if self._codes is None:
            return hardest(queries_ND, self._table_KD, k)[1]
        codes_KD, units_K = self._codes
        best = [torch.empty(0, k, dtype=torch.int64)]
        for start in range(0, len(queries_ND), self._block):
            # Of one query all scores are in the same unit, which does not change their order.
            products_NK = multiply_bytes(_coded(queries_ND[start : start + self._block])[0], codes_KD)
            best.append((products_NK * units_K).topk(k, dim=1).indices)
        return torch.cat(best)


def _coded(rows_RD: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in 8-bit integers, and the unit [R] of each. What is not a number is 0."""
    rows_RD = rows_RD.float().nan_to_num()
    units_R = (rows_RD.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    return (rows_RD / units_R[:, None]).round_().to(torch.int8), units_R
