"""Checks that data are in a usable range, and that a model is still finite."""

from __future__ import annotations

import numpy as np
import torch

from owlmine.data.rows import SparseRows
from owlmine.data.store import Batch, Dataset
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.errors import DataError, OwlmineError

# Entries checked at once: a mask of the whole table would take a quarter of its memory.
_BLOCK_ROWS = 1 << 16
# Lengths are roots of sums of squares, which float32 holds up to 3e38 (numbers to 2e19), and shorter ones than 1e-12
# count as 0. The rest is headroom for learned weights, which are multiplied with features before lengths are computed.
LARGEST, _SMALLEST = 1e15, 1e-12


class NotFinite(OwlmineError):  # noqa: N818
    """The loss or the weights of a run are no longer finite."""


def require_workable_values(data: Dataset, *, name: str) -> None:
    """Raises DataError if feature values are so large, or all so small, that scores would silently overflow or vanish.
    ``name`` is the name of the data."""
    for split in (data[part] for part in ("train", "dev") if part in data.splits):
        first, largest = 0, 0.0
        for batch in split.blocks():
            sizes = _sizes(batch)
            if sizes is None:  # every feature counts 1
                return
            place = int(sizes.argmax()) if sizes.size else -1
            if place >= 0 and not sizes.flat[place] <= LARGEST:
                queries = batch.queries
                row = queries.row_ids[place] if isinstance(queries, SparseRows) else place // queries.shape[1]
                raise DataError(
                    f"{name}: {split.name}, row {first + row} (from 0)",
                    found=f"a feature of size {sizes.flat[place]:g}",
                    wanted=f"at most {LARGEST:g}; scale the features down",
                )
            largest = max(largest, float(sizes.max(initial=0.0)))
            first += len(batch.labels)
        if split.name == "train" and largest < _SMALLEST:
            raise DataError(
                f"{name}: {split.name}",
                found=f"no feature larger than {largest:g}",
                wanted=f"at least {_SMALLEST:g}; scale the features up",
            )


def _sizes(batch: Batch) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    values = batch.queries.values if isinstance(batch.queries, SparseRows) else batch.queries
    return None if values is None else np.abs(values)


def first_not_finite(model: Retriever) -> str | None:
    """The name of a tensor with an infinite or NaN entry; None if all are finite."""
    for name, tensor in model.tensors().items():
        if not all(bool(torch.isfinite(block).all()) for block in torch.split(tensor, _BLOCK_ROWS)):
            return name
    return None


def num_without_direction(model: Retriever) -> int:
    """The number of class vectors that are 0. Training may only reduce it."""
    blocks = torch.split(model.classes.weight, _BLOCK_ROWS)
    return sum(len(block) - int(block.any(dim=1).sum()) for block in blocks)


def has_directions(model: Retriever, batch: Batch) -> bool:
    """Whether any of these points has a vector other than 0."""
    return bool(model.encode(query_batch(batch.queries, model.device)).any())
