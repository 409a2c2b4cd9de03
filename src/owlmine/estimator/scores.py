"""Scores of all classes, and the probabilities that follow from them.

Shapes: N points, K classes asked for, F features, U features in use, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from owlmine.data.rows import Int64
from owlmine.dense.encoder import Encoder, IdentityEncoder, SparseBatch, query_batch
from owlmine.dense.retriever import Retriever
from owlmine.rank.predictor import Features, Predictor
from owlmine.rank.probabilities import Calibration

Float64 = NDArray[np.float64]

# Points at once, and the numbers of a block where each point has many.
_BLOCK_ROWS = 1024
_BLOCK_NUMBERS = 1 << 22


def scores_of(model: Predictor, features: Features, class_ids: Int64) -> Float64:
    """[N, K] final scores of these classes, in the order given.

    Without judges they are computed in double precision, so that those of a query do not depend on the queries beside
    it. With judges every class asked for is judged, on a shortlist or not.
    """
    wide = model.dense.shape.num_features if model.dense.shape.kind == "linear" else 1
    scores_NK = np.empty((len(features), len(class_ids)))
    for block in _blocks(len(features), max(len(class_ids), wide)):
        if model.ranker.judges:
            scores_NK[block] = _judged_scores(model, features[block], class_ids)
        else:
            scores_NK[block] = _exact_scores(model.dense, features[block], class_ids)
    return scores_NK


def marginal_probabilities(calibration: Calibration, scores_NK: Float64) -> Float64:
    """[N, K] how probable each class is as one of several labels. ``scores_NK`` are those of all classes."""
    probabilities_NK = np.empty(scores_NK.shape)
    for block in _blocks(*scores_NK.shape):
        best_NT = -np.partition(-scores_NK[block], range(calibration.depth), axis=1)[:, : calibration.depth]
        probabilities_NK[block] = calibration.probabilities(scores_NK[block], best_NT=best_NT)
    return probabilities_NK


def exclusive_probabilities(calibration: Calibration, scores_NK: Float64) -> Float64:
    """[N, K] how probable each class is as the only label: rows sum to 1.

    The calibration gives the odds of each class by itself, o = p / (1 - p). Given that exactly one of all classes is
    right, the probability of a class is its share of all odds. What a row's classes have in common cancels out, so
    that only the score and the place count: log o = score · s - place · ln r. Knots are left out, and places count
    beyond the ``depth`` that the calibration knows.
    """
    log_odds_NK = calibration.score * scores_NK - calibration.place * np.log(_places(scores_NK))
    odds_NK = np.exp(log_odds_NK - log_odds_NK.max(axis=1, keepdims=True, initial=-np.inf))
    shares_NK: Float64 = odds_NK / odds_NK.sum(axis=1, keepdims=True)
    return shares_NK


def _places(scores_NK: Float64) -> Int64:
    """1 for the best of a row; equal scores share the better place."""
    order_NK = np.argsort(-scores_NK, axis=1, kind="stable")
    falling_NK = np.take_along_axis(scores_NK, order_NK, axis=1)
    is_new_NK = np.ones(scores_NK.shape, np.bool_)
    is_new_NK[:, 1:] = falling_NK[:, 1:] < falling_NK[:, :-1]
    ranks_NK = np.maximum.accumulate(np.where(is_new_NK, np.arange(1, scores_NK.shape[1] + 1), 0), axis=1)
    places_NK = np.empty_like(ranks_NK)
    np.put_along_axis(places_NK, order_NK, ranks_NK, axis=1)
    return places_NK


def _blocks(num_rows: int, width: int) -> Iterator[slice]:
    size = min(_BLOCK_ROWS, max(_BLOCK_NUMBERS // max(width, 1), 1))
    for start in range(0, num_rows, size):
        yield slice(start, start + size)


def _judged_scores(model: Predictor, features: Features, class_ids: Int64) -> NDArray[np.float32]:
    uncalibrated = replace(model, record=replace(model.record, calibration=None))
    among = np.unique(class_ids)
    answers = uncalibrated.answer(features, len(among), among=among)
    scores_NA = np.empty(answers.scores_Nk.shape, np.float32)
    np.put_along_axis(scores_NA, np.searchsorted(among, answers.ids_Nk), answers.scores_Nk, axis=1)
    return scores_NA[:, np.searchsorted(among, class_ids)]


@torch.no_grad()
def _exact_scores(model: Retriever, queries: Features, class_ids: Int64) -> Float64:
    """Only the rows in use are widened: neither table is copied whole, unless all of it is asked for."""
    encoder, batch = model.encoder, query_batch(queries, model.device)
    if isinstance(batch, SparseBatch):
        ids_U, places_E = batch.ids_E, batch.ids_E
        if isinstance(encoder, Encoder):
            ids_U, places_E = torch.unique(batch.ids_E, return_inverse=True)
            ids_U = ids_U if len(ids_U) else ids_U.new_zeros(1)  # queries without any feature still need a table
        batch = SparseBatch(places_E, batch.offsets_N, batch.values_E.double())
    else:
        ids_U, batch = torch.arange(model.shape.num_features, device=model.device), batch.double()
    wide: Encoder | IdentityEncoder = IdentityEncoder(model.shape.num_features)
    if isinstance(encoder, Encoder):
        wide = Encoder(
            num_features=len(ids_U),
            dim=encoder.dim,
            depth=encoder.depth,
            dense=False,
            table=encoder.table.weight[ids_U].double(),
            heads=encoder.heads,
        )
        for own, matrix in zip(wide.maps, encoder.maps, strict=True):
            own.data = matrix.detach().double()
    classes_KD = model.classes.weight[torch.from_numpy(class_ids).to(model.device)].double()
    scores: Float64 = (wide(batch) @ classes_KD.T).cpu().numpy()
    return scores
