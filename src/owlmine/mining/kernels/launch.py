"""Facts about where kernels run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton executes kernels on the CPU, as the tests have it. Its bfloat16 ``dot`` is wrong there."""


@lru_cache
def num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def padded_width(width: int, widths: Sequence[int]) -> int:
    """The first of these ascending widths that is large enough.

    Each width is a variant of its kernel: compiling one takes half a second, a few numbers more next to nothing.
    """
    return next(padded for padded in widths if padded >= width)


def assert_contiguous(*tensors: Tensor) -> None:
    """Kernels compute addresses from the shape alone."""
    for tensor in tensors:
        assert tensor.is_contiguous(), f"strides {tensor.stride()} of shape {tuple(tensor.shape)}"
