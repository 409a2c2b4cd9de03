"""A second look at probabilities: what a smooth map promised, bent to what came true.

Shapes: E predictions, or N queries and S places of a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Knots = tuple[tuple[float, float], ...]
"""Pairs of a probability as promised, rising, and as it came true, never falling; straight lines between them."""

_KNOTS = 10
_FOLDS = 5
_LEAST_GAIN = 0.001
# Between the first numbers of two knots: steeper lines overflow.
_LEAST_GAP = 1e-9


def fit_knots(probabilities_E: NDArray[Any], hits_E: NDArray[np.bool_]) -> Knots:
    """The means of ten groups of equal size, of rising probability, made to rise where they do not; (0, 0) and (1, 1)
    at the ends.

    A group counts as if it had one prediction more, which came true as promised: nothing becomes impossible or certain
    because no hit, or no miss, was among some hundred.
    """
    order = np.argsort(probabilities_E, kind="stable")
    groups = [group for group in np.array_split(order, _KNOTS) if len(group)]
    promised = np.array([probabilities_E[group].mean(dtype=np.float64) for group in groups])
    shares = [(hits_E[group].sum() + x) / (len(group) + 1) for group, x in zip(groups, promised, strict=True)]
    true = isotonic_regression(shares, weights=[len(group) for group in groups]).x
    # Digits beyond these hang on the order in which a machine adds.
    inner = [(float(f"{x:.9g}"), float(f"{y:.9g}")) for x, y in zip(promised, true, strict=True)]
    knots = [(0.0, 0.0)]
    for knot in inner:
        if knots[-1][0] + _LEAST_GAP <= knot[0] <= 1 - _LEAST_GAP:
            knots.append(knot)
    return (*knots, (1.0, 1.0))


def knots_help(probabilities_NS: NDArray[Any], hits_NS: NDArray[np.bool_]) -> bool:
    """Whether knots made from four fifths of the queries make the log loss of the other fifth smaller, over all fifths,
    by a thousandth at least: knots of a good map only follow chance."""
    bent_NS, fifths_N = np.empty(probabilities_NS.shape), np.arange(len(probabilities_NS)) % _FOLDS
    for fold in range(_FOLDS):
        others_N = fifths_N != fold
        knots = fit_knots(probabilities_NS[others_N].ravel(), hits_NS[others_N].ravel())
        bent_NS[~others_N] = bend(probabilities_NS[~others_N], knots)
    return _log_loss(bent_NS, hits_NS) <= (1 - _LEAST_GAIN) * _log_loss(probabilities_NS, hits_NS)


def _log_loss(probabilities_NS: NDArray[Any], hits_NS: NDArray[np.bool_]) -> float:
    of_truth_NS = np.where(hits_NS, probabilities_NS, 1.0 - probabilities_NS).astype(np.float64)
    return -float(np.log(np.maximum(of_truth_NS, np.finfo(np.float32).tiny)).mean())


def bend(probabilities: NDArray[Any], knots: Knots) -> NDArray[Any]:
    """As they are, where there are no knots."""
    if not knots:
        return probabilities
    promised, true = np.array(knots).T
    bent: NDArray[Any] = np.interp(probabilities, promised, true)
    return bent


def checked_knots(told: Any) -> Knots:
    """What a file tells; ValueError unless the first numbers rise from 0 to 1 and the second never fall."""
    if not isinstance(told, Sequence) or isinstance(told, str) or not all(map(_is_pair, told)):
        raise ValueError(f"knots of the calibration are {told!r}; wanted pairs of numbers from 0 to 1")
    knots = tuple((float(x), float(y)) for x, y in told)
    if knots:
        promised, true = np.array(knots).T
        if (
            promised[0] != 0
            or promised[-1] != 1
            or (np.diff(promised) < _LEAST_GAP / 2).any()
            or (np.diff(true) < 0).any()
        ):
            raise ValueError(f"knots of the calibration are {told!r}; wanted them to rise from 0 to 1")
    return knots


def _is_pair(told: Any) -> bool:
    return (
        isinstance(told, Sequence)
        and len(told) == 2
        and all(isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= 1 for x in told)
    )
