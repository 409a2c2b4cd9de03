"""Classes with about the highest scores, if the last bit does not matter: from an index if there is one, in bytes on a
CPU that multiplies them, in bfloat16 on a GPU.

Shapes: N queries, K classes, D dimension, k best classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.index.approximate import ApproximateIndex
from owlmine.index.exact import ByteTable
from owlmine.mining.hardest_classes import hardest
from owlmine.mining.int8 import bytes_may_hold, cpu_multiplies_int8


class RoughSearch:
    """Approximate search among the rows of one table of classes."""

    def __init__(self, table_KD: Tensor, index: ApproximateIndex | None = None) -> None:
        on_cpu, self._index = table_KD.device.type == "cpu", index
        self._table_KD = table_KD if on_cpu else table_KD.to(torch.bfloat16)
        self._bytes: ByteTable | None = None
        if index is None and on_cpu and cpu_multiplies_int8() and bytes_may_hold(table_KD.shape[1]):
            self._bytes = ByteTable(table_KD)

    @torch.no_grad()
    def __call__(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] in no order. Of scores closer than the arithmetic's error either may be left out.

        With an index: -1 if it finds fewer.
        """
        if self._index is not None:
            return self._index.rough(queries_ND, k)
        if self._bytes is not None:
            return self._bytes.rough(queries_ND, k)
        return hardest(queries_ND, self._table_KD, k)[1]
