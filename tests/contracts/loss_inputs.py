"""Tensors that each registered loss can be called with, and what the contract may do to them.

N points, K classes, B pool, M others, P positives of a point at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from owlmine.losses.modules import LOSSES, LossSetting, ScaledLoss

N, K, B, KEPT, M, P = 3, 8, 5, 2, 2, 3
SETTING = LossSetting(num_classes=K, pool_size=B, kept=KEPT, phi="logistic")


@dataclass(frozen=True)
class Call:
    """Arguments of a loss, and which of them are scores, positive scores and pool."""

    args: tuple[Tensor | None, ...]
    scores: tuple[int, ...]

    def leaves(self, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Call:
        """The same arguments with fresh scores that want a gradient."""
        moved = [None if arg is None else arg.detach().to(device) for arg in self.args]
        for place in self.scores:
            moved[place] = moved[place].to(dtype).requires_grad_()
        return replace(self, args=tuple(moved))

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, [self.args[place] for place in self.scores])

    def with_arg(self, place: int, value: Tensor | None) -> Call:
        return replace(self, args=(*self.args[:place], value, *self.args[place + 1 :]))


def build(name: str, **changes: object) -> ScaledLoss:
    return LOSSES[name].build(replace(SETTING, **changes))


def call_for(name: str, seed: int = 0) -> Call:
    """Scores in float64, of a size where the losses are neither flat nor steep."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    positives = torch.randint(K, (N,), generator=generator)
    # The first P of a random order of classes, some rows shorter.
    labels = torch.rand(N, K, generator=generator).argsort(dim=1)[:, :P]
    padding = torch.arange(P) >= torch.randint(1, P + 1, (N, 1), generator=generator)
    mask = torch.rand(N, B, generator=generator) < 0.2
    others = torch.rand(N, B - KEPT, generator=generator).argsort(dim=1)[:, :M]
    inputs = LOSSES[name].inputs
    if inputs == "classes":
        return Call((normal(N, K), positives), (0,))
    if inputs == "labels":
        return Call((normal(N, K), labels.masked_fill(padding, -1)), (0,))
    if inputs == "pool":
        return Call((normal(N), normal(N, B), mask), (0, 1))
    if inputs == "pool_others":
        return Call((normal(N), normal(N, B), mask, others), (0, 1))
    if inputs == "kept_pool":
        return Call((normal(N), normal(N, KEPT), normal(N, B), mask), (0, 1, 2))
    assert inputs == "pool_labels"
    return Call((normal(N, P), normal(N, B), mask, padding), (0, 1))


def with_negatives_in_another_order(name: str, call: Call, generator: torch.Generator) -> Call:
    inputs, args = LOSSES[name].inputs, call.args
    if inputs in ("classes", "labels"):
        order = torch.randperm(K, generator=generator)
        where = order.argsort()
        moved = torch.where(args[1] >= 0, where[args[1].clamp_min(0)], -1)
        return replace(call, args=(args[0][:, order], moved))
    if inputs == "pool_others":
        # Which others are used is told by their place in the pool; the order of these is free.
        return call.with_arg(3, args[3][:, torch.randperm(M, generator=generator)])
    pool = 2 if inputs == "kept_pool" else 1
    order = torch.randperm(B, generator=generator)
    call = call.with_arg(pool, args[pool][:, order]).with_arg(pool + 1, args[pool + 1][:, order])
    return call if inputs != "kept_pool" else call.with_arg(1, args[1].flip(1))


def with_positives_raised(name: str, call: Call, by: Tensor) -> Call:
    """``by``: [N, P] amounts; losses with one positive per point use the first of each row."""
    inputs, args = LOSSES[name].inputs, call.args
    if inputs == "classes":
        return call.with_arg(0, args[0].scatter_add(1, args[1][:, None], by[:, :1]))
    if inputs == "labels":
        amounts = by.masked_fill(args[1] < 0, 0)
        return call.with_arg(0, args[0].scatter_add(1, args[1].clamp_min(0), amounts))
    return call.with_arg(0, args[0] + (by if inputs == "pool_labels" else by[:, 0]))
