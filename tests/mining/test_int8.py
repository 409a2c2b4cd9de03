"""The highest products by way of bytes against float64, with odd shapes, ties, hidden rows and rows at the ends of
float32."""

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


def check(
    found: tuple[Tensor, Tensor] | None, queries: Tensor, rows: Tensor, hidden: tuple[Tensor, Tensor], kept: int
) -> None:
    """Places are distinct and in the order of products, which are the highest but for float32's rounding."""
    assert found is not None
    places, scores = found
    products = queries.double() @ rows.double().T
    products[hidden] = -math.inf
    rounding = 2**-20 * queries.double().norm(dim=1)[:, None] * rows.double().norm(dim=1).max()
    assert all(len(set(row)) == kept for row in places.tolist())
    highest = products.topk(kept, dim=1).values
    is_real = highest > -math.inf
    difference = (torch.where(is_real, products.gather(1, places) - highest, 0)).abs()
    assert bool((difference <= rounding).all())
    assert torch.equal(scores > -math.inf, is_real)
    assert torch.equal(products.gather(1, places) > -math.inf, is_real)
    assert bool((torch.where(is_real, scores.double() - highest, 0).abs() <= rounding).all())
    assert torch.equal(scores, scores.sort(dim=1, descending=True).values)


@needs_build
@settings(max_examples=50, deadline=None)
@given(data=st.data(), whole=st.booleans(), seed=st.integers(0, 10**6))
def test_the_highest_of_what_counts(data: st.DataObject, whole: bool, seed: int) -> None:
    num_queries, width = data.draw(st.integers(1, 19)), data.draw(st.integers(1024, 1300) | st.just(2048))
    dim, kept = data.draw(st.integers(16, 40) | st.sampled_from([63, 64, 65, 130])), data.draw(st.integers(1, 32))
    table = numbers(2500, dim, seed=seed, whole=whole)
    # Rows of very different sizes, where a bound of one size for all would not do.
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
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e20])
@pytest.mark.parametrize("where", ["queries", "rows"])
def test_what_has_no_bound_is_told(bad: float, where: str) -> None:
    queries, table, ids = numbers(2, 8, seed=0), numbers(1100, 8, seed=1), torch.arange(1024)
    (queries if where == "queries" else table)[1, 7] = bad
    assert Int8Search()(queries, table, ids, no_hidden(), kept=1) is None
    if where == "rows":  # a row that is not searched may be anything
        assert Int8Search()(queries, table, ids + 50, no_hidden(), kept=1) is not None


@needs_build
@settings(max_examples=40, deadline=None)
@given(dim=st.integers(1, 140), seed=st.integers(0, 10**6), size=st.sampled_from([1.0, 1e-25, 1e-33, 1e10, 0.0]))
def test_codes_and_sizes_against_a_loop(dim: int, seed: int, size: float) -> None:
    extension = compiled_module()
    assert extension is not None
    table = size * numbers(6, dim, seed=seed)
    ids = [4, 0, 4]
    codes, sizes = np.full((3, dim), 99, np.int8), np.empty((3, 3), np.float32)
    assert extension.code_rows(table.numpy(), dim, np.array(ids), codes, sizes, 2)
    for number, row in enumerate(ids):
        scale, length, lost = (float(part) for part in sizes[:, number])
        values = [float(value) for value in table[row]]
        assert all(abs(code) <= 127 for code in codes[number].tolist())
        assert length >= math.hypot(*values) * (1 - 1e-5)
        differences = [value - scale * code for value, code in zip(values, codes[number].tolist(), strict=True)]
        assert lost >= math.hypot(*differences) * (1 - 1e-5) - 1e-6 * length
        if size >= 1e-25:
            assert scale == pytest.approx(max(map(abs, values)) / 127)
            assert length == pytest.approx(math.hypot(*values), rel=1e-5)
            assert max(map(abs, differences)) <= scale * 0.5001


