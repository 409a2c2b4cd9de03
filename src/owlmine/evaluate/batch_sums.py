"""Each metric as a sum over the rows of a batch; dividing by the number of rows is left to the caller.

Counts are exact, sums are float64. Places count from 0, so the gain of place p is 1 / log2(p + 2),
which is 1 / log2(1 + rank).

Shapes: N rows, H hits, L true labels, K classes.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from owlmine.evaluate.hits import Hits

Float64: TypeAlias = NDArray[np.float64]


def hit_sum(hits: Hits, k: int) -> float:
    """Σ hits among the first k; k times the sum of P@k."""
    return float(len(hits.within(k).rows))


def recall_sum(hits: Hits, k: int) -> float:
    """Σ hits among the first k / number of labels; a row without labels adds 0."""
    hits_N = np.bincount(hits.within(k).rows, minlength=hits.num_rows)
    return float(np.sum(hits_N / np.maximum(hits.labels.counts, 1)))


def weighted_hit_sum(hits: Hits, k: int, weights_K: Float64) -> float:
    """Σ weight of each hit among the first k; k times the sum of the propensity-scored P@k."""
    return float(weights_K[hits.within(k).classes].sum())


def ndcg_sum(hits: Hits, k: int, weights_K: Float64 | None = None) -> float:
    """Σ (Σ_hits weight / log2(1 + rank)) / (Σ_{rank <= min(k, labels)} 1 / log2(1 + rank)).

    Without weights each hit weighs 1. A row without labels adds 0.
    """
    counts_N = hits.labels.counts
    gains = 1.0 / np.log2(np.arange(2.0, k + 2.0))
    # Hits of a row are added in the order of their places, as the ideal is: a perfect row gives exactly 1.
    ideal = np.concatenate(([1.0], np.cumsum(gains)))
    near = hits.within(k)
    gain_H = gains[near.places]
    if weights_K is not None:
        gain_H = gain_H * weights_K[near.classes]
    dcg_N = np.bincount(near.rows, weights=gain_H, minlength=hits.num_rows)
    return float(np.sum(dcg_N / ideal[np.minimum(counts_N, k)]))


def best_hits(hits: Hits, weights_K: Float64) -> Hits:
    """The hits that the best achievable lists would have: each row's labels, the heaviest first."""
    labels = hits.labels
    order_L = np.lexsort((-weights_K[labels.classes], labels.rows))
    row_L, class_L = labels.rows[order_L], labels.classes[order_L]
    counts_N = labels.counts
    starts_N = np.cumsum(counts_N) - counts_N
    return Hits(labels, row_L, np.arange(len(row_L)) - starts_N[row_L], class_L)
