"""A training step with a loss in which all classes of a pool count equally, without the N x W scores.

With s_j = <query, row of class j>, p the score of the positive, c the scale and w the weight of each negative j of the
pool that the query does not leave out:

softmax:   loss = log(e^(c p) + w Σ_j e^(c s_j)) - c p
pairwise:  loss = w Σ_j phi(c (p - s_j))
binary:    loss = v phi(c p) + w Σ_j phi(-c s_j)

phi is one of ``negative_terms``. The pool's rows are gathered once, rounded to ``Passes.operands``. A binary loss needs
only the second pass of ``class_passes``; the others need both, because the slope of the positive depends on the sums.

A positive that is in the pool, as a negative of other queries, is updated there by the sum of its slopes; the others
are updated separately, in float32.

Shapes: N queries, K classes, W of the pool, D dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from owlmine.mining.kernels.class_passes import KnownSlopes, Passes, pass_of_slopes, pass_of_sums
from owlmine.mining.kernels.class_rows import kept_scores, query_gradients, update_classes
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.move_rows import move_rows
from owlmine.mining.kernels.negative_terms import Kind, NegativeTerms, terms_and_slopes
from owlmine.mining.kernels.operands import operand
from owlmine.mining.kernels.pool_rows import left_out_of_pool, pool_rows

# Smaller chunks, whose slopes would stay in the cache of an H200, take longer: their products are too small for it.
_DEFAULT_PASSES = Passes()


@dataclass(frozen=True)
class PoolForm:
    """Which loss: see the formulas above."""

    kind: Kind
    scale: float
    weight: float
    """w."""
    positive_weight: float = 1.0
    """v, of binary losses."""
    pairwise: bool = False


@dataclass(frozen=True, eq=False)
class Pool:
    """The ``size`` + 1 classes that ``key`` (one int64 on the device, below 2^32) draws; each query leaves one out."""

    key: Tensor
    size: int

    @property
    def width(self) -> int:
        return self.size + 1


@torch.no_grad()
def pool_class_step(
    queries_ND: Tensor,
    classes_KD: Tensor,
    positives_N: Tensor,
    factor: Tensor,
    *,
    form: PoolForm,
    pool: Pool,
    excluded: Exclusions,
    key: Tensor,
    passes: Passes = _DEFAULT_PASSES,
) -> tuple[Tensor, Tensor]:
    """Losses [N] and their gradients with respect to the queries [N, D], both float32; moves the class table.

    Rows move as in ``all_class_step``, whose ``factor`` and ``key`` these are. A query's positive never counts as its
    negative, whether ``excluded`` lists it or not. Queries are float32, the table is float32 or bfloat16.
    """
    ids_W, rows_WD = pool_rows(classes_KD, pool.key, width=pool.width, dtype=passes.operands)
    batch = _PoolBatch(queries_ND, operand(rows_WD, passes.operands), form, passes)
    left_out = left_out_of_pool(positives_N, excluded, pool.key, num_classes=len(classes_KD), width=pool.width)
    places_N, batch.excluded = left_out.positives_N, left_out.places
    positive_N = kept_scores(queries_ND, classes_KD, positives_N[:, None].contiguous())[:, 0]
    losses_N, slopes_N, terms = batch.before_slopes(positive_N)

    def move(here: slice, gradients_CD: Tensor) -> None:
        move_rows(classes_KD, gradients_CD, factor, ids_C=ids_W[here], key=key)

    gradients_ND, sums_N = pass_of_slopes(
        batch.queries_ND,
        batch.rows_WD,
        terms,
        batch.slope_weight,
        KnownSlopes(places_N, slopes_N, batch.excluded),
        move,
        passes=passes,
        counted=batch.binary,
    )
    if batch.binary:
        losses_N = losses_N + form.weight * sums_N
    outside_N1 = torch.where(places_N < 0, positives_N, -1)[:, None]
    slopes_N1 = slopes_N[:, None]
    gradients_ND = gradients_ND[:, : queries_ND.shape[1]] + query_gradients(classes_KD, outside_N1, slopes_N1)
    update_classes(classes_KD, queries_ND, outside_N1, slopes_N1, factor, copy_KD=None, key=key)
    return losses_N, gradients_ND


class _PoolBatch:
    """Queries and rows as the products read them, and the loss."""

    excluded: Exclusions

    def __init__(self, queries_ND: Tensor, rows_WD: Tensor, form: PoolForm, passes: Passes) -> None:
        self.queries_ND, self.rows_WD = operand(queries_ND, passes.operands), rows_WD
        self._form, self._passes = form, passes
        self.binary = form.kind != "softmax" and not form.pairwise
        self._scale = torch.full((), form.scale, dtype=torch.float32, device=queries_ND.device)
        # In a softmax the offsets hold the weight.
        weight = 1.0 if form.kind == "softmax" else form.weight
        self.slope_weight = self._scale * weight

    def before_slopes(self, positive_N: Tensor) -> tuple[Tensor, Tensor, NegativeTerms]:
        """What can be computed from the scores of the positives alone: the losses [N] and slopes of positives [N] so
        far, and the terms for the slopes of the negatives."""
        form, logits_N = self._form, self._form.scale * positive_N
        if self.binary:
            own_N, own_slopes_N = terms_and_slopes(-logits_N, form.kind)
            weight = form.positive_weight
            return weight * own_N, -weight * form.scale * own_slopes_N, self._terms(None)
        if form.pairwise:
            terms = self._terms(logits_N)
            sums_N, slope_sums_N = self._sums(terms, with_slopes=True)
            return form.weight * sums_N, -form.weight * form.scale * slope_sums_N, terms
        log_weight = math.log(form.weight)
        sums_N, _ = self._sums(self._terms(None))
        losses_N = functional.softplus(sums_N + log_weight - logits_N)
        return losses_N, form.scale * torch.expm1(-losses_N), self._terms(logits_N + losses_N - log_weight)

    def _sums(self, terms: NegativeTerms, *, with_slopes: bool = False) -> tuple[Tensor, Tensor]:
        return pass_of_sums(
            self.queries_ND, self.rows_WD, terms, self.excluded, passes=self._passes, with_slopes=with_slopes
        )

    def _terms(self, offsets_N: Tensor | None) -> NegativeTerms:
        return NegativeTerms(self._form.kind, self._scale, offsets_N)
