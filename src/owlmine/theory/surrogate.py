"""How much of the retrieval loss an ordered loss is sure to cover (paper, Theorem 3).

The largest c with ℓ(v, y) >= c 1[y not in Top_k(v)] for all v and y. With S = Σ_{j<=k} θ_j:

POWL   c = φ(0) S: a missed positive has k rivals at or above it, and in the worst case just level with it.
BOWL   c = min_t φ(t) + S φ(-t), t being the common score of the positive and its k rivals.

Both take φ -> 0 at infinity, where the scores of the other classes go. The theorem's θ_j = 1/k gives S = 1: c = 1
for POWL, and 2 φ(0) = 2 for BOWL with a convex φ. A tie at the k-th place counts as a miss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from owlmine.losses.checks import Kind, check_options
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.theory.weights import Vector, as_theta

_ZERO = torch.zeros((), dtype=torch.float64)
# min_t φ(t) + S φ(-t), from setting the derivative to 0, or from the kinks where φ is piecewise linear.
_BINARY_FLOOR: dict[str, Callable[[float], float]] = {
    "hinge": lambda total: 2 * min(1.0, total),
    "logistic": lambda total: ((1 + total) * math.log1p(total) - _x_log_x(total)) / math.log(2),
    "squared_hinge": lambda total: 4 * total / (1 + total),
    "exponential": lambda total: 2 * math.sqrt(total),
    "ramp": lambda total: min(1.0, total),
}


@dataclass(frozen=True)
class SurrogateVerdict:
    """``factor``: the largest c; ``is_bound``: whether c >= 1; ``as_theorem_3``: whether θ_j = 1/k for j <= k and,
    for BOWL, φ is convex, which the theorem needs and does not say.
    """

    factor: float
    is_bound: bool
    as_theorem_3: bool


def surrogate_verdict(
    theta: Vector, *, k: int, kind: Kind = "powl", phi: str | Surrogate = "hinge"
) -> SurrogateVerdict:
    """Judges theta (its leading weights are enough) as a bound of the retrieval loss for ``k`` retrieved."""
    theta_J, chosen = as_theta(theta), surrogate(phi)
    factor = retrieval_factor(theta_J, k=k, kind=kind, phi=chosen)
    leading = len(theta_J) >= k and bool(np.allclose(theta_J[:k], 1 / k, rtol=1e-9, atol=0))
    # theta computed from a pool is right to about 1e-13.
    return SurrogateVerdict(factor, factor >= 1 - 1e-9, leading and (kind == "powl" or chosen.convex))


def retrieval_factor(theta: Vector, *, k: int, kind: Kind = "powl", phi: str | Surrogate = "hinge") -> float:
    """The largest c with loss >= c x retrieval loss. BOWL knows the surrogates of the paper."""
    check_options(kind, "mean")
    if k < 1:
        raise ValueError(f"k: given {k}; wanted 1 or more")
    chosen, total = surrogate(phi), math.fsum(as_theta(theta)[:k])
    if kind == "powl":
        # φ(0) is 1 for every surrogate of the paper; a new one may lie higher.
        return float(chosen(_ZERO)) * total
    if chosen.name not in _BINARY_FLOOR:
        raise ValueError(f"phi: given {chosen.name}; wanted one of {', '.join(_BINARY_FLOOR)} for the binary kind")
    return _BINARY_FLOOR[chosen.name](total)


def _x_log_x(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0
