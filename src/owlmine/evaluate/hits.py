"""The one kernel behind every metric: which places of the ranked lists hold a true label.

Shapes: N rows, M places of a ranked list, H hits, L true labels, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.evaluate.arrays import RankedIds, check_ranked_ids, to_numpy
from owlmine.evaluate.filter_pairs import FilterPairs, Pairs, without_pairs
from owlmine.evaluate.label_pairs import LabelPairs, Labels, label_pairs
from owlmine.evaluate.pair_keys import Int64, check_keys_fit, find_keys


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
        """The same lists judged by the labels of the marked classes alone."""
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
    """Judge the first ``depth`` places of each ranked list.

    A class that a list repeats hits at its first place only; its later places are kept and miss. -1 misses.
    The search for hits runs where ``ranked_ids`` lives; only the hits come back. Without ``num_classes``, ids
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
