"""Which losses on a pool the kernels work out in blocks, and in what form; the others go through autograd."""

from __future__ import annotations

import math

from owlmine.kernels.pool_classes import PoolForm
from owlmine.losses.modules import MinedLoss, PooledOneVsAll, PoolLoss, SampledSoftmax
from owlmine.losses.surrogates import Exponential, Hinge, Logistic, Ramp, SquaredHinge


def pool_form(loss: PoolLoss) -> PoolForm | str:
    """The form of the loss; or, in words, what keeps it from being worked out in blocks."""
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
