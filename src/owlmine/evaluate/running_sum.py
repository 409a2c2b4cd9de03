"""Sums that do not depend on the order or the size of what is added."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class RunningSum:
    """Float64 sums with compensation: what each addition rounds away is kept beside the total (Neumaier).

    The error stays near one rounding of the result, however many numbers are added; a plain sum of a million
    numbers would drift by some 1e-13 of its value with the way they are cut into batches.
    """

    def __init__(self, size: int) -> None:
        self._total = np.zeros(size)
        self._lost = np.zeros(size)

    @property
    def value(self) -> NDArray[np.float64]:
        return self._total + self._lost

    def add(self, term: NDArray[np.float64]) -> None:
        total = self._total + term
        larger = np.where(np.abs(self._total) >= np.abs(term), self._total, term)
        smaller = np.where(np.abs(self._total) >= np.abs(term), term, self._total)
        self._lost += (larger - total) + smaller
        self._total = total

    def merge(self, other: RunningSum) -> None:
        self.add(other._total)
        self._lost += other._lost
