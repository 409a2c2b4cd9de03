"""Classes that score about highest, where the last bit does not matter: by an index where there is one, in bytes on a
CPU that multiplies them, in bfloat16 on a GPU.

Shapes: N queries, K classes, D dimension, k best classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.index.approximate import ApproximateIndex
from owlmine.mining.hardest_classes import hardest
from owlmine.mining.int8 import bytes_may_hold, cpu_multiplies_int8, multiply_bytes

# Queries and classes at once, whose scores the cache then holds.
_MOST_QUERIES, _MOST_CLASSES = 256, 1 << 15


class RoughSearch:
    """Among the rows of one table of classes."""

    def __init__(self, table_KD: Tensor, index: ApproximateIndex | None = None) -> None:
        self._index, self._codes_KD = index, None
        self._table_KD = table_KD if table_KD.device.type == "cpu" else table_KD.to(torch.bfloat16)
        if (
            index is None
            and table_KD.device.type == "cpu"
            and cpu_multiplies_int8()
            and bytes_may_hold(table_KD.shape[1])
        ):
            # All in one unit: so products need no factor, and the error of a score is the same for all classes.
            self._codes_KD = _coded(table_KD, one_unit=True)

    @torch.no_grad()
    def __call__(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] in no order. Of scores nearer to each other than the arithmetic's error either may be left out.

        With an index: -1 where it finds fewer.
        """
        if self._index is not None:
            return self._index.rough(queries_ND, k)
        if self._codes_KD is None:
            return hardest(queries_ND, self._table_KD, k)[1]
        codes_ND = _coded(queries_ND, one_unit=False)
        starts = range(0, max(len(codes_ND), 1), _MOST_QUERIES)
        return torch.cat(
            [_highest_products(codes_ND[start : start + _MOST_QUERIES], self._codes_KD, k) for start in starts]
        )


def _highest_products(codes_ND: Tensor, codes_KD: Tensor, k: int) -> Tensor:
    """Ids [N, k], of a tile of classes at a time."""
    products_NT, ids_NT = torch.empty(len(codes_ND), 0, dtype=torch.int32), torch.empty(len(codes_ND), 0).long()
    for start in range(0, len(codes_KD), _MOST_CLASSES):
        tile_NK = multiply_bytes(codes_ND, codes_KD[start : start + _MOST_CLASSES])
        highest = tile_NK.topk(min(k, tile_NK.shape[1]), dim=1, sorted=False)
        products_NT = torch.cat([products_NT, highest.values], dim=1)
        ids_NT = torch.cat([ids_NT, highest.indices + start], dim=1)
    return ids_NT if ids_NT.shape[1] == k else ids_NT.gather(1, products_NT.topk(k, dim=1, sorted=False).indices)


def _coded(rows_RD: Tensor, *, one_unit: bool) -> Tensor:
    """Rows in 8-bit integers, of which 127 stands for the largest value of all rows, or of each. What is not a number
    is 0."""
    rows_RD = rows_RD.float().nan_to_num()
    largest_R1 = rows_RD.abs().amax(dim=1, keepdim=True)
    largest = largest_R1.max() if one_unit else largest_R1
    return (rows_RD / (largest / 127).clamp_min(torch.finfo(torch.float32).tiny)).round_().to(torch.int8)
