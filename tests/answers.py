"""When two ways to the same answers agree: the same classes in the same order, scores within float32's rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-6
"""Matrix products of other shapes, or of tables at other addresses, add in another order on some CPUs."""


def assert_same_answers(found: Sequence[NDArray], wanted: Sequence[NDArray]) -> None:
    """Both are (scores, ids) or (scores, ids, probabilities)."""
    for one, other in zip(found, wanted, strict=True):
        if one.dtype.kind in "iu":
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=ROUNDING, atol=ROUNDING)
