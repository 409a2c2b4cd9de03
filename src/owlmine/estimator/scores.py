"""Scores of all classes, and the probabilities that follow from them.

Shapes: N points, K classes asked for, F features, U features in use, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from owlmine.data.rows import Int64
from owlmine.dense.encoder import Encoder, IdentityEncoder, SparseBatch, query_batch
from owlmine.dense.retriever import Retriever
from owlmine.index import Filter
from owlmine.rank.predictor import Features, Predictor
from owlmine.rank.probabilities import Calibration

Float64 = NDArray[np.float64]

# Points per block, and numbers per block if each point has many.
_BLOCK_ROWS = 1024
_BLOCK_NUMBERS = 1 << 22
# Newton steps of the search for a shift: bisection gets there too.
_MAX_STEPS, _EXCESS = 100, 1e-13


def scores_of(model: Predictor, features: Features, class_ids: Int64) -> Float64:
    """[N, K] final scores of these classes, in the order given.

    Without judges they are computed in double precision, so that the scores of a query do not depend on the other
    queries. With judges, every requested class is scored by them, on a shortlist or not.
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
    """[N, K] the probability that each class is one of several labels. ``scores_NK`` are those of all classes."""
    probabilities_NK = np.empty(scores_NK.shape)
    for block in _blocks(*scores_NK.shape):
        best_NT = -np.partition(-scores_NK[block], range(calibration.depth), axis=1)[:, : calibration.depth]
        probabilities_NK[block] = calibration.probabilities(scores_NK[block], best_NT=best_NT)
    return probabilities_NK


def exclusive_probabilities(calibration: Calibration, scores_NK: Float64) -> Float64:
    """[N, K] the probability that each class is the only label: rows sum to 1. ``scores_NK`` are those of all classes.

    In the calibration, the log-odds of a class are score · s - place · ln r, plus a term that all classes of a query
    share. That term says how many labels to expect; here there is exactly one, so it follows from the sum of 1 instead.
    Places count beyond the ``depth`` of the calibration, and its knots are left out.
    """
    probabilities_NK = np.empty(scores_NK.shape)
    for block in _blocks(*scores_NK.shape):
        scores = scores_NK[block]
        log_odds = calibration.score * scores - calibration.place * np.log(_places(scores))
        probabilities_NK[block] = _summing_to_one(log_odds)
    return probabilities_NK


def _summing_to_one(log_odds_NK: Float64) -> Float64:
    """sigmoid(log_odds + shift), with a shift for each row, by Newton's method between bounds; 2 classes or more."""
    best_N2 = -np.partition(-log_odds_NK, 1, axis=1)[:, :2]
    low_N = -best_N2[:, 0] - np.log(log_odds_NK.shape[1])  # no term exceeds 1 / K
    shift_N = high_N = -best_N2[:, 1]  # two terms are at least a half
    for _ in range(_MAX_STEPS):
        terms_NK = expit(log_odds_NK + shift_N[:, None])
        excess_N = terms_NK.sum(axis=1) - 1
        if (np.abs(excess_N) < _EXCESS).all():
            break
        low_N, high_N = np.where(excess_N < 0, shift_N, low_N), np.where(excess_N < 0, high_N, shift_N)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton_N = shift_N - excess_N / (terms_NK * (1 - terms_NK)).sum(axis=1)
        shift_N = np.where((newton_N > low_N) & (newton_N < high_N), newton_N, (low_N + high_N) / 2)
    summed_NK: Float64 = terms_NK / terms_NK.sum(axis=1, keepdims=True)
    return summed_NK


def _places(scores_NK: Float64) -> Int64:
    """1 for the best of a row; ties share the better place."""
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
    only = Filter.allowing(among, model.dense.shape.num_classes)
    answers = uncalibrated.answer(features, len(among), only=only)
    scores_NA = np.empty(answers.scores_Nk.shape, np.float32)
    np.put_along_axis(scores_NA, np.searchsorted(among, answers.ids_Nk), answers.scores_Nk, axis=1)
    return scores_NA[:, np.searchsorted(among, class_ids)]


@torch.no_grad()
def _exact_scores(model: Retriever, queries: Features, class_ids: Int64) -> Float64:
    """Converts only the rows in use: neither table is copied as a whole, unless all of it is needed."""
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
            table=encoder.rows[ids_U].double(),
            heads=encoder.heads,
        )
        for own, matrix in zip(wide.maps, encoder.maps, strict=True):
            own.data = matrix.detach().double()
    classes_KD = model.rows[torch.from_numpy(class_ids).to(model.device)].double()
    scores: Float64 = (wide(batch) @ classes_KD.T).cpu().numpy()
    return scores
