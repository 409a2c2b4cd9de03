"""Vectors for classes that a model was not trained on.

m    the sum of the query vectors of the class's examples
S    how queries spread: half the covariance of the class vectors, each counted as often as it was trained on, half the
     same in every direction
t    the score with which a known class comes fifth for a query
v = t / z · S⁻¹ m / √(mᵀ S⁻¹ m),    z = Z / √(1 + Z² / D)

S⁻¹ takes out of m what many queries share, as training would have done by repelling rivals; it needs no queries. Over
queries that spread like S the scores of v have the standard deviation t / z: one must stand out by z of them to have
the class among its first five. Z is for very many dimensions; among D a random direction stands out by z as rarely.
The mean of query vectors scaled to length 1, with which a warm start begins, would claim far too many queries.

Shapes: K known classes, C new ones, D dimension, N queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

CAUTION = 7.1
"""Z: on validation points of tibkat-gnd about the lowest that costs known classes less than 0.3 points of P@1, P@3 and
P@5 where 8 % of the labels are of new classes (``docs/new-classes.md``)."""
NAME_WEIGHT = 1.5
"""How many examples a class's name counts for."""

_BLOCK_ROWS = 1 << 16
# Class vectors that differ by less, as a share of their squared length, differ by the rounding of float32 alone.
_NO_SPREAD = 1e-6


@dataclass(frozen=True)
class QuerySpace:
    """Query vectors as seen by a new class: in which directions they spread, and what score is a good one."""

    factor_DD: Tensor
    """Lower triangular, with S = factor factorᵀ."""
    length: float
    """t / z."""

    @classmethod
    def of(
        cls, classes_KD: Tensor, counts_K: Tensor, queries_ND: Tensor, *, level: float, caution: float = CAUTION
    ) -> QuerySpace:
        """``counts_K``: training points of known classes. ``queries_ND`` tell how long queries are. ``level`` is t."""
        if not 0 < caution < math.inf:
            raise ValueError(f"caution is {caution!r}; wanted a number above 0")
        if not level > 0:
            raise ValueError(f"level is {level!r}; wanted a score above 0, as a trained model gives its best classes")
        if not bool(counts_K.sum() > 0):
            raise ValueError("no known class has a training point; wanted counts of which one at least is above 0")
        square_length = float(queries_ND.double().square().sum(dim=1).mean())
        spread_DD = query_spread(classes_KD, counts_K, square_length=square_length)
        stand_out = caution / math.sqrt(1 + caution**2 / classes_KD.shape[1])
        return cls(torch.linalg.cholesky(spread_DD).to(queries_ND.dtype), level / stand_out)

    def whiten(self, vectors_ND: Tensor) -> Tensor:
        """Rows y with <y, y'> = <x, S⁻¹ x'>."""
        white_ND: Tensor = torch.linalg.solve_triangular(self.factor_DD, vectors_ND.T, upper=False).T
        return white_ND

    def directions(self, sums_CD: Tensor) -> Tensor:
        """Unit rows: with whitened queries they give the scores of the new classes, divided by ``length``."""
        return torch.nn.functional.normalize(self.whiten(sums_CD), dim=1)

    def class_vectors(self, sums_CD: Tensor) -> Tensor:
        """v of each new class from m; zeros for zeros."""
        rows_CD = self.length * self.directions(sums_CD)
        vectors_CD: Tensor = torch.linalg.solve_triangular(self.factor_DD.T, rows_CD.T, upper=True).T.contiguous()
        return vectors_CD


def query_spread(classes_KD: Tensor, counts_K: Tensor, *, square_length: float) -> Tensor:
    """S in double precision; its trace is ``square_length``, the mean squared length of a query.

    Class vectors share a direction, away from all queries, that queries do not have: hence the covariance, without the
    mean, and hence the trace from elsewhere. Where class vectors are all the same, S is even.
    """
    dim = classes_KD.shape[1]
    moment_DD = torch.zeros(dim, dim, dtype=torch.float64, device=classes_KD.device)
    sum_D = moment_DD.new_zeros(dim)
    shares_K = (counts_K.double() / counts_K.sum()).to(moment_DD)
    for start in range(0, len(classes_KD), _BLOCK_ROWS):
        # In double precision: what is left of the moment without the mean may be far below float32's rounding of it.
        block = classes_KD[start : start + _BLOCK_ROWS].double()
        shares = shares_K[start : start + _BLOCK_ROWS, None]
        moment_DD += block.T @ (block * shares)
        sum_D += (block * shares).sum(dim=0)
    covariance_DD = moment_DD - torch.outer(sum_D, sum_D)
    even_DD = torch.eye(dim, dtype=torch.float64, device=classes_KD.device) * (square_length / dim)
    if covariance_DD.trace() <= _NO_SPREAD * moment_DD.trace():
        return even_DD
    return (covariance_DD * (square_length / covariance_DD.trace()) + even_DD) / 2
