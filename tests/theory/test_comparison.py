"""The comparison with negative sampling, against closed forms, and its picture."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from owlmine.errors import OwlmineError
from owlmine.losses import theta_at, top_k
from owlmine.theory import Setting, compare, plot_theta


def test_against_closed_forms():
    setting = Setting(num_classes=2001, pool_size=100, tops=(1, 5, 20, 100), k=5)
    compared = list(compare(setting))
    assert [method.top for method in compared] == [1, 5, 20, 100, None]
    *mined, sampled = compared
    for method in mined:
        assert method.norms.first == pytest.approx(1 / method.top)
        assert method.norms.l1 == pytest.approx(2000 / 100)
        assert method.vartheta == pytest.approx(2000 / (100 * method.top))
        assert method.norms.l2 <= method.l2_bound * (1 + 1e-12)
        assert method.l2_bound == pytest.approx(math.sqrt(2000 / (100 * method.top)))
        if method.top >= 5:
            assert method.factor == pytest.approx(5 / method.top)
    assert sampled.norms.first == pytest.approx(1 / 5)
    assert sampled.norms.l1 == pytest.approx(2000 / 5)
    assert sampled.factor == pytest.approx(1)
    # Keeping the whole pool is negative sampling, but for the scale; at equal promise they are the same.
    assert mined[-1].l1_per_factor == pytest.approx(sampled.l1_per_factor)
    assert [m.l1_per_factor for m in mined] == sorted(m.l1_per_factor for m in mined)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_keeping_fewer_negatives_promises_more(data):
    """c = (K - 1)/B E[min(k', N)] / k', N of the k hardest classes being in the pool; it falls with k'."""
    num_classes = data.draw(st.integers(3, 60))
    pool_size = data.draw(st.integers(2, num_classes - 1))
    k = data.draw(st.integers(1, num_classes - 1))
    tops = tuple(sorted(data.draw(st.sets(st.integers(1, pool_size), min_size=2, max_size=4))))
    *mined, _ = compare(Setting(num_classes, pool_size, tops, k))
    in_pool = hypergeom(num_classes - 1, k, pool_size)
    for method in mined:
        expected = sum(min(method.top, n) * in_pool.pmf(n) for n in range(k + 1)) / method.top
        assert method.factor == pytest.approx(expected * (num_classes - 1) / pool_size)
    assert all(harder.factor >= easier.factor * (1 - 1e-12) for harder, easier in pairwise(mined))


def test_curves_are_theta_and_its_share():
    setting = Setting(num_classes=5000, pool_size=64, tops=(8,))
    method, sampled = compare(setting)
    weights = top_k(8, pool_size=64, convention="paper", num_classes=5000)
    some = np.linspace(0, len(method.curve_ranks) - 1, 12).astype(int)
    exact = theta_at(weights, method.curve_ranks[some].astype(int).tolist(), num_classes=5000)
    np.testing.assert_allclose(method.curve_theta[some], exact, rtol=1e-10)
    for curve in (method, sampled):
        assert (curve.curve_ranks[0], curve.curve_ranks[-1]) == (1, 4999)
        assert curve.curve_share[-1] == pytest.approx(1)
        assert curve.curve_share[0] == pytest.approx(curve.norms.first / curve.norms.l1)


@pytest.mark.parametrize("setting", [Setting(2, 1, (1,), 1), Setting(300, 40, (1, 40), 3)])
def test_picture(tmp_path, setting):
    plot_theta(setting, list(compare(setting)), tmp_path / "theta.png")
    assert (tmp_path / "theta.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OwlmineError, match="cannot be written"):
        plot_theta(setting, list(compare(setting)), tmp_path / "missing" / "theta.png")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((1, 1, (1,)), "num_classes: given 1"),
        ((10, 10, (1,)), "pool_size: given 10; wanted 1 to 9"),
        ((10, 5, (6,)), "tops: .* wanted 1 to 5 each"),
        ((10, 5, ()), "tops: .* at least one"),
        ((10, 5, (2, 2)), "tops: .* each number once"),
        ((10, 5, (1,), 10), "k: given 10"),
    ],
)
def test_bad_settings(given, message):
    with pytest.raises(ValueError, match=message):
        Setting(*given)
