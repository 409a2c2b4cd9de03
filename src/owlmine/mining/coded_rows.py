"""Tables whose rows are bytes: a row is a scale times 8-bit codes.

The scale of a row is its largest |x| / 127, with 16 significant bits. So 127 is among the codes of every row that is
not 0, every product of a scale and a code is exact in float32, and coding the numbers of a coded row again gives the
same codes and the same scale.

Only rows that are needed are expanded: sums and dot products of single rows read the bytes.

Shapes: R rows of the table, D dimension, N queries, T rows of each, E entries of all bags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from owlmine.extensions import load_extension

LARGEST_CODE = 127
# Rows with smaller numbers become 0: their scale could not have 16 bits.
LEAST_CODED = 2.0**-100
LEAST_SCALE = LEAST_CODED / 128
# A scale with the bits of a float32 that this mask leaves.
_SCALE_BITS, _HALF = ~0xFF, 0x80
_BLOCK_ROWS = 1 << 15
# Numbers expanded at a time for a product with few rows of queries; they fit into the cache.
_TILE_NUMBERS = 1 << 18
# Numbers of rows gathered at a time.
_GATHERED_NUMBERS = 1 << 24


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows [R, D] as codes and scales. Indexing by numbers or a slice gives these rows in float32."""

    codes_RD: Tensor
    scales_R: Tensor

    @classmethod
    def of(cls, rows_RD: Tensor) -> CodedRows:
        """The nearest rows: each number moves by half a scale at most. Raises ValueError if one is not finite."""
        codes_RD = torch.empty(rows_RD.shape, dtype=torch.int8, device=rows_RD.device)
        scales_R = torch.empty(len(rows_RD), device=rows_RD.device)
        for start in range(0, len(rows_RD), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            codes_RD[block], scales_R[block] = _coded(rows_RD[block].float())
        return cls(codes_RD, scales_R)

    @classmethod
    def joined(cls, parts: list[CodedRows]) -> CodedRows:
        """The rows of all parts, one after the other."""
        return cls(torch.cat([part.codes_RD for part in parts]), torch.cat([part.scales_R for part in parts]))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> CodedRows:
        """The inverse of ``tensors``. Raises ValueError if these are no rows that ``of`` makes."""
        codes_RD, scales_R = tensors["codes"], tensors["scales"]
        if codes_RD.dtype != torch.int8 or codes_RD.ndim != 2 or scales_R.dtype != torch.float32:
            raise ValueError(f"coded rows are {codes_RD.dtype} and {scales_R.dtype}; wanted int8 [R, D] and float32")
        if scales_R.shape != codes_RD.shape[:1]:
            raise ValueError(f"{len(codes_RD)} coded rows have scales of the shape {list(scales_R.shape)}")
        fits_R = (
            (scales_R >= LEAST_SCALE) & (LARGEST_CODE * scales_R < torch.inf) & (rounded_scales(scales_R) == scales_R)
        )
        if not bool((fits_R | (scales_R == 0)).all()):
            raise ValueError("a scale of coded rows is not a finite number of 16 bits, 0 or more")
        for start in range(0, len(codes_RD), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            bounds = torch.aminmax(codes_RD[block], dim=1)
            largest_R = torch.maximum(bounds.max.short(), -bounds.min.short())
            if not bool((largest_R == LARGEST_CODE * (scales_R[block] > 0)).all()):
                raise ValueError("the largest code of a row is not 127, or not 0 where the scale is 0")
        return cls(codes_RD, scales_R)

    def tensors(self) -> dict[str, Tensor]:
        return {"codes": self.codes_RD, "scales": self.scales_R}

    # What a tensor of rows has.

    def __len__(self) -> int:
        return len(self.codes_RD)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        return self.codes_RD[rows].float().mul_(self.scales_R[rows][..., None])

    @property
    def shape(self) -> torch.Size:
        return self.codes_RD.shape

    @property
    def ndim(self) -> int:
        return self.codes_RD.ndim

    @property
    def device(self) -> torch.device:
        return self.codes_RD.device

    @property
    def dtype(self) -> torch.dtype:
        """That of the rows."""
        return torch.float32

    def numel(self) -> int:
        return self.codes_RD.numel()

    def first(self, count: int | None) -> CodedRows:
        """The first rows, or all."""
        return CodedRows(self.codes_RD[:count], self.scales_R[:count])

    def expanded(self, device: torch.device | None = None) -> Tensor:
        """All rows, on that device."""
        device = device or self.device
        rows_RD = torch.empty(self.shape, device=device)
        for start in range(0, len(self), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            rows_RD[block] = self.codes_RD[block].to(device).float().mul_(self.scales_R[block].to(device)[:, None])
        return rows_RD

    def to(self, device: torch.device) -> CodedRows:
        return CodedRows(self.codes_RD.to(device), self.scales_R.to(device))

    # Products.

    def products(self, queries_ND: Tensor, rows: slice) -> Tensor:
        """[N, R] the products of queries and consecutive rows."""
        start, stop, _ = rows.indices(len(self))
        products_NR = queries_ND.new_empty(len(queries_ND), max(stop - start, 0))
        height = max(_TILE_NUMBERS // self.shape[1], 1)
        for first in range(start, stop, height):
            tile = slice(first, min(first + height, stop))
            torch.mm(queries_ND, self[tile].T, out=products_NR[:, first - start : tile.stop - start])
        return products_NR

    @torch.no_grad()
    def sum_bags(self, ids_E: Tensor, offsets_N: Tensor, values_E: Tensor) -> Tensor:
        """[N, D]: for each bag of ids, the sum of its rows times their values."""
        sum_bags = plain_sums if compiled_module() is None or not self._is_on_cpu else compiled_sums
        return sum_bags(self, ids_E, offsets_N, values_E)

    @torch.no_grad()
    def dots(self, queries_ND: Tensor, ids_NT: Tensor) -> Tensor:
        """[N, T]: the dot product of each query with rows of its own."""
        dots = plain_dots if compiled_module() is None or not self._is_on_cpu else compiled_dots
        return dots(self, queries_ND, ids_NT)

    @property
    def _is_on_cpu(self) -> bool:
        return self.device.type == "cpu"


Table = Tensor | CodedRows
"""Rows [R, D], as numbers or as bytes."""


def first_rows(table: Table, count: int | None) -> Table:
    """The first rows, or all; not copied."""
    return table.first(count) if isinstance(table, CodedRows) else table[:count]


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.mining._coded_rows")


def plain_sums(table: CodedRows, ids_E: Tensor, offsets_N: Tensor, values_E: Tensor) -> Tensor:
    """``compiled_sums`` in PyTorch: expands the rows that occur."""
    ids_U, places_E = torch.unique(ids_E, return_inverse=True)
    ids_U = ids_U if len(ids_U) else ids_U.new_zeros(1)
    return functional.embedding_bag(places_E, table[ids_U], offsets_N, mode="sum", per_sample_weights=values_E)


def compiled_sums(table: CodedRows, ids_E: Tensor, offsets_N: Tensor, values_E: Tensor) -> Tensor:
    """[N, D]: for each bag of ids, the sum of its rows times their values."""
    extension = compiled_module()
    assert extension is not None
    sums_ND = torch.empty(len(offsets_N), table.shape[1])
    extension.sum_rows(
        table.codes_RD.contiguous().numpy(),
        table.scales_R.contiguous().numpy(),
        table.shape[1],
        ids_E.long().contiguous().numpy(),
        offsets_N.long().contiguous().numpy(),
        values_E.float().contiguous().numpy(),
        sums_ND.numpy(),
        torch.get_num_threads(),
    )
    return sums_ND


def plain_dots(table: CodedRows, queries_ND: Tensor, ids_NT: Tensor) -> Tensor:
    """``compiled_dots`` in PyTorch."""
    dots_NT = queries_ND.new_empty(ids_NT.shape)
    size = max(_GATHERED_NUMBERS // max(ids_NT.shape[1] * table.shape[1], 1), 1)
    for start in range(0, len(ids_NT), size):
        block = slice(start, start + size)
        dots_NT[block] = torch.einsum("nd,ntd->nt", queries_ND[block], table[ids_NT[block]])
    return dots_NT


def compiled_dots(table: CodedRows, queries_ND: Tensor, ids_NT: Tensor) -> Tensor:
    """[N, T]: the dot product of each query with rows of its own."""
    extension = compiled_module()
    assert extension is not None
    assert queries_ND.shape == (len(ids_NT), table.shape[1])
    dots_NT = torch.empty(ids_NT.shape)
    extension.dot_rows(
        table.codes_RD.contiguous().numpy(),
        table.scales_R.contiguous().numpy(),
        table.shape[1],
        queries_ND.float().contiguous().numpy(),
        ids_NT.long().contiguous().numpy(),
        dots_NT.numpy(),
        torch.get_num_threads(),
    )
    return dots_NT


def _coded(rows_RD: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [R, D] and scales [R] of a block."""
    bounds = torch.aminmax(rows_RD, dim=1)
    largest_R = torch.maximum(-bounds.min, bounds.max)
    if not bool(largest_R.isfinite().all()):
        raise ValueError("rows have a number that is not finite; only finite ones can be coded as bytes")
    scales_R = rounded_scales(torch.where(largest_R < LEAST_CODED, 0, largest_R) / LARGEST_CODE)
    codes_RD = rows_RD / torch.where(scales_R > 0, scales_R, 1)[:, None]
    codes_RD.round_().clamp_(-LARGEST_CODE, LARGEST_CODE)
    return codes_RD.to(torch.int8), scales_R


def rounded_scales(scales_R: Tensor) -> Tensor:
    """To 16 significant bits: with 7 more of a code, a product is exact in the 24 of float32."""
    return ((scales_R.contiguous().view(torch.int32) + _HALF) & _SCALE_BITS).view(torch.float32)
