"""The highest dot products of a batch with 8-bit integers, for training: several times faster than float32.

Each row is rounded to 8 bits with a scale of its own. So a row may take the place of another with nearly the same
product, as on a GPU, which compares in bfloat16: what is learned from the rows found is computed in float32.

Shapes: N queries, R rows of a table, W of them to search, D dimension, T kept, H scores to hide.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from owlmine.extensions import load_extension

# With fewer multiplications than this, the overhead of the extra calls is larger.
_LEAST_WORK = 1 << 22
# Lists are kept in order by insertion.
_MOST_KEPT = 32
# The extension finds one row at least in each group of 16, and looks at 256 rows at a time.
_LEAST_WIDTH = 1024
# Products of codes stay inside 32 bits; and PyTorch's product of bytes is wrong for a dimension of 1.
_LEAST_DIM, _MOST_DIM = 16, 1 << 16
_HIDDEN = torch.iinfo(torch.int32).min


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.mining._int8")


@cache
def cpu_multiplies_int8() -> bool:
    """Whether the CPU sums products of bytes in 32 bits (VNNI). Without that, PyTorch is slow, or sums in 16 bits,
    which overflow."""
    has_vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)
    if not (hasattr(torch, "_int_mm") and has_vnni() and torch.backends.mkldnn.is_available()):  # type: ignore[no-untyped-call]
        return False
    # The largest sums are tried.
    largest = torch.full((33, 4 * _LEAST_DIM), 127, dtype=torch.int8)
    return all(
        bool((multiply_bytes(largest, sign * largest) == sign * 127**2 * 4 * _LEAST_DIM).all()) for sign in (-1, 1)
    )


def bytes_may_hold(dim: int) -> bool:
    """Whether products of rows of this dimension are right."""
    return _LEAST_DIM <= dim <= _MOST_DIM


def multiply_bytes(codes_ND: Tensor, codes_WD: Tensor, out_NW: Tensor | None = None) -> Tensor:
    """Products [N, W] of bytes. Private, but PyTorch's only product of bytes that keeps all 32 bits of a sum."""
    return torch._int_mm(codes_ND, codes_WD.T, out=out_NW)


class Int8Search:
    """Finds rows with nearly the highest dot products. Holds N x W integers and W rows of bytes, which calls share."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    @staticmethod
    def suits(queries_ND: Tensor, weight_RD: Tensor, *, width: int, kept: int) -> bool:
        """Whether to use this to find the ``kept`` highest of ``width`` rows; never decided by timing."""
        num_queries, dim = queries_ND.shape
        return (
            compiled_module() is not None
            and cpu_multiplies_int8()
            and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (queries_ND, weight_RD))
            and weight_RD.is_contiguous()
            and kept <= _MOST_KEPT
            and width >= _LEAST_WIDTH
            and bytes_may_hold(dim)
            and num_queries * width * dim >= _LEAST_WORK
        )

    @torch.no_grad()
    def __call__(
        self, queries_ND: Tensor, weight_RD: Tensor, ids_W: Tensor, hidden: tuple[Tensor, Tensor], *, kept: int
    ) -> tuple[Tensor, Tensor | None] | None:
        """Places [N, T] in ``ids_W`` of the rows with the highest products, highest first; and which of them must not
        count, None if all do.

        ``hidden``: query and place [H] of what must not count; it is named only where too few rows are left. None for
        the whole where a number is not finite, or too large for codes.
        """
        extension = compiled_module()
        assert extension is not None
        queries_ND = queries_ND.detach().contiguous()
        codes_ND, _, queries_fit = self._codes("queries", queries_ND, torch.arange(len(queries_ND)))
        codes_WD, scales_W, rows_fit = self._codes("rows", weight_RD, ids_W)
        if not (queries_fit and rows_fit):
            return None
        products_NW = self._buffer("products", len(codes_ND), len(ids_W), dtype=torch.int32)
        multiply_bytes(codes_ND, codes_WD, products_NW)
        products_NW.index_put_(hidden, products_NW.new_tensor(_HIDDEN))
        places_NT = torch.empty(len(queries_ND), kept, dtype=torch.int64)
        num_hidden = extension.highest(
            products_NW.numpy(), scales_W.numpy(), places_NT.numpy(), len(queries_ND), torch.get_num_threads()
        )
        return places_NT, products_NW.gather(1, places_NT) == _HIDDEN if num_hidden else None

    def _codes(self, name: str, weight_RD: Tensor, ids_W: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Bytes [W, D] of some rows, [W] their scales, and whether all rows are within range."""
        extension = compiled_module()
        assert extension is not None
        assert ids_W.dtype == torch.int64
        width, dim = len(ids_W), weight_RD.shape[1]
        codes_WD = self._buffer(f"{name}.codes", width, dim, dtype=torch.int8)
        scales_W = self._buffer(f"{name}.scales", width, dtype=torch.float32)
        # The extension refuses ids and sizes that do not fit.
        fit = extension.code_rows(
            weight_RD.numpy(), dim, ids_W.numpy(), codes_WD.numpy(), scales_W.numpy(), torch.get_num_threads()
        )
        return codes_WD, scales_W, bool(fit)

    def _buffer(self, name: str, *shape: int, dtype: torch.dtype) -> Tensor:
        """Fresh pages for MiB of memory in every step cost more than filling them."""
        if name not in self._buffers or self._buffers[name].shape != shape:
            self._buffers[name] = torch.empty(shape, dtype=dtype)
        return self._buffers[name]
