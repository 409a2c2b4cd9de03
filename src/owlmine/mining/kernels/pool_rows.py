"""Draws a pool on the device and gathers its class rows, in one pass and with fixed shapes.

A batch shares the first W = B + 1 places of a keyed permutation of the classes (``owlmine.mining.distinct``):
distinct by construction, so nothing is sorted, compared or counted. The pool of a query is the first B classes of the
permutation other than its positive: it leaves out its positive if that is among the W, otherwise the last of them.
Taking one class out of a uniform permutation leaves a uniform permutation of the others, so the pool is a uniform
B-subset of the K - 1 other classes (paper, Algorithm 1, step 1).

Shapes: N queries, K classes, W shared by a batch, D dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.distinct import bits_of, rounds_of
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.launch import assert_contiguous


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
    """Where the permutation has these classes. An id that is not a class would loop forever: ids that are not
    ``inside`` are treated as class 0."""
    key = tl.load(key_ptr).to(tl.uint32)
    places = _unshuffled(tl.where(inside, ids, 0).to(tl.uint32), key, LEFT, RIGHT, ROUNDS)
    while tl.max((places >= num_classes).to(tl.int32), axis=0) > 0:
        places = tl.where(places >= num_classes, _unshuffled(places, key, LEFT, RIGHT, ROUNDS), places)
    return places.to(tl.int64)


@triton.jit
def _list_left_out(
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
    # The entry before the list is the positive.
    for start in range(first - 1, end, TILE_E):
        entries = start + tl.arange(0, TILE_E)
        listed = (entries >= first) & (entries < end)
        ids = tl.load(ids_ptr + entries, mask=listed, other=-1).to(tl.int64)
        ids = tl.where(entries < first, positive, ids)
        inside = (ids >= 0) & (ids < num_classes)
        places = _places_of(ids, inside, key_ptr, num_classes, LEFT, RIGHT, ROUNDS)
        found = inside & (ids == positive) & (places < width)
        positive_place = tl.maximum(positive_place, tl.max(tl.where(found, places, -1), axis=0))
        places = tl.where((entries < first) & (places >= width), width - 1, places)
        inside = inside & (places < width)
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
        # Numbers past the last class are permuted again: each walk ends, since it started at a class.
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


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The places of a shared pool that do not count for a query."""

    positives_N: Tensor
    """The place of each query's positive; -1 where it is not among the W."""
    places: Exclusions
    """What a query leaves out, as places: its positive or the last, and what it excludes. Unused places hold -1."""

    def named(self, ids_W: Tensor) -> Exclusions:
        """The same as class ids."""
        places = self.places.ids
        ids = torch.where(places < 0, -1, ids_W[places.clamp_min(0)])
        return Exclusions(self.places.rows_N, self.places.offsets, ids, self.places.most)

    def mask(self, width: int) -> Tensor:
        """[N, W], True where a place does not count."""
        num_queries = len(self.positives_N)
        places = self.places.ids.reshape(num_queries, -1)
        mask = torch.zeros(num_queries, width + 1, dtype=torch.bool, device=places.device)
        # An extra column takes the entries to ignore.
        return mask.scatter_(1, torch.where(places < 0, width, places), True)[:, :width]


def left_out_of_pool(positives_N: Tensor, exclude: Exclusions, key: Tensor, *, num_classes: int, width: int) -> LeftOut:
    """What each query leaves out of the ``width`` classes that ``key`` draws: its positive or the last, and what it
    excludes.

    The place of a class comes from the permutation backwards; the pool itself is not looked at.
    """
    num_queries, room = len(positives_N), exclude.most + 1
    positive_places_N = torch.empty_like(positives_N)
    # Two bounds per query, since there are gaps between the lists.
    bounds = torch.empty(2 * num_queries, dtype=torch.int64, device=key.device)
    places = torch.full((num_queries * room,), -1, dtype=torch.int64, device=key.device)
    left, right = bits_of(num_classes)
    _list_left_out[(num_queries,)](
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
    return LeftOut(positive_places_N, Exclusions(rows_N, bounds, places, room))


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
