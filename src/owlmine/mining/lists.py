"""The best of all classes for many queries, by products of bytes, in C: scores are compared where they arise.

PyTorch writes down every product and reads it again to find the highest, which takes longer than multiplying.

Shapes: N queries, K classes, D dimension, T wanted.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from owlmine.extensions import load_extension

# Rows that are multiplied at a time, bytes that one instruction sums, and the longest rows and lists.
_TILE, _CHUNK, _MOST_DIM, _MOST_WANTED = 64, 4, 4096, 1024


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.mining._lists")


class ByteLists:
    """Classes as bytes, in the order in which they are multiplied: a copy of the table's codes."""

    def __init__(self, codes_KD: Tensor, scales_K: Tensor) -> None:
        extension = compiled_module()
        assert extension is not None
        self._extension, (self._num_classes, self._dim) = extension, codes_KD.shape
        whole = -(-self._num_classes // _TILE) * _TILE
        self._tiles, self._scales = np.zeros((whole, self._dim), np.uint8), np.zeros(whole, np.float32)
        extension.pack(
            codes_KD.contiguous().numpy(),
            scales_K.to(torch.float32).contiguous().numpy(),
            self._num_classes,
            self._dim,
            self._tiles,
            self._scales,
            torch.get_num_threads(),
        )

    @staticmethod
    def suits(codes_KD: Tensor, wanted: int) -> bool:
        """Whether the extension can find so many; never decided by timing."""
        extension = compiled_module()
        return (
            extension is not None
            and bool(extension.multiplies_bytes())
            and codes_KD.dtype == torch.int8
            and codes_KD.shape[1] % _CHUNK == 0
            and codes_KD.shape[1] <= _MOST_DIM
            and len(codes_KD) < 2**31 - _TILE
            and wanted <= min(_MOST_WANTED, len(codes_KD))
        )

    @torch.no_grad()
    def best(self, queries_ND: Tensor, wanted: int) -> Tensor | None:
        """Ids [N, T] of the classes with the highest products, in any order. None: a number is not finite."""
        ids_NT = torch.empty(len(queries_ND), wanted, dtype=torch.int64)
        is_usable = self._extension.best(
            queries_ND.detach().to(torch.float32).contiguous().numpy(),
            self._tiles,
            self._scales,
            self._num_classes,
            self._dim,
            ids_NT.numpy(),
            torch.get_num_threads(),
        )
        return ids_NT if is_usable else None
