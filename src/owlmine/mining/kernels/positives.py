"""One label of each point, drawn on the device: uniformly, or in proportion to the labels' weights.

Shapes: N points.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.bags import DeviceRows


@triton.jit
def _draw_positives(
    points_ptr,
    offsets_ptr,
    ids_ptr,
    weights_ptr,
    key_ptr,
    positives_ptr,
    num_points,
    TILE: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
):
    numbers = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = numbers < num_points
    points = tl.load(points_ptr + numbers, mask=inside, other=0)
    first = tl.load(offsets_ptr + points, mask=inside, other=0)
    counts = tl.load(offsets_ptr + points + 1, mask=inside, other=0) - first
    draws = tl.rand(tl.load(key_ptr), numbers)
    if HAS_WEIGHTS:
        most = tl.max(counts, axis=0)
        total = tl.zeros((TILE,), dtype=tl.float32)
        for step in range(0, most):
            total += tl.load(weights_ptr + first + step, mask=inside & (step < counts), other=0.0)
        # The first label at which the running sum passes the draw.
        chosen = tl.zeros((TILE,), dtype=tl.int64)
        running = tl.zeros((TILE,), dtype=tl.float32)
        for step in range(0, most):
            running += tl.load(weights_ptr + first + step, mask=inside & (step < counts), other=0.0)
            chosen += ((running <= draws * total) & (step + 1 < counts)).to(tl.int64)
    else:
        chosen = tl.minimum((draws * counts.to(tl.float32)).to(tl.int64), counts - 1)
    positives = tl.load(ids_ptr + first + chosen, mask=inside, other=0).to(tl.int64)
    tl.store(positives_ptr + numbers, positives, mask=inside)


def draw_positives(labels: DeviceRows, points_N: Tensor, key: Tensor) -> Tensor:
    """[N] class ids (int64). Every point must have a label. ``key``: one int64 on the device."""
    positives_N = torch.empty(len(points_N), dtype=torch.int64, device=points_N.device)
    _draw_positives[(triton.cdiv(len(points_N), 128),)](
        points_N,
        labels.offsets,
        labels.ids,
        labels.offsets if labels.values is None else labels.values,
        key,
        positives_N,
        len(points_N),
        TILE=128,
        HAS_WEIGHTS=labels.values is not None,
    )
    return positives_N
