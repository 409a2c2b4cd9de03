"""Vectors for classes that a model was not trained on, and how well they are found.

m    the sum of the query vectors of the class's examples
S    how queries spread: half the covariance of the class vectors, each counted as often as it was trained on, half the
     same in every direction
t    the score with which a known class comes fifth for a query
v = t / z · S⁻¹ m / √(mᵀ S⁻¹ m),    z = Z / √(1 + Z² / D)

S⁻¹ removes from m what many queries share, as training does by pushing classes away from other queries; it needs no
queries. Over queries that spread like S, the scores of v have the standard deviation t / z: a query must stand out by z
standard deviations to have the class among its first five. Z is the value for very many dimensions: a random direction
stands out by Z there as rarely as by z in D dimensions. The mean of query vectors scaled to length 1, as in a warm
start, would appear for far too many queries.

Shapes: K known classes, C new ones, D dimension, N queries or examples, P pairs of an example and one of its new
classes, B pairs of a block, T best known classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from owlmine.data.rows import Float32, Int64, gather_rows
from owlmine.mining.coded_rows import Table
from owlmine.rank.judge import Judge

CAUTION = 7.1
"""Z: on validation points of tibkat-gnd, about the lowest value for which known classes lose less than 0.3 points of
P@1, P@3 and P@5 when 8 % of the labels belong to new classes (``docs/new-classes.md``)."""
NAME_WEIGHT = 1.5
"""A name counts as much as this many examples."""

_BLOCK_ROWS = 1 << 16
# Smaller differences of class vectors, as a share of their squared length, are float32 rounding.
_NO_SPREAD = 1e-6
_BLOCK_SCORES = 1 << 24


@dataclass(frozen=True)
class QuerySpace:
    """The distribution of query vectors: the directions in which they spread, and what a good score is."""

    factor_DD: Tensor
    """Lower triangular, with S = factor factorᵀ."""
    length: float
    """t / z."""

    @classmethod
    def of(
        cls, classes_KD: Table, counts_K: Tensor, queries_ND: Tensor, *, level: float, caution: float = CAUTION
    ) -> QuerySpace:
        """``counts_K``: training points of known classes. The lengths of ``queries_ND`` matter. ``level`` is t."""
        if not 0 < caution < math.inf:
            raise ValueError(f"caution is {caution!r}; wanted a number above 0")
        if not level > 0:
            raise ValueError(f"level is {level!r}; wanted a score above 0, as a trained model gives its best classes")
        if not bool(counts_K.sum() > 0):
            raise ValueError("no known class has a training point; wanted at least one count above 0")
        square_length = float(queries_ND.double().square().sum(dim=1).mean())
        spread_DD = query_spread(classes_KD, counts_K, square_length=square_length)
        stand_out = caution / math.sqrt(1 + caution**2 / classes_KD.shape[1])
        return cls(torch.linalg.cholesky(spread_DD).to(queries_ND.dtype), level / stand_out)

    def whiten(self, vectors_ND: Tensor) -> Tensor:
        """Rows y with <y, y'> = <x, S⁻¹ x'>."""
        white_ND: Tensor = torch.linalg.solve_triangular(self.factor_DD, vectors_ND.T, upper=False).T
        return white_ND

    def directions(self, sums_CD: Tensor) -> Tensor:
        """Unit rows: their products with whitened queries are the scores of the new classes divided by ``length``."""
        return normalize(self.whiten(sums_CD), dim=1)

    def class_vectors(self, sums_CD: Tensor) -> Tensor:
        """v of each new class, from m; zeros for zeros."""
        rows_CD = self.length * self.directions(sums_CD)
        vectors_CD: Tensor = torch.linalg.solve_triangular(self.factor_DD.T, rows_CD.T, upper=True).T.contiguous()
        return vectors_CD


def query_spread(classes_KD: Table, counts_K: Tensor, *, square_length: float) -> Tensor:
    """S in double precision; its trace is ``square_length``, the mean squared length of a query.

    Class vectors share a component that points away from all queries, and queries do not have it. Hence the covariance,
    which leaves out the mean, and a trace that comes from queries. If all class vectors are equal, S is isotropic.
    """
    dim = classes_KD.shape[1]
    moment_DD = torch.zeros(dim, dim, dtype=torch.float64, device=classes_KD.device)
    sum_D = moment_DD.new_zeros(dim)
    shares_K = (counts_K.double() / counts_K.sum()).to(moment_DD)
    for start in range(0, len(classes_KD), _BLOCK_ROWS):
        # In double precision: the second moment minus the mean may be far below its float32 rounding error.
        block = classes_KD[start : start + _BLOCK_ROWS].double()
        shares = shares_K[start : start + _BLOCK_ROWS, None]
        moment_DD += block.T @ (block * shares)
        sum_D += (block * shares).sum(dim=0)
    covariance_DD = moment_DD - torch.outer(sum_D, sum_D)
    even_DD = torch.eye(dim, dtype=torch.float64, device=classes_KD.device) * (square_length / dim)
    if covariance_DD.trace() <= _NO_SPREAD * moment_DD.trace():
        return even_DD
    return (covariance_DD * (square_length / covariance_DD.trace()) + even_DD) / 2


class NewJudgement(Protocol):
    """The data of one judge for new classes, and its scores of them for examples."""

    @property
    def offsets(self) -> Float32:
        """[C] what is added to the score of each new class for every query."""

    def scores(self, rows_B: Int64) -> NDArray[np.floating]:
        """[B, C] what the judge and the offset add to the scores of all new classes for these examples."""

    def left_out_scores(self, rows_P: Int64, classes_P: Int64) -> NDArray[np.floating]:
        """[P] the same for each pair, with the class computed without the example."""

    def are_suggested(self, rows_P: Int64, classes_P: Int64) -> NDArray[np.bool_]:
        """[P] whether the judge itself suggests the class for the example."""

    def extend(self, judge: Judge, weight: float) -> Judge:
        """``judge``, which has ``weight`` in the mix, with the new classes appended."""


def left_out_ranks(
    space: QuerySpace,
    examples_ND: Tensor,
    rows_P: Int64,
    classes_P: Int64,
    sums_CD: Tensor,
    best_NT: Tensor,
    *,
    judgements: Sequence[NewJudgement] = (),
    floor_N: Tensor | None = None,
) -> Int64:
    """The rank of each pair's class for its example, with the class computed from its other examples; 0 if it has none.

    ``rows_P`` ascend. ``sums_CD``: the sum of examples, and perhaps of a name, of each class. ``best_NT``: the T best
    scores of known classes for each example, best first; ranks up to T are exact, others only say "beyond T". New
    classes compete as they are, except that the example's own classes are computed without it. ``judgements`` count if
    the vector alone scores at least ``floor_N``, or a judge suggests the class; others rank beyond T.
    """
    assert (np.diff(rows_P) >= 0).all()
    has_others_P = np.bincount(classes_P, minlength=len(sums_CD))[classes_P] >= 2
    white_ND, directions_CD = space.whiten(examples_ND), space.directions(sums_CD)
    scores_P = _left_out_scores(space, white_ND, rows_P, classes_P, space.whiten(sums_CD))
    candidates_P = np.ones(len(rows_P), bool) if floor_N is None else (scores_P >= floor_N.cpu()[rows_P]).numpy()
    for judgement in judgements:
        scores_P += torch.from_numpy(judgement.left_out_scores(rows_P, classes_P)).to(scores_P)
        candidates_P |= judgement.are_suggested(rows_P, classes_P)
    scores_P[torch.from_numpy(~has_others_P)] = -torch.inf
    offsets_N = np.searchsorted(rows_P, np.arange(len(examples_ND) + 1)).astype(np.int64)
    ranks_P = np.zeros(len(rows_P), np.int64)
    pairs, size = np.flatnonzero(has_others_P), max(_BLOCK_SCORES // len(sums_CD), 1)
    for start in range(0, len(pairs), size):
        block = pairs[start : start + size]
        rows_B = torch.from_numpy(rows_P[block]).to(white_ND.device)
        rivals_BC = (space.length * (white_ND[rows_B] @ directions_CD.T)).cpu()
        for judgement in judgements:
            rivals_BC += torch.from_numpy(judgement.scores(rows_P[block])).to(rivals_BC)
        own_offsets, own_pairs = gather_rows(offsets_N, rows_P[block])
        places = torch.from_numpy(np.repeat(np.arange(len(block)), np.diff(own_offsets)))
        rivals_BC[places, torch.from_numpy(classes_P[own_pairs])] = scores_P[torch.from_numpy(own_pairs)]
        scores_B = scores_P[torch.from_numpy(block), None]
        better_B = (best_NT[rows_B].cpu() > scores_B).sum(dim=1) + (rivals_BC > scores_B).sum(dim=1)
        ranks_P[block] = 1 + better_B.numpy()
    ranks_P[has_others_P & ~candidates_P] += best_NT.shape[1]
    return ranks_P


def _left_out_scores(
    space: QuerySpace, white_ND: Tensor, rows_P: Int64, classes_P: Int64, white_sums_CD: Tensor
) -> Tensor:
    """The score of each pair's class for its example, with the class's vector computed without it."""
    scores, size = [white_ND.new_zeros(0)], max(_BLOCK_SCORES // white_ND.shape[1], 1)
    for start in range(0, len(rows_P), size):
        block = slice(start, start + size)
        queries_BD = white_ND[torch.from_numpy(rows_P[block]).to(white_ND.device)]
        others_BD = white_sums_CD[torch.from_numpy(classes_P[block]).to(white_ND.device)] - queries_BD
        scores.append(space.length * (queries_BD * normalize(others_BD, dim=1)).sum(dim=1))
    return torch.cat(scores).cpu()