@needs_build
@pytest.mark.parametrize("dim", [4096, 65535, 65536])
@pytest.mark.parametrize("value", [1.0, 0.0039, 0.00013])
def test_sizes_of_many_equal_numbers(dim: int, value: float) -> None:
    """Roundings of one sign add up; the slack of the bound allows for dim / 64 + 24 of them in each length."""
    extension = compiled_module()
    assert extension is not None
    row = np.full((1, dim), value, np.float32)
    row[0, 0] = 1.0
    codes, sizes = np.empty((1, dim), np.int8), np.empty((3, 1), np.float32)
    assert extension.code_rows(row, dim, np.array([0]), codes, sizes, 1)
    scale, length, lost = (float(part) for part in sizes[:, 0])
    rounding = (dim / 64 + 24) * 2**-24
    exact = row[0].astype(np.float64)
    exact_length, exact_lost = np.linalg.norm(exact), np.linalg.norm(exact - scale * codes[0].astype(np.float64))
    assert abs(length / exact_length - 1) <= rounding
    assert abs(lost - exact_lost) <= rounding * exact_lost + 3 * 2**-24 * exact_length


@needs_build
def test_the_bound_leaves_room_for_lengths_that_long_sums_cut_short() -> None:
    """No code says anything of the products here, 1 and a little less: only the lengths do, each short by as much as
    sums of this dimension may be."""
    extension = compiled_module()
    assert extension is not None
    dim, given_length = 65536, 1 - (65536 / 64 + 24) * 2**-24
    queries, weight = np.zeros((1, dim), np.float32), np.zeros((2, dim), np.float32)
    queries[0, 0], weight[:, 0] = 1, (1 - 1e-6, 1)
    ids = np.zeros(256, np.int64)
    ids[255] = 1
    query_sizes = np.array([[0], [given_length], [given_length]], np.float32)
    row_sizes = np.zeros((3, 256), np.float32)
    row_sizes[1] = given_length
    places, scores = np.empty((1, 1), np.int64), np.empty((1, 1), np.float32)
    products = np.zeros((1, 256), np.int32)
    extension.highest(products, queries, query_sizes, weight, ids, row_sizes, dim, places, scores, 1)
    assert places.tolist() == [[255]]
    assert scores.tolist() == [[1.0]]


@needs_build
@pytest.mark.parametrize("kept", [1, 7, 16])
def test_rows_begun_with_are_multiplied_once(kept: int) -> None:
    """Bounds that rule out nothing, and the highest products in the rows that are begun with."""
    extension = compiled_module()
    assert extension is not None
    weight = np.linspace(2, 1, 300, dtype=np.float32)[:, None]
    places, scores = np.empty((1, kept), np.int64), np.empty((1, kept), np.float32)
    dots = extension.highest(
        np.zeros((1, 300), np.int32),
        np.ones((1, 1), np.float32),
        np.full((3, 1), 100, np.float32),
        weight,
        np.arange(300),
        np.full((3, 300), 100, np.float32),
        1,
        places,
        scores,
        1,
    )
    assert dots == 300
    assert places.tolist() == [list(range(kept))]
    assert np.array_equal(scores[0], weight[:kept, 0])


@needs_build
def test_scales_whose_product_float32_cannot_tell_apart() -> None:
    """Two scales make 1.45 and 1.49 of the least step of float32, which are both rounded to 1."""
    queries, table = torch.full((2, 64), 127 * 2.0**-75), torch.full((1100, 64), 127 * 1.45 * 2.0**-74)
    table[1099] *= 1.49 / 1.45
    found = Int8Search()(queries, table, torch.arange(1100), no_hidden(), kept=1)
    assert found is not None
    assert found[0].tolist() == [[1099], [1099]]


@needs_build
@pytest.mark.parametrize("dim", [2, 17, 1000])
def test_lengths_at_the_least_step_of_float32(dim: int) -> None:
    extension = compiled_module()
    assert extension is not None
    row, codes, sizes = np.full((1, dim), 2.0**-149, np.float32), np.empty((1, dim), np.int8), np.empty(3, np.float32)
    assert extension.code_rows(row, dim, np.array([0]), codes, sizes, 1)
    assert sizes[0] == 0
    assert np.all(sizes[1:].astype(np.float64) >= math.sqrt(dim) * 2.0**-149)


