"""Rare classes lifted: classes in the order of p * w^t instead of p.

p is the probability that a class is a label, w its inverse propensity: how many labels stand behind one that was
marked. A right answer counts 1 in P@k and w in PSP@k, so the order by p (t = 0) is best for the one and that by p * w
(t = 1) for the other; between them one is traded for the other.

Shapes: N queries, S places of a list, K classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHORTLIST = 100
"""Best classes of a query that are put into the new order: one that is not among them is not lifted."""


def lifted_order(
    probabilities_NS: NDArray[np.float32],
    ids_NS: NDArray[np.int64],
    inverse_propensities_K: NDArray[np.float64],
    *,
    strength: float,
) -> NDArray[np.int64]:
    """Places [N, S] in the new order; empty ones (id -1) last, equals as they were."""
    worth_NS = probabilities_NS * inverse_propensities_K[np.maximum(ids_NS, 0)] ** strength
    worth_NS = np.where(ids_NS < 0, -1.0, worth_NS)
    return np.argsort(-worth_NS, axis=1, kind="stable")
