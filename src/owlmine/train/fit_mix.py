"""Weights of scores, fitted on validation points under a softmax: each label of a point against its non-labels.

    loss(u) = (1/N) Σ_n a_n Σ_(s label of n) log(1 + Σ_(t no label of n) exp(<u, f_nt> - <u, f_ns>))
              + (strength / N) Σ_j (u_j / prior_j - 1)²,        u >= 0

f_ns holds the scores of place s. a_n = min(l, 3) / l for a point with l labels in its list: what is wanted is precision
at 1, 3 and 5, in which a point with thirty labels has no larger share than one with five. The loss is convex, so there
is one answer, and it moves little from one set of validation points to another: every place of every list has its say,
where precision hears only of those few that change places. The second sum matters where points are few.

Shapes: N points, S places of a shortlist, J scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from owlmine.data.rows import Float32

Float64 = NDArray[np.float64]

_PRIOR_STRENGTH = 0.5
_MOST_LABELS = 3
# Share of its prior below which the first weight does not fall: what others count is told as a multiple of it.
_LEAST_SHARE = 0.1


class MixLoss:
    """The loss of some validation points, as a function of u. Points without a label in their list, or with nothing
    else in it, do not count, nor do empty places (score -inf)."""

    def __init__(self, scores: list[Float32], hits_NS: NDArray[np.bool_], prior_J: Float64) -> None:
        """``scores``: J arrays [N, S], the first one with -inf for empty places."""
        self._num_points, self._prior_J = len(hits_NS), prior_J
        empty_NS = ~np.isfinite(scores[0])
        told_N = hits_NS.any(axis=1) & ~(hits_NS | empty_NS).all(axis=1)
        self._hits_NS, self._no_rivals_NS = hits_NS[told_N], (hits_NS | empty_NS)[told_N]
        labels_N1 = self._hits_NS.sum(axis=1, keepdims=True)
        self._shares_N1 = np.minimum(labels_N1, _MOST_LABELS) / labels_N1
        self._scores_NSJ = np.stack([part[told_N] for part in scores], axis=2).astype(np.float64)
        self._scores_NSJ[empty_NS[told_N]] = 0.0

    def __call__(self, u_J: Float64) -> tuple[float, Float64]:
        """The loss and its gradient."""
        strain_J = u_J / self._prior_J - 1
        loss, gradient_J = _PRIOR_STRENGTH * float(strain_J @ strain_J), 2 * _PRIOR_STRENGTH * strain_J / self._prior_J
        mixed_NS = self._scores_NSJ @ u_J
        rivals_NS = np.where(self._no_rivals_NS, -np.inf, mixed_NS)
        level_N1 = logsumexp(rivals_NS, axis=1, keepdims=True)
        behind_NS = level_N1 - mixed_NS
        loss += float((self._shares_N1 * np.where(self._hits_NS, np.logaddexp(0.0, behind_NS), 0.0)).sum())
        pull_NS = self._shares_N1 * np.where(self._hits_NS, expit(behind_NS), 0.0)
        push_NS = pull_NS.sum(axis=1, keepdims=True) * np.exp(rivals_NS - level_N1)
        gradient_J += np.tensordot(push_NS - pull_NS, self._scores_NSJ, axes=2)
        return loss / self._num_points, gradient_J / self._num_points

    def smallest(self) -> tuple[Float64, float]:
        """u and its loss."""
        bounds = [(_LEAST_SHARE * self._prior_J[0], None)] + [(0.0, None)] * (len(self._prior_J) - 1)
        found = minimize(self, self._prior_J, jac=True, bounds=bounds, method="L-BFGS-B")
        return found.x, float(found.fun)