@needs_build
@pytest.mark.parametrize(("num_queries", "width", "dim"), [(1, 1024, 16), (3, 1025, 17), (17, 33, 129), (2, 300, 4000)])
def test_products_of_bytes_are_exact(num_queries: int, width: int, dim: int) -> None:
    """What the bound rests on: sums of the largest products, of one sign, in 32 bits."""
    generator = torch.Generator().manual_seed(0)
    for low in (-127, 120):
        left, right = (
            torch.randint(low, 128, (n, dim), generator=generator, dtype=torch.int8) for n in (num_queries, width)
        )
        out = torch.empty(num_queries, width, dtype=torch.int32)
        torch._int_mm(left, right.T, out=out)
        assert torch.equal(out.long(), left.long() @ right.long().T)


@needs_build
def test_nearly_all_rows_are_ruled_out_by_bytes() -> None:
    extension = compiled_module()
    assert extension is not None
    queries, table = (torch.nn.functional.normalize(numbers(n, 512, seed=n), dim=1) for n in (8, 4096))
    codes, sizes = np.empty((4096, 512), np.int8), np.empty((3, 4096), np.float32)
    own_codes, own_sizes = np.empty((8, 512), np.int8), np.empty((3, 8), np.float32)
    extension.code_rows(table.numpy(), 512, np.arange(4096), codes, sizes, 1)
    extension.code_rows(queries.numpy(), 512, np.arange(8), own_codes, own_sizes, 1)
    products = own_codes.astype(np.int32) @ codes.astype(np.int32).T
    places, scores = np.empty((8, 1), np.int64), np.empty((8, 1), np.float32)
    dots = extension.highest(
        products, queries.numpy(), own_sizes, table.numpy(), np.arange(4096), sizes, 512, places, scores, 1
    )
    assert 8 <= dots <= 8 * 40
    assert places[:, 0].tolist() == (queries @ table.T).argmax(dim=1).tolist()


@needs_build
def test_the_number_of_threads_does_not_show() -> None:
    queries, table, ids = numbers(70, 50, seed=0), numbers(3000, 50, seed=1), torch.arange(0, 3000, 2)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 8):
            torch.set_num_threads(number)
            result = Int8Search()(queries, table, ids, no_hidden(), kept=6)
            assert result is not None
            found.append(result)
    finally:
        torch.set_num_threads(threads)
    for places, scores in found[1:]:
        assert torch.equal(places, found[0][0])
        assert torch.equal(scores, found[0][1])


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"ids": np.array([*range(299), 300])},
        {"ids": np.array([-1, *range(299)])},
        {"ids": np.arange(299)},
        {"dim": 5},
        {"dim": 0},
        {"dim": 1 << 20},
        {"row_sizes": np.zeros((3, 299), np.float32)},
        {"query_sizes": np.zeros((3, 3), np.float32)},
        {"products": np.zeros((2, 299), np.int32)},
        {"places": np.zeros((2, 17), np.int64)},
        {"places": np.zeros(3, np.int64)},
        {"scores": np.zeros((2, 2), np.float32)},
        {"queries": np.zeros(7, np.float32)},
        {"weight": np.zeros((299, 4), np.float32)},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "products": np.zeros((2, 300), np.int32),
        "queries": np.ones((2, 4), np.float32),
        "query_sizes": np.ones((3, 2), np.float32),
        "weight": np.ones((300, 4), np.float32),
        "ids": np.arange(300),
        "row_sizes": np.ones((3, 300), np.float32),
        "dim": 4,
        "places": np.zeros((2, 1), np.int64),
        "scores": np.zeros((2, 1), np.float32),
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
        {"sizes": np.zeros((2, 2), np.float32)},
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
        "sizes": np.zeros((3, 2), np.float32),
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
