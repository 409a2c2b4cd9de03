"""Draws a pool on the device and gathers its class rows, in one pass and with fixed shapes.

The pool is the first W places of a keyed permutation of the classes (``owlmine.mining.permutation``): distinct by
construction, so nothing is sorted, compared or counted.

Shapes: N queries, K classes, W of the pool, D dimension.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.kernels.exclusions import Exclusions
from owlmine.kernels.launch import assert_contiguous
from owlmine.mining.permutation import bits_of, rounds_of


@triton.jit
def mix(x):
    """A bijection of 32 bits in which every bit of the result depends on every bit of ``x``."""
    x ^= x >> 16
    x *= 0x85EBCA6B
    x ^= x >> 13
    x *= 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def _shuffled(x, key, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROUNDS: tl.constexpr):
    left = x >> RIGHT
    right = x & ((1 << RIGHT) - 1)
    for number in tl.static_range(ROUNDS):
        left ^= mix(right ^ mix(key + ((2 * number * 0x9E3779B9) & 0xFFFFFFFF))) & ((1 << LEFT) - 1)
        right ^= mix(left ^ mix(key + (((2 * number + 1) * 0x9E3779B9) & 0xFFFFFFFF))) & ((1 << RIGHT) - 1)
    return (left << RIGHT) | right


@triton.jit
def _unshuffled(x, key, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROUNDS: tl.constexpr):
    left = x >> RIGHT
    right = x & ((1 << RIGHT) - 1)
    for number in tl.static_range(ROUNDS - 1, -1, -1):
        right ^= mix(left ^ mix(key + (((2 * number + 1) * 0x9E3779B9) & 0xFFFFFFFF))) & ((1 << RIGHT) - 1)
        left ^= mix(right ^ mix(key + ((2 * number * 0x9E3779B9) & 0xFFFFFFFF))) & ((1 << LEFT) - 1)
    return (left << RIGHT) | right


@triton.jit
def _places_of(ids, inside, key_ptr, num_classes, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROUNDS: tl.constexpr):
    """Where the permutation has these classes. An id that is no class would walk in a circle without end: what is not
    ``inside`` is taken for class 0."""
    key = tl.load(key_ptr).to(tl.uint32)
    places = _unshuffled(tl.where(inside, ids, 0).to(tl.uint32), key, LEFT, RIGHT, ROUNDS)
    while tl.max((places >= num_classes).to(tl.int32), axis=0) > 0:
        places = tl.where(places >= num_classes, _unshuffled(places, key, LEFT, RIGHT, ROUNDS), places)
    return places.to(tl.int64)


@triton.jit
def _mark_excluded(
    rows_ptr,
    offsets_ptr,
    ids_ptr,
    key_ptr,
    marks_ptr,
    num_classes,
    width,
    TILE_E: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + query)
    end = tl.load(offsets_ptr + row + 1)
    for start in range(tl.load(offsets_ptr + row), end, TILE_E):
        entries = start + tl.arange(0, TILE_E)
        ids = tl.load(ids_ptr + entries, mask=entries < end, other=-1)
        inside = (ids >= 0) & (ids < num_classes)
        places = _places_of(ids, inside, key_ptr, num_classes, LEFT, RIGHT, ROUNDS)
        tl.store(marks_ptr + query * width + places, True, mask=inside & (places < width))


@triton.jit
def _list_excluded(
    positives_ptr,
    rows_ptr,
    offsets_ptr,
    ids_ptr,
    key_ptr,
    positive_places_ptr,
    bounds_ptr,
    places_ptr,
    num_classes,
    width,
    room,
    TILE_E: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + query)
    first = tl.load(offsets_ptr + row)
    end = tl.load(offsets_ptr + row + 1)
    positive = tl.load(positives_ptr + query)
    positive_place = tl.full((), -1, tl.int64)
    target = query * room
    tl.store(bounds_ptr + 2 * query, target)
    # One entry before the list stands for the positive.
    for start in range(first - 1, end, TILE_E):
        entries = start + tl.arange(0, TILE_E)
        listed = (entries >= first) & (entries < end)
        ids = tl.load(ids_ptr + entries, mask=listed, other=-1).to(tl.int64)
        ids = tl.where(entries < first, positive, ids)
        inside = (ids >= 0) & (ids < num_classes)
        places = _places_of(ids, inside, key_ptr, num_classes, LEFT, RIGHT, ROUNDS)
        inside = inside & (places < width)
        positive_place = tl.maximum(positive_place, tl.max(tl.where(inside & (ids == positive), places, -1), axis=0))
        tl.store(places_ptr + target + tl.cumsum(inside.to(tl.int32), axis=0) - 1, places, mask=inside)
        target += tl.sum(inside.to(tl.int32), axis=0)
    tl.store(bounds_ptr + 2 * query + 1, target)
    tl.store(positive_places_ptr + query, positive_place)


@triton.jit
def _pool_rows(
    classes_ptr,
    key_ptr,
    ids_ptr,
    rows_ptr,
    num_classes,
    width,
    D: tl.constexpr,
    TILE_W: tl.constexpr,
    TILE_D: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    ROUNDS: tl.constexpr,
    DRAW: tl.constexpr,
):
    places = tl.program_id(0) * TILE_W + tl.arange(0, TILE_W)
    inside = places < width
    if DRAW:
        key = tl.load(key_ptr).to(tl.uint32)
        # Numbers past the last class go round again: each walk ends, as it started at a class.
        walk = _shuffled(places.to(tl.uint32), key, LEFT, RIGHT, ROUNDS)
        while tl.max(((walk >= num_classes) & inside).to(tl.int32), axis=0) > 0:
            walk = tl.where(walk >= num_classes, _shuffled(walk, key, LEFT, RIGHT, ROUNDS), walk)
        ids = walk.to(tl.int64)
        tl.store(ids_ptr + places, ids, mask=inside)
    else:
        ids = tl.load(ids_ptr + places, mask=inside, other=0).to(tl.int64)
    dims = tl.arange(0, TILE_D)
    whole = inside[:, None] & (dims < D)[None, :]
    rows = tl.load(classes_ptr + ids[:, None] * D + dims[None, :], mask=whole, other=0.0)
    tl.store(
        rows_ptr + places[:, None].to(tl.int64) * D + dims[None, :], rows.to(rows_ptr.dtype.element_ty), mask=whole
    )


def pool_rows(classes_KD: Tensor, key: Tensor, *, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Class ids [W] (int64) and their rows [W, D] in ``dtype``. ``key``: one int64 on the device, below 2^32."""
    ids_W = torch.empty(width, dtype=torch.int64, device=classes_KD.device)
    return ids_W, _launch(classes_KD, key, ids_W, dtype, draw=True)


