"""Which probability to ask for when a share of right answers is wanted.

Shapes: E predictions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PRECISIONS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)


@dataclass(frozen=True)
class PrecisionThreshold:
    """Predictions of at least the probability ``threshold`` were right in the share ``precision`` of cases."""

    precision: float
    threshold: float
    kept: float
    """Share of the predictions on validation points that are left."""

    def __post_init__(self) -> None:
        for name in ("precision", "threshold", "kept"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ValueError(f"{name} of a threshold is {value!r}; wanted a number from 0 to 1")

    def to_dict(self) -> dict[str, float]:
        return {"precision": self.precision, "threshold": self.threshold, "kept": self.kept}

    @classmethod
    def from_dict(cls, told: Any) -> PrecisionThreshold:
        if not isinstance(told, dict) or set(told) != {"precision", "threshold", "kept"}:
            raise ValueError(f"a threshold is {told!r}; wanted precision, threshold and kept")
        return cls(**told)


def precision_thresholds(
    probabilities_E: NDArray[np.float32], hits_E: NDArray[np.bool_]
) -> tuple[PrecisionThreshold, ...]:
    """For each of ``PRECISIONS`` that is reached, the lowest threshold that reaches it.

    Reached: the precision of what is left, less one standard error, is no lower, and neither is the mean of its
    probabilities. Else the luckiest of many thresholds would win, and new points would fall short.
    """
    assert probabilities_E.shape == hits_E.shape
    order_E = np.argsort(-probabilities_E, kind="stable")
    falling_E = probabilities_E[order_E]
    tries_E = np.arange(1, len(order_E) + 1)
    expected_E = np.cumsum(falling_E, dtype=np.float64) / tries_E
    safe_E = np.minimum(_one_error_below(np.cumsum(hits_E[order_E]), tries_E), expected_E)
    # Equal probabilities stay or go together.
    ends_E = np.append(falling_E[1:] < falling_E[:-1], True)
    found = []
    for precision in PRECISIONS:
        (reached,) = np.nonzero(ends_E & (safe_E >= precision))
        if len(reached):
            last = int(reached[-1])
            found.append(PrecisionThreshold(precision, float(falling_E[last]), (last + 1) / len(falling_E)))
    return tuple(found)


def _one_error_below(hits: NDArray[np.int64], tries: NDArray[np.int64]) -> NDArray[np.float64]:
    """The lower end of Wilson's interval of one standard error, which is below 1 even where every try was a hit."""
    share = hits / tries
    lower: NDArray[np.float64] = (share + 0.5 / tries - np.sqrt(share * (1 - share) / tries + 0.25 / tries**2)) / (
        1 + 1 / tries
    )
    return lower


def check_rising(thresholds: tuple[PrecisionThreshold, ...]) -> None:
    """ValueError unless a higher precision always wants at least as high a threshold."""
    last = PrecisionThreshold(0.0, 0.0, 1.0)
    for entry in thresholds:
        if entry.precision <= last.precision or entry.threshold < last.threshold or entry.kept > last.kept:
            raise ValueError(f"{entry} stands behind {last}; wanted rising precisions and thresholds, and fewer kept")
        last = entry


def find_threshold(thresholds: tuple[PrecisionThreshold, ...], precision: float) -> PrecisionThreshold | None:
    """The entry for ``precision``, or for the next higher one that there is; None above all."""
    if not 0 < precision <= 1 or math.isnan(precision):
        raise ValueError(f"precision is {precision!r}; wanted a number above 0, 1 at most")
    return next((entry for entry in thresholds if entry.precision >= precision), None)
