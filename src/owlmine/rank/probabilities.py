"""From scores to probabilities: how likely it is that a retrieved class is a label of the query.

Shapes: N queries, S places of a list, T a query's best scores of all classes (``depth`` of them or more), E the N S
predictions, P inputs of the map, Q those of them that are free, and the bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Float64 = NDArray[np.float64]

# Ridge penalty on weights of standardised features: negligible with hundreds of events, a bound if they are separable.
_RIDGE = 1.0
_MAX_STEPS = 100
# A spread below this share of the values themselves is float32's rounding, not something to learn from.
_LEAST_SPREAD = 1e-6


def fit_logistic(
    features_EP: Float64, hits_E: NDArray[np.bool_], *, not_negative: Sequence[int] = ()
) -> tuple[Float64, float]:
    """Weights [P] and bias of p = sigmoid(features · weights + bias).

    Minimises the log loss with Platt's targets, (hits + 1) / (hits + 2) for a hit and 1 / (misses + 2) for a miss, so
    that the bias is finite even if all are hits or none is, plus half the squared weights of standardised features. The
    weights of the features in ``not_negative`` are 0 or more.
    """
    assert features_EP.ndim == 2
    assert len(features_EP) == len(hits_E)
    mean_P = features_EP.mean(0)
    spread_P = features_EP.std(0)
    spread_P[spread_P <= _LEAST_SPREAD * np.abs(mean_P)] = np.inf
    scaled_EP = (features_EP - mean_P) / spread_P
    num_hits = int(np.count_nonzero(hits_E))
    targets_E = np.where(hits_E, (num_hits + 1) / (num_hits + 2), 1 / (len(hits_E) - num_hits + 2))
    best_loss, best = np.inf, np.zeros(features_EP.shape[1] + 1)
    # The problem is convex, so its solution is the solution without bounds of one of the faces: some of the bounded
    # weights 0, the others free. Two bounds make four faces.
    for count in range(len(not_negative) + 1):
        for zero in combinations(not_negative, count):
            free = [column for column in range(features_EP.shape[1]) if column not in zero]
            inputs_EQ = np.column_stack((scaled_EP[:, free], np.ones(len(scaled_EP))))
            loss, weights_Q = _minimum(inputs_EQ, targets_E)
            whole = np.zeros(features_EP.shape[1] + 1)
            whole[[*free, -1]] = weights_Q
            if loss < best_loss and all(whole[column] >= 0 for column in not_negative):
                best_loss, best = loss, whole
    weights_P = best[:-1] / spread_P
    return weights_P, float(best[-1] - weights_P @ mean_P)


def _minimum(inputs_EQ: Float64, targets_E: Float64) -> tuple[float, Float64]:
    """Newton's method with step halving; the last input is the bias, which has no ridge penalty."""
    ridge_Q = np.full(inputs_EQ.shape[1], _RIDGE)
    ridge_Q[-1] = 0.0

    def loss_at(weights_Q: Float64) -> float:
        margins_E = inputs_EQ @ weights_Q
        return float(np.sum(np.logaddexp(0.0, margins_E) - targets_E * margins_E) + 0.5 * ridge_Q @ weights_Q**2)

    weights_Q = np.zeros(len(ridge_Q))
    loss = loss_at(weights_Q)
    for _ in range(_MAX_STEPS):
        p_E = expit(inputs_EQ @ weights_Q)
        slope_Q = inputs_EQ.T @ (p_E - targets_E) + ridge_Q * weights_Q
        curvature_QQ = (inputs_EQ.T * (p_E * (1 - p_E))) @ inputs_EQ + np.diag(ridge_Q)
        step_Q = np.linalg.solve(curvature_QQ, slope_Q)
        while (next_loss := loss_at(weights_Q - step_Q)) > loss and np.abs(step_Q).max() > 1e-12:
            step_Q = step_Q / 2
        if next_loss >= loss:
            break
        weights_Q, loss = weights_Q - step_Q, next_loss
    return loss, weights_Q


PRECISIONS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)


