"""Whether probabilities are calibrated: of the predictions with probability 0.7, are seven in ten right?

Shapes: N rows, M places of a ranked list, E predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.metrics.arrays import check_cutoff
from owlmine.metrics.hits import find_hits
from owlmine.metrics.labels import FilterPairs, Labels, find_keys, pair_keys

DEFAULT_BINS = 15


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions with similar probabilities: how many, their mean probability, and the share that were right."""

    count: int
    probability: float
    hits: float


def reliability_bins(
    probabilities: NDArray[Any], hits: NDArray[np.bool_], *, bins: int = DEFAULT_BINS
) -> list[ReliabilityBin]:
    """At most ``bins`` bins of rising probability, with as nearly equal numbers of predictions as ties allow.

    Equal probabilities share a bin, the one that their middle falls into, so the order of the predictions does not
    matter. The arrays may have any shape, but both the same.
    """
    bins = check_cutoff(bins)
    probabilities, hits = np.asarray(probabilities), np.asarray(hits)
    if probabilities.shape != hits.shape or probabilities.size == 0:
        raise ValueError(
            f"probabilities have the shape {probabilities.shape} and hits {hits.shape}; wanted the same, not empty"
        )
    if hits.dtype != np.bool_:
        raise ValueError(f"hits have the type {hits.dtype}; wanted bool")
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("probabilities are not all from 0 to 1")
    values_U, groups_E, counts_U = np.unique(
        probabilities.ravel().astype(np.float64), return_inverse=True, return_counts=True
    )
    hits_U = np.bincount(groups_E.ravel(), weights=hits.ravel(), minlength=len(values_U))
    # Twice the number of predictions below the middle of each group: whole numbers, so nothing is rounded.
    middle_U = 2 * np.cumsum(counts_U) - counts_U
    bin_U = bins * middle_U // (2 * probabilities.size)
    found = []
    for number in np.unique(bin_U):
        mine = bin_U == number
        count = int(counts_U[mine].sum())
        mean = float(counts_U[mine] @ values_U[mine]) / count
        found.append(ReliabilityBin(count, mean, float(hits_U[mine].sum()) / count))
    return found


def expected_calibration_error(
    probabilities: NDArray[Any], hits: NDArray[np.bool_], *, bins: int = DEFAULT_BINS
) -> float:
    """Σ (predictions of the bin) / (all) · |mean probability - share of hits|, as a fraction from 0 to 1."""
    found = reliability_bins(probabilities, hits, bins=bins)
    total = sum(one.count for one in found)
    return sum(one.count / total * abs(one.probability - one.hits) for one in found)


def judged_predictions(
    ids_NM: NDArray[np.int64],
    probabilities_NM: NDArray[np.float32],
    labels: Labels,
    *,
    k: int,
    num_classes: int,
    filter_pairs: FilterPairs | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Probabilities [E] and hits [E] of the first ``k`` places of each list; filtered and empty ones do not count."""
    assert ids_NM.shape == probabilities_NM.shape
    depth = ids_NM.shape[1]
    hits_NM = find_hits(ids_NM, labels, depth=depth, num_classes=num_classes).mask(depth)
    counted_NM = ids_NM >= 0
    if filter_pairs is not None:
        keys = pair_keys(filter_pairs.rows, filter_pairs.classes, num_classes)
        counted_NM.reshape(-1)[find_keys(ids_NM, keys, num_classes)[0]] = False
    counted_NM &= np.cumsum(counted_NM, axis=1) <= k
    return probabilities_NM[counted_NM], hits_NM[counted_NM]
