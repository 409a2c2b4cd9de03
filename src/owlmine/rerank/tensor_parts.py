"""Arrays as the tensors that a file keeps, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def as_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """They share memory with the arrays where they can."""
    # PyTorch warns of arrays that must not be written to.
    return {name: torch.from_numpy(a if a.flags.writeable else a.copy()) for name, a in arrays.items()}


def as_arrays(tensors: Mapping[str, Tensor], wanted: Mapping[str, torch.dtype]) -> dict[str, NDArray[Any]]:
    """ValueError unless there are just these, of one dimension, or none where the name begins with ``num_``."""
    if set(tensors) != set(wanted):
        raise ValueError(f"tensors are {sorted(tensors)}; wanted {sorted(wanted)}")
    for name, dtype in wanted.items():
        given, dim = tensors[name], 0 if name.startswith("num_") else 1
        if given.dtype != dtype or given.dim() != dim or given.layout != torch.strided:
            raise ValueError(
                f"{name} is {given.dtype} of shape {list(given.shape)}; wanted {dtype} of {dim} dimensions"
            )
    return {name: np.asarray(given.detach().cpu().numpy()) for name, given in tensors.items()}
