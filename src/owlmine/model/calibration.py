"""From scores to probabilities: how likely it is that a retrieved class is a label of the query.

Shapes: N queries, S places of a list, T a query's best scores of all classes (``depth`` of them or more), E the N S
predictions, P inputs of the map.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from owlmine.model.logistic_fit import fit_logistic
from owlmine.model.precision_thresholds import (
    PrecisionThreshold,
    check_rising,
    find_threshold,
    precision_thresholds,
)
from owlmine.model.probability_knots import Knots, bend, checked_knots, fit_knots, knots_help

DEPTH = 10
"""How many of a query's best classes a calibration is fitted on, where there are as many."""

# With fewer points knots follow chance.
_POINTS_FOR_KNOTS = 400
# Far above any weight that scores of float32 can ask for, and far from overflow.
_LIMIT = 1e100


@dataclass(frozen=True)
class Calibration:
    """p = sigmoid(score · s + best · s_1 + last · s_T - place · ln r + bias)

    s is the score of the class, s_1 and s_T are the query's best and T-th best scores (T is ``depth``), and r is the
    place of s among those T, 1 for the best and T + 1 below them all. What all classes of a query share tells how sure
    the model can be: a class is more probable where the T-th best lies far below it. Since ``score`` and ``place`` are
    not negative, a class of a higher score never has a lower probability. ``knots``, where there are some, bend p
    to what came true: they are kept where they do better on points that they were not made from.
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
    """Rising precisions that were reached on them, each with the least probability to ask for."""
    knots: Knots = ()

    def __post_init__(self) -> None:
        for name in ("score", "best", "last", "place", "bias"):
            value = getattr(self, name)
            # Compared, not converted: a file may hold whole numbers that no float can.
            if isinstance(value, bool) or not isinstance(value, int | float) or not -_LIMIT < value < _LIMIT:
                raise ValueError(f"{name} of the calibration is {value!r}; wanted a number below {_LIMIT:g} in size")
            # NumPy would make objects of whole numbers beyond 64 bits.
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
                " one at least of each"
            )
        if hits_NS.dtype != np.bool_:
            raise ValueError(f"hits have the type {hits_NS.dtype}; wanted bool")
        if not np.isfinite(scores_NS).all() or (np.diff(scores_NS, axis=1) > 0).any():
            raise ValueError("scores are not finite or rise along a list; wanted finite numbers, the best first")
        inputs_EP = _inputs(scores_NS, scores_NS).reshape(-1, 4)
        weights_P, bias = fit_logistic(inputs_EP, hits_NS.ravel(), not_negative=(0, 3))
        # Digits beyond these hang on the order in which a machine adds; without them its threads do not show.
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

        ``best_NT``: the query's ``depth`` best scores of all classes, best first, or more of them. Where it is left
        out, ``scores_NS`` has them in front.
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
        """What reached at least ``precision`` on the validation points: the next higher entry; None where none did."""
        return find_threshold(self.thresholds, precision)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"thresholds": [entry.to_dict() for entry in self.thresholds]}

    @classmethod
    def from_dict(cls, told: Any) -> Calibration:
        """What ``to_dict`` gave; ValueError for anything else."""
        names = {field.name for field in fields(cls)}
        # Models from before there were knots have none.
        if not isinstance(told, dict) or set(told) | {"knots"} != names:
            raise ValueError(f"the calibration is {told!r}; wanted {', '.join(sorted(names))}")
        if not isinstance(told["thresholds"], list):
            raise ValueError(f"thresholds of the calibration are {told['thresholds']!r}; wanted a list")
        return cls(**told | {"thresholds": tuple(map(PrecisionThreshold.from_dict, told["thresholds"]))})


def _inputs(scores_NS: NDArray[np.float64], best_NT: NDArray[np.float64]) -> NDArray[np.float64]:
    """s, s_1, s_T and -ln r of each class: [N, S, 4]."""
    place_NS = np.ones(scores_NS.shape)
    for rank in range(best_NT.shape[1]):
        place_NS += best_NT[:, rank, None] > scores_NS
    first_NS = np.broadcast_to(best_NT[:, :1], scores_NS.shape)
    last_NS = np.broadcast_to(best_NT[:, -1:], scores_NS.shape)
    return np.stack((scores_NS, first_NS, last_NS, -np.log(place_NS)), axis=2)
