"""Classes to exclude for each query, in the form that kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Exclusions:
    """Query n excludes ``ids[offsets[r] : offsets[r + 1]]`` with r = ``rows_N[n]``; negative ids are ignored.

    The rows let a batch point into the labels of a whole dataset, with nothing copied. ``most`` is a bound on how many
    one query excludes.
    """

    rows_N: Tensor
    offsets: Tensor
    ids: Tensor
    most: int

    @classmethod
    def of_padded(cls, ids_NE: Tensor) -> Exclusions:
        """From one row of ids per query, filled up with -1."""
        num_queries, width = ids_NE.shape
        places = torch.arange(num_queries + 1, device=ids_NE.device)
        return cls(places[:-1], places * width, ids_NE.reshape(-1).to(torch.int64), width)

    @classmethod
    def of_rows(cls, offsets: Tensor, ids: Tensor) -> Exclusions:
        """From compressed rows, one per query. Waits for the device."""
        counts = offsets.diff()
        most = int(counts.max()) if len(counts) else 0
        return cls(torch.arange(len(counts), device=ids.device), offsets, ids.to(torch.int64), most)

    def part(self, start: int, stop: int) -> Exclusions:
        """Those of some consecutive queries."""
        return Exclusions(self.rows_N[start:stop], self.offsets, self.ids, self.most)
