"""Vectors scaled to length 1, with the gradient written out.

u = h / max(|h|, eps),   dL/dh = (g - u <u, g>) / |h|  where |h| >= eps,   g / eps  below

Autograd through norm, clamp and quotient makes six passes over the vectors in backward; the formula needs three.

Shapes: N vectors, D dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from owlmine.model.compiled_rows import compiled_unit_gradient, compiled_unit_vectors, is_compiled_for

_EPS = 1e-12


def unit_vectors(vectors_ND: Tensor) -> Tensor:
    """[N, D] the same directions with length 1; vectors shorter than 1e-12 are divided by that (0 stays 0)."""
    unit_ND: Tensor = _UnitVectors.apply(vectors_ND)  # type: ignore[no-untyped-call]
    return unit_ND


class _UnitVectors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors_ND: Tensor) -> Tensor:
        unit_ND: Tensor
        if is_compiled_for(vectors_ND):
            unit_ND, lengths_N1 = compiled_unit_vectors(vectors_ND)
        else:
            lengths_N1 = torch.linalg.vector_norm(vectors_ND, dim=1, keepdim=True)
            unit_ND = vectors_ND / lengths_N1.clamp_min(_EPS)
        ctx.save_for_backward(unit_ND, lengths_N1)
        return unit_ND

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> Tensor:
        unit_ND, lengths_N1 = ctx.saved_tensors
        if is_compiled_for(gradient_ND, unit_ND):
            return compiled_unit_gradient(gradient_ND, unit_ND, lengths_N1)
        along_N1 = (unit_ND * gradient_ND).sum(dim=1, keepdim=True)
        along_N1 = torch.where(lengths_N1 < _EPS, 0, along_N1)
        return torch.addcmul(gradient_ND, unit_ND, along_N1, value=-1).div_(lengths_N1.clamp_min(_EPS))
