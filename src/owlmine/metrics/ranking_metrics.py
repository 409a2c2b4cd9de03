"""All metrics of a test split, accumulated batch by batch.

Shapes: N rows of a batch, H hits, K classes, T cut-offs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from owlmine.metrics.metrics import check_inverse_propensities, ratio
from owlmine.metrics.propensity import check_class_counts


class RunningSum:
    """Float64 sums with compensation: what each addition rounds away is summed separately (Neumaier).

    The error stays near one rounding of the result, however many numbers are added; a plain sum of a million
    numbers would drift by some 1e-13 of its value with the way they are cut into batches.
    """

    def __init__(self, size: int) -> None:
        self._total = np.zeros(size)
        self._lost = np.zeros(size)

    @property
    def value(self) -> NDArray[np.float64]:
        return self._total + self._lost

    def add(self, term: NDArray[np.float64]) -> None:
        total = self._total + term
        larger = np.where(np.abs(self._total) >= np.abs(term), self._total, term)
        smaller = np.where(np.abs(self._total) >= np.abs(term), term, self._total)
        self._lost += (larger - total) + smaller
        self._total = total

    def merge(self, other: RunningSum) -> None:
        self.add(other._total)
        self._lost += other._lost


BIN_NAMES = ("head", "torso", "tail")


@dataclass(frozen=True)
class FrequencyCuts:
    """head: at least ``head`` training points; torso: at least ``torso``; tail: fewer, including none."""

    head: int = 100
    torso: int = 10

    def __post_init__(self) -> None:
        if not self.head > self.torso >= 1:
            raise ValueError(f"cuts are head {self.head} and torso {self.torso}; wanted head > torso >= 1")

    def masks(self, class_counts: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
        """Which classes [K] belong to each bin; every class belongs to exactly one."""
        counts_K = check_class_counts(class_counts)
        head_K = counts_K >= self.head
        tail_K = counts_K < self.torso
        return dict(zip(BIN_NAMES, (head_K, ~(head_K | tail_K), tail_K), strict=True))


_NEVER = np.iinfo(np.int32).max


class RankingMetrics:
    """Sums over batches of ranked lists; ``compute`` turns them into percentages.

    The figures do not depend on how the rows were cut into batches, or on the order of the batches. Memory:
    some bytes per class, whatever the number of rows.

    num_classes: K, the bound of every id.
    ks: the cut-offs to report.
    inverse_propensities: 1/p per class [K]; without them there are no PSP and PSnDCG.
    class_counts: training points per class [K]; without them there are no figures per bin.
    cuts: the boundaries of head, torso and tail.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        ks: Sequence[int] = (1, 3, 5, 10),
        inverse_propensities: NDArray[Any] | None = None,
        class_counts: NDArray[Any] | None = None,
        cuts: FrequencyCuts | None = None,
    ) -> None:
        if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer) or num_classes < 1:
            raise ValueError(f"num_classes is {num_classes!r}; wanted a whole number of at least 1")
        if len(ks) == 0:
            raise ValueError("ks is empty; wanted at least one cut-off")
        self.num_classes = int(num_classes)
        self.ks = tuple(check_cutoff(k) for k in ks)
        self._weights_K: Float64 | None = None
        if inverse_propensities is not None:
            self._weights_K = check_inverse_propensities(inverse_propensities, num_classes=num_classes)
        self._bins: dict[str, NDArray[np.bool_]] = {}
        if class_counts is not None:
            counts_K = check_class_counts(class_counts, num_classes=num_classes)
            self._bins = (cuts or FrequencyCuts()).masks(counts_K)
        self.num_rows = 0
        self._sums: dict[str, RunningSum] = {}
        self._best_place_K = np.full(num_classes, _NEVER, np.int32)
        self._is_label_K = np.zeros(num_classes, np.bool_)

    def update(
        self,
        ranked_ids: RankedIds,
        labels: Labels,
        *,
        filter_pairs: Pairs = None,
    ) -> None:
        """Add a batch: ``ranked_ids`` [N, M] (best first, -1 for an empty place) and the labels of its rows.

        The rows of ``filter_pairs`` count from the first row of this batch (``FilterPairs.in_rows``).
        """
        hits = find_hits(
            ranked_ids, labels, depth=max(self.ks), num_classes=self.num_classes, filter_pairs=filter_pairs
        )
        for name, sums_T in self._batch_sums(hits).items():
            self._sums.setdefault(name, RunningSum(len(self.ks))).add(sums_T)
        np.minimum.at(self._best_place_K, hits.classes, hits.places.astype(np.int32))
        self._is_label_K[hits.labels.classes] = True
        self.num_rows += hits.num_rows

    def _batch_sums(self, hits: Hits) -> dict[str, Float64]:
        """Sums over the rows of a batch, one per cut-off [T]."""
        sums = {
            "hits": [hit_sum(hits, k) for k in self.ks],
            "recall": [recall_sum(hits, k) for k in self.ks],
            "ndcg": [ndcg_sum(hits, k) for k in self.ks],
        }
        if self._weights_K is not None:
            for prefix, scored in (("ps_", hits), ("best_ps_", best_hits(hits, self._weights_K))):
                sums[prefix + "hits"] = [weighted_hit_sum(scored, k, self._weights_K) for k in self.ks]
                sums[prefix + "ndcg"] = [ndcg_sum(scored, k, self._weights_K) for k in self.ks]
        for name, in_bin_K in self._bins.items():
            in_bin = hits.of_classes(in_bin_K)
            sums["hits/" + name] = [hit_sum(in_bin, k) for k in self.ks]
            sums["recall/" + name] = [recall_sum(in_bin, k) for k in self.ks]
            sums["rows/" + name] = [float(np.count_nonzero(in_bin.labels.counts)) for _ in self.ks]
        return {name: np.array(values) for name, values in sums.items()}

    def merge(self, other: RankingMetrics) -> None:
        """Add what ``other`` has gathered, as if its batches had been given here."""
        if not self._same_settings(other):
            raise ValueError(
                "the two differ in num_classes, ks, inverse propensities or bins; wanted the same settings"
            )
        for name, sums in other._sums.items():
            self._sums.setdefault(name, RunningSum(len(self.ks))).merge(sums)
        np.minimum(self._best_place_K, other._best_place_K, out=self._best_place_K)
        self._is_label_K |= other._is_label_K
        self.num_rows += other.num_rows

    def _same_settings(self, other: RankingMetrics) -> bool:
        return (
            (self.num_classes, self.ks, self._bins.keys()) == (other.num_classes, other.ks, other._bins.keys())
            and _equal(self._weights_K, other._weights_K)
            and all(np.array_equal(mask_K, other._bins[name]) for name, mask_K in self._bins.items())
        )

    def compute(self) -> dict[str, float]:
        """Percentages by name, for every k of ``ks``.

        ``P@k``, ``R@k``, ``nDCG@k``, ``loss@k`` (the 0/1 retrieval loss, 100 - R@k), ``coverage@k``: see
        ``metrics.py``. With inverse propensities ``PSP@k`` and ``PSnDCG@k``, normalised as published. With
        class counts, for each bin of head, torso and tail:

        - ``P@k/head``: the part of P@k that hits of the bin contribute; the bins add up to P@k.
        - ``R@k/head``: (hits of the bin) / (labels of the bin), averaged over the rows that have a label of
          the bin, as R@k averages over rows; NaN where no row has one.
        """
        if self.num_rows == 0:
            raise ValueError("no rows were given; wanted at least one to average over")
        figures: dict[str, float] = {}
        for t, k in enumerate(self.ks):
            figures |= {f"{name}@{k}": 100.0 * value for name, value in self._at(t, k).items()}
            for name in self._bins:
                rows = self._sum("rows/" + name, t)
                figures[f"P@{k}/{name}"] = 100.0 * self._sum("hits/" + name, t) / k / self.num_rows
                figures[f"R@{k}/{name}"] = 100.0 * self._sum("recall/" + name, t) / rows if rows else np.nan
        return figures

    def _at(self, t: int, k: int) -> dict[str, float]:
        recall = self._sum("recall", t) / self.num_rows
        covered = int(np.count_nonzero(self._best_place_K < k))
        values = {
            "P": self._sum("hits", t) / k / self.num_rows,
            "R": recall,
            "nDCG": self._sum("ndcg", t) / self.num_rows,
            "loss": 1.0 - recall,
            "coverage": ratio(covered, int(np.count_nonzero(self._is_label_K))),
        }
        if self._weights_K is not None:
            values["PSP"] = ratio(self._sum("ps_hits", t), self._sum("best_ps_hits", t))
            values["PSnDCG"] = ratio(self._sum("ps_ndcg", t), self._sum("best_ps_ndcg", t))
        return values

    def _sum(self, name: str, t: int) -> float:
        return float(self._sums[name].value[t])


def _equal(one: Float64 | None, other: Float64 | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
