"""(row, class) pairs as single sortable numbers.

The key of a pair is row * K + class. Sorted keys answer "is this class a label of this row?" for a whole
batch by binary search, in memory that grows with the pairs and never with rows times classes.

Shapes: N rows, M places of a ranked list, L pairs, K classes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from owlmine.evaluate.arrays import array_module, like

Int64: TypeAlias = NDArray[np.int64]


def pair_keys(row_L: Int64, class_L: Int64, num_classes: int) -> Int64:
    """row * K + class of each pair."""
    return row_L * np.int64(num_classes) + class_L


def check_keys_fit(num_rows: int, num_classes: int) -> None:
    """ValueError where the largest key would not fit into 64 bits."""
    if num_rows * num_classes > np.iinfo(np.int64).max:
        raise ValueError(f"{num_rows} rows times {num_classes} classes is too many; wanted less than 2**63")


def find_keys(ids_NM: Any, keys_L: Int64, num_classes: int) -> tuple[Any, Any]:
    """Where ranked ids meet sorted keys: flat positions in [N, M], rising, and which key each of them met.

    Runs in the library and on the device of ``ids_NM``, in time N M log L.
    """
    module = array_module(ids_NM)
    ids = ids_NM.reshape(-1)
    if len(keys_L) == 0:
        return ids[:0], ids[:0]
    keys = like(keys_L, ids)
    rows_N1 = like(np.arange(len(ids_NM), dtype=np.int64)[:, None], ids)
    wanted = (rows_N1 * num_classes + ids_NM).reshape(-1)
    met = module.clip(module.searchsorted(keys, wanted), None, len(keys_L) - 1)
    # The key of an empty place, -1, would be that of the last class in the row before.
    found = (keys[met] == wanted) & (ids >= 0)
    (position,) = module.where(found)
    return position, met[position]
