"""How well a trained model does on points that training did not see, and a calibration by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.metrics import RankingMetrics
from owlmine.metrics.hits import find_hits
from owlmine.model.predictor import Predictor
from owlmine.rank.probabilities import DEPTH, Calibration
from owlmine.train.validate import ValidationPart, cutoffs, precisions


@dataclass(frozen=True, eq=False)
class RankedBatch:
    """The ten best classes of some points (all, where there are fewer), and what their labels are."""

    scores_NS: Float32
    ids_NS: Int64
    labels: SparseRows


def rank_points(
    predictor: Predictor, part: ValidationPart, *, between: Callable[[], None] = lambda: None
) -> list[RankedBatch]:
    """``between`` is called between blocks of points and may raise to stop it."""
    depth = min(DEPTH, predictor.retriever.shape.num_classes)
    ranked = []
    for batch in part.batches():
        between()
        ranked.append(RankedBatch(*predictor.top(batch.queries, depth), batch.labels))
    return ranked


def precision_of(ranked: Sequence[RankedBatch], *, num_classes: int) -> dict[str, float]:
    """P@1, P@3 and P@5 in percent (as many as there are classes for); nothing where there are no points."""
    metrics = RankingMetrics(num_classes, ks=cutoffs(num_classes))
    for batch in ranked:
        metrics.update(batch.ids_NS, batch.labels)
    return precisions(metrics) if ranked else {}


def fit_calibration(ranked: Sequence[RankedBatch], *, num_classes: int) -> Calibration | None:
    """None where there are no points.

    Kept with a model as ``predictor.config["calibration"] = calibration.to_dict()``.
    """
    scores, hits = [], []
    for batch in ranked:
        depth = batch.ids_NS.shape[1]
        hits_NS = find_hits(batch.ids_NS, batch.labels, depth=depth, num_classes=num_classes).mask(depth)
        # Huge feature values can make scores overflow; the model is worth keeping nevertheless.
        finite_N = np.isfinite(batch.scores_NS).all(axis=1)
        scores.append(batch.scores_NS[finite_N])
        hits.append(hits_NS[finite_N])
    if not any(len(part) for part in scores):
        return None
    return Calibration.fit(np.concatenate(scores), np.concatenate(hits))
