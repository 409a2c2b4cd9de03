"""The class side of a step on a GPU: from unit queries to losses, their gradients, and moved class rows.

Three ways, by how many classes carry gradients: the few hardest of a pool, a whole pool (in blocks where ``pool_form``
knows the loss, else by autograd), or all classes.

Shapes: N points, T kept negatives and the positive, W classes shared by a batch, K classes, D dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from owlmine.dense.row_table import RowTable
from owlmine.losses.modules import MinedLoss, PooledOneVsAll, PoolLoss, SampledSoftmax
from owlmine.losses.surrogates import Exponential, Hinge, Logistic, Ramp, SquaredHinge
from owlmine.mining.kernels.all_classes import AllClassLoss, all_class_step
from owlmine.mining.kernels.class_rows import kept_scores, query_gradients, update_classes
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.hardest import Scored, hardest_scored
from owlmine.mining.kernels.operands import product
from owlmine.mining.kernels.pool_classes import Pool, PoolForm, pool_class_step
from owlmine.mining.kernels.pool_rows import LeftOut, left_out_of_pool, pool_rows


def pool_form(loss: PoolLoss) -> PoolForm | str:
    """The form of the loss; or, in words, why it cannot be computed in blocks."""
    if loss.log_scale is not None:
        return "the scale is learned"
    scale = loss.fixed_scale
    if isinstance(loss, SampledSoftmax):
        return PoolForm("softmax", scale, math.exp(-loss.log_q))
    if isinstance(loss, PooledOneVsAll):
        return PoolForm("logistic", scale, math.exp(-loss.log_q))
    if not isinstance(loss, MinedLoss):
        return f"there is no kernel for {type(loss).__name__}"
    if len(loss.weights.prefix):
        return "weights differ from rank to rank"
    return _mined_form(loss, scale)


def _mined_form(loss: MinedLoss, scale: float) -> PoolForm | str:
    weight, pairwise, phi = loss.weights.tail, loss.kind == "powl", loss.phi
    if isinstance(phi, Logistic):
        # Natural logarithms in the kernels, base 2 in the surrogate.
        return PoolForm("logistic", scale, weight / math.log(2), 1 / math.log(2), pairwise)
    if isinstance(phi, Ramp):
        # phi of rho at u is phi of 1 at u / rho.
        return PoolForm("ramp", scale / phi.rho, weight, pairwise=pairwise)
    if isinstance(phi, Hinge):
        return PoolForm("hinge", scale, weight, pairwise=pairwise)
    if isinstance(phi, SquaredHinge):
        return PoolForm("squared_hinge", scale, weight, pairwise=pairwise)
    if isinstance(phi, Exponential):
        return PoolForm("exponential", scale, weight, pairwise=pairwise)
    return f"there is no kernel for {phi.name}"


@dataclass(frozen=True, eq=False)
class StepInputs:
    """The inputs of the class side in a step."""

    units_ND: Tensor
    """Queries of length 1, float32."""
    rounded_ND: Tensor
    """The same in bfloat16."""
    positives_N: Tensor
    exclude: Exclusions
    """The classes that must not count as negatives: the positive, and other known labels."""
    pool_key: Tensor
    rounding_key: Tensor
    factor: Tensor
    """Minus the step size of class rows."""

    def left_out(self, num_classes: int, width: int) -> LeftOut:
        """The shared classes of the batch that do not count."""
        return left_out_of_pool(self.positives_N, self.exclude, self.pool_key, num_classes=num_classes, width=width)


class ClassSide(Protocol):
    copy_KD: Tensor | None
    """A bfloat16 copy of the class table, if every class is read in every step."""

    def __call__(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """Losses [N], and the gradient of their sum with respect to the queries [N, D]. Updates the class table."""

    def parts(self, inputs: StepInputs) -> list[Callable[[], object]]:
        """The same in parts with kernels of their own, in any order. They leave the class table useless."""


class KeptSide:
    """The few hardest of a pool, or of all classes: only those and the positives are read again and updated."""

    def __init__(self, loss: PoolLoss, classes: RowTable, *, pool_size: int, kept: int) -> None:
        self._loss, self._classes, self.pool_size, self._kept = loss, classes, pool_size, kept
        self.copy_KD: Tensor | None = None

    def __call__(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        classes_KD = self._classes.weight
        negatives_NT = self._mine(inputs)
        ids_NT = torch.cat([inputs.positives_N[:, None], negatives_NT], dim=1)
        scores_NT = kept_scores(inputs.units_ND, classes_KD, ids_NT)
        losses_N, positive_N1, negative_NT = slopes_of(self._loss, scores_NT[:, 0], scores_NT[:, 1:], negatives_NT < 0)
        slopes_NT = torch.cat([positive_N1, negative_NT], dim=1)
        gradient_ND = query_gradients(classes_KD, ids_NT, slopes_NT)
        update_classes(
            classes_KD,
            inputs.units_ND,
            ids_NT,
            slopes_NT,
            inputs.factor,
            copy_KD=self.copy_KD,
            key=inputs.rounding_key,
        )
        return losses_N, gradient_ND

    def parts(self, inputs: StepInputs) -> list[Callable[[], object]]:
        classes_KD, units_ND = self._classes.weight, inputs.units_ND
        ids_NT = inputs.positives_N[:, None].expand(-1, self._kept + 1).contiguous()
        slopes_NT = torch.zeros(ids_NT.shape, device=ids_NT.device)
        return [
            partial(self._mine, inputs),
            partial(kept_scores, units_ND, classes_KD, ids_NT),
            partial(query_gradients, classes_KD, ids_NT, slopes_NT),
            partial(
                update_classes,
                classes_KD,
                units_ND,
                ids_NT,
                slopes_NT,
                inputs.factor,
                copy_KD=None,
                key=inputs.rounding_key,
            ),
        ]

    def _mine(self, inputs: StepInputs) -> Tensor:
        """[N, T] ids of the hardest allowed classes; -1 if there are fewer."""
        classes_KD, width = self._classes.weight, self.pool_size + 1
        if width == len(classes_KD):
            self.copy_KD = _copy_for_products(classes_KD, self.copy_KD)
            scored, exclude = Scored(classes_KD if self.copy_KD is None else self.copy_KD), inputs.exclude
        else:
            ids_W, rows_WD = pool_rows(classes_KD, inputs.pool_key, width=width, dtype=torch.bfloat16)
            scored, exclude = Scored(rows_WD, ids_W), inputs.left_out(len(classes_KD), width).named(ids_W)
        return hardest_scored(inputs.rounded_ND, scored, self._kept, exclude=exclude)[1]


class BlockedPoolSide:
    """Every class of a pool: scores are recomputed in blocks and never written out in full."""

    def __init__(self, form: PoolForm, classes: RowTable, *, pool_size: int) -> None:
        self._form, self._classes, self._pool_size = form, classes, pool_size
        self.copy_KD: Tensor | None = None

    def __call__(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        return pool_class_step(
            inputs.units_ND,
            self._classes.weight,
            inputs.positives_N,
            inputs.factor,
            form=self._form,
            pool=Pool(inputs.pool_key, self._pool_size),
            excluded=inputs.exclude,
            key=inputs.rounding_key,
        )

    def parts(self, inputs: StepInputs) -> list[Callable[[], object]]:
        return [partial(self, inputs)]


class PoolSide:
    """Every class of a pool, for any loss: its scores are written once, its slopes come from autograd, and both
    gradients are products with those."""

    def __init__(self, loss: PoolLoss, classes: RowTable, *, pool_size: int) -> None:
        self._loss, self._classes, self._pool_size = loss, classes, pool_size
        self.copy_KD: Tensor | None = None

    def __call__(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        classes_KD, width, positives_N1 = (
            self._classes.weight,
            self._pool_size + 1,
            inputs.positives_N[:, None].contiguous(),
        )
        ids_W, rows_WD = pool_rows(classes_KD, inputs.pool_key, width=width, dtype=torch.bfloat16)
        hidden_NW = inputs.left_out(len(classes_KD), width).mask(width)
        positive_N = kept_scores(inputs.units_ND, classes_KD, positives_N1)[:, 0]
        scores_NW = product(inputs.rounded_ND, rows_WD.T)
        losses_N, positive_slope_N1, slopes_NW = slopes_of(self._loss, positive_N, scores_NW, hidden_NW)
        slopes_NW = slopes_NW.to(torch.bfloat16)
        gradient_ND = query_gradients(classes_KD, positives_N1, positive_slope_N1)
        gradient_ND += product(slopes_NW, rows_WD)
        gradient_WD = product(slopes_NW.T, inputs.rounded_ND)
        # Entries of positives and of the pool together, so that a class that is both is updated once, by the sum.
        update_classes(
            classes_KD,
            torch.cat([inputs.units_ND, gradient_WD]),
            torch.cat([inputs.positives_N, ids_W])[:, None],
            torch.cat([positive_slope_N1, torch.ones_like(gradient_WD[:, :1])]),
            inputs.factor,
            copy_KD=None,
            key=inputs.rounding_key,
        )
        return losses_N, gradient_ND

    def parts(self, inputs: StepInputs) -> list[Callable[[], object]]:
        return [partial(self, inputs)]


def pool_side(loss: PoolLoss, classes: RowTable, *, pool_size: int) -> BlockedPoolSide | PoolSide:
    """In blocks, if there is a kernel for the loss."""
    form = pool_form(loss)
    if isinstance(form, str):
        return PoolSide(loss, classes, pool_size=pool_size)
    return BlockedPoolSide(form, classes, pool_size=pool_size)


class AllSide:
    """All classes: scores are recomputed in blocks and never written out whole. Both passes read the copy."""

    def __init__(self, loss: AllClassLoss, classes: RowTable, *, scale: float, exclude_known: bool) -> None:
        self._loss, self._classes, self._scale, self._exclude_known = loss, classes, scale, exclude_known
        self.copy_KD: Tensor | None = None

    def __call__(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        self.copy_KD = _copy_for_products(self._classes.weight, self.copy_KD)
        return all_class_step(
            inputs.units_ND,
            self._classes.weight,
            inputs.positives_N,
            inputs.factor,
            loss=self._loss,
            scale=self._scale,
            excluded=inputs.exclude if self._exclude_known else None,
            copy_KD=self.copy_KD,
            key=inputs.rounding_key,
        )

    def parts(self, inputs: StepInputs) -> list[Callable[[], object]]:
        return [partial(self, inputs)]


def _copy_for_products(classes_KD: Tensor, copy_KD: Tensor | None) -> Tensor | None:
    """The table in bfloat16, created once and kept in sync by the steps; None if the table itself is in bfloat16.

    Otherwise, a step that reads every class would convert them all again.
    """
    if copy_KD is None and classes_KD.dtype != torch.bfloat16:
        return classes_KD.to(torch.bfloat16)
    return copy_KD


def slopes_of(
    loss: PoolLoss, positive_N: Tensor, scores_NW: Tensor, hidden_NW: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [N], and the derivatives of their sum with respect to the positive's score [N, 1] and the others [N,
    W]."""
    with torch.enable_grad():
        positive_N, scores_NW = positive_N.detach().requires_grad_(), scores_NW.detach().requires_grad_()
        losses_N = loss.of_each_point(positive_N, scores_NW, hidden_NW)
        positive_slope_N, slopes_NW = torch.autograd.grad(losses_N.sum(), (positive_N, scores_NW))
    return losses_N.detach(), positive_slope_N[:, None], slopes_NW