def excluded_from_pool(exclude: Exclusions, key: Tensor, *, num_classes: int, width: int) -> Tensor:
    """[N, W], True where a place of the pool that ``key`` draws holds a class that the query excludes.

    The place of a class comes from the permutation backwards; the pool itself is not looked at.
    """
    marks_NW = torch.zeros(len(exclude.rows_N), width, dtype=torch.bool, device=key.device)
    left, right = bits_of(num_classes)
    _mark_excluded[(len(marks_NW),)](
        exclude.rows_N,
        exclude.offsets,
        exclude.ids,
        key,
        marks_NW,
        num_classes,
        width,
        TILE_E=16,
        LEFT=left,
        RIGHT=right,
        ROUNDS=rounds_of(num_classes),
        num_warps=1,
    )
    return marks_NW


def places_in_pool(
    positives_N: Tensor, exclude: Exclusions, key: Tensor, *, num_classes: int, width: int
) -> tuple[Tensor, Exclusions]:
    """The place [N] (int64) of each positive in the pool that ``key`` draws, -1 where it is not there; and places, not
    ids, of what a query excludes there: its positive always, and what ``exclude`` has."""
    num_queries, room = len(positives_N), exclude.most + 1
    positive_places_N = torch.empty_like(positives_N)
    # Two bounds for each query, as the lists have room left between them.
    bounds = torch.empty(2 * num_queries, dtype=torch.int64, device=key.device)
    places = torch.empty(num_queries * room, dtype=torch.int64, device=key.device)
    left, right = bits_of(num_classes)
    _list_excluded[(num_queries,)](
        positives_N,
        exclude.rows_N,
        exclude.offsets,
        exclude.ids,
        key,
        positive_places_N,
        bounds,
        places,
        num_classes,
        width,
        room,
        TILE_E=16,
        LEFT=left,
        RIGHT=right,
        ROUNDS=rounds_of(num_classes),
        num_warps=1,
    )
    rows_N = torch.arange(0, 2 * num_queries, 2, device=key.device)
    return positive_places_N, Exclusions(rows_N, bounds, places, room)


def gather_rows(classes_KD: Tensor, ids_W: Tensor, *, dtype: torch.dtype) -> Tensor:
    """[W, D] rows of these classes in ``dtype``."""
    return _launch(classes_KD, ids_W, ids_W, dtype, draw=False)


def _launch(classes_KD: Tensor, key: Tensor, ids_W: Tensor, dtype: torch.dtype, *, draw: bool) -> Tensor:
    (num_classes, dim), width = classes_KD.shape, len(ids_W)
    assert width <= num_classes or not draw, (width, num_classes)
    assert_contiguous(classes_KD, ids_W)
    rows_WD = torch.empty(width, dim, dtype=dtype, device=classes_KD.device)
    left, right = bits_of(num_classes)
    tile_d = triton.next_power_of_2(dim)
    tile_w = max(1, min(16, 8192 // tile_d))
    _pool_rows[(triton.cdiv(width, tile_w),)](
        classes_KD,
        key,
        ids_W,
        rows_WD,
        num_classes,
        width,
        D=dim,
        TILE_W=tile_w,
        TILE_D=tile_d,
        LEFT=left,
        RIGHT=right,
        ROUNDS=rounds_of(num_classes),
        DRAW=draw,
    )
    return rows_WD