@dataclass(frozen=True)
class PrecisionThreshold:
    """Predictions of at least the probability ``threshold`` were right in the share ``precision`` of cases."""

    precision: float
    threshold: float
    kept: float
    """Share of the predictions on validation points that remain."""

    def __post_init__(self) -> None:
        for name in ("precision", "threshold", "kept"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ValueError(f"{name} of a threshold is {value!r}; wanted a number from 0 to 1")

    def to_dict(self) -> dict[str, float]:
        return {"precision": self.precision, "threshold": self.threshold, "kept": self.kept}

    @classmethod
    def from_dict(cls, record: Any) -> PrecisionThreshold:
        if not isinstance(record, dict) or set(record) != {"precision", "threshold", "kept"}:
            raise ValueError(f"a threshold is {record!r}; wanted precision, threshold and kept")
        return cls(**record)


def precision_thresholds(
    probabilities_E: NDArray[np.float32], hits_E: NDArray[np.bool_]
) -> tuple[PrecisionThreshold, ...]:
    """For each of ``PRECISIONS`` that is reached, the lowest threshold that reaches it.

    Reached means: both the precision of the remaining predictions minus one standard error, and the mean of their
    probabilities, are at least as high. Otherwise the luckiest of many thresholds would win, and new points would fall
    short.
    """
    assert probabilities_E.shape == hits_E.shape
    order_E = np.argsort(-probabilities_E, kind="stable")
    falling_E = probabilities_E[order_E]
    tries_E = np.arange(1, len(order_E) + 1)
    expected_E = np.cumsum(falling_E, dtype=np.float64) / tries_E
    safe_E = np.minimum(_one_error_below(np.cumsum(hits_E[order_E]), tries_E), expected_E)
    # Equal probabilities are kept or dropped together.
    ends_E = np.append(falling_E[1:] < falling_E[:-1], True)
    found = []
    for precision in PRECISIONS:
        (reached,) = np.nonzero(ends_E & (safe_E >= precision))
        if len(reached):
            last = int(reached[-1])
            found.append(PrecisionThreshold(precision, float(falling_E[last]), (last + 1) / len(falling_E)))
    return tuple(found)


def _one_error_below(hits: NDArray[np.int64], tries: NDArray[np.int64]) -> NDArray[np.float64]:
    """The lower end of Wilson's interval of one standard error, which is below 1 even if every prediction was a hit."""
    share = hits / tries
    lower: NDArray[np.float64] = (share + 0.5 / tries - np.sqrt(share * (1 - share) / tries + 0.25 / tries**2)) / (
        1 + 1 / tries
    )
    return lower


def check_rising(thresholds: tuple[PrecisionThreshold, ...]) -> None:
    """Raises ValueError unless thresholds never fall as the precision rises."""
    last = PrecisionThreshold(0.0, 0.0, 1.0)
    for entry in thresholds:
        if entry.precision <= last.precision or entry.threshold < last.threshold or entry.kept > last.kept:
            raise ValueError(f"{entry} follows {last}; wanted rising precisions and thresholds, and fewer kept")
        last = entry


def find_threshold(thresholds: tuple[PrecisionThreshold, ...], precision: float) -> PrecisionThreshold | None:
    """The entry for ``precision``, or the next higher one; None if there is none."""
    if not 0 < precision <= 1 or math.isnan(precision):
        raise ValueError(f"precision is {precision!r}; wanted a number above 0, at most 1")
    return next((entry for entry in thresholds if entry.precision >= precision), None)


Knots = tuple[tuple[float, float], ...]
"""Pairs of a predicted probability, rising, and the observed share of hits, never falling; linear in between."""

_KNOTS = 10
_FOLDS = 5
_LEAST_GAIN = 0.001
# Least distance between the first numbers of two knots: steeper lines would overflow.
_LEAST_GAP = 1e-9


def fit_knots(probabilities_E: NDArray[Any], hits_E: NDArray[np.bool_]) -> Knots:
    """The means of ten groups of equal size, by rising probability, made monotone; (0, 0) and (1, 1) at the ends.

    Each group gets one pseudo-prediction whose outcome equals its probability: nothing becomes impossible or certain
    because a few hundred predictions had no hit, or no miss.
    """
    order = np.argsort(probabilities_E, kind="stable")
    groups = [group for group in np.array_split(order, _KNOTS) if len(group)]
    promised = np.array([probabilities_E[group].mean(dtype=np.float64) for group in groups])
    shares = [(hits_E[group].sum() + x) / (len(group) + 1) for group, x in zip(groups, promised, strict=True)]
    from scipy.optimize import isotonic_regression  # only fitting needs it

    true = isotonic_regression(shares, weights=[len(group) for group in groups]).x
    # Digits beyond these depend on the order of additions.
    inner = [(float(f"{x:.9g}"), float(f"{y:.9g}")) for x, y in zip(promised, true, strict=True)]
    knots = [(0.0, 0.0)]
    for knot in inner:
        if knots[-1][0] + _LEAST_GAP <= knot[0] <= 1 - _LEAST_GAP:
            knots.append(knot)
    return (*knots, (1.0, 1.0))


def knots_help(probabilities_NS: NDArray[Any], hits_NS: NDArray[np.bool_]) -> bool:
    """Whether knots fitted on four fifths of the queries reduce the log loss on the other fifth, over all fifths, by at
    least a thousandth: for a good map, knots would only fit noise."""
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
    """Without knots, the probabilities do not change."""
    if not knots:
        return probabilities
    promised, true = np.array(knots).T
    bent: NDArray[Any] = np.interp(probabilities, promised, true)
    return bent


def checked_knots(pairs: Any) -> Knots:
    """Knots from a file. Raises ValueError unless the first numbers rise from 0 to 1 and the second never fall."""
    if not isinstance(pairs, Sequence) or isinstance(pairs, str) or not all(map(_is_pair, pairs)):
        raise ValueError(f"knots of the calibration are {pairs!r}; wanted pairs of numbers from 0 to 1")
    knots = tuple((float(x), float(y)) for x, y in pairs)
    if knots:
        promised, true = np.array(knots).T
        if (
            promised[0] != 0
            or promised[-1] != 1
            or (np.diff(promised) < _LEAST_GAP / 2).any()
            or (np.diff(true) < 0).any()
        ):
            raise ValueError(f"knots of the calibration are {pairs!r}; wanted them to rise from 0 to 1")
    return knots


def _is_pair(pairs: Any) -> bool:
    return (
        isinstance(pairs, Sequence)
        and len(pairs) == 2
        and all(isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= 1 for x in pairs)
    )


DEPTH = 10
"""The number of a query's best classes that a calibration is fitted on, or all if there are fewer."""

# With fewer points, knots fit noise.
_POINTS_FOR_KNOTS = 400
# Far above any weight that float32 scores can need, and far from overflow.
_LIMIT = 1e100


@dataclass(frozen=True)
class Calibration:
    """p = sigmoid(score · s + best · s_1 + last · s_T - place · ln r + bias)

    s is the score of the class, s_1 and s_T are the query's best and T-th best scores (T is ``depth``), and r is the
    place of s among those T, 1 for the best and T + 1 below them all. The terms that all classes of a query share say
    how sure the model can be: a class is more probable if the T-th best is far below it. Since ``score`` and ``place``
    are not negative, a class with a higher score never has a lower probability. ``knots``, if any, map p to the
    observed share of hits: they are kept only if they help on held-out points.
    """

    score: float
    best: float
    last: float
    place: float
    bias: float
    depth: int
    num_points: int
    """Validation points that it was fitted on."""
    thresholds: tuple[PrecisionThreshold, ...] = ()
    """Rising precisions that were reached on them, each with its probability threshold."""
    knots: Knots = ()

    def __post_init__(self) -> None:
        for name in ("score", "best", "last", "place", "bias"):
            value = getattr(self, name)
            # Compared, not converted: a file may contain integers beyond the range of floats.
            if isinstance(value, bool) or not isinstance(value, int | float) or not -_LIMIT < value < _LIMIT:
                raise ValueError(f"{name} of the calibration is {value!r}; wanted a number below {_LIMIT:g} in size")
            # NumPy would turn integers beyond 64 bits into objects.
            object.__setattr__(self, name, float(value))
        for name in ("score", "place"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} of the calibration is {getattr(self, name)!r}; wanted 0 or more")
        for name in ("depth", "num_points"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} of the calibration is {value!r}; wanted a whole number of at least 1")
        check_rising(self.thresholds)
        object.__setattr__(self, "knots", checked_knots(self.knots))

    @classmethod
    def fit(cls, scores_NS: NDArray[Any], hits_NS: NDArray[np.bool_]) -> Calibration:
        """Fits to the S best scores of each of N queries, best first, and whether each class is a label of the query.

        S becomes ``depth``. Raises ValueError unless there is a query and all scores are finite and falling.
        """
        scores_NS, hits_NS = np.asarray(scores_NS, np.float64), np.asarray(hits_NS)
        if scores_NS.ndim != 2 or 0 in scores_NS.shape or hits_NS.shape != scores_NS.shape:
            raise ValueError(
                f"scores have the shape {scores_NS.shape} and hits {hits_NS.shape}; wanted the same [queries, places],"
                " at least one of each"
            )
        if hits_NS.dtype != np.bool_:
            raise ValueError(f"hits have the type {hits_NS.dtype}; wanted bool")
        if not np.isfinite(scores_NS).all() or (np.diff(scores_NS, axis=1) > 0).any():
            raise ValueError("scores are not finite or rise along a list; wanted finite numbers, the best first")
        inputs_EP = _inputs(scores_NS, scores_NS).reshape(-1, 4)
        weights_P, bias = fit_logistic(inputs_EP, hits_NS.ravel(), not_negative=(0, 3))
        # Digits beyond these depend on the order of additions; without them its threads do not show.
        score, best, last, place, bias = (float(f"{weight:.9g}") for weight in (*weights_P, bias))
        num_points, depth = scores_NS.shape
        fitted = cls(score, best, last, place, bias, depth, num_points)
        if num_points >= _POINTS_FOR_KNOTS:
            smooth_NS = fitted.probabilities(scores_NS)
            if knots_help(smooth_NS, hits_NS):
                fitted = replace(fitted, knots=fit_knots(smooth_NS.ravel(), hits_NS.ravel()))
        return replace(
            fitted, thresholds=precision_thresholds(fitted.probabilities(scores_NS).ravel(), hits_NS.ravel())
        )

    def probabilities(self, scores_NS: NDArray[Any], *, best_NT: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """The probability of each class [N, S].

        ``best_NT``: the query's ``depth`` best scores of all classes, best first, or more of them. If it is left out,
        ``scores_NS`` starts with them.
        """
        best_NT = scores_NS if best_NT is None else best_NT
        if scores_NS.ndim != 2 or best_NT.ndim != 2 or len(scores_NS) != len(best_NT) or best_NT.shape[1] < self.depth:
            raise ValueError(
                f"scores have the shape {scores_NS.shape} and the best of them {best_NT.shape}; wanted as many rows in"
                f" both, and the {self.depth} best of each"
            )
        inputs_NSP = _inputs(scores_NS.astype(np.float64), best_NT[:, : self.depth].astype(np.float64))
        margins_NS = inputs_NSP @ np.array([self.score, self.best, self.last, self.place]) + self.bias
        probabilities_NS: NDArray[np.float32] = bend(expit(margins_NS), self.knots).astype(np.float32)
        return probabilities_NS

    def threshold_for(self, precision: float) -> PrecisionThreshold | None:
        """The threshold that reached at least ``precision`` on the validation points; None if none did."""
        return find_threshold(self.thresholds, precision)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"thresholds": [entry.to_dict() for entry in self.thresholds]}

    @classmethod
    def from_dict(cls, record: Any) -> Calibration:
        """The inverse of ``to_dict``. Raises ValueError for anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(record, dict) or set(record) != names:
            raise ValueError(f"the calibration is {record!r}; wanted {', '.join(sorted(names))}")
        if not isinstance(record["thresholds"], list):
            raise ValueError(f"thresholds of the calibration are {record['thresholds']!r}; wanted a list")
        return cls(**record | {"thresholds": tuple(map(PrecisionThreshold.from_dict, record["thresholds"]))})


def _inputs(scores_NS: NDArray[np.float64], best_NT: NDArray[np.float64]) -> NDArray[np.float64]:
    """s, s_1, s_T and -ln r of each class: [N, S, 4]."""
    place_NS = np.ones(scores_NS.shape)
    for rank in range(best_NT.shape[1]):
        place_NS += best_NT[:, rank, None] > scores_NS
    first_NS = np.broadcast_to(best_NT[:, :1], scores_NS.shape)
    last_NS = np.broadcast_to(best_NT[:, -1:], scores_NS.shape)
    return np.stack((scores_NS, first_NS, last_NS, -np.log(place_NS)), axis=2)
