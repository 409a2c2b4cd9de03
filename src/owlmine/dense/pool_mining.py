"""The hardest classes of a batch's pool: scored without gradient, then the highest are found.

Shapes: N points, W classes of the shared pool, D dimension, T kept, G groups of columns, C candidates of a point,
P labels of a batch, H scores to hide.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from owlmine.data.rows import Int64, SparseRows
from owlmine.dense.row_table import RowTable
from owlmine.mining import BatchPool
from owlmine.mining.int8 import Int8Search
from owlmine.mining.pool import find_in_shared

# Columns of a group, represented by one maximum when searching for the highest on a CPU.
_GROUP = 16


class PoolMiner:
    """Finds the ``kept`` hardest classes of a pool. Needs memory for N x W scores and W rows of the class table (in
    int8, if the CPU is fast at that)."""

    def __init__(self, classes: RowTable, *, kept: int) -> None:
        self._classes, self._kept = classes, kept
        self._search = Int8Search()
        self._buffers: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, queries_ND: Tensor, pool: BatchPool, known: SparseRows | None) -> tuple[Tensor, Tensor | None]:
        """Places in the pool of each point's hardest classes [N, T], and which of those must not count (None: all do).

        What must not count: the class that each point leaves out, and the labels ``known``. Ties are in any order.
        """
        hidden = hidden_places(pool, known)
        weight_KD, width = self._classes.weight, len(pool.shared_ids)
        found = None
        if self._search.suits(queries_ND, weight_KD, width=width, kept=self._kept):
            found = self._search(queries_ND, weight_KD, pool.shared_ids, hidden, kept=self._kept)
        places_NT, is_hidden_NT = self._multiply(queries_ND, pool.shared_ids, hidden) if found is None else found
        # Only known labels can leave fewer than T classes to choose from, and they hardly ever do.
        return places_NT, None if known is None else is_hidden_NT

    def _multiply(
        self, queries_ND: Tensor, ids_W: Tensor, hidden: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """The same from one product of matrices."""
        rows_WD = self._buffer("rows", len(ids_W), self._classes.dim)
        torch.index_select(self._classes.weight, 0, ids_W, out=rows_WD)
        scores_NW = torch.mm(queries_ND, rows_WD.T, out=self._buffer("scores", len(queries_ND), len(rows_WD)))
        # Single entries, not a mask of the whole matrix.
        scores_NW.index_put_(hidden, scores_NW.new_tensor(-torch.inf))
        places_NT = highest_places(scores_NW, self._kept)
        is_hidden_NT = scores_NW.gather(1, places_NT) == -torch.inf
        # On a CPU this is checked, so that the loss needs no mask.
        none_is = is_hidden_NT.device.type == "cpu" and not bool(is_hidden_NT.any())
        return places_NT, None if none_is else is_hidden_NT

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Memory that steps share: fresh pages for tens of MiB in every step cost more than filling them."""
        if name not in self._buffers or self._buffers[name].shape != shape:
            self._buffers[name] = self._classes.weight.new_empty(shape)
        return self._buffers[name]


def hidden_places(pool: BatchPool, known: SparseRows | None) -> tuple[Tensor, Tensor]:
    """Point and place in the pool [H] of the entries that must not count."""
    device = pool.shared_ids.device
    points_N = torch.arange(len(pool.dropped), device=device)
    if known is None:
        return points_N, pool.dropped
    points_P = torch.from_numpy(known.row_ids).to(device)
    places_P, is_in_P = _find(pool.shared_ids, known.indices.astype(np.int64))
    # A label outside the pool is replaced by the class that its point leaves out anyway: the number of entries is
    # fixed.
    places_P = torch.where(is_in_P, places_P, pool.dropped[points_P])
    return torch.cat([points_N, points_P]), torch.cat([pool.dropped, places_P])


def _find(shared_W: Tensor, ids_P: Int64) -> tuple[Tensor, Tensor]:
    """``find_in_shared``; on a CPU by NumPy, because PyTorch would wake up its threads for a few hundred ids."""
    if shared_W.device.type != "cpu":
        return find_in_shared(shared_W, torch.from_numpy(ids_P).to(shared_W.device))
    shared = shared_W.numpy()
    places_P = np.searchsorted(shared, ids_P).clip(max=len(shared) - 1)
    return torch.from_numpy(places_P), torch.from_numpy(shared[places_P] == ids_P)


def highest_places(scores_NW: Tensor, count: int) -> Tensor:
    """Places of the ``count`` highest scores of each row, highest first."""
    if scores_NW.device.type == "cpu":
        return _highest_places_on_cpu(scores_NW, count)
    return scores_NW.topk(count, dim=1).indices


def _highest_places_on_cpu(scores_NW: Tensor, count: int) -> Tensor:
    """The same with fewer passes: NumPy for one, ``topk`` of few candidates for more.

    The ``count`` highest scores are found in the groups with the ``count`` highest maxima: each of those has a score
    no lower than any that is left out.
    """
    if count == 1:
        return torch.from_numpy(scores_NW.numpy().argmax(axis=1))[:, None]
    num_groups = scores_NW.shape[1] // _GROUP
    if 4 * count > num_groups:
        return scores_NW.topk(count, dim=1).indices
    # A group's columns are num_groups apart, so that maxima are taken over contiguous memory.
    grouped_NW = scores_NW[:, : num_groups * _GROUP]
    maxima_NG = grouped_NW.reshape(-1, _GROUP, num_groups).amax(dim=1)
    groups_NT = maxima_NG.topk(count, dim=1, sorted=False).indices
    members_NC = (groups_NT[:, :, None] + num_groups * torch.arange(_GROUP)).flatten(1)
    rest = torch.arange(grouped_NW.shape[1], scores_NW.shape[1]).expand(len(scores_NW), -1)
    candidates_NC = torch.cat([members_NC, rest], dim=1)
    return candidates_NC.gather(1, scores_NW.gather(1, candidates_NC).topk(count, dim=1).indices)
