"""Sparse rows in few bytes: a value is the scale of its row times an 8-bit code, as in ``CodedRows``.

In a file, an id is the step from the one before it in its row, in one byte or two where nearly all steps fit: the
largest number of the type stands for a longer step, which follows in another list.

Shapes: R rows, E entries of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows, offsets_from_counts
from owlmine.mining.coded_rows import LARGEST_CODE, LEAST_CODED, LEAST_SCALE, rounded_scales

# Types of counts and steps, the narrowest first.
_NARROW: tuple[type[np.uint8] | type[np.uint16], ...] = (np.uint8, np.uint16)
WHOLE = (torch.uint8, torch.uint16, torch.int32)
_TENSORS: dict[str, tuple[torch.dtype, ...]] = {
    "counts": WHOLE,
    "steps": WHOLE,
    "long_steps": WHOLE,
    "codes": (torch.int8,),
    "scales": (torch.float32,),
}
# Entries that are converted at a time: few enough for the cache.
_BLOCK_ENTRIES = 1 << 18


@dataclass(frozen=True, eq=False)
class CodedEntries:
    """Row r has ``ids[offsets_R1[r]:offsets_R1[r + 1]]``, distinct and ascending, and the codes at the same places."""

    offsets_R1: Int64
    ids: NDArray[np.int32]
    codes: NDArray[np.int8]
    scales_R: Float32

    @classmethod
    def of(cls, rows: SparseRows) -> CodedEntries:
        """The nearest values: each moves by half a scale at most. The rows are checked, and their ids ascend."""
        assert rows.values is not None
        offsets_R1, codes = rows.offsets, np.empty(len(rows.values), np.int8)
        largest_R = np.zeros(len(rows), np.float32)
        filled_R = np.diff(offsets_R1) > 0
        if filled_R.any():
            largest_R[filled_R] = np.maximum.reduceat(np.abs(rows.values), offsets_R1[:-1][filled_R])
        largest_R[largest_R < LEAST_CODED] = 0
        scales_R = rounded_scales(torch.from_numpy(largest_R / np.float32(LARGEST_CODE))).numpy()
        divisors_R = np.where(scales_R > 0, scales_R, np.float32(1))
        for some, entries in blocks_of(offsets_R1):
            divisors = np.repeat(divisors_R[some], np.diff(offsets_R1[some.start : some.stop + 1]))
            codes[entries] = np.rint(rows.values[entries] / divisors).clip(-LARGEST_CODE, LARGEST_CODE)
        return cls(offsets_R1, np.asarray(rows.indices, np.int32), codes, scales_R)

    def __len__(self) -> int:
        return len(self.scales_R)

    @property
    def values(self) -> Float32:
        """The values of all entries; computed, and exact."""
        values = np.empty(len(self.codes), np.float32)
        for some, entries in blocks_of(self.offsets_R1):
            counts = np.diff(self.offsets_R1[some.start : some.stop + 1])
            np.multiply(self.codes[entries], np.repeat(self.scales_R[some], counts), out=values[entries])
        return values

    @property
    def rows(self) -> SparseRows:
        """The same with values as numbers."""
        return SparseRows(self.offsets_R1, self.ids, self.values)

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return sum(array.nbytes for array in (self.offsets_R1, self.ids, self.codes, self.scales_R))

    def with_more(self, more: CodedEntries) -> CodedEntries:
        """With rows appended. The known ones keep their bits."""
        return CodedEntries(
            np.concatenate([self.offsets_R1, self.offsets_R1[-1] + more.offsets_R1[1:]]),
            np.concatenate([self.ids, more.ids]),
            np.concatenate([self.codes, more.codes]),
            np.concatenate([self.scales_R, more.scales_R]),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays for a file."""
        steps, long_steps = _steps(self.offsets_R1, self.ids)
        counts = narrowest(np.diff(self.offsets_R1))
        return {
            "counts": counts,
            "steps": steps,
            "long_steps": long_steps,
            "codes": self.codes,
            "scales": self.scales_R,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], *, num_columns: int) -> CodedEntries:
        """The inverse of ``arrays``. Raises ValueError if these are no rows of ids below ``num_columns``."""
        arrays = checked_arrays(tensors, _TENSORS)
        codes, scales_R = arrays["codes"], arrays["scales"]
        if len(codes) and codes.min() < -LARGEST_CODE:
            raise ValueError(f"a code is {codes.min()}; wanted -{LARGEST_CODE} to {LARGEST_CODE}")
        with np.errstate(over="ignore"):
            is_scale_R = (scales_R == 0) | ((scales_R >= LEAST_SCALE) & np.isfinite(LARGEST_CODE * scales_R))
        if not (is_scale_R & (rounded_scales(torch.from_numpy(scales_R.copy())).numpy() == scales_R)).all():
            raise ValueError("a scale of sparse rows is not a finite number of 16 bits, 0 or more")
        offsets_R1 = offsets_of(arrays["counts"], len(codes))
        if len(offsets_R1) != len(scales_R) + 1:
            raise ValueError(f"counts of {len(offsets_R1) - 1} rows and scales of {len(scales_R)}; wanted as many")
        ids = _ids(offsets_R1, arrays["steps"], arrays["long_steps"], num_columns)
        return cls(offsets_R1, ids, codes, scales_R)


