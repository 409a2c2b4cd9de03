"""Other known positives of a point that happen to be in its pool: which entries must not count as negatives.

A pool drawn for one positive may contain the point's other labels. Masking them leaves a pool that is uniform over the
B-subsets, less those labels: given how many remain, they are a uniform subset of the classes that are not positives,
but how many remain is random. The losses keep the weight of each rank and do not redistribute that of the missing
ranks: for top-k nothing changes unless fewer than k remain, and for negative sampling in the paper's convention the
loss stays an unbiased estimate of the sum over all classes that are not positives.

Known positives come as padded ids ``known_NP`` (-1 where a point has fewer than P) or as compressed rows, a
pair ``(offsets, ids)`` where point n owns ``ids[offsets[n]:offsets[n + 1]]``.

Legend: N points, B pool, W classes shared by a batch, P known positives at most, E known positives in all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.mining.checks import check_class_ids, may_look
from owlmine.mining.pool import BatchPool, find_in_shared

Known = Tensor | tuple[Tensor, Tensor]


def known_in_pools(ids_NB: Tensor, known: Known, *, num_classes: int, validate: bool | None = None) -> Tensor:
    """[N, B], True where an entry of a pool is a known positive of its point. O(B log E) per point."""
    if ids_NB.ndim != 2:
        raise ValueError(f"pool: given shape {tuple(ids_NB.shape)}; wanted [points, pool]")
    rows_E, known_E = flat_known(known, num_points=len(ids_NB), validate=validate)
    _check_range(known_E, num_classes, validate)
    # One number per (point, class); a padded -1 becomes the point's number 0, which no class has.
    stride = num_classes + 1
    keys_E = (rows_E * stride + known_E + 1).sort().values
    if len(keys_E) == 0:
        return torch.zeros_like(ids_NB, dtype=torch.bool)
    rows_N1 = torch.arange(len(ids_NB), device=ids_NB.device)[:, None]
    keys_NB = rows_N1 * stride + ids_NB + 1
    place_NB = torch.searchsorted(keys_E, keys_NB).clamp_max(len(keys_E) - 1)
    return keys_E[place_NB] == keys_NB


def known_in_batch_pool(pool: BatchPool, known: Known, *, validate: bool | None = None) -> Tensor:
    """[N, W], True where a shared class must not count for a point: dropped, or a known positive."""
    num_points, width = len(pool.dropped), len(pool.shared_ids)
    rows_E, known_E = flat_known(known, num_points=num_points, validate=validate)
    where_E, is_in_E = find_in_shared(pool.shared_ids, known_E)
    # Labels that are not in the pool are written to one column past the end.
    column_E = torch.where(is_in_E, where_E, width)
    flat = torch.zeros(num_points * (width + 1), dtype=torch.bool, device=pool.dropped.device)
    # Not mask[rows, columns] = True, which would synchronise with a GPU.
    mask_NW = flat.scatter(0, rows_E * (width + 1) + column_E, True).reshape(num_points, width + 1)
    return mask_NW[:, :width].scatter(1, pool.dropped[:, None], True)


def _check_range(known_E: Tensor, num_classes: int, validate: bool | None) -> None:
    check_class_ids(
        "known positives",
        known_E,
        shape=tuple(known_E.shape),
        num_classes=num_classes,
        validate=validate,
        lowest=-1,
    )


def flat_known(known: Known, *, num_points: int, validate: bool | None) -> tuple[Tensor, Tensor]:
    """The point and the class of each known positive."""
    if isinstance(known, Tensor):
        if known.ndim != 2 or len(known) != num_points:
            wanted = f"[{num_points}, most per point]"
            raise ValueError(f"known positives: given shape {tuple(known.shape)}; wanted {wanted}")
        rows_NP = torch.arange(num_points, device=known.device)[:, None].expand_as(known)
        return rows_NP.reshape(-1), known.reshape(-1).to(torch.int64)
    offsets, ids_E = known
    if offsets.ndim != 1 or len(offsets) != num_points + 1 or ids_E.ndim != 1:
        given = f"offsets {tuple(offsets.shape)} and ids {tuple(ids_E.shape)}"
        raise ValueError(f"known positives: given {given}; wanted [{num_points + 1}] and a vector")
    if may_look(offsets, validate):
        ends = int(offsets[0]), int(offsets[-1])
        if ends != (0, len(ids_E)) or bool((offsets.diff() < 0).any()):
            wanted = f"a rise from 0 to {len(ids_E)}, the number of ids"
            raise ValueError(f"known positives: given offsets from {ends[0]} to {ends[1]}; wanted {wanted}")
    points_N = torch.arange(num_points, device=ids_E.device)
    # With output_size the host need not ask the device how long the result is.
    rows_E = points_N.repeat_interleave(offsets.diff(), output_size=len(ids_E))
    return rows_E, ids_E.to(torch.int64)
