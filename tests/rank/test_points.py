"""The nearest points against a loop over floats; and what comes from a file is either sound or refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.data.rows import SparseRows, concatenate, offsets_from_counts
from owlmine.rank.points import (
    SparsePoints,
    compiled_nearest,
    compiled_points,
    first_head,
    plain_nearest,
    unit_rows,
)

from .small_tasks import IS_BUILT, assert_same_tensors, needs_build, sparse_rows

_ways = st.sampled_from([compiled_nearest, plain_nearest] if IS_BUILT else [plain_nearest])


def rows_of(*rows: dict[int, float]) -> SparseRows:
    return SparseRows(
        offsets_from_counts(np.array([len(row) for row in rows], np.int64)),
        np.array([feature for row in rows for feature in row], np.int32),
        np.array([value for row in rows for value in row.values()], np.float32),
    )


def as_dict(rows: SparseRows, row: int) -> dict[int, float]:
    assert rows.values is not None
    own = slice(rows.offsets[row], rows.offsets[row + 1])
    return dict(zip(rows.indices[own].tolist(), rows.values[own].tolist(), strict=True))


def cosine_by_loop(query: dict[int, float], point: dict[int, float]) -> float:
    """``point``: of length 1 already, apart from rounding."""
    length = math.sqrt(sum(v * v for v in query.values()))
    product = sum(value * point.get(f, 0.0) for f, value in query.items())
    return product / length if length > 0 else 0.0


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_points=st.integers(0, 40),
    num_queries=st.integers(0, 5),
    num_features=st.integers(1, 60),
    share=st.sampled_from([0.02, 0.2, 0.7]),
    count=st.integers(0, 50),
    find=_ways,
)
def test_nearest_against_a_loop(
    seed: int, num_points: int, num_queries: int, num_features: int, share: float, count: int, find
) -> None:
    train = sparse_rows(seed, num_rows=num_points, num_features=num_features, share=share)
    queries = sparse_rows(seed + 1, num_rows=num_queries, num_features=num_features, share=share)
    index = SparsePoints.of(train, num_features=num_features)
    num_nearest = min(count, num_points)
    cosines_Nn, points_Nn = find(index, unit_rows(queries, num_features=num_features), num_nearest)
    assert (cosines_Nn.dtype, points_Nn.dtype) == (np.float32, np.int64)
    assert cosines_Nn.shape == points_Nn.shape == (num_queries, num_nearest)
    rounded = index.rows(np.arange(num_points))
    for n in range(num_queries):
        exact = [cosine_by_loop(as_dict(queries, n), as_dict(rounded, p)) for p in range(num_points)]
        best = sorted((max(cosine, 0.0) for cosine in exact), reverse=True)[:num_nearest]
        np.testing.assert_allclose(cosines_Nn[n], best, atol=1e-6)
        found = points_Nn[n][cosines_Nn[n] > 0].tolist()
        assert len(set(found)) == len(found)
        np.testing.assert_allclose([exact[p] for p in found], cosines_Nn[n][: len(found)], atol=1e-6)
        assert not points_Nn[n][len(found) :].any()
        assert not cosines_Nn[n][len(found) :].any()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), find=_ways)
def test_among_equals_the_smaller_point_is_first(data: st.DataObject, find) -> None:
    """Rows of one feature are sums of one product: equal in every bit where they are equal."""
    num_features = data.draw(st.integers(1, 3))
    signed = st.tuples(st.integers(0, num_features - 1), st.sampled_from([2.0, -3.0, 0.0]))
    train = data.draw(st.lists(signed, min_size=1, max_size=90))
    query = data.draw(st.permutations(list(range(num_features))))
    weights = {f: float(place + 1) for place, f in enumerate(query)}
    count = data.draw(st.integers(1, 100))
    index = SparsePoints.of(rows_of(*({f: value} for f, value in train)), num_features=num_features)
    rows = unit_rows(rows_of(dict(sorted(weights.items()))), num_features=num_features)
    cosines_Nn, points_Nn = find(index, rows, min(count, len(train)))
    ranked = sorted((-weights[f], p) for p, (f, value) in enumerate(train) if value > 0)[:count]
    assert points_Nn[0].tolist() == [p for _, p in ranked] + [0] * (min(count, len(train)) - len(ranked))
    assert (np.diff(cosines_Nn[0]) <= 0).all()


_sizes = st.sampled_from([1, 31, 32, 33, 5_000, 32_768, 32_769, 70_000])


@needs_build
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_points=_sizes,
    per_point=st.sampled_from([0.2, 3.0]),
    num_features=st.sampled_from([2, 40, 3_000]),
    count=st.integers(1, 60),
)
def test_both_ways_agree(seed: int, num_points: int, per_point: float, num_features: int, count: int) -> None:
    """Points beyond one block of the compiled way, lists that it comes back to and lists after which it sweeps.

    Not to the bit: a compiler may join a product and a sum into one operation, which rounds once.
    """
    generator = np.random.default_rng(seed)
    train = many_rows(generator, num_rows=num_points, per_row=per_point, num_features=num_features)
    queries = many_rows(generator, num_rows=3, per_row=4.0, num_features=num_features)
    index = SparsePoints.of(train, num_features=num_features)
    rows, num_nearest = unit_rows(queries, num_features=num_features), min(count, num_points)
    cosines_Nn, points_Nn = compiled_nearest(index, rows, num_nearest)
    np.testing.assert_allclose(cosines_Nn, plain_nearest(index, rows, num_nearest)[0], atol=1e-6)
    unit_PF = index.rows(np.arange(num_points)).to_scipy(num_features)
    for query_F, cosines_n, points_n in zip(rows.to_scipy(num_features).toarray(), cosines_Nn, points_Nn, strict=True):
        found = points_n[cosines_n > 0]
        assert len(np.unique(found)) == len(found)
        np.testing.assert_allclose(unit_PF[found] @ query_F, cosines_n[: len(found)], atol=1e-6)


@needs_build
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), num_points=_sizes, num_features=st.sampled_from([2, 500]), count=st.integers(1, 60))
def test_both_ways_agree_to_the_bit_on_rows_of_one_feature(
    seed: int, num_points: int, num_features: int, count: int
) -> None:
    """No sums, so no rounding of sums: many points are equal, over several blocks."""
    generator = np.random.default_rng(seed)
    features = generator.integers(0, num_features, num_points)
    index = SparsePoints.of(SparseRows(np.arange(num_points + 1), features, None), num_features=num_features)
    rows = unit_rows(
        many_rows(generator, num_rows=3, per_row=4.0, num_features=num_features), num_features=num_features
    )
    for compiled, plain in zip(
        compiled_nearest(index, rows, min(count, num_points)),
        plain_nearest(index, rows, min(count, num_points)),
        strict=True,
    ):
        assert np.array_equal(compiled, plain)


def many_rows(generator: np.random.Generator, *, num_rows: int, per_row: float, num_features: int) -> SparseRows:
    """Rows of few whole numbers, so that many cosines are equal."""
    counts = generator.poisson(per_row, num_rows).clip(max=num_features)
    features = generator.integers(0, num_features, int(counts.sum()))
    keys = np.unique(np.repeat(np.arange(num_rows), counts) * num_features + features)
    values = generator.choice(np.array([1, 2, -1], np.float32), len(keys), p=[0.6, 0.3, 0.1])
    offsets = np.searchsorted(keys, np.arange(num_rows + 1) * num_features)
    return SparseRows(offsets, (keys % num_features).astype(np.int32), values)


@needs_build
def test_the_number_of_threads_does_not_show() -> None:
    generator = np.random.default_rng(0)
    train = many_rows(generator, num_rows=2_000, per_row=5, num_features=50)
    index = SparsePoints.of(train, num_features=50)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        cosines_Nn, points_Nn = index.nearest(train[:301], None, 20)
        torch.set_num_threads(3)
        again_Nn, again_points_Nn = index.nearest(train[:301], None, 20)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(cosines_Nn, again_Nn)
    assert np.array_equal(points_Nn, again_points_Nn)


@pytest.mark.usefixtures("way")
def test_a_point_is_nearest_to_itself_at_any_length() -> None:
    train = rows_of({0: 1.0, 2: 2.0}, {}, {1: 3e38, 2: -3e38}, {0: 1e-30, 1: 1e-30}, {2: 0.0})
    index = SparsePoints.of(train, num_features=3)
    cosines_Nn, points_Nn = index.nearest(train, torch.zeros(5, 7), 2)
    half = math.sqrt(0.5)
    expected = [[1, half / math.sqrt(5)], [0, 0], [1, 0.5], [1, 0.5], [0, 0]]
    np.testing.assert_allclose(cosines_Nn, expected, atol=0.005)
    assert points_Nn.tolist() == [[0, 3], [0, 0], [2, 3], [3, 2], [0, 0]]


@pytest.mark.usefixtures("way")
def test_features_in_any_order_and_more_than_once() -> None:
    """What a row says twice counts twice; the rows that were given stay as they are."""
    twice = SparseRows(np.array([0, 3, 4]), np.array([2, 0, 2], np.int32).repeat([1, 1, 2]), np.ones(4, np.float32))
    once = rows_of({0: 1.0, 2: 2.0}, {2: 1.0})
    for train in (twice, once):
        index = SparsePoints.of(train, num_features=3)
        for queries in (twice, once):
            cosines_Nn, points_Nn = index.nearest(queries, None, 9)
            np.testing.assert_allclose(cosines_Nn, [[1, 2 / math.sqrt(5)]] * 2, atol=0.005)
            assert points_Nn.tolist() == [[0, 1], [1, 0]]
    assert twice.indices.tolist() == [2, 0, 2, 2]


@pytest.mark.usefixtures("way")
def test_rows_without_values_count_as_ones() -> None:
    train = SparseRows(np.array([0, 1, 3]), np.array([1, 0, 1]), None)
    cosines_Nn, points_Nn = SparsePoints.of(train, num_features=2).nearest(train[:1], None, 2)
    np.testing.assert_allclose(cosines_Nn, [[1, math.sqrt(0.5)]], atol=0.005)
    assert points_Nn.tolist() == [[0, 1]]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("num_features", [0, 3])
def test_no_points_and_no_queries(num_features: int) -> None:
    nothing, empty = rows_of(), rows_of({}, {})
    for train, queries in ((nothing, empty), (empty, nothing), (empty, empty)):
        index = SparsePoints.of(train, num_features=num_features)
        assert (len(index), index.num_features) == (len(train), num_features)
        cosines_Nn, points_Nn = index.nearest(queries, None, 5)
        assert cosines_Nn.shape == points_Nn.shape == (len(queries), len(train))
        assert not cosines_Nn.any()
        assert not points_Nn.any()


@pytest.mark.usefixtures("way")
def test_queries_do_not_see_each_other() -> None:
    train = sparse_rows(0, num_rows=50, num_features=20)
    queries = concatenate([sparse_rows(1, num_rows=6, num_features=20), rows_of({}), train[:5]])
    index = SparsePoints.of(train, num_features=20)
    together = index.nearest(queries, None, 7)
    for n in range(len(queries)):
        for whole, single in zip(together, index.nearest(queries[n : n + 1], None, 7), strict=True):
            assert np.array_equal(whole[n : n + 1], single)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("queries", "count", "message"),
    [
        (rows_of({2: 1.0}), 1, "indices are 2 to 2; wanted 0 to 1"),
        (rows_of({-1: 1.0}), 1, "indices are -1"),
        (rows_of({0: float("nan")}), 1, "not a finite number"),
        (SparseRows(np.array([0, 2]), np.array([1, 1], np.int32), np.full(2, 3e38, np.float32)), 1, "not a finite"),
        (SparseRows(np.array([0, 2]), np.array([1], np.int32), np.ones(1, np.float32)), 1, "do not ascend from 0"),
        (rows_of({0: 1.0}), -1, "count is -1"),
    ],
)
def test_bad_queries(queries: SparseRows, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparsePoints.of(rows_of({0: 1.0}), num_features=2).nearest(queries, None, count)


def test_tensors_and_back() -> None:
    index = SparsePoints.of(sparse_rows(0, num_rows=9, num_features=12), num_features=12)
    index.lists.scales_R.flags.writeable = False
    again = SparsePoints.from_tensors(index.tensors())
    assert (len(again), again.num_features) == (9, 12)
    assert_same_tensors(index, again)
    assert index.on(torch.device("cpu")) is index


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("counts", [2, 2], "rows of 4 entries in total; wanted 3"),
        ("steps", [0, 3, 1], "an id is 4; wanted one below 4"),
        ("codes", [127, -128, 127], "a code is -128"),
        ("scales", [0.0078125, 0.0], None),
        ("scales", [1.0, 0.0], "a value has size 127"),
        ("num_points", -1, "num_points is -1"),
        ("num_points", 1, "an id is 3; wanted one below 1"),
        ("num_points", 2**31, "num_points is 2147483648"),
        ("num_points", [4], "wanted torch.int64 of 0 dimensions"),
    ],
)
def test_a_file_that_cannot_be_is_refused(name: str, changed: object, message: str | None) -> None:
    tensors = {
        "counts": torch.tensor([2, 1], dtype=torch.uint8),
        "steps": torch.tensor([0, 2, 1], dtype=torch.uint8),
        "long_steps": torch.tensor([], dtype=torch.uint8),
        "codes": torch.tensor([127, -127, 127], dtype=torch.int8),
        "scales": torch.full((2,), 2.0**-7),
        "num_points": torch.tensor(4),
    }
    hostile: dict[str, Tensor] = tensors | {name: torch.tensor(changed, dtype=tensors[name].dtype)}
    if message is None:
        assert len(SparsePoints.from_tensors(hostile)) == 4
        return
    with pytest.raises(ValueError, match=message):
        SparsePoints.from_tensors(hostile)


def test_a_file_of_other_things_is_refused() -> None:
    tensors = SparsePoints.of(rows_of({0: 1.0}), num_features=1).tensors()
    with pytest.raises(ValueError, match=r"codes is torch\.float32 .* wanted a vector of torch\.int8"):
        SparsePoints.from_tensors(tensors | {"codes": tensors["codes"].float()})
    with pytest.raises(ValueError, match="tensors are"):
        SparsePoints.from_tensors({name: tensor for name, tensor in tensors.items() if name != "steps"})
    with pytest.raises(ValueError, match="tensors are"):
        SparsePoints.from_tensors({name: tensor for name, tensor in tensors.items() if name != "num_points"})


def int32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"query_offsets": np.array([0, 3])},
        {"query_offsets": np.array([1, 0])},
        {"query_offsets": np.array([-1, 2])},
        {"query_offsets": np.array([0, 1, 2])},
        {"query_offsets": np.zeros(0, np.int64)},
        {"query_features": int32(0, 2)},
        {"query_features": int32(0, -1)},
        {"query_features": int32(0)},
        {"query_values": ones(1)},
        {"offsets": np.array([0, 2, 4])},
        {"offsets": np.array([0, 4, 3])},
        {"offsets": np.array([-1, 2, 3])},
        {"offsets": np.array([0, 3])},
        {"offsets": np.zeros(0, np.int64)},
        {"points": int32(0, 3, 1)},
        {"points": int32(0, -1, 1)},
        {"points": int32(0, 2**31 - 1, 1)},
        {"points": int32(0, 1)},
        {"codes": ones(3)},
        {"codes": np.ones(2, np.int8)},
        {"scales": ones(1)},
        {"num_points": 2},
        {"num_points": -1},
        {"num_points": 2**31},
        {"num_nearest": 1},
        {"num_nearest": -2},
        {"num_nearest": 4},
        {"num_nearest": 2**62},
        {"out_cosines": ones(1)},
        {"out_points": np.zeros(3, np.int64)},
    ],
    ids=str,
)
def test_a_call_that_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    extension = compiled_points()
    assert extension is not None
    given: dict[str, object] = {
        "query_offsets": np.array([0, 2]),
        "query_features": int32(0, 1),
        "query_values": ones(2),
        "offsets": np.array([0, 2, 3]),
        "points": int32(0, 2, 2),
        "codes": np.ones(3, np.int8),
        "scales": ones(2),
        "num_points": 3,
        "num_nearest": 2,
        "out_cosines": ones(2),
        "out_points": np.ones(2, np.int64),
        "threads": 2,
    }
    assert extension.nearest(*given.values()) == 1
    assert np.array_equal(np.array(given["out_cosines"]), [2, 1])
    assert np.array_equal(np.array(given["out_points"]), [2, 0])
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.nearest(*(given | changed).values())


@needs_build
@pytest.mark.parametrize("points", [[40_000, 1], [1, 70_000], [40_000, 40_001, 2], [0, 1, 2, 3, 70_000], [5, -5]])
def test_lists_that_do_not_ascend_over_blocks_are_refused(points: list[int]) -> None:
    """Points of a later block before those of an earlier one, and points that are not there."""
    extension = compiled_points()
    assert extension is not None
    cosines, found, query = np.zeros(3, np.float32), np.zeros(3, np.int64), (np.array([0, 1]), int32(0), ones(1))
    with pytest.raises(ValueError, match="out of range"):
        extension.nearest(
            *query,
            np.array([0, len(points)]),
            int32(*points),
            np.ones(len(points), np.int8),
            ones(1),
            70_000,
            3,
            cosines,
            found,
            1,
        )


def test_the_first_of_several_heads_is_compared() -> None:
    """Joined models hold unit vectors side by side, divided by the root of their number."""
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.nn.functional.normalize(torch.randn(5, 4, generator=generator), dim=1) for _ in range(2))
    torch.testing.assert_close(first_head(torch.cat([one, other], dim=1) / 2**0.5, 4), one)
