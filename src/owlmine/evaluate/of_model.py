"""The figures of a model on a split: exact answers in blocks, with metrics accumulated on the way.

Shapes: N rows of a block, K classes, k answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import SparseRows
from owlmine.data.store import Batch, Split
from owlmine.errors import OwlmineError
from owlmine.metrics.calibration import (
    ReliabilityBin,
    expected_calibration_error,
    judged_predictions,
    reliability_bins,
)
from owlmine.metrics.labels import FilterPairs
from owlmine.metrics.propensity import PropensityConstants, inverse_propensities
from owlmine.metrics.ranking_metrics import FrequencyCuts, RankingMetrics
from owlmine.rank.predictor import Predictions, Predictor
from owlmine.rank.words import ClassWords

DEFAULT_KS = (1, 3, 5, 10)
# The places whose probabilities are checked: those that people look at.
CALIBRATED_PLACES = 5
_BLOCK_ROWS = 1024
# With fewer points, the propensity formula is undefined (ln N - 1 < 0).
_LEAST_POINTS = 3

Hits = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Probabilities of predictions, and whether each was right."""


@dataclass(frozen=True)
class BinSize:
    """The number of classes in a bin, and of their labels in the split."""

    classes: int
    labels: int


@dataclass(frozen=True)
class Reliability:
    """How well the probabilities of each point's first ``places`` classes agree with the outcomes."""

    places: int
    error: float
    """Expected calibration error, in percentage points."""
    bins: list[ReliabilityBin]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; shares in percent."""
        bins = [
            {"predictions": one.count, "probability": 100 * one.probability, "right": 100 * one.hits}
            for one in self.bins
        ]
        return {"places": self.places, "error": self.error, "bins": bins}


@dataclass(frozen=True)
class Evaluation:
    """``figures`` are percentages by name (see ``RankingMetrics.compute``), NaN where nothing could be measured."""

    figures: dict[str, float]
    ks: tuple[int, ...]
    num_points: int
    without_label: int
    num_classes: int
    bins: dict[str, BinSize]
    cuts: FrequencyCuts
    constants: PropensityConstants | None
    """None if the model has too few training points for propensities; then there is no PSP and no PSnDCG."""
    reliability: Reliability | None = None
    """None if the model has no calibration."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; a figure that is NaN is None."""
        constants = self.constants
        return {
            "points": self.num_points,
            "points_without_label": self.without_label,
            "classes": self.num_classes,
            "propensity": None if constants is None else {"a": constants.a, "b": constants.b},
            "bins": {name: {"classes": size.classes, "labels": size.labels} for name, size in self.bins.items()},
            **{name: None if math.isnan(value) else value for name, value in self.figures.items()},
            "calibration": None if self.reliability is None else self.reliability.to_dict(),
        }


def evaluate_model(
    predictor: Predictor,
    split: Split,
    *,
    ks: Sequence[int] | None = None,
    constants: PropensityConstants | None = None,
    cuts: FrequencyCuts | None = None,
    tail: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluates ``predictor`` on every point of a split of a matching dataset (``Predictor.check_fits``).

    ks: cut-offs; by default those of 1, 3, 5 and 10 that do not exceed the number of classes. constants: A and B of
    propensities; by default those fixed at training. tail: lifts rare classes before anything is measured, as in
    ``Predictor.predict``. progress: called with the number of points done and the total.

    Filter pairs of the split are removed from labels and ranked lists. Points without labels count as 0.
    """
    classes = predictor.classes
    num_classes = len(classes)
    ks = _checked(ks, num_classes)
    if not len(split):
        raise OwlmineError(f"the {split.name} split has no points; wanted at least one to evaluate")
    cuts = cuts or FrequencyCuts()
    constants, weights_K = _propensities(predictor, constants)
    metrics = RankingMetrics(num_classes, ks=ks, inverse_propensities=weights_K, class_counts=classes.counts, cuts=cuts)
    pairs = FilterPairs(split.filter_pairs) if split.filter_pairs is not None else None
    places = 0 if predictor.record.calibration is None else min(CALIBRATED_PLACES, num_classes)
    labels_K, without_label, done = np.zeros(num_classes, np.int64), 0, 0
    hits: list[Hits] = []
    for batch in split.blocks(_BLOCK_ROWS):
        own_pairs = None if pairs is None else pairs.in_rows(done, done + len(batch))
        depth = min(max(*ks, places) + _most_pairs(own_pairs), num_classes)
        answers = predictor.answer(batch.queries, depth, tail=tail, propensity=constants)
        metrics.update(answers.ids_Nk, batch.labels, filter_pairs=own_pairs)
        if answers.probabilities_Nk is not None:
            hits.append(_hits(answers, batch, own_pairs, places=places, num_classes=num_classes))
        np.add.at(labels_K, batch.labels.indices, 1)
        without_label += int((batch.labels.counts == 0).sum())
        done += len(batch)
        if progress is not None:
            progress(done, len(split))
    return Evaluation(
        metrics.compute(),
        ks,
        len(split),
        without_label,
        num_classes,
        _bins(classes, labels_K, cuts),
        cuts,
        constants,
        _reliability(hits, places),
    )


def _hits(answers: Predictions, batch: Batch, pairs: FilterPairs | None, *, places: int, num_classes: int) -> Hits:
    """Probabilities and hits of the first ``places`` answers of each query with features; queries without features have
    no predictions."""
    ids_Nk, probabilities_Nk = answers.ids_Nk, answers.probabilities_Nk
    assert probabilities_Nk is not None
    if isinstance(batch.queries, SparseRows):
        ids_Nk = np.where(batch.queries.counts[:, None] > 0, ids_Nk, -1)
    return judged_predictions(
        ids_Nk, probabilities_Nk, batch.labels, k=places, num_classes=num_classes, filter_pairs=pairs
    )


def _reliability(parts: list[Hits], places: int) -> Reliability | None:
    if not sum(len(hits) for _, hits in parts):
        return None
    probabilities, hits = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    error = 100.0 * expected_calibration_error(probabilities, hits)
    return Reliability(places, error, reliability_bins(probabilities, hits))


def _checked(ks: Sequence[int] | None, num_classes: int) -> tuple[int, ...]:
    if ks is None:
        return tuple(k for k in DEFAULT_KS if k <= num_classes)
    if not ks or min(ks) < 1 or max(ks) > num_classes:
        given = ", ".join(map(str, ks)) or "missing"
        raise OwlmineError(f"k is {given}; wanted 1 to {num_classes:,}, the number of classes")
    return tuple(sorted(set(ks)))


def _propensities(
    predictor: Predictor, constants: PropensityConstants | None
) -> tuple[PropensityConstants | None, NDArray[np.float64] | None]:
    classes = predictor.classes
    if classes.num_points < _LEAST_POINTS:
        return None, None
    constants = constants or predictor.record.propensity
    return constants, inverse_propensities(classes.counts, classes.num_points, constants=constants)


def _most_pairs(pairs: FilterPairs | None) -> int:
    """The largest number of pairs in one row: at most this many places are removed."""
    return 0 if pairs is None or not len(pairs) else int(np.bincount(pairs.rows).max())


def _bins(classes: ClassWords, labels_K: NDArray[np.int64], cuts: FrequencyCuts) -> dict[str, BinSize]:
    return {
        name: BinSize(int(mask_K.sum()), int(labels_K[mask_K].sum()))
        for name, mask_K in cuts.masks(classes.counts).items()
    }
