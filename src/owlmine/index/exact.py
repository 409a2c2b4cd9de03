"""Exact search in two passes on a CPU: 8-bit integers choose some classes, float32 ranks them and proves that none is
missing.

A table row c is unit * codes + e, and so is a query q. With p the product of their codes,

    |<q, c> - unit_q unit p|  <=  |q - q'| |c| + |q'| |e|       q' the rounded query

with e = 0 for a table of bytes, whose own codes and units these are. So a class that was not chosen scores at most the
lowest score chosen plus twice that bound. Where the k-th best exact score is higher, the answer is that of float32;
where it is not, that query is searched in float32 alone.

Shapes: N queries, K classes, D dimension, k best classes, R classes chosen.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from owlmine.data.rows import Float32, Int64
from owlmine.mining.coded_rows import CodedRows, Table
from owlmine.mining.hardest_classes import hardest
from owlmine.mining.int8 import bytes_may_hold, cpu_multiplies_int8, multiply_bytes
from owlmine.mining.lists import ByteLists

# Up to this many queries, bytes are faster for a table of numbers: in a larger batch, each row that is fetched serves
# many queries.
_FEW_QUERIES = 16
# Queries and classes at once, whose products the cache then holds.
_MOST_QUERIES, _MOST_CLASSES = 64, 1 << 15
# Classes whose lengths and errors are computed at a time.
_BLOCK_CLASSES = 1 << 12
_MOST_PRODUCTS = _MOST_QUERIES * _MOST_CLASSES
_LARGEST_CODE = 127
# Smaller tables are searched as fast in float32.
_LEAST_NUMBERS = 1 << 20
# Classes chosen for k that are wanted: few are needed for the proof, and each is a row to fetch.
_CHOSEN_PER_ANSWER, _CHOSEN_AT_LEAST = 2, 100
_MOST_CHOSEN = 2048
# Room for the rounding of float32, relative to the largest product of lengths.
_ROUNDING = 1e-5
_BLOCK_NUMBERS = 1 << 24


class ExactIndex:
    """Every class is looked at. What searches need is made when it is first needed; many threads may search at once."""

    def __init__(self, table_KD: Table) -> None:
        self.table_KD = table_KD
        self._bytes: ByteTable | None = None
        self._half_KD: Tensor | None = None
        self._making = Lock()

    def search(self, queries_ND: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids [N, k] of the best classes, best first, ties by smaller id."""
        is_faster = len(queries_ND) <= _FEW_QUERIES and self.table_KD.numel() >= _LEAST_NUMBERS
        if self._suits_bytes and (is_faster or isinstance(self.table_KD, CodedRows)):
            return self._byte_table().search(queries_ND, self.table_KD, k)
        return hardest(queries_ND, self.table_KD, k)

    @torch.no_grad()
    def rough(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] of the best classes in any order; near the end of the list, a class may take the
        place of one with a nearly equal score."""
        if self._suits_bytes:
            return self._byte_table().rough(queries_ND, k)
        if isinstance(self.table_KD, CodedRows) or self.table_KD.device.type == "cpu":
            return hardest(queries_ND, self.table_KD, k)[1]
        return hardest(queries_ND, self._half(), k)[1]

    def of_larger(self, table_KD: Table) -> ExactIndex:
        """An index for a longer table that starts with the rows of this one."""
        return ExactIndex(table_KD)

    @property
    def _suits_bytes(self) -> bool:
        """Never decided by timing."""
        table_KD = self.table_KD
        return (
            table_KD.device.type == "cpu"
            and table_KD.dtype == torch.float32
            and cpu_multiplies_int8()
            and bytes_may_hold(table_KD.shape[1])
        )

    def _byte_table(self) -> ByteTable:
        with self._making:
            if self._bytes is None:
                self._bytes = ByteTable(self.table_KD)
            return self._bytes

    def _half(self) -> Tensor:
        with self._making:
            assert isinstance(self.table_KD, Tensor)
            if self._half_KD is None:
                self._half_KD = self.table_KD.to(torch.bfloat16)
            return self._half_KD

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold the class vectors alone."""
        return ExactIndex, (self.table_KD,)


