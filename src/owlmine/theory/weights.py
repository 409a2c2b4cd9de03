"""What the theory accepts as theta and as one distribution.

Legend: J leading ranks, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Float64 = NDArray[np.float64]
Vector = Sequence[float] | Tensor | Float64


def as_theta(theta: Vector, *, num_classes: int | None = None) -> Float64:
    """theta as float64; with ``num_classes`` all K - 1 weights, those not given being 0."""
    theta_J = _as_vector("theta", theta)
    if num_classes is None:
        return theta_J
    if len(theta_J) > num_classes - 1:
        raise ValueError(f"theta: given {len(theta_J)} weights; wanted at most {num_classes - 1}, one per negative")
    return np.concatenate([theta_J, np.zeros(num_classes - 1 - len(theta_J))])


def as_distribution(probabilities: Vector) -> Float64:
    """Probabilities of the K classes for one query, as float64."""
    alpha_K = _as_vector("probabilities", probabilities)
    if len(alpha_K) < 2:
        raise ValueError(f"probabilities: given {len(alpha_K)} class(es); wanted at least 2")
    # Figures copied from a page are rounded; their order and ratios are what counts.
    if abs(alpha_K.sum() - 1) > 1e-3:
        raise ValueError(f"probabilities: given a sum of {alpha_K.sum():g}; wanted 1")
    return alpha_K


def check_k(k: int, *, num_classes: int) -> None:
    if not 1 <= k < num_classes:
        raise ValueError(f"k: given {k} of {num_classes} classes; wanted 1 to {num_classes - 1}")


def _as_vector(name: str, values: Vector) -> Float64:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name}: given shape {array.shape}; wanted a vector")
    if not bool(np.all((array >= 0) & (array < np.inf))):
        raise ValueError(f"{name}: given a number that is negative, infinite or NaN; wanted finite numbers >= 0")
    return array
