"""Every registered surrogate against its formula in Python floats, and against what it says of itself."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import Ramp, Surrogate, register, surrogate, surrogate_names

EVERY = [surrogate(name) for name in surrogate_names()] + [Ramp(0.25), Ramp(3.0)]
margins = st.floats(-30, 30)


def formula(phi: Surrogate, u: float) -> float:
    if phi.name == "ramp":
        return 1.0 if u <= 0 else max(1 - u / phi.rho, 0.0)
    return {
        "hinge": lambda: max(1 - u, 0.0),
        "squared_hinge": lambda: max(1 - u, 0.0) ** 2,
        "exponential": lambda: math.exp(-u),
        "logistic": lambda: math.log2(1 + math.exp(-u)) if u > -30 else -u / math.log(2),
    }[phi.name]()


def at(phi: Surrogate, u: float, dtype: torch.dtype = torch.float64) -> float:
    return float(phi(torch.tensor(u, dtype=dtype)))


@pytest.mark.parametrize("phi", EVERY, ids=str)
@settings(max_examples=60, deadline=None)
@given(u=margins)
def test_value_is_the_formula_and_bounds_the_zero_one_loss(phi, u):
    assert at(phi, u) == pytest.approx(formula(phi, u), rel=1e-12, abs=1e-15)
    for dtype in (torch.float32, torch.float64):
        assert at(phi, u, dtype) >= (1 if u <= 0 else 0)


@pytest.mark.parametrize("phi", EVERY, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_at_zero_in_every_dtype(phi, dtype):
    assert at(phi, 0.0, dtype) == pytest.approx(1.0, abs=0)


@pytest.mark.parametrize("phi", EVERY, ids=str)
@settings(max_examples=60, deadline=None)
@given(a=margins, b=margins, share=st.floats(0, 1))
def test_never_rises_and_is_convex_where_it_says_so(phi, a, b, share):
    low, high = min(a, b), max(a, b)
    assert at(phi, low) >= at(phi, high)
    if phi.convex:
        chord = share * at(phi, a) + (1 - share) * at(phi, b)
        assert at(phi, share * a + (1 - share) * b) <= chord * (1 + 1e-12) + 1e-12


def test_ramp_is_not_convex():
    phi = Ramp(1.0)
    assert not phi.convex
    assert at(phi, 0.0) > (at(phi, -1.0) + at(phi, 1.0)) / 2


@pytest.mark.parametrize("phi", EVERY, ids=str)
@settings(max_examples=60, deadline=None)
@given(a=st.floats(-8, 8), b=st.floats(-8, 8))
def test_lipschitz_constant_holds_and_is_reached(phi, a, b):
    low, high = min(a, b), max(a, b)
    if high - low < 1e-3:
        return
    constant = phi.lipschitz(low, high)
    grid = torch.linspace(low, high, 201, dtype=torch.float64)
    slopes = phi(grid).diff().abs() / grid.diff()
    # Chords of a finite grid stay below the steepest slope and come near it.
    assert slopes.max() <= constant * (1 + 1e-9) + 1e-9
    if phi.convex:
        steepest = (at(phi, low) - at(phi, low + 1e-6)) / 1e-6
        assert steepest == pytest.approx(constant, rel=1e-4, abs=1e-4) or 1 - 1e-6 < low < 1


@pytest.mark.parametrize(
    ("name", "interval", "constant"),
    [
        ("hinge", (-2, 5), 1.0),
        ("hinge", (1, 5), 0.0),
        ("logistic", (0, 1), 0.5 / math.log(2)),
        ("logistic", (-math.inf, math.inf), 1 / math.log(2)),
        ("logistic", (1000, 2000), 0.0),
        ("squared_hinge", (-1, 1), 4.0),
        ("exponential", (-1, 1), math.e),
        ("exponential", (-math.inf, 0), math.inf),
        ("ramp", (-2, 0), 0.0),
        ("ramp", (-2, 0.5), 1.0),
        ("ramp", (1, 2), 0.0),
        ("hinge", (0.5, 0.5), 0.0),
    ],
)
def test_lipschitz_constants_worked_by_hand(name, interval, constant):
    assert surrogate(name).lipschitz(*interval) == pytest.approx(constant)


@pytest.mark.parametrize("phi", EVERY, ids=str)
def test_gradcheck_away_from_kinks(phi):
    points = torch.tensor([-3.1, -0.7, 0.11, 0.6, 1.9, 5.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(phi, points)


@pytest.mark.parametrize(("phi", "kink"), [("hinge", 1.0), ("ramp", 0.0), ("ramp", 1.0), (Ramp(0.5), 0.5)])
def test_gradient_at_a_kink_is_zero(phi, kink):
    u = torch.tensor(kink, requires_grad=True)
    surrogate(phi)(u).backward()
    assert u.grad == 0


@pytest.mark.parametrize("phi", EVERY, ids=str)
def test_differentiable_is_what_the_one_sided_slopes_say(phi):
    step = 1e-6
    worst = 0.0
    for place in (-1.0, 0.0, 0.25, 0.5, 1.0, 3.0):
        right = (at(phi, place + step) - at(phi, place)) / step
        left = (at(phi, place) - at(phi, place - step)) / step
        worst = max(worst, abs(right - left))
    assert (worst < 1e-3) == phi.differentiable


def test_logistic_is_stable_at_both_ends():
    phi = surrogate("logistic")
    for dtype in (torch.float32, torch.float64):
        u = torch.tensor([-1e4, 1e4, 40.0], dtype=dtype, requires_grad=True)
        value = phi(u)
        assert value[0].item() == pytest.approx(1e4 / math.log(2))
        assert value[1] == 0
        assert value[2].item() == pytest.approx(math.exp(-40) / math.log(2), rel=1e-6)
        (slope,) = torch.autograd.grad(value.sum(), u)
        assert slope.isfinite().all()


def test_lookup_and_registry():
    phi = Ramp(2.0)
    assert surrogate(phi) is phi
    assert surrogate("ramp") == Ramp(1.0)
    with pytest.raises(ValueError, match="given 'hinges'; wanted"):
        surrogate("hinges")
    with pytest.raises(ValueError, match="not yet in use"):
        register(Ramp)


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf])
def test_ramp_wants_a_positive_margin(rho):
    with pytest.raises(ValueError, match="wanted a positive finite number"):
        Ramp(rho)


def test_lipschitz_wants_an_interval():
    with pytest.raises(ValueError, match="wanted low <= high"):
        surrogate("hinge").lipschitz(2, 1)