class ByteTable:
    """Class vectors as 8-bit integers: in one unit, so that products need no factor to be compared, or in the units
    that a table of bytes already has. On the CPU only."""

    def __init__(self, table_KD: Table) -> None:
        self._units_K: Tensor | None = None
        self._lists: ByteLists | None = None
        self._making = Lock()
        self.unit = 1.0
        if isinstance(table_KD, CodedRows):
            self.codes_KD, self._units_K = table_KD.codes_RD, table_KD.scales_R
        else:
            self.codes_KD, unit = _coded(table_KD, one_unit=True)
            self.unit = float(unit)
        lengths, errors = [torch.zeros(1)], [torch.zeros(1)]
        for start in range(0, len(table_KD), _BLOCK_CLASSES):
            rows_CD = table_KD[start : start + _BLOCK_CLASSES].float()
            lengths.append(rows_CD.norm(dim=1).amax(keepdim=True))
            if self._units_K is None:
                rest_CD = rows_CD - self.unit * self.codes_KD[start : start + _BLOCK_CLASSES]
                errors.append(rest_CD.norm(dim=1).amax(keepdim=True))
        self._longest, self._largest_error = float(torch.cat(lengths).max()), float(torch.cat(errors).max())

    @torch.no_grad()
    def search(self, queries_ND: Tensor, table_KD: Table, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids [N, k] as ``hardest`` gives them. ``table_KD``: the table that this was made from."""
        num_chosen = min(max(_CHOSEN_PER_ANSWER * k, k + _CHOSEN_AT_LEAST), len(table_KD))
        if num_chosen > _MOST_CHOSEN or not len(queries_ND):
            return hardest(queries_ND, table_KD, k)
        queries_ND = queries_ND.float()
        products_NR, ids_NR, units_N1, rounded_ND = self._chosen(queries_ND, num_chosen)
        scores_Nk, ids_Nk = rescored(queries_ND, table_KD, ids_NR, k)
        bound_N = (queries_ND - rounded_ND).norm(dim=1) * self._longest + rounded_ND.norm(dim=1) * self._largest_error
        slack_N = _ROUNDING * queries_ND.norm(dim=1) * self._longest
        lowest_N = products_NR.amin(dim=1).float() * units_N1[:, 0] * self.unit
        # NaN counts as unproved.
        unproved_N = ~(scores_Nk[:, k - 1] > lowest_N + bound_N + slack_N)
        if num_chosen < len(table_KD) and bool(unproved_N.any()):
            scores_Nk[unproved_N], ids_Nk[unproved_N] = hardest(queries_ND[unproved_N], table_KD, k)
        return scores_Nk, ids_Nk

    @torch.no_grad()
    def rough(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] in no order, by integers alone."""
        found = self._list(queries_ND, k) if ByteLists.suits(self.codes_KD, k) else None
        return self._chosen(queries_ND, k)[1] if found is None else found

    def _list(self, queries_ND: Tensor, k: int) -> Tensor | None:
        with self._making:
            if self._lists is None:
                units_K = torch.ones(len(self.codes_KD)) if self._units_K is None else self._units_K
                self._lists = ByteLists(self.codes_KD, units_K)
        return self._lists.best(queries_ND, k)

    def _chosen(self, queries_ND: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The highest products [N, R] and their ids, the units [N, 1] of queries, and the rounded queries [N, D]."""
        codes_ND, units_N1 = _coded(queries_ND, one_unit=False)
        starts = range(0, max(len(codes_ND), 1), _MOST_QUERIES)
        blocks = [self._highest(codes_ND[start : start + _MOST_QUERIES], count) for start in starts]
        products_NR, ids_NR = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        return products_NR, ids_NR, units_N1, codes_ND * units_N1

    def _highest(self, codes_ND: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Products and ids [N, R], of a tile of classes at a time."""
        kind = torch.int32 if self._units_K is None else torch.float32
        products_NT, ids_NT = torch.empty(len(codes_ND), 0, dtype=kind), torch.empty(len(codes_ND), 0).long()
        width = max(_MOST_CLASSES, _MOST_PRODUCTS // max(len(codes_ND), 1))
        for start in range(0, len(self.codes_KD), width):
            tile_NK = multiply_bytes(codes_ND, self.codes_KD[start : start + width])
            if self._units_K is not None:
                tile_NK = tile_NK * self._units_K[start : start + width]
            highest = tile_NK.topk(min(count, tile_NK.shape[1]), dim=1, sorted=False)
            products_NT = torch.cat([products_NT, highest.values], dim=1)
            ids_NT = torch.cat([ids_NT, highest.indices + start], dim=1)
        if ids_NT.shape[1] == count:
            return products_NT, ids_NT
        products_NR, order_NR = products_NT.topk(count, dim=1, sorted=False)
        return products_NR, ids_NT.gather(1, order_NR)


@torch.no_grad()
def rescored(queries_ND: Tensor, table_KD: Table, ids_NR: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Exact scores and ids [N, k] of the best of these classes, best first, ties by smaller id. An id of -1 is an empty
    place, with the score -inf."""
    scores_Nk, ids_Nk = torch.empty(len(ids_NR), k), torch.empty(len(ids_NR), k, dtype=torch.int64)
    size = max(_BLOCK_NUMBERS // max(ids_NR.shape[1] * table_KD.shape[1], 1), 1)
    for start in range(0, len(ids_NR), size):
        block = slice(start, start + size)
        # In ascending order, in which equal scores stay; -1 comes first, and goes to the end by its score.
        own_NR = ids_NR[block].sort(dim=1).values
        if isinstance(table_KD, CodedRows):
            scores_NR = table_KD.dots(queries_ND[block], own_NR.clamp_min(0))
        else:
            rows_NRD = table_KD[own_NR.clamp_min(0)]
            scores_NR = torch.bmm(rows_NRD, queries_ND[block].to(table_KD.dtype)[:, :, None])[:, :, 0].float()
        scores_NR.masked_fill_(own_NR < 0, -torch.inf)
        scores_NR, order_NR = scores_NR.sort(dim=1, descending=True, stable=True)
        scores_Nk[block], ids_Nk[block] = scores_NR[:, :k], own_NR.gather(1, order_NR)[:, :k]
    return scores_Nk, ids_Nk


@torch.no_grad()
def searched_among(queries_ND: Tensor, table_KD: Table, k: int, ids: Int64) -> tuple[Tensor, Tensor]:
    """Scores and ids [N, k] of the best of these classes, ascending ids, by scoring them all; then -inf and -1."""
    device = table_KD.device
    scores_Nk = torch.full((len(queries_ND), k), -torch.inf, device=device)
    ids_Nk = torch.full((len(queries_ND), k), -1, device=device)
    for start in range(0, len(ids), _MOST_CLASSES):
        pool = torch.from_numpy(ids[start : start + _MOST_CLASSES]).to(device)
        found, found_ids = hardest(queries_ND, table_KD, min(k, len(pool)), pool=pool)
        scores_NW, ids_NW = torch.cat([scores_Nk, found.float()], dim=1), torch.cat([ids_Nk, found_ids], dim=1)
        # Equal scores stay in the order of the blocks, which is that of the ids.
        scores_NW, order_NW = scores_NW.sort(dim=1, descending=True, stable=True)
        scores_Nk, ids_Nk = scores_NW[:, :k], ids_NW.gather(1, order_NW)[:, :k]
    return scores_Nk, ids_Nk.masked_fill(scores_Nk == -torch.inf, -1)


@torch.no_grad()
def best_of_pairs(queries_ND: Tensor, table_KD: Table, rows_E: Int64, ids_E: Int64, k: int) -> tuple[Tensor, Tensor]:
    """Scores and ids [N, k] of the best of a query's own classes; then -inf and -1. ``rows_E``: ascending."""
    scores_E = products(queries_ND, table_KD, rows_E, ids_E)
    order_E = np.lexsort((ids_E, -scores_E, rows_E))
    rows_E, starts = rows_E[order_E], np.searchsorted(rows_E, np.arange(len(queries_ND)))
    places_E = np.arange(len(rows_E)) - starts[rows_E]
    first_E = places_E < k
    scores_Nk, ids_Nk = np.full((len(queries_ND), k), -np.inf, np.float32), np.full((len(queries_ND), k), -1)
    where = rows_E[first_E], places_E[first_E]
    scores_Nk[where], ids_Nk[where] = scores_E[order_E][first_E], ids_E[order_E][first_E]
    return torch.from_numpy(scores_Nk).to(table_KD.device), torch.from_numpy(ids_Nk).to(table_KD.device)


def products(queries_ND: Tensor, table_KD: Table, rows_E: Int64, ids_E: Int64) -> Float32:
    """Inner products [E], each of one query and one class."""
    products_E, size = np.empty(len(rows_E), np.float32), max(_BLOCK_NUMBERS // table_KD.shape[1], 1)
    for start in range(0, len(rows_E), size):
        block = slice(start, start + size)
        rows, ids = (torch.from_numpy(part[block]).to(table_KD.device) for part in (rows_E, ids_E))
        if isinstance(table_KD, CodedRows):
            products_E[block] = table_KD.dots(queries_ND[rows], ids[:, None])[:, 0].cpu().numpy()
        else:
            products_E[block] = (queries_ND[rows] * table_KD[ids]).sum(dim=1).float().cpu().numpy()
    return products_E


def _coded(rows_RD: Tensor, *, one_unit: bool) -> tuple[Tensor, Tensor]:
    """Rows as 8-bit integers, and the unit: 127 units are the largest value, of all rows or of each. NaN becomes 0."""
    bounds = torch.aminmax(rows_RD, dim=1, keepdim=True)
    largest_R1 = torch.maximum(-bounds.min, bounds.max).float().nan_to_num()
    unit = (largest_R1.max() if one_unit else largest_R1) / _LARGEST_CODE
    unit = unit.clamp_min(torch.finfo(torch.float32).tiny)
    codes_RD = torch.empty(rows_RD.shape, dtype=torch.int8)
    for start in range(0, len(rows_RD), _MOST_CLASSES):
        block = slice(start, start + _MOST_CLASSES)
        own_unit = unit if one_unit else unit[block]
        codes_RD[block] = (rows_RD[block].float().nan_to_num() / own_unit).round_().clamp_(-127, 127).to(torch.int8)
    return codes_RD, unit
