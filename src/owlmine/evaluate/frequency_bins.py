"""Head, torso and tail: classes cut by how many training points they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.evaluate.propensity import check_class_counts

BIN_NAMES = ("head", "torso", "tail")


@dataclass(frozen=True)
class FrequencyCuts:
    """head: at least ``head`` training points; torso: at least ``torso``; tail: fewer, none included."""

    head: int = 100
    torso: int = 10

    def __post_init__(self) -> None:
        if not self.head > self.torso >= 1:
            raise ValueError(f"cuts are head {self.head} and torso {self.torso}; wanted head > torso >= 1")

    def masks(self, class_counts: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
        """Which classes [K] belong to each bin; every class belongs to exactly one."""
        counts_K = check_class_counts(class_counts)
        head_K = counts_K >= self.head
        tail_K = counts_K < self.torso
        return dict(zip(BIN_NAMES, (head_K, ~(head_K | tail_K), tail_K), strict=True))
