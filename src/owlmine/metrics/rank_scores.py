"""From scores to ranked class ids, with one rule for ties: the smaller class id comes first.

Shapes: N rows, K classes, E entries that reach a row's k-th highest score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from owlmine.metrics.arrays import array_module, check_cutoff, is_scipy_sparse, is_tensor, like

if TYPE_CHECKING:
    import torch


@overload
def rank_scores(scores: torch.Tensor, k: int) -> torch.Tensor: ...
@overload
def rank_scores(scores: Any, k: int) -> NDArray[np.int64]: ...
def rank_scores(scores: Any, k: int) -> Any:
    """The ids of the ``k`` highest scores of each row, int64 [N, min(k, K)], the best first.

    ``scores``: a dense block [N, K] (array or tensor), a SciPy sparse matrix, or a CSR tensor. Of the sparse ones only
    stored entries are ranked, zeros too; a row with fewer than k of them ends in -1. Tensors are ranked on their
    device. NaN raises ValueError.
    """
    k = check_cutoff(k)
    _check_scores(scores)
    k = min(k, scores.shape[1])
    if is_scipy_sparse(scores):
        matrix = scores.tocsr()
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        return _rank_sparse(matrix.indptr, matrix.indices, matrix.data, k)
    if not is_tensor(scores):
        return _rank_dense(scores, k)
    scores = scores.detach()
    if scores.layout is array_module(scores).sparse_csr:
        return _rank_sparse(scores.crow_indices(), scores.col_indices(), scores.values(), k)
    return _rank_dense(scores, k)


def _rank_dense(scores_NK: Any, k: int) -> Any:
    module = array_module(scores_NK)
    num_rows, num_classes = scores_NK.shape
    if k == 0 or num_rows == 0:
        return like(np.zeros((num_rows, k), np.int64), scores_NK)
    if is_tensor(scores_NK):
        top_Nk = module.topk(scores_NK, k).values
    else:
        top_Nk = np.partition(scores_NK, num_classes - k, axis=1)[:, num_classes - k :]
    # NaN counts as the highest in both libraries, so that one anywhere in the row shows up here.
    _check_no_nan(top_Nk)
    lowest_N = module.amin(top_Nk, 1)
    row_E, class_E = module.where(scores_NK >= lowest_N[:, None])
    tied_E = scores_NK[row_E, class_E] == lowest_N[row_E]
    # Entries lie in order of row and class: of those tied for the last places, the first ones of a row stay.
    entries_N = module.bincount(row_E, minlength=num_rows)
    ties_N = module.bincount(row_E[tied_E], minlength=num_rows)
    number_E = tied_E.cumsum(0) - (ties_N.cumsum(0) - ties_N)[row_E]
    room_N = k - (entries_N - ties_N)
    ids_Nk = class_E[~tied_E | (number_E <= room_N[row_E])].reshape(num_rows, k)
    return _gather(ids_Nk, _falling(_gather(scores_NK, ids_Nk)))


def _rank_sparse(offsets: Any, classes: Any, values: Any, k: int) -> Any:
    _check_no_nan(values)
    num_rows = len(offsets) - 1
    counts_N = offsets[1:] - offsets[:-1]
    rows = like(np.arange(num_rows, dtype=np.int64), values)
    rows = rows.repeat_interleave(counts_N) if is_tensor(values) else rows.repeat(counts_N)
    # Three stable sorts, the least significant first: class, falling score, row.
    order = _rising(classes)
    order = order[_falling(values[order])]
    order = order[_rising(rows[order])]
    place = like(np.arange(len(order), dtype=np.int64), values) - offsets[:-1][rows]
    near = place < k
    ranked_Nk = like(np.full((num_rows, k), -1, np.int64), values)
    ids = classes[order][near]
    ranked_Nk[rows[near], place[near]] = ids.long() if is_tensor(ids) else ids
    return ranked_Nk


def _check_scores(scores: Any) -> None:
    if not (isinstance(scores, np.ndarray) or is_tensor(scores) or is_scipy_sparse(scores)):
        raise ValueError(f"scores are a {type(scores).__name__}; wanted an array, a tensor or a sparse matrix")
    if scores.ndim != 2:
        raise ValueError(f"scores have the shape {tuple(scores.shape)}; wanted [rows, classes]")
    if is_tensor(scores):
        real = not (scores.is_complex() or scores.dtype is array_module(scores).bool)
    else:
        real = scores.dtype.kind in "iuf"
    if not real:
        raise ValueError(f"scores have the type {scores.dtype}; wanted real numbers")


def _check_no_nan(scores: Any) -> None:
    if bool(array_module(scores).isnan(scores).any()):
        raise ValueError("scores contain NaN; wanted numbers that can be put in order")


def _rising(values: Any) -> Any:
    return array_module(values).argsort(values, stable=True)


def _falling(values: Any) -> Any:
    """The stable order of falling values along the last axis: equal ones keep their order."""
    if is_tensor(values):
        return values.argsort(dim=-1, descending=True, stable=True)
    # Sorting the mirror image and mirroring back needs no minus sign, which unsigned numbers lack.
    return values.shape[-1] - 1 - np.argsort(values[..., ::-1], axis=-1, stable=True)[..., ::-1]


def _gather(values_NK: Any, ids_Nk: Any) -> Any:
    """The values of each row at the row's own columns."""
    return values_NK.gather(1, ids_Nk) if is_tensor(values_NK) else np.take_along_axis(values_NK, ids_Nk, 1)
