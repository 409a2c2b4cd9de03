"""Classes that score about highest, where the last bit does not matter: in bytes on a CPU that multiplies them, in
bfloat16 on a GPU.

Shapes: N queries, K classes, D dimension, k best classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.mining.hardest_classes import hardest
from owlmine.mining.int8 import bytes_may_hold, cpu_multiplies_int8, multiply_bytes

# Queries and scores at once, which the cache then holds. Where so many scores are of too few queries there are so many
# classes that ``hardest`` had better take them in parts.
_MOST_QUERIES, _FEWEST_QUERIES = 256, 32
_BLOCK_SCORES = 1 << 23


class RoughSearch:
    """Among the rows of one table of classes."""

    def __init__(self, table_KD: Tensor) -> None:
        self._codes_KD: Tensor | None = None
        self._table_KD = table_KD if table_KD.device.type == "cpu" else table_KD.to(torch.bfloat16)
        self._block = min(_BLOCK_SCORES // max(len(table_KD), 1), _MOST_QUERIES)
        if (
            table_KD.device.type == "cpu"
            and cpu_multiplies_int8()
            and bytes_may_hold(table_KD.shape[1])
            and self._block >= _FEWEST_QUERIES
        ):
            # All in one unit: so products need no factor, and the error of a score is the same for all classes.
            self._codes_KD = _coded(table_KD, one_unit=True)

    @torch.no_grad()
    def __call__(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] in no order. Of scores nearer to each other than the arithmetic's error either may be left out."""
        if self._codes_KD is None:
            return hardest(queries_ND, self._table_KD, k)[1]
        codes_ND, best = _coded(queries_ND, one_unit=False), [torch.empty(0, k, dtype=torch.int64)]
        for start in range(0, len(codes_ND), self._block):
            products_NK = multiply_bytes(codes_ND[start : start + self._block], self._codes_KD)
            best.append(products_NK.topk(k, dim=1, sorted=False).indices)
        return torch.cat(best)


def _coded(rows_RD: Tensor, *, one_unit: bool) -> Tensor:
    """Rows in 8-bit integers, of which 127 stands for the largest value of all rows, or of each. What is not a number
    is 0."""
    rows_RD = rows_RD.float().nan_to_num()
    largest_R1 = rows_RD.abs().amax(dim=1, keepdim=True)
    largest = largest_R1.max() if one_unit else largest_R1
    return (rows_RD / (largest / 127).clamp_min(torch.finfo(torch.float32).tiny)).round_().to(torch.int8)
