"""The places of the ranked lists with a true label, and the sums over these hits that metrics consist of.

Shapes: N rows, M places of a ranked list, H hits, L true labels, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from owlmine.metrics.arrays import RankedIds, check_ranked_ids, to_numpy
from owlmine.metrics.labels import (
    FilterPairs,
    Int64,
    LabelPairs,
    Labels,
    Pairs,
    check_keys_fit,
    find_keys,
    label_pairs,
    without_pairs,
)


@dataclass(frozen=True)
class Hits:
    """Hits of a batch [H], sorted by row and then by place (0 is the best), and the labels behind them."""

    labels: LabelPairs
    rows: Int64
    places: Int64
    classes: Int64

    @property
    def num_rows(self) -> int:
        return self.labels.num_rows

    def within(self, k: int) -> Hits:
        """Only the hits among the first ``k`` places; all labels stay."""
        return self._select(self.labels, self.places < k)

    def mask(self, num_places: int) -> NDArray[np.bool_]:
        """[N, places] whether each place hits."""
        mask_NM = np.zeros((self.num_rows, num_places), np.bool_)
        mask_NM[self.rows, self.places] = True
        return mask_NM

    def of_classes(self, wanted_K: NDArray[np.bool_]) -> Hits:
        """The same lists, with the labels of the marked classes alone."""
        return self._select(self.labels.select(wanted_K[self.labels.classes]), wanted_K[self.classes])

    def _select(self, labels: LabelPairs, keep_H: NDArray[np.bool_]) -> Hits:
        return Hits(labels, self.rows[keep_H], self.places[keep_H], self.classes[keep_H])


def find_hits(
    ranked_ids: RankedIds,
    labels: Labels,
    *,
    depth: int,
    num_classes: int | None = None,
    filter_pairs: Pairs = None,
) -> Hits:
    """Finds the hits among the first ``depth`` places of each ranked list.

    If a list repeats a class, only its first place can be a hit; the later places stay, and count as misses, and so
    does -1. The search for hits runs where ``ranked_ids`` lives; only the hits come back. Without ``num_classes``, ids
    may be as large as they like.
    """
    ids_NM = check_ranked_ids(ranked_ids, num_classes=num_classes)
    pairs = label_pairs(labels, num_classes=num_classes)
    if pairs.num_rows != len(ids_NM):
        raise ValueError(f"labels have {pairs.num_rows} rows; wanted {len(ids_NM)}, as many as ranked_ids")
    if filter_pairs is not None and not isinstance(filter_pairs, FilterPairs):
        filter_pairs = FilterPairs(filter_pairs)
    if num_classes is None:
        num_classes = _smallest_num_classes(ids_NM, pairs, filter_pairs)
    check_keys_fit(pairs.num_rows, num_classes)
    if filter_pairs is not None:
        ids_NM, pairs = without_pairs(ids_NM, pairs, filter_pairs, num_classes=num_classes)
    return _judge(ids_NM[:, :depth], pairs, num_classes)


def _smallest_num_classes(ids_NM: Any, pairs: LabelPairs, filter_pairs: FilterPairs | None) -> int:
    largest = [int(ids_NM.max())] if 0 not in ids_NM.shape else []
    classes = [pairs.classes] if filter_pairs is None else [pairs.classes, filter_pairs.classes]
    largest += [int(ids.max()) for ids in classes if len(ids)]
    return max(largest, default=0) + 1


def _judge(ids_NM: Any, pairs: LabelPairs, num_classes: int) -> Hits:
    position, met = find_keys(ids_NM, pairs.keys(num_classes), num_classes)
    position_H, met_H = to_numpy(position), to_numpy(met)
    # np.unique names the first occurrence, and positions rise with the place: later repeats drop out.
    first_H = np.sort(np.unique(met_H, return_index=True)[1])
    position_H, met_H = position_H[first_H], met_H[first_H]
    row_H = pairs.rows[met_H]
    return Hits(pairs, row_H, position_H - row_H * ids_NM.shape[1], pairs.classes[met_H])


# Each metric as a sum over the rows of a batch; dividing by the number of rows is left to the caller.
#
# Counts are exact, sums are float64. Places count from 0, so the gain of place p is 1 / log2(p + 2),
# which is 1 / log2(1 + rank).
#
# Shapes: N rows, H hits, L true labels, K classes.


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
    """The hits of the best achievable lists: each row's labels, the heaviest first."""
    labels = hits.labels
    order_L = np.lexsort((-weights_K[labels.classes], labels.rows))
    row_L, class_L = labels.rows[order_L], labels.classes[order_L]
    counts_N = labels.counts
    starts_N = np.cumsum(counts_N) - counts_N
    return Hits(labels, row_L, np.arange(len(row_L)) - starts_N[row_L], class_L)
