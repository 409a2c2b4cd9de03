"""The hardest classes of a query: among all classes or in a pool, on any device.

On a GPU with Triton, scores are reduced where they are computed, and never written out in full; elsewhere, plain
PyTorch computes them in blocks.

One rule for ties: among equal scores the smaller position ranks first. torch.topk makes no guarantee about ties. They
do not change a loss, but they do change its gradient: it would go to another class from one device or version to the
next, most often in bfloat16, where ties are common.

Shapes: N queries or points, K classes, R rows to score, C rows of a block, D dimension, B pool or scores of each point,
T kept, E excluded places in all.
"""

from __future__ import annotations

import logging
from functools import lru_cache

import torch
from torch import Tensor

from owlmine.mining.checks import may_look
from owlmine.mining.coded_rows import CodedRows, Table
from owlmine.mining.known import Known, flat_known


def highest_reference(scores_NB: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` highest scores of each row, in rank order: a full stable sort."""
    return torch.argsort(scores_NB, dim=1, descending=True, stable=True)[:, :count]


@torch.no_grad()
def highest(scores_NB: Tensor, count: int) -> Tensor:
    """The same positions as ``highest_reference``, without a full sort if ``count`` is small."""
    width = scores_NB.shape[1]
    assert 0 <= count <= width
    if count == 0:
        return torch.empty(scores_NB.shape[0], 0, dtype=torch.int64, device=scores_NB.device)
    if count == 1:
        # Documented to return the first of several maxima.
        return scores_NB.max(dim=1, keepdim=True).indices
    if 2 * count > width:
        return highest_reference(scores_NB, count)
    # One more than asked shows whether a tie crosses the boundary.
    values_NT, ids_NT = scores_NB.topk(count + 1, dim=1)
    boundary_N1, next_N1 = values_NT[:, count - 1 : count], values_NT[:, count:]
    values_NT, ids_NT = _order_ties(values_NT[:, :count], ids_NT[:, :count])
    if may_look(scores_NB, None) and not bool((boundary_N1 == next_N1).any()):
        return ids_NT
    return _settle_boundary(scores_NB, values_NT, ids_NT, boundary_N1)


def _order_ties(values_NT: Tensor, ids_NT: Tensor) -> tuple[Tensor, Tensor]:
    """Equal values among those kept, put in the order of their positions."""
    ids_NT, order_NT = ids_NT.sort(dim=1)
    values_NT, order_NT = values_NT.gather(1, order_NT).sort(dim=1, descending=True, stable=True)
    return values_NT, ids_NT.gather(1, order_NT)


def _settle_boundary(scores_NB: Tensor, values_NT: Tensor, ids_NT: Tensor, boundary_N1: Tensor) -> Tensor:
    """Fills the ranks whose value equals the boundary with the smallest positions that have this value."""
    width, count = scores_NB.shape[1], values_NT.shape[1]
    countdown_B = torch.arange(width, 0, -1, dtype=torch.int32, device=scores_NB.device)
    tied_ids_NT = torch.where(scores_NB == boundary_N1, countdown_B, 0).topk(count, dim=1).indices
    # Written so that NaN, which topk puts first, stays where it is and reaches the loss.
    above_NT = ~(values_NT <= boundary_N1)
    ranks_T = torch.arange(count, device=scores_NB.device)
    place_NT = (ranks_T - above_NT.sum(dim=1, keepdim=True)).clamp_min(0)
    return torch.where(above_NT, ids_NT, tied_ids_NT.gather(1, place_NT))


# Scores held at once. Larger blocks gain nothing; N x K is never held.
_BLOCK_SCORES = 1 << 24
# Queries at a time on a CPU: with some ten thousand classes, their scores are still in the cache when they are
# searched.
_CPU_QUERIES = 128


@torch.no_grad()
def hardest_plain(queries_ND: Tensor, rows_RD: Table, k: int, excluded: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The ``k`` highest scores of each query and their rows, highest first; among equal scores the smaller row.

    ``excluded``: numbers of queries and rows [E] that do not count. If fewer than ``k`` are left: -inf and -1.
    """
    if queries_ND.device.type == "cpu" and len(queries_ND) > _CPU_QUERIES:
        parts = [
            hardest_plain(queries_ND[start : start + _CPU_QUERIES], rows_RD, k, _of_queries(excluded, start))
            for start in range(0, len(queries_ND), _CPU_QUERIES)
        ]
        return torch.cat([scores for scores, _ in parts]), torch.cat([places for _, places in parts])
    num_queries, num_rows = len(queries_ND), len(rows_RD)
    width = max(_BLOCK_SCORES // max(num_queries, 1), k)
    scores_Nk, places_Nk = queries_ND.new_empty(num_queries, 0), queries_ND.new_empty(num_queries, 0).long()
    for start in range(0, num_rows, width):
        scores_NC = _products(queries_ND, rows_RD, slice(start, start + width))
        here_E = (excluded[1] >= start) & (excluded[1] < start + width)
        scores_NC[excluded[0][here_E], excluded[1][here_E] - start] = -torch.inf
        best_Nk = highest(scores_NC, min(k, scores_NC.shape[1]))
        scores_Nk = torch.cat([scores_Nk, scores_NC.gather(1, best_Nk)], dim=1)
        places_Nk = torch.cat([places_Nk, best_Nk + start], dim=1)
        scores_Nk, places_Nk = _best_first(scores_Nk, places_Nk, k)
    return scores_Nk, torch.where(scores_Nk == -torch.inf, -1, places_Nk)


def _products(queries_ND: Tensor, rows_RD: Table, some: slice) -> Tensor:
    return rows_RD.products(queries_ND, some) if isinstance(rows_RD, CodedRows) else queries_ND @ rows_RD[some].T


def _of_queries(excluded: tuple[Tensor, Tensor], start: int) -> tuple[Tensor, Tensor]:
    """The exclusions for the block of queries that starts there, renumbered."""
    here_E = (excluded[0] >= start) & (excluded[0] < start + _CPU_QUERIES)
    return excluded[0][here_E] - start, excluded[1][here_E]


def _best_first(scores: Tensor, places: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sorted by place, then stably by score: ties end with the smaller place first."""
    places, order = places.sort(dim=1)
    scores, best = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores[:, :k], places.gather(1, best)[:, :k]


MAX_KEPT = 1024
"""The largest ``k`` for which there is a kernel."""


@torch.no_grad()
def hardest(
    queries_ND: Tensor,
    class_table_KD: Table,
    k: int,
    *,
    pool: Tensor | None = None,
    exclude: Known | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores and ids [N, k] of the ``k`` classes with the highest inner products, highest first.

    ``pool``: distinct class ids [B] to choose from, instead of all. ``exclude``: classes to leave out for a query, as
    padded ids or compressed rows (``owlmine.mining.known``). If fewer than ``k`` are left, -inf and -1.

    Ids are those of float32 ``topk`` wherever scores differ by more than the arithmetic's error. Among equal scores
    the first class, or the first of the pool, comes first; on a GPU that holds for scores that are equal to the bit.
    """
    _check(queries_ND, class_table_KD, k, pool)
    if (
        isinstance(class_table_KD, Tensor)
        and queries_ND.is_cuda
        and k <= MAX_KEPT
        and len(queries_ND)
        and have_triton()
    ):
        from owlmine.mining.kernels.hardest import (  # Triton is optional.
            hardest_by_kernels,
            kernel_exclusions,
            may_choose,
        )

        own = kernel_exclusions(exclude)
        if may_choose(k, own):
            return hardest_by_kernels(queries_ND, class_table_KD, k, pool=pool, exclude=own)
    rows_E, ids_E = _excluded_pairs(exclude, queries_ND)
    # PyTorch multiplies equal types only.
    queries_ND = queries_ND.to(class_table_KD.dtype)
    if pool is None:
        return hardest_plain(queries_ND, class_table_KD, k, (rows_E, ids_E))
    sorted_B, order_B = pool.sort()
    found_E = torch.searchsorted(sorted_B, ids_E).clamp_max(len(pool) - 1)
    is_in_E = sorted_B[found_E] == ids_E
    excluded = rows_E[is_in_E], order_B[found_E[is_in_E]]
    scores_Nk, places_Nk = hardest_plain(queries_ND, class_table_KD[pool], k, excluded)
    return scores_Nk, torch.where(places_Nk < 0, -1, pool[places_Nk])


def _excluded_pairs(exclude: Known | None, queries_ND: Tensor) -> tuple[Tensor, Tensor]:
    if exclude is None:
        nothing = torch.empty(0, dtype=torch.int64, device=queries_ND.device)
        return nothing, nothing
    rows_E, ids_E = flat_known(exclude, num_points=len(queries_ND), validate=None)
    real_E = ids_E >= 0
    return rows_E[real_E], ids_E[real_E]


@lru_cache(maxsize=1)
def have_triton() -> bool:
    """Whether kernels can be compiled; warns once if they cannot."""
    try:
        import triton  # noqa: F401
    except ImportError:
        logging.getLogger("owlmine").warning("Triton is not installed, so the GPU uses plain PyTorch, which is slower")
        return False
    return True


def _check(queries_ND: Tensor, class_table_KD: Table, k: int, pool: Tensor | None) -> None:
    if queries_ND.ndim != 2 or class_table_KD.ndim != 2 or queries_ND.shape[1] != class_table_KD.shape[1]:
        given = f"{tuple(queries_ND.shape)} and {tuple(class_table_KD.shape)}"
        raise ValueError(f"queries and class table: given {given}; wanted [N, D] and [K, D]")
    if pool is not None and (pool.ndim != 1 or pool.dtype != torch.int64):
        raise ValueError(f"pool: given {pool.dtype} of shape {tuple(pool.shape)}; wanted a vector of int64 class ids")
    choice = len(class_table_KD) if pool is None else len(pool)
    if not 1 <= k <= choice:
        raise ValueError(f"k is {k}; wanted 1 to the {choice} classes to choose from")
