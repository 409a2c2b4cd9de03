"""The laws that synthetic data is drawn by: which classes are popular, and which of a topic's classes become labels.

Shapes: n points, T topics, M relevant classes of a topic, L labels of a point.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from owlmine.data.rows import Int64

Float64 = NDArray[np.float64]


def label_law(relevant: int, exponent: float, num_labels: int) -> tuple[Float64, Float64]:
    """How L distinct of M places are drawn, with P(set) proportional to the product of its Zipf weights w_j = j^-s.

    Returns ``chances`` [M, L + 1]: going through the places in order, the chance to take place j while m labels are
    missing, w_j e_(m-1)(w_(j+1)…) / e_m(w_j…) with e the elementary symmetric polynomials; and ``probabilities``
    [M]: the chance that a label picked at random is place j. For L = 1 that is w_j / sum of w.
    """
    log_weights = -exponent * np.log(np.arange(1, relevant + 1))
    # Logarithms, because the polynomials of many small weights leave the range of floats.
    log_e = np.full((relevant + 1, num_labels + 1), -np.inf)
    log_e[:, 0] = 0
    chances = np.zeros((relevant, num_labels + 1))
    for place in reversed(range(relevant)):
        with_place = log_weights[place] + log_e[place + 1, :-1]
        log_e[place, 1:] = np.logaddexp(log_e[place + 1, 1:], with_place)
        possible = with_place > -np.inf
        chances[place, 1:][possible] = np.exp(with_place[possible] - log_e[place, 1:][possible])
    inclusion = np.empty(relevant)
    missing = np.zeros(num_labels + 1)  # by number of labels still missing, its probability
    missing[num_labels] = 1
    for place in range(relevant):
        taken = missing * chances[place]
        inclusion[place] = taken.sum()
        missing -= taken
        missing[:-1] += taken[1:]
    return chances, inclusion / num_labels


def draw_places(rng: Generator, num_points: int, chances: Float64) -> Int64:
    """L distinct places per point [n, L] by ``label_law``."""
    num_labels = chances.shape[1] - 1
    places_nL = np.empty((num_points, num_labels), np.int64)
    missing = np.full(num_points, num_labels)
    unfinished = np.arange(num_points)
    for place, chance in enumerate(chances):
        taking = unfinished[rng.random(len(unfinished)) < chance[missing[unfinished]]]
        missing[taking] -= 1
        places_nL[taking, missing[taking]] = place
        unfinished = unfinished[missing[unfinished] > 0]
        if not len(unfinished):
            break
    assert not len(unfinished)  # the last places are taken with chance 1 where they are needed
    return places_nL


def distinct_popular(uniform_TM: Float64, num_classes: int, exponent: float) -> Int64:
    """Distinct popularity ranks (from 0) per row, ascending, whose frequency falls like rank^-exponent.

    A rank is the whole part of a draw with density x^-exponent on [1, K + 1), less 1. Where that repeats a rank of the
    row, the next rarer free one takes its place, so this ends even if all K are wanted.
    """
    span, slope = log(num_classes + 1), 1 - exponent
    if abs(slope) < 1e-9:
        position = np.exp(uniform_TM * span)
    else:
        position = np.exp(np.log1p(uniform_TM * np.expm1(slope * span)) / slope)
    ranks = np.sort(np.minimum(position.astype(np.int64) - 1, num_classes - 1), axis=1)
    places = np.arange(ranks.shape[1])
    # Both bounds rise by at least 1 from place to place, and so does the smaller of the two.
    moved_up = np.maximum.accumulate(ranks - places, axis=1) + places
    distinct: Int64 = np.minimum(moved_up, num_classes - ranks.shape[1] + places)
    return distinct
