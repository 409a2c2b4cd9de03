"""The field's metrics of ranked lists, one function each, as fractions from 0 to 1.

Every function takes

- ``ranked_ids``: integer array or tensor [rows, places], the best class first, -1 for an empty place;
- ``labels``: ``SparseRows``, a SciPy sparse matrix, or one list of class ids per row;
- ``k``: how many places count;
- ``filter_pairs``: (row, class) pairs taken out of lists and labels first (see ``labels.FilterPairs``).

A row without labels counts as a row and adds 0. If a list repeats a class, only its first place can be a hit, and the
repeats keep their places. For several k over many batches, ``RankingMetrics`` reads each list once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.metrics.arrays import RankedIds, check_cutoff
from owlmine.metrics.hits import (
    Float64,
    Hits,
    best_hits,
    find_hits,
    hit_sum,
    ndcg_sum,
    recall_sum,
    weighted_hit_sum,
)
from owlmine.metrics.labels import Labels, Pairs


def precision_at_k(ranked_ids: RankedIds, labels: Labels, k: int, *, filter_pairs: Pairs = None) -> float:
    """Mean of (hits among the first k) / k; the divisor is k even if a row has fewer labels or places."""
    hits = _judged(ranked_ids, labels, k, filter_pairs)
    return hit_sum(hits, k) / k / hits.num_rows


def recall_at_k(ranked_ids: RankedIds, labels: Labels, k: int, *, filter_pairs: Pairs = None) -> float:
    """Mean of (hits among the first k) / (number of labels)."""
    hits = _judged(ranked_ids, labels, k, filter_pairs)
    return recall_sum(hits, k) / hits.num_rows


def retrieval_loss_at_k(ranked_ids: RankedIds, labels: Labels, k: int, *, filter_pairs: Pairs = None) -> float:
    """Mean of the 0/1 retrieval loss 1[y not in Top_k] for a label y drawn uniformly from the row's: 1 - R@k.

    A row without labels counts as lost.
    """
    return 1.0 - recall_at_k(ranked_ids, labels, k, filter_pairs=filter_pairs)


def ndcg_at_k(ranked_ids: RankedIds, labels: Labels, k: int, *, filter_pairs: Pairs = None) -> float:
    """Mean of DCG / ideal DCG: a hit gains 1 / log2(1 + rank), the ideal has min(k, labels) hits in front."""
    hits = _judged(ranked_ids, labels, k, filter_pairs)
    return ndcg_sum(hits, k) / hits.num_rows


def psp_at_k(
    ranked_ids: RankedIds,
    labels: Labels,
    k: int,
    inverse_propensities: Float64,
    *,
    normalize: bool = True,
    filter_pairs: Pairs = None,
) -> float:
    """Propensity-scored P@k: the mean of (Σ_hits 1/p) / k.

    With ``normalize``, as published: divided by the mean of the best achievable value, which a list of the row's labels
    in order of falling 1/p would have. Without it the figure may exceed 1.
    """
    weights_K = check_inverse_propensities(inverse_propensities)
    hits = _judged(ranked_ids, labels, k, filter_pairs, num_classes=len(weights_K))
    got = weighted_hit_sum(hits, k, weights_K)
    if normalize:
        return ratio(got, weighted_hit_sum(best_hits(hits, weights_K), k, weights_K))
    return got / k / hits.num_rows


def psndcg_at_k(
    ranked_ids: RankedIds,
    labels: Labels,
    k: int,
    inverse_propensities: Float64,
    *,
    normalize: bool = True,
    filter_pairs: Pairs = None,
) -> float:
    """Propensity-scored nDCG@k: the mean of (Σ_hits (1/p) / log2(1 + rank)) / (ideal DCG, as in nDCG@k).

    With ``normalize``, as published: divided by the mean of the best achievable value.
    """
    weights_K = check_inverse_propensities(inverse_propensities)
    hits = _judged(ranked_ids, labels, k, filter_pairs, num_classes=len(weights_K))
    got = ndcg_sum(hits, k, weights_K)
    if normalize:
        return ratio(got, ndcg_sum(best_hits(hits, weights_K), k, weights_K))
    return got / hits.num_rows


def coverage_at_k(ranked_ids: RankedIds, labels: Labels, k: int, *, filter_pairs: Pairs = None) -> float:
    """Classes hit among the first k of some row / classes that are a label of some row.

    Classes that are not a label of any row do not count. 0 if there are no labels at all.
    """
    hits = _judged(ranked_ids, labels, k, filter_pairs)
    return ratio(len(np.unique(hits.within(k).classes)), len(np.unique(hits.labels.classes)))


def ratio(part: float, whole: float) -> float:
    """part / whole, or 0 if nothing was achievable."""
    return part / whole if whole else 0.0


def check_inverse_propensities(inverse_propensities: NDArray[Any], *, num_classes: int | None = None) -> Float64:
    """1/p per class as float64. Raises ValueError unless they are finite, positive, and one per class."""
    weights_K = np.asarray(inverse_propensities)
    if weights_K.ndim != 1 or (num_classes is not None and len(weights_K) != num_classes):
        wanted = "one per class" if num_classes is None else f"[{num_classes}], one per class"
        raise ValueError(f"inverse_propensities have the shape {weights_K.shape}; wanted {wanted}")
    if weights_K.dtype.kind not in "iuf":
        raise ValueError(f"inverse_propensities have the type {weights_K.dtype}; wanted numbers")
    wrong_K = ~((weights_K > 0) & np.isfinite(weights_K))
    if wrong_K.any():
        raise ValueError(f"inverse_propensities contain {weights_K[wrong_K][0]}; wanted finite numbers above 0")
    return weights_K.astype(np.float64)


def _judged(ranked_ids: RankedIds, labels: Labels, k: int, filter_pairs: Pairs, num_classes: int | None = None) -> Hits:
    depth = check_cutoff(k)
    hits = find_hits(ranked_ids, labels, depth=depth, num_classes=num_classes, filter_pairs=filter_pairs)
    if hits.num_rows == 0:
        raise ValueError("ranked_ids has 0 rows; wanted at least one to average over")
    return hits
