"""Propensities of Jain et al. (2016): how likely a true label is to be marked, from its training frequency.

1 / p_l = 1 + C (N_l + B)^-A with C = (ln N - 1)(B + 1)^A, where N_l of the N training points have label l.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Published constants lie between 0.4 and 2.6. Within these bounds every weight is finite.
_LEAST, _MOST = 0.001, 100.0


@dataclass(frozen=True)
class PropensityConstants:
    """A and B of the formula; the defaults are those of every dataset that has none of its own."""

    a: float = 0.55
    b: float = 1.5

    def __post_init__(self) -> None:
        if not (_LEAST <= self.a <= _MOST and _LEAST <= self.b <= _MOST):
            wanted = f"wanted both above 0, from {_LEAST:g} to {_MOST:g}"
            raise ValueError(f"propensity constants are A = {self.a} and B = {self.b}; {wanted}")


_WIKIPEDIA = PropensityConstants(a=0.5, b=0.4)
_AMAZON = PropensityConstants(a=0.6, b=2.6)

DATASET_CONSTANTS: dict[str, PropensityConstants] = {
    "WikiLSHTC-325K": _WIKIPEDIA,
    "Wikipedia-500K": _WIKIPEDIA,
    "WikipediaLarge-500K": _WIKIPEDIA,
    "Wiki-500K": _WIKIPEDIA,
    "WikiTitles-500K": _WIKIPEDIA,
    "LF-Wikipedia-500K": _WIKIPEDIA,
    "LF-WikiTitles-500K": _WIKIPEDIA,
    "Amazon-670K": _AMAZON,
    "Amazon-3M": _AMAZON,
    "AmazonTitles-670K": _AMAZON,
    "AmazonTitles-3M": _AMAZON,
    "LF-Amazon-131K": _AMAZON,
    "LF-Amazon-1.3M": _AMAZON,
    "LF-AmazonTitles-131K": _AMAZON,
    "LF-AmazonTitles-1.3M": _AMAZON,
}
"""Datasets whose published figures use constants of their own (AmazonCat-13K is not among them)."""


def propensity_constants(dataset: str | None = None) -> PropensityConstants:
    """Constants by dataset name, ignoring case, dashes and dots; the defaults if the table does not have it."""
    return _BY_SPELLING.get(_spelling(dataset or ""), PropensityConstants())


def _spelling(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_BY_SPELLING = {_spelling(name): constants for name, constants in DATASET_CONSTANTS.items()}


def inverse_propensities(
    class_counts: NDArray[Any], num_points: int, *, constants: PropensityConstants | None = None
) -> NDArray[np.float64]:
    """1 / p_l of every class, from its number of training points; one float64 per class."""
    counts_K = check_class_counts(class_counts)
    # Below three points ln N - 1 is negative, and rare classes would weigh less than common ones.
    if num_points < 3:
        raise ValueError(f"num_points is {num_points}; wanted at least 3 training points")
    if len(counts_K) and counts_K.max() > num_points:
        raise ValueError(
            f"class_counts contain {counts_K.max()}; wanted at most {num_points}, the number of training points"
        )
    constants = constants or PropensityConstants()
    c = (np.log(num_points) - 1.0) * (constants.b + 1.0) ** constants.a
    weights_K: NDArray[np.float64] = 1.0 + c * (counts_K + constants.b) ** -constants.a
    return weights_K


def check_class_counts(class_counts: NDArray[Any], *, num_classes: int | None = None) -> NDArray[np.int64]:
    """Training points per class as int64; ValueError unless they are whole numbers of at least 0."""
    counts_K = np.asarray(class_counts)
    if counts_K.ndim != 1 or (num_classes is not None and len(counts_K) != num_classes):
        wanted = "one per class" if num_classes is None else f"[{num_classes}], one per class"
        raise ValueError(f"class_counts have the shape {counts_K.shape}; wanted {wanted}")
    if len(counts_K) and counts_K.dtype.kind not in "iu":
        raise ValueError(f"class_counts have the type {counts_K.dtype}; wanted integers")
    if len(counts_K) and counts_K.min() < 0:
        raise ValueError(f"class_counts contain {counts_K.min()}; wanted at least 0")
    return counts_K.astype(np.int64)
