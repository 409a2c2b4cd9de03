"""The term of one negative in a loss, and its derivative: for tiles of scores, and for a plain tensor.

With x = scale * score - offset of the query, a negative adds

    hinge           max(1 + x, 0)           logistic      log(1 + e^x)
    squared_hinge   max(1 + x, 0)^2         exponential   e^x
    ramp            1 + x, cut off to 0 .. 1

that is phi(-x) of ``owlmine.losses.surrogates``, the logistic one with a natural logarithm and the ramp of rho = 1. In
a softmax the negatives are not added up but enter the logarithm of one sum: e^x, once the offset is that logarithm.
Where a slope is not defined it is 0, as in the surrogates.

Shapes: N queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

Kind = Literal["softmax", "hinge", "logistic", "squared_hinge", "exponential", "ramp"]
# On the right of a product: with a constant on the left, the interpreter of Triton 3.7 treats the product as a
# constant.
_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)


@dataclass(frozen=True, eq=False)
class NegativeTerms:
    kind: Kind
    scale: Tensor
    """One float32 on the device, above 0."""
    offsets_N: Tensor | None = None
    """float32; None for zeros."""


@triton.jit
def _by_halves(factors):
    """Products of the first half of each row with the second: what one thread holds, so nothing is exchanged."""
    halves = tl.reshape(factors, (factors.shape[0], 2, factors.shape[1] // 2))
    first, second = tl.split(tl.permute(halves, (0, 2, 1)))
    return first * second


@triton.jit
def _exponents(scores, offsets, scale, HAS_OFFSETS: tl.constexpr):
    """x."""
    x = scores * scale
    if HAS_OFFSETS:
        x -= offsets[:, None]
    return x


@triton.jit
def tile_sums(scores, offsets, scale, KIND: tl.constexpr, HAS_OFFSETS: tl.constexpr):
    """The sum of the terms of each row of scores; for softmax log Σ e^(scale * score), without the offset.

    -inf marks a class that does not count.
    """
    if KIND == "softmax":
        top = tl.max(scores, axis=1)
        top = tl.where(top == float("-inf"), 0.0, top)
        factor = scale * _LOG2E
        odds = tl.exp2(scores * factor - (top * factor)[:, None])
        return scale * top + tl.log2(tl.sum(odds, axis=1)) * _LN2
    else:
        x = _exponents(scores, offsets, scale, HAS_OFFSETS)
        if KIND == "logistic":
            # log(1 + e^x) = max(x, 0) + log(1 + rest), rest = e^-|x|. Adding 1 loses a small rest, and all of the
            # negatives may have one: a series takes its place. Eight factors of at most 2 share one logarithm.
            rest = tl.exp2(tl.abs(x) * -_LOG2E)
            small = rest < 0.00390625
            plain = tl.maximum(x, 0.0) + tl.where(small, rest - 0.5 * rest * rest, 0.0)
            factors = _by_halves(_by_halves(_by_halves(tl.where(small, 1.0, 1.0 + rest))))
            return tl.sum(plain, axis=1) + tl.sum(tl.log2(factors), axis=1) * _LN2
        else:
            if KIND == "exponential":
                terms = tl.exp2(x * _LOG2E)
            else:
                # Not a maximum, which would turn NaN into 0 and hide it.
                terms = tl.where(x < -1.0, 0.0, 1.0 + x)
                if KIND == "squared_hinge":
                    terms = terms * terms
                if KIND == "ramp":
                    terms = tl.where(x > 0.0, 1.0, terms)
            return tl.sum(terms, axis=1)


@triton.jit
def tile_slopes(scores, offsets, scale, KIND: tl.constexpr, HAS_OFFSETS: tl.constexpr):
    """The derivative of each negative's term with respect to x; 0 for -inf."""
    if KIND == "hinge":
        x = _exponents(scores, offsets, scale, HAS_OFFSETS)
        return tl.where(x > -1.0, 1.0, 0.0)
    elif KIND == "squared_hinge":
        x = _exponents(scores, offsets, scale, HAS_OFFSETS)
        return tl.where(x < -1.0, 0.0, 2.0 + 2.0 * x)
    elif KIND == "ramp":
        x = _exponents(scores, offsets, scale, HAS_OFFSETS)
        return tl.where((x > -1.0) & (x < 0.0), 1.0, 0.0)
    else:
        # In base 2 from the start: one multiplication less per score.
        x = _exponents(scores, offsets * _LOG2E, scale * _LOG2E, HAS_OFFSETS)
        if KIND == "logistic":
            return 1.0 / (1.0 + tl.exp2(-x))
        else:
            return tl.exp2(x)


def terms_and_slopes(x: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
    """The same for any tensor in plain PyTorch: the term of each entry, and its slope. Not for softmax."""
    if kind == "logistic":
        return functional.softplus(x), torch.sigmoid(x)
    if kind == "exponential":
        terms = x.exp()
        return terms, terms
    rest = (1 + x).relu()
    if kind == "squared_hinge":
        return rest.square(), 2 * rest
    if kind == "ramp":
        return rest.clamp(max=1), ((x > -1) & (x < 0)).to(x.dtype)
    assert kind == "hinge", kind
    return rest, (x > -1).to(x.dtype)
