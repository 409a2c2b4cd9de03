"""The hardest classes of a batch's pool: scored without gradient, then the few highest are found.

``PlainPoolMiner`` says what is wanted and serves any device; ``CpuPoolMiner`` (its own file) is the fast one on a CPU.

Shapes: N points, W classes of the shared pool, D dimension, T kept, P labels of a batch, H scores to hide.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.mining import BatchPool
from owlmine.mining.pool import find_in_shared
from owlmine.model.row_table import RowTable


class PoolMiner(Protocol):
    """Places in the pool of each point's T hardest classes [N, T], and which of those must not count (None: all do).

    What must not count: the class that each point leaves out, and the labels ``known``. Of equal scores any may come
    first.
    """

    def __call__(
        self, queries_ND: Tensor, pool: BatchPool, known: SparseRows | None
    ) -> tuple[Tensor, Tensor | None]: ...


class PlainPoolMiner:
    """One product, one ``topk``."""

    def __init__(self, classes: RowTable, *, kept: int) -> None:
        self._classes, self._kept = classes, kept

    @torch.no_grad()
    def __call__(self, queries_ND: Tensor, pool: BatchPool, known: SparseRows | None) -> tuple[Tensor, Tensor | None]:
        scores_NW = queries_ND @ self._classes.weight.index_select(0, pool.shared_ids).T
        # Single entries, not a mask of the whole matrix.
        scores_NW.index_put_(hidden_places(pool, known), scores_NW.new_tensor(-torch.inf))
        hardest_NT, places_NT = scores_NW.topk(self._kept, dim=1)
        # Only known labels can leave fewer than T classes to choose from.
        return places_NT, None if known is None else hardest_NT == -torch.inf


def hidden_places(pool: BatchPool, known: SparseRows | None) -> tuple[Tensor, Tensor]:
    """Point and place in the pool [H] of what must not count."""
    device = pool.shared_ids.device
    points_N = torch.arange(len(pool.dropped), device=device)
    if known is None:
        return points_N, pool.dropped
    points_P = torch.from_numpy(known.row_ids).to(device)
    places_P, is_in_P = find_in_shared(pool.shared_ids, torch.from_numpy(known.indices.astype("int64")).to(device))
    # A label outside of the pool stands for what its point leaves out anyway: so many entries whatever the pool.
    places_P = torch.where(is_in_P, places_P, pool.dropped[points_P])
    return torch.cat([points_N, points_P]), torch.cat([pool.dropped, places_P])
