"""A calibration for a trained model, from points that training did not see."""

from __future__ import annotations

import numpy as np

from owlmine.evaluate.hits import find_hits
from owlmine.model.calibration import DEPTH, Calibration
from owlmine.model.predictor import Predictor
from owlmine.train.validate import ValidationPart


def fit_calibration(predictor: Predictor, part: ValidationPart) -> Calibration | None:
    """Fits to the ten best classes of every validation point; None where there are no points.

    Kept with a model as ``predictor.config["calibration"] = calibration.to_dict()``.
    """
    num_classes = predictor.retriever.shape.num_classes
    depth = min(DEPTH, num_classes)
    scores, hits = [np.zeros((0, depth), np.float32)], [np.zeros((0, depth), np.bool_)]
    for batch in part.batches():
        scores_NS, ids_NS = predictor.top(batch.queries, depth)
        found = find_hits(ids_NS, batch.labels, depth=depth, num_classes=num_classes)
        hits_NS = np.zeros(ids_NS.shape, np.bool_)
        hits_NS[found.rows, found.places] = True
        # Huge feature values can make scores overflow; the model is worth keeping nevertheless.
        finite_N = np.isfinite(scores_NS).all(axis=1)
        scores.append(scores_NS[finite_N])
        hits.append(hits_NS[finite_N])
    all_scores_NS, all_hits_NS = np.concatenate(scores), np.concatenate(hits)
    return Calibration.fit(all_scores_NS, all_hits_NS) if len(all_scores_NS) else None