def checked_arrays(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, tuple[torch.dtype, ...]]
) -> dict[str, NDArray[Any]]:
    """Raises ValueError unless there are exactly these vectors, each of one of its types."""
    if set(tensors) != set(wanted):
        raise ValueError(f"tensors are {sorted(tensors)}; wanted {sorted(wanted)}")
    for name, dtypes in wanted.items():
        given = tensors[name]
        if given.dtype not in dtypes or given.dim() != 1 or given.layout != torch.strided:
            kinds = " or ".join(map(str, dtypes))
            raise ValueError(f"{name} is {given.dtype} of shape {list(given.shape)}; wanted a vector of {kinds}")
    return {name: np.asarray(given.detach().cpu().numpy()) for name, given in tensors.items()}


def narrowest(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same whole numbers, 0 or more, in the narrowest type of a file that holds all of them."""
    largest = int(numbers.max(initial=0))
    for dtype in _NARROW:
        if largest <= np.iinfo(dtype).max:
            return numbers.astype(dtype)
    return numbers.astype(np.int32)


def offsets_of(counts: NDArray[Any], num_entries: int) -> Int64:
    """Offsets of rows with so many entries. Raises ValueError if their sum is another number."""
    if len(counts) and counts.min() < 0:
        raise ValueError(f"a row has {counts.min()} entries; wanted 0 or more")
    offsets_R1 = offsets_from_counts(counts)
    if offsets_R1[-1] != num_entries:
        raise ValueError(f"rows of {offsets_R1[-1]} entries in total; wanted {num_entries}")
    return offsets_R1


def blocks_of(offsets_R1: Int64) -> Iterator[tuple[slice, slice]]:
    """Consecutive rows of not too many entries together, and these entries."""
    start, num_rows = 0, len(offsets_R1) - 1
    while start < num_rows:
        stop = int(np.searchsorted(offsets_R1, offsets_R1[start] + _BLOCK_ENTRIES, side="right")) - 1
        stop = min(max(stop, start + 1), num_rows)
        yield slice(start, stop), slice(int(offsets_R1[start]), int(offsets_R1[stop]))
        start = stop


def _steps(offsets_R1: Int64, ids: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each id, the number of ids left out since the one before it in its row; and those too long for the type."""
    steps = np.empty(len(ids), np.int32)
    steps[1:] = ids[1:] - ids[:-1] - 1
    starts = offsets_R1[:-1][np.diff(offsets_R1) > 0]
    steps[starts] = ids[starts]
    best: tuple[NDArray[Any], NDArray[Any]] = steps, np.empty(0, np.uint8)
    for dtype in reversed(_NARROW):
        limit = np.iinfo(dtype).max
        long_steps = narrowest(steps[steps >= limit])
        if len(steps) * np.dtype(dtype).itemsize + long_steps.nbytes < sum(array.nbytes for array in best):
            best = np.minimum(steps, limit).astype(dtype), long_steps
    return best


def _ids(offsets_R1: Int64, steps: NDArray[Any], long_steps: NDArray[Any], num_columns: int) -> NDArray[np.int32]:
    """The inverse of ``_steps``. Raises ValueError for ids that are not below ``num_columns``."""
    if len(steps) != offsets_R1[-1]:
        raise ValueError(f"{len(steps)} steps; wanted one for each of {offsets_R1[-1]} entries")
    ids, num_read = np.empty(len(steps), np.int32), 0
    for some, entries in blocks_of(offsets_R1):
        if entries.start == entries.stop:
            continue
        wide = steps[entries].astype(np.int64)
        if steps.dtype != np.int32:
            places = np.flatnonzero(wide == np.iinfo(steps.dtype).max)
            own = long_steps[num_read : num_read + len(places)]
            if len(own) != len(places):
                raise ValueError(f"{len(long_steps)} long steps; wanted more")
            wide[places], num_read = own, num_read + len(places)
        if wide.min() < 0:
            raise ValueError(f"a step is {wide.min()}; wanted 0 or more")
        offsets = offsets_R1[some.start : some.stop + 1] - entries.start
        wide += 1
        sums = np.cumsum(wide, out=wide)
        before = np.where(offsets[:-1] > 0, sums[offsets[:-1] - 1], 0)
        sums -= np.repeat(before + 1, np.diff(offsets))
        if sums.max() >= num_columns:
            raise ValueError(f"an id is {sums.max()}; wanted one below {num_columns}")
        ids[entries] = sums
    if num_read != len(long_steps):
        raise ValueError(f"{len(long_steps)} long steps; wanted {num_read}")
    return ids
