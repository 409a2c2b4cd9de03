"""Input checks of mining and of the losses.

Shapes and dtypes are always checked, which costs nothing. Values (NaN, class ids out of range) are checked by default
on the CPU only, because on a GPU the host would have to wait for the device; ``validate=True`` always checks them,
``validate=False`` never. Under torch.compile, values are never checked.
"""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def may_look(tensor: Tensor, validate: bool | None) -> bool:
    """Whether the host may read the values of ``tensor``."""
    if torch.compiler.is_compiling():
        return False
    return tensor.device.type == "cpu" if validate is None else validate


def check_class_ids(
    name: str,
    ids: Tensor,
    *,
    shape: tuple[int, ...],
    num_classes: int,
    validate: bool | None,
    lowest: int = 0,
) -> None:
    if tuple(ids.shape) != shape:
        raise ValueError(f"{name}: given shape {tuple(ids.shape)}; wanted {shape}")
    if ids.dtype not in _INTEGERS:
        raise ValueError(f"{name}: given dtype {ids.dtype}; wanted integers")
    if may_look(ids, validate) and ids.numel() > 0:
        low, high = (int(bound) for bound in ids.aminmax())
        if low < lowest or high >= num_classes:
            wanted = f"{lowest} to {num_classes - 1}"
            raise ValueError(f"{name}: given class ids from {low} to {high}; wanted {wanted}")
