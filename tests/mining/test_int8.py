"""The highest products of bytes against float64, with odd shapes, ties, hidden rows and rows at the ends of float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.mining import int8
from owlmine.mining.int8 import Int8Search, compiled_module, cpu_multiplies_int8

needs_build = pytest.mark.skipif(
    compiled_module() is None or not cpu_multiplies_int8(),
    reason="owlmine.mining._int8 is not built (no C compiler at install time), or the CPU has no VNNI",
)


def numbers(*shape: int, seed: int, whole: bool = False) -> Tensor:
    """Whole numbers make many equal products, and products without rounding."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.round() if whole else values


def no_hidden() -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and scales in float64: the largest number of a row has the code 127 or -127."""
    scales = rows.abs().amax(dim=1, keepdim=True).double() / 127
    return (rows.double() / scales.clamp_min(1e-32)).round(), scales


def check(
    found: tuple[Tensor, Tensor | None] | None, queries: Tensor, rows: Tensor, hidden: tuple[Tensor, Tensor], kept: int
) -> None:
    """Places are distinct, and their products the highest but for what codes lose."""
    assert found is not None
    places, is_hidden = found
    assert all(len(set(row)) == kept for row in places.tolist())
    products = queries.double() @ rows.double().T
    products[hidden] = -math.inf
    (query_codes, query_scales), (codes, scales) = rounded(queries), rounded(rows)
    query_lost = (queries.double() - query_scales * query_codes).norm(dim=1)[:, None]
    lost = (rows.double() - scales * codes).norm(dim=1)
    bounds = query_lost * rows.double().norm(dim=1) + (queries.double().norm(dim=1)[:, None] + query_lost) * lost
    slack = 2.001 * bounds.amax(dim=1, keepdim=True) + 1e-6 * products.nan_to_num(neginf=0).abs().amax()
    highest, own = products.topk(kept, dim=1).values, products.gather(1, places)
    is_real = highest > -math.inf
    # As many that count as there are, and they come first.
    assert torch.equal(own > -math.inf, is_real)
    assert (is_hidden is None) == bool(is_real.all())
    assert is_hidden is None or torch.equal(is_hidden, ~is_real)
    assert bool((torch.where(is_real, highest - own, 0) <= slack).all())


@needs_build
@settings(max_examples=50, deadline=None)
@given(data=st.data(), whole=st.booleans(), seed=st.integers(0, 10**6))
def test_the_highest_of_what_counts(data: st.DataObject, whole: bool, seed: int) -> None:
    num_queries, width = data.draw(st.integers(1, 19)), data.draw(st.integers(1024, 1300) | st.just(2048))
    dim, kept = data.draw(st.integers(16, 40) | st.sampled_from([63, 64, 65, 130])), data.draw(st.integers(1, 32))
    table = numbers(2500, dim, seed=seed, whole=whole)
    # Rows of very different sizes, where one scale for all would not do.
    table *= torch.randint(1, 9, (2500, 1), generator=torch.Generator().manual_seed(seed)).float() ** data.draw(
        st.sampled_from([0, 1, 5])
    )
    ids = torch.randperm(2500, generator=torch.Generator().manual_seed(seed))[:width]
    queries = numbers(num_queries, dim, seed=seed + 1, whole=whole) * data.draw(st.sampled_from([1.0, 1e-12, 1e9]))
    num_hidden = data.draw(st.integers(0, 40))
    generator = torch.Generator().manual_seed(seed + 2)
    points = torch.randint(num_queries, (num_hidden,), generator=generator)
    hidden = (points, torch.randint(width, (num_hidden,), generator=generator))
    check(Int8Search()(queries, table, ids, hidden, kept=kept), queries, table[ids], hidden, kept)


@needs_build
@settings(max_examples=50, deadline=None)
@given(data=st.data(), most=st.sampled_from([3, 10**6]), seed=st.integers(0, 10**6))
def test_the_highest_products_of_codes_exactly(data: st.DataObject, most: int, seed: int) -> None:
    """Against a sort; small products make many ties. Columns are hidden, up to all of a query."""
    extension, generator = compiled_module(), np.random.default_rng(seed)
    assert extension is not None
    num_queries, width = data.draw(st.integers(1, 12)), data.draw(st.integers(16, 700))
    kept = data.draw(st.integers(1, min(width // 16, 32)))
    products = generator.integers(-most, most, (num_queries, width)).astype(np.int32)
    products[generator.random(products.shape) < data.draw(st.sampled_from([0.0, 0.1, 0.99, 1.0]))] = -(2**31)
    scales = generator.choice([1.0, 0.5, 0.37], width).astype(np.float32)
    places = np.full((num_queries, kept), -1)
    hidden = extension.highest(products, scales, places, num_queries, data.draw(st.integers(1, 3)))
    scores = np.where(products == -(2**31), -np.inf, products.astype(np.float32) * scales)
    own = np.take_along_axis(scores, places, axis=1)
    assert np.array_equal(own, -np.sort(-scores, axis=1)[:, :kept])
    assert all(len(set(row)) == kept for row in places.tolist())
    assert hidden == np.isneginf(own).sum()


@needs_build
@pytest.mark.parametrize("kept", [1, 5])
def test_hardly_anything_is_left_to_choose_from(kept: int) -> None:
    """All but three rows are hidden from the first query, all from the second."""
    queries, table, ids = numbers(3, 16, seed=0), numbers(1500, 16, seed=1), torch.arange(1500)
    seen = torch.tensor([3, 700, 1499])
    hidden_of_first = torch.tensor([place for place in range(1500) if place not in seen.tolist()])
    points = torch.cat([torch.zeros(1497, dtype=torch.int64), torch.ones(1500, dtype=torch.int64)])
    hidden = (points, torch.cat([hidden_of_first, ids]))
    found = Int8Search()(queries, table, ids, hidden, kept=kept)
    check(found, queries, table, hidden, kept)


@needs_build
@pytest.mark.parametrize("rows", ["zeros", "equal", "one large", "tiny", "one column"])
def test_tables_for_which_bytes_are_coarse(rows: str) -> None:
    table, queries = numbers(1100, 24, seed=0), numbers(4, 24, seed=1)
    if rows == "zeros":
        table.zero_()
    elif rows == "equal":
        table[:] = table[0].clone()
    elif rows == "one large":
        table[:, 5] += 1e4
    elif rows == "tiny":
        table[::2] *= 1e-36
    else:
        table[:, 1:] = 0
    ids = torch.arange(1100)
    check(Int8Search()(queries, table, ids, no_hidden(), kept=2), queries, table, no_hidden(), 2)


@needs_build
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("where", ["queries", "rows"])
def test_what_has_no_codes_is_told(bad: float, where: str) -> None:
    queries, table, ids = numbers(2, 8, seed=0), numbers(1100, 8, seed=1), torch.arange(1024)
    (queries if where == "queries" else table)[1, 7] = bad
    assert Int8Search()(queries, table, ids, no_hidden(), kept=1) is None
    if where == "rows":  # a row that is not searched may be anything
        assert Int8Search()(queries, table, ids + 50, no_hidden(), kept=1) is not None


@needs_build
@settings(max_examples=40, deadline=None)
@given(dim=st.integers(1, 140), seed=st.integers(0, 10**6), size=st.sampled_from([1.0, 1e-25, 1e-33, 1e10, 0.0]))
def test_codes_and_scales_against_a_loop(dim: int, seed: int, size: float) -> None:
    extension = compiled_module()
    assert extension is not None
    table = size * numbers(6, dim, seed=seed)
    ids = [4, 0, 4]
    codes, scales = np.full((3, dim), 99, np.int8), np.empty(3, np.float32)
    assert extension.code_rows(table.numpy(), dim, np.array(ids), codes, scales, 2)
    for number, row in enumerate(ids):
        scale, values = float(scales[number]), [float(value) for value in table[row]]
        assert scale == pytest.approx(max(map(abs, values)) / 127)
        for value, code in zip(values, codes[number].tolist(), strict=True):
            assert abs(code) <= 127
            assert code == 0 if size < 1e-30 else abs(value - scale * code) <= scale * 0.5001


@needs_build
@pytest.mark.parametrize(("num_queries", "width", "dim"), [(1, 1024, 16), (3, 1025, 17), (17, 33, 129), (2, 300, 4000)])
def test_products_of_bytes_are_exact(num_queries: int, width: int, dim: int) -> None:
    """Sums of the largest products, of one sign, in 32 bits."""
    generator = torch.Generator().manual_seed(0)
    for low in (-127, 120):
        left, right = (
            torch.randint(low, 128, (n, dim), generator=generator, dtype=torch.int8) for n in (num_queries, width)
        )
        out = torch.empty(num_queries, width, dtype=torch.int32)
        torch._int_mm(left, right.T, out=out)
        assert torch.equal(out.long(), left.long() @ right.long().T)


@needs_build
def test_the_number_of_threads_does_not_show() -> None:
    queries, table, ids = numbers(70, 50, seed=0), numbers(3000, 50, seed=1), torch.arange(0, 3000, 2)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 8):
            torch.set_num_threads(number)
            result = Int8Search()(queries, table, ids, no_hidden(), kept=6)
            assert result is not None
            found.append(result[0])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(places, found[0]) for places in found)


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"scales": np.zeros(299, np.float32)},
        {"scales": np.zeros(0, np.float32)},
        {"products": np.zeros((2, 299), np.int32)},
        {"places": np.zeros((2, 19), np.int64)},
        {"places": np.zeros(3, np.int64)},
        {"places": np.zeros(0, np.int64)},
        {"num_queries": 3},
        {"num_queries": 0},
        {"num_queries": -2},
        {"num_queries": 2**62},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "products": np.zeros((2, 300), np.int32),
        "scales": np.ones(300, np.float32),
        "places": np.zeros((2, 18), np.int64),
        "num_queries": 2,
        "threads": 2,
    }
    extension.highest(*given.values())
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.highest(*(given | changed).values())


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"ids": np.array([0, 3])},
        {"ids": np.array([0, -1])},
        {"ids": np.arange(3)},
        {"dim": 3},
        {"dim": -4},
        {"codes": np.zeros((2, 3), np.int8)},
        {"scales": np.zeros(1, np.float32)},
    ],
    ids=str,
)
def test_rows_that_do_not_fit_are_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "weight": np.ones((3, 4), np.float32),
        "dim": 4,
        "ids": np.array([2, 0]),
        "codes": np.zeros((2, 4), np.int8),
        "scales": np.zeros(2, np.float32),
        "threads": 1,
    }
    assert extension.code_rows(*given.values())
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.code_rows(*(given | changed).values())


@needs_build
def test_where_bytes_suit(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, table = torch.zeros(64, 128), torch.zeros(5000, 128)
    assert Int8Search.suits(queries, table, width=4000, kept=32)
    assert not Int8Search.suits(queries, table, width=4000, kept=33)
    assert not Int8Search.suits(queries, table, width=500, kept=1)
    assert not Int8Search.suits(queries[:1], table, width=4000, kept=1)
    assert not Int8Search.suits(queries.double(), table.double(), width=4000, kept=1)
    assert not Int8Search.suits(queries, torch.zeros(128, 5000).T, width=4000, kept=1)
    assert not Int8Search.suits(torch.zeros(5000, 15), torch.zeros(5000, 15), width=4000, kept=1)
    assert not Int8Search.suits(torch.zeros(64, 1 << 17), torch.zeros(2, 1 << 17), width=4000, kept=1)
    with monkeypatch.context() as patch:
        patch.setattr(int8, "compiled_module", lambda: None)
        assert not Int8Search.suits(queries, table, width=4000, kept=1)
    monkeypatch.setattr(int8, "cpu_multiplies_int8", lambda: False)
    assert not Int8Search.suits(queries, table, width=4000, kept=1)


def test_a_pytorch_without_these_private_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(torch, "_int_mm")
        assert not cpu_multiplies_int8.__wrapped__()
    with monkeypatch.context() as patch:
        patch.setattr(int8, "multiply_bytes", lambda left, right: (left.short() @ right.short().T).int())
        assert not cpu_multiplies_int8.__wrapped__()
    monkeypatch.delattr(torch.cpu, "_is_vnni_supported")
    assert not cpu_multiplies_int8.__wrapped__()
