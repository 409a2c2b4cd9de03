"""A model judged on a split: exact top k in blocks, metrics gathered on the way.

Shapes: N rows of a block, K classes, P filter pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import SparseRows
from owlmine.data.store import Split
from owlmine.errors import OwlmineError
from owlmine.metrics.calibration import (
    ReliabilityBin,
    expected_calibration_error,
    judged_predictions,
    reliability_bins,
)
from owlmine.metrics.labels import FilterPairs
from owlmine.metrics.propensity import PropensityConstants, inverse_propensities, propensity_constants
from owlmine.metrics.ranking_metrics import FrequencyCuts, RankingMetrics
from owlmine.model.predictor import ClassWords, Predictor

DEFAULT_KS = (1, 3, 5, 10)
# Places whose probabilities are judged: those that people look at.
CALIBRATED_PLACES = 5
_BLOCK_ROWS = 1024
# Below these the formula of propensities makes no sense (ln N - 1 < 0).
_LEAST_POINTS = 3


@dataclass(frozen=True)
class BinSize:
    """Classes of a bin, and how many labels of the split are theirs."""

    classes: int
    labels: int


@dataclass(frozen=True)
class Reliability:
    """How far the probabilities of each point's first ``places`` classes can be believed."""

    places: int
    error: float
    """Expected calibration error, in percent points."""
    bins: list[ReliabilityBin]


@dataclass(frozen=True)
class Evaluation:
    """``figures`` are percentages by name (see ``RankingMetrics.compute``), NaN where there is nothing to judge."""

    figures: dict[str, float]
    ks: tuple[int, ...]
    num_points: int
    without_label: int
    num_classes: int
    bins: dict[str, BinSize]
    cuts: FrequencyCuts
    constants: PropensityConstants | None
    """None where the model saw too few points for propensities; there is no PSP and no PSnDCG then."""
    reliability: Reliability | None = None
    """None where the model has no calibration."""


def evaluate_model(
    predictor: Predictor,
    split: Split,
    *,
    ks: Sequence[int] | None = None,
    constants: PropensityConstants | None = None,
    cuts: FrequencyCuts | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judges ``predictor`` on every point of a split of a store that fits it (``Predictor.check_fits``).

    ks: cut-offs; where none are given, those of 1, 3, 5 and 10 that do not exceed the number of classes.
    constants: A and B of propensities; where none are given, those known for the name of the training data.
    progress: called with the points judged so far and all of them.

    Filter pairs of the split leave labels and ranked lists. Points without labels count as 0.
    """
    classes = predictor.classes
    num_classes = len(classes.keys)
    ks = _checked(ks, num_classes)
    if not len(split):
        raise OwlmineError(f"the {split.name} split has no points; wanted at least one to judge")
    cuts = cuts or FrequencyCuts()
    constants, weights_K = _propensities(predictor, constants)
    metrics = RankingMetrics(num_classes, ks=ks, inverse_propensities=weights_K, class_counts=classes.counts, cuts=cuts)
    pairs = FilterPairs(split.filter_pairs) if split.filter_pairs is not None else None
    labels_K, without_label = np.zeros(num_classes, np.int64), 0
    places = 0 if predictor.calibration is None else min(CALIBRATED_PLACES, num_classes)
    judged: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []
    start = 0
    for batch in split.blocks(_BLOCK_ROWS):
        own = None if pairs is None else pairs.in_rows(start, start + len(batch))
        depth = min(max(*ks, places) + _most_pairs(own), num_classes)
        _, ids_ND, probabilities_ND = predictor.top_with_probabilities(batch.queries, depth)
        metrics.update(ids_ND, batch.labels, filter_pairs=own)
        if probabilities_ND is not None:
            if isinstance(batch.queries, SparseRows):
                # Nothing is predicted for a query without features.
                ids_ND = np.where(batch.queries.counts[:, None] > 0, ids_ND, -1)
            judged.append(
                judged_predictions(
                    ids_ND, probabilities_ND, batch.labels, k=places, num_classes=num_classes, filter_pairs=own
                )
            )
        np.add.at(labels_K, batch.labels.indices, 1)
        without_label += int((batch.labels.counts == 0).sum())
        start += len(batch)
        if progress is not None:
            progress(start, len(split))
    return Evaluation(
        metrics.compute(),
        ks,
        len(split),
        without_label,
        num_classes,
        _bins(classes, labels_K, cuts),
        cuts,
        constants,
        _reliability(judged, places),
    )


def known_constants(*names: str | None) -> PropensityConstants:
    """The constants of the first dataset name that has constants of its own; the usual ones where none has."""
    usual = PropensityConstants()
    for name in names:
        # A store or folder may be called NAME or NAME.store.
        for spelling in (name or "", (name or "").rpartition(".")[0]):
            if (found := propensity_constants(spelling)) != usual:
                return found
    return usual


def _reliability(judged: list[tuple[NDArray[np.float32], NDArray[np.bool_]]], places: int) -> Reliability | None:
    if not sum(len(hits) for _, hits in judged):
        return None
    probabilities, hits = (np.concatenate(parts) for parts in zip(*judged, strict=True))
    error = 100.0 * expected_calibration_error(probabilities, hits)
    return Reliability(places, error, reliability_bins(probabilities, hits))


def _checked(ks: Sequence[int] | None, num_classes: int) -> tuple[int, ...]:
    if ks is None:
        return tuple(k for k in DEFAULT_KS if k <= num_classes)
    if not ks or min(ks) < 1 or max(ks) > num_classes:
        raise OwlmineError(f"k is {', '.join(map(str, ks)) or 'missing'}; wanted 1 to {num_classes:,}, the classes")
    return tuple(sorted(set(ks)))


def _propensities(
    predictor: Predictor, constants: PropensityConstants | None
) -> tuple[PropensityConstants | None, np.ndarray[tuple[int], np.dtype[np.float64]] | None]:
    classes = predictor.classes
    if classes.num_points < _LEAST_POINTS:
        return None, None
    constants = constants or known_constants(predictor.config.get("data", {}).get("name"))
    return constants, inverse_propensities(classes.counts, classes.num_points, constants=constants)


def _most_pairs(pairs: FilterPairs | None) -> int:
    """The largest number of pairs that one row has: so many places may close up."""
    return 0 if pairs is None or not len(pairs) else int(np.bincount(pairs.rows).max())


def _bins(
    classes: ClassWords, labels_K: np.ndarray[tuple[int], np.dtype[np.int64]], cuts: FrequencyCuts
) -> dict[str, BinSize]:
    return {
        name: BinSize(int(mask_K.sum()), int(labels_K[mask_K].sum()))
        for name, mask_K in cuts.masks(classes.counts).items()
    }
