"""The library that an array belongs to, and the checks of ranked lists.

Torch is never imported here: it takes a second and some 200 MB, and a caller with a tensor has already loaded it.

Shapes: N rows, M places of a ranked list, K classes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

RankedIds: TypeAlias = "NDArray[Any] | torch.Tensor"
"""Class ids [N, M], the best first; -1 marks an empty place."""


def is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_scipy_sparse(value: object) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(value))


def array_module(value: object) -> Any:
    """NumPy or torch: the module whose functions take ``value``."""
    return sys.modules["torch"] if is_tensor(value) else np


def like(array: NDArray[Any], pattern: Any) -> Any:
    """``array`` in the library and on the device of ``pattern``."""
    if not is_tensor(pattern):
        return array
    return array_module(pattern).from_numpy(array).to(pattern.device)


def to_numpy(array: Any) -> NDArray[Any]:
    result: NDArray[Any] = array.cpu().numpy() if is_tensor(array) else array
    return result


def check_cutoff(k: object) -> int:
    """A cut-off k as a Python int. Raises ValueError unless it is a whole number of at least 1."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k is {k!r}; wanted a whole number of at least 1")
    return int(k)


def check_ranked_ids(ranked_ids: object, *, num_classes: int | None) -> Any:
    """The ranked lists as int64 in their own library. Raises ValueError unless they are ids [N, M] in range."""
    if not (isinstance(ranked_ids, np.ndarray) or is_tensor(ranked_ids)):
        raise ValueError(
            f"ranked_ids is a {type(ranked_ids).__name__}; wanted an integer array or tensor [rows, places]"
        )
    ids: Any = ranked_ids
    if ids.ndim != 2:
        raise ValueError(f"ranked_ids has the shape {tuple(ids.shape)}; wanted [rows, places]")
    if not _is_integer(ids):
        raise ValueError(f"ranked_ids has the type {ids.dtype}; wanted integers")
    if 0 not in ids.shape:
        lowest, highest = int(ids.min()), int(ids.max())
        bound = np.iinfo(np.int64).max if num_classes is None else num_classes
        if lowest < -1 or highest >= bound:
            raise ValueError(
                f"ranked_ids holds {lowest if lowest < -1 else highest}; "
                f"wanted class ids from 0 to {bound - 1}, or -1 for an empty place"
            )
    return ids.long() if is_tensor(ids) else ids.astype(np.int64, copy=False)


def _is_integer(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return array.dtype.kind in "iu"
    return not (array.is_floating_point() or array.is_complex() or array.dtype is array_module(array).bool)
