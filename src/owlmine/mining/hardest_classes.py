"""One door to the hardest classes of a query: of all classes or of a pool, on any device.

On a GPU with Triton the scores are reduced where they are computed, and never written out whole; elsewhere blocks of
them are, by plain PyTorch.

Shapes: N queries, K classes, D dimension, B pool, E excluded classes in all.
"""

from __future__ import annotations

import logging
from functools import lru_cache

import torch
from torch import Tensor

from owlmine.mining.hardest_plain import hardest_plain
from owlmine.mining.known import Known, flat_known

MAX_KEPT = 1024
"""The largest ``k`` for which there is a kernel."""


@torch.no_grad()
def hardest(
    queries_ND: Tensor,
    class_table_KD: Tensor,
    k: int,
    *,
    pool: Tensor | None = None,
    exclude: Known | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores and ids [N, k] of the ``k`` classes with the highest inner products, highest first.

    ``pool``: distinct class ids [B] to choose from, instead of all. ``exclude``: classes that do not count for a query,
    as padded ids or compressed rows (``owlmine.mining.known``). Where fewer than ``k`` are left, -inf and -1.

    Ids are those of float32 ``topk`` wherever scores differ by more than the arithmetic's error. Among equal scores
    the first class, or the first of the pool, comes first; on a GPU that holds for scores that are equal to the bit.
    """
    _check(queries_ND, class_table_KD, k, pool)
    if queries_ND.is_cuda and k <= MAX_KEPT and len(queries_ND) and have_triton():
        from owlmine.kernels.hardest import hardest_by_kernels, kernel_exclusions, may_choose  # Triton is optional.

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
    """Whether kernels can be compiled; says so once where they cannot."""
    try:
        import triton  # noqa: F401
    except ImportError:
        logging.getLogger("owlmine").warning("Triton is not installed: GPU work falls back to plain PyTorch, slower")
        return False
    return True


def _check(queries_ND: Tensor, class_table_KD: Tensor, k: int, pool: Tensor | None) -> None:
    if queries_ND.ndim != 2 or class_table_KD.ndim != 2 or queries_ND.shape[1] != class_table_KD.shape[1]:
        given = f"{tuple(queries_ND.shape)} and {tuple(class_table_KD.shape)}"
        raise ValueError(f"queries and class table: given {given}; wanted [N, D] and [K, D]")
    if pool is not None and (pool.ndim != 1 or pool.dtype != torch.int64):
        raise ValueError(f"pool: given {pool.dtype} of shape {tuple(pool.shape)}; wanted a vector of int64 class ids")
    choice = len(class_table_KD) if pool is None else len(pool)
    if not 1 <= k <= choice:
        raise ValueError(f"k is {k}; wanted 1 to the {choice} classes to choose from")
