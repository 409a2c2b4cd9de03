"""Unit vectors and their written-out gradient, against autograd through norm, clamp and quotient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from owlmine.dense import compiled_rows
from owlmine.dense.encoder import unit_vectors


def values_and_gradients(function: object, vectors: Tensor, outer: Tensor) -> tuple[Tensor, Tensor]:
    leaf = vectors.clone().requires_grad_()
    unit = function(leaf)
    (gradient,) = torch.autograd.grad((unit * outer).sum(), [leaf])
    return unit.detach(), gradient


@settings(max_examples=50, deadline=None)
@given(num=st.integers(1, 5), dim=st.integers(1, 9), log_length=st.integers(-9, 9), seed=st.integers(0, 10**6))
def test_equals_autograd(num: int, dim: int, log_length: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    vectors, outer = (torch.randn(num, dim, dtype=torch.float64, generator=generator) for _ in range(2))
    vectors = vectors * 10.0**log_length
    own = values_and_gradients(unit_vectors, vectors, outer)
    plain = values_and_gradients(lambda h: functional.normalize(h, dim=1, eps=1e-12), vectors, outer)
    torch.testing.assert_close(own[0], plain[0], rtol=1e-12, atol=1e-12)
    # Where the gradient along the vector cancels, both lose digits in proportion to 1 / length.
    torch.testing.assert_close(own[1], plain[1], rtol=1e-9, atol=1e-9 / 10.0**log_length)


def test_short_vectors_are_divided_by_the_least_length() -> None:
    vectors = torch.tensor([[0.0, 0.0, 0.0], [3e-13, -4e-13, 0.0], [3.0, -4.0, 0.0]], dtype=torch.float64)
    outer = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64).expand(3, 3)
    unit, gradient = values_and_gradients(unit_vectors, vectors, outer)
    plain = values_and_gradients(lambda h: functional.normalize(h, dim=1, eps=1e-12), vectors, outer)
    torch.testing.assert_close(unit, plain[0])
    torch.testing.assert_close(gradient, plain[1])
    assert unit[0].tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(gradient[:2], outer[:2] / 1e-12)


def test_gradcheck() -> None:
    vectors = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(unit_vectors, [vectors])


@settings(max_examples=50, deadline=None)
@given(num=st.integers(0, 5), dim=st.integers(1, 80), log_length=st.integers(-9, 9), seed=st.integers(0, 10**6))
def test_single_precision_against_double(num: int, dim: int, log_length: int, seed: int) -> None:
    """With the extension where it is built, and without."""
    generator = torch.Generator().manual_seed(seed)
    vectors, outer = (torch.randn(num, dim, generator=generator) for _ in range(2))
    vectors = vectors * 10.0**log_length
    exact = values_and_gradients(unit_vectors, vectors.double(), outer.double())
    for build in (compiled_rows.compiled_module, lambda: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled_rows, "compiled_module", build)
            unit, gradient = values_and_gradients(unit_vectors, vectors, outer)
        torch.testing.assert_close(unit.double(), exact[0], rtol=1e-5, atol=1e-6)
        shortest = float(vectors.norm(dim=1).min()) if num else 1.0
        tolerance = 1e-5 * float(outer.norm()) / shortest
        torch.testing.assert_close(gradient.double(), exact[1], rtol=1e-4, atol=tolerance)


def test_short_vectors_in_single_precision() -> None:
    vectors, outer = torch.tensor([[0.0, 0.0], [3e-13, -4e-13]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    unit, gradient = values_and_gradients(unit_vectors, vectors, outer)
    torch.testing.assert_close(unit, torch.tensor([[0.0, 0.0], [0.3, -0.4]]))
    torch.testing.assert_close(gradient, outer / 1e-12)


def test_a_gradient_that_is_one_number_for_all() -> None:
    """``sum`` hands on a gradient that is not written out."""
    vectors = torch.tensor([[3.0, 4.0]]).requires_grad_()
    unit_vectors(vectors).sum().backward()
    torch.testing.assert_close(vectors.grad, torch.tensor([[(1 - 0.6 * 1.4) / 5, (1 - 0.8 * 1.4) / 5]]))
