"""The sum that POWL, BOWL and Algorithm 1 share: weights by rank times phi of sorted negatives, for one positive.

pairwise (POWL)   Σ_i w_i φ(s (v_y - v_[i]))
binary (BOWL)     φ(s v_y) + Σ_i w_i φ(-s v_[i])

Weights are a prefix w_1 .. w_T followed by a constant tail t. With w_i >= t >= 0 the sum is
Σ_{i<=T} (w_i - t) φ_[i] + t Σ_all φ, which needs the T hardest scores and one sum without order. Both parts are
non-negative, so nothing cancels.

Legend: N points, B negatives of each, T ranks with a weight of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from owlmine.losses.checks import Kind
from owlmine.losses.surrogates import Surrogate
from owlmine.mining.ranking import highest


@dataclass(frozen=True)
class Form:
    """What is added up: the kind of loss, phi, and the scale s on scores."""

    kind: Kind
    phi: Surrogate
    scale: float | Tensor

    def positive_part(self, positive_N: Tensor) -> Tensor:
        """φ(s v_y) for the binary kind, 0 for the pairwise one."""
        if self.kind == "powl":
            return torch.zeros_like(positive_N)
        return self.phi(self._scaled(positive_N))

    def negative_part(
        self, positive_N: Tensor, negatives_NB: Tensor, visible_NB: Tensor | None, weights: Tensor | float
    ) -> Tensor:
        """Σ w φ(s (v_y - v_j)) or Σ w φ(-s v_j) over the visible negatives of each point."""
        margins_NB = positive_N[:, None] - negatives_NB if self.kind == "powl" else -negatives_NB
        if visible_NB is None:
            return (weights * self.phi(self._scaled(margins_NB))).sum(dim=1)
        # A hidden score may be anything. Its margin is replaced before phi as well as its loss after,
        # so that 0 x infinity cannot enter a gradient.
        margins_NB = torch.where(visible_NB, margins_NB, 0)
        losses_NB = weights * self.phi(self._scaled(margins_NB))
        return torch.where(visible_NB, losses_NB, 0).sum(dim=1)

    def _scaled(self, margins: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            return margins * self.scale.reshape(()).to(margins)
        return margins if self.scale == 1 else margins * self.scale


def widened(*scores: Tensor) -> torch.dtype:
    """The dtype to add up in: the widest given, at least float32."""
    dtype = torch.float32
    for tensor in scores:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def find_hardest(negatives_NB: Tensor, count: int, hidden_NB: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Positions of the hardest negatives that are not hidden, and which of them are real.

    A row with fewer than ``count`` visible negatives is filled up with hidden ones, marked False.
    """
    if hidden_NB is None:
        return highest(negatives_NB, count), None
    ids_NT = highest(negatives_NB.detach().masked_fill(hidden_NB, -torch.inf), count)
    return ids_NT, ~hidden_NB.gather(1, ids_NT)


def rank_sum(
    positive_N: Tensor,
    negatives_NB: Tensor,
    hidden_NB: Tensor | None,
    *,
    prefix_T: Tensor,
    tail: float,
    form: Form,
) -> Tensor:
    """The loss of each point over negatives that are not hidden. No weight of the prefix is below ``tail``."""
    dtype = widened(positive_N, negatives_NB)
    positive_N = positive_N.to(dtype)
    ids_NT, visible_NT = find_hardest(negatives_NB, len(prefix_T), hidden_NB)
    hardest_NT = negatives_NB.gather(1, ids_NT).to(dtype)
    loss_N = form.positive_part(positive_N)
    loss_N = loss_N + form.negative_part(positive_N, hardest_NT, visible_NT, prefix_T - tail)
    if tail == 0:
        return loss_N
    visible_NB = None if hidden_NB is None else ~hidden_NB
    return loss_N + form.negative_part(positive_N, negatives_NB.to(dtype), visible_NB, tail)
