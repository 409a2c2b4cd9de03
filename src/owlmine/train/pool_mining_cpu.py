"""Mining on a CPU, where moving the scores costs nearly as much as computing them.

- The pool is gathered and multiplied in blocks, so that rows are still in the cache when the product reads them.
- Scores stand as classes x points: the product is faster that way round, and maxima over classes run along memory.
- While a block is in the cache, every 16 classes of it leave one maximum for each point. The T highest scores are then
  found in the T groups with the highest maxima, since each of those has a score no lower than any that is left out.

Single entries go through NumPy, which takes less time than PyTorch to begin with something.

Shapes: N points, W classes of the shared pool (filled up to a multiple of 16), G groups of 16, M members of a group,
B classes of a block, D dimension, T kept, H scores to hide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Int64, SparseRows
from owlmine.mining import BatchPool
from owlmine.mining.pool import find_in_shared
from owlmine.model.row_table import RowTable

_GROUP = 16
# About so many rows at once: 2 MiB of them, and 1 MiB of scores, at D = 512 and N = 256.
_BLOCK = 1024


class CpuPoolMiner:
    """See ``PoolMiner``. Keeps its W x N scores: fresh pages for them in every step cost more than filling them."""

    def __init__(self, classes: RowTable, *, kept: int) -> None:
        self._classes, self._kept = classes, kept
        self._rows_BD = self._scores_WN = self._maxima_GN = classes.weight.new_empty(0, 0)

    @torch.no_grad()
    def __call__(self, queries_ND: Tensor, pool: BatchPool, known: SparseRows | None) -> tuple[Tensor, Tensor | None]:
        self._make_room(len(queries_ND), len(pool.shared_ids))
        self._score(queries_ND, pool.shared_ids)
        scores_GMN = self._scores_WN.numpy().reshape(-1, _GROUP, len(queries_ND))
        maxima_GN = self._maxima_GN.numpy()
        _hide(scores_GMN, maxima_GN, *_hidden_places(pool, known))
        hardest_NT, places_NT = _highest(scores_GMN, maxima_GN, self._kept)
        is_hidden_NT = hardest_NT == -torch.inf
        if not bool(is_hidden_NT.any()):
            return places_NT, None
        # Too few count: then what fills up the last group may be among the highest.
        return places_NT.clamp_max(pool.pool_size), is_hidden_NT

    def _make_room(self, num_points: int, width: int) -> None:
        """Blocks alike in size: a last one of few rows would cost as much time as a whole one."""
        num_groups = -(-width // _GROUP)
        if self._scores_WN.shape == (num_groups * _GROUP, num_points):
            return
        num_blocks = max(round(width / _BLOCK), 1)
        weight = self._classes.weight
        self._rows_BD = weight.new_empty(-(-num_groups // num_blocks) * _GROUP, self._classes.dim)
        # What fills up the last group is never written to.
        self._scores_WN = weight.new_full((num_groups * _GROUP, num_points), -torch.inf)
        self._maxima_GN = weight.new_empty(num_groups, num_points)

    def _score(self, queries_ND: Tensor, ids_W: Tensor) -> None:
        queries_DN, block = queries_ND.T, len(self._rows_BD)
        for start in range(0, len(ids_W), block):
            ids = ids_W[start : start + block]
            rows = torch.index_select(self._classes.weight, 0, ids, out=self._rows_BD[: len(ids)])
            torch.mm(rows, queries_DN, out=self._scores_WN[start : start + len(ids)])
            groups = self._scores_WN[start : start + block].view(-1, _GROUP, len(queries_ND))
            first = start // _GROUP
            torch.amax(groups, dim=1, out=self._maxima_GN[first : first + len(groups)])


def _hidden_places(pool: BatchPool, known: SparseRows | None) -> tuple[Int64, Int64]:
    """Point and place in the pool [H] of what must not count."""
    points_N, dropped_N = np.arange(len(pool.dropped)), pool.dropped.numpy()
    if known is None:
        return points_N, dropped_N
    places_P, is_in_P = find_in_shared(pool.shared_ids, torch.from_numpy(known.indices.astype(np.int64)))
    is_in = is_in_P.numpy()
    return np.concatenate([points_N, known.row_ids[is_in]]), np.concatenate([dropped_N, places_P.numpy()[is_in]])


def _hide(scores_GMN: NDArray[Any], maxima_GN: NDArray[Any], points_H: Int64, places_H: Int64) -> None:
    """Puts -inf in these places, and takes the maxima of their groups again."""
    groups_H, members_H = np.divmod(places_H, _GROUP)
    scores_GMN[groups_H, members_H, points_H] = -np.inf
    maxima_GN[groups_H, points_H] = scores_GMN[groups_H, :, points_H].max(axis=1)


def _highest(scores_GMN: NDArray[Any], maxima_GN: NDArray[Any], count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest scores of each point and their places [N, T], highest first."""
    num_groups, _, num_points = scores_GMN.shape
    if 2 * count > num_groups:
        highest = torch.from_numpy(scores_GMN.reshape(-1, num_points)).T.contiguous().topk(count, dim=1)
        return highest.values, highest.indices
    if count == 1:
        groups_NT = maxima_GN.argmax(axis=0)[:, None]
    else:
        groups_NT = torch.from_numpy(maxima_GN).T.contiguous().topk(count, dim=1, sorted=False).indices.numpy()
    scores_NTM = torch.from_numpy(scores_GMN[groups_NT, :, np.arange(num_points)[:, None]])
    highest = scores_NTM.flatten(1).topk(count, dim=1)
    chosen_NT, members_NT = highest.indices // _GROUP, highest.indices % _GROUP
    return highest.values, torch.from_numpy(groups_NT).gather(1, chosen_NT) * _GROUP + members_NT
