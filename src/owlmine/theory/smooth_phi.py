"""Value and slope of the differentiable, convex surrogates in NumPy, for the solver of tiny problems.

A solver calls them thousands of times on a dozen numbers, where autograd would be all overhead. The tests tie them
to ``owlmine.losses.surrogates``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit

from owlmine.theory.weights import Float64


def _logistic(margins: Float64) -> tuple[Float64, Float64]:
    return np.logaddexp(0, -margins) / math.log(2), -expit(-margins) / math.log(2)


def _squared_hinge(margins: Float64) -> tuple[Float64, Float64]:
    short = np.maximum(1 - margins, 0)
    return short**2, -2 * short


def _exponential(margins: Float64) -> tuple[Float64, Float64]:
    # A line search may step far out. The tangent at -50 goes on from there: convex, and finite at any step.
    near = np.maximum(margins, -50)
    value = np.exp(-near)
    return value * (1 + near - margins), -value


SMOOTH: dict[str, Callable[[Float64], tuple[Float64, Float64]]] = {
    "logistic": _logistic,
    "squared_hinge": _squared_hinge,
    "exponential": _exponential,
}
