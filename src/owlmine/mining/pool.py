"""Pools: B classes drawn uniformly from all but the positive (paper, Algorithm 1, step 1).

Either each point has a pool of its own, or a batch shares B + 1 classes of which each point leaves out one: its
positive if that is among them, otherwise one at random. Given its positive, a point's pool is uniform over all
B-subsets without it in both forms; in the shared form the pools of different points are not independent. With the
shared form, the scores of a batch are one matrix product.

Legend: N points, B pool, W = B + 1 classes shared by a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from owlmine.mining.checks import check_class_ids
from owlmine.mining.distinct import draw_distinct, draw_distinct_fixed, draw_subset, draw_with_repeats


@dataclass(frozen=True, eq=False)
class BatchPool:
    """One pool for a batch."""

    shared_ids: Tensor
    """[W] distinct class ids that every point scores, ascending."""
    dropped: Tensor
    """[N] the position in ``shared_ids`` that each point leaves out."""
    shortages: Tensor
    """How often fixed shapes ran short (0-d int64 on the device); always 0 if values may be read."""

    @property
    def pool_size(self) -> int:
        return len(self.shared_ids) - 1

    def mask(self) -> Tensor:
        """[N, W], True where a score must not count: one entry per row."""
        mask_NW = torch.zeros(len(self.dropped), len(self.shared_ids), dtype=torch.bool, device=self.dropped.device)
        return mask_NW.scatter(1, self.dropped[:, None], True)

    def ids(self) -> Tensor:
        """[N, B] the pool of each point written out."""
        kept_B = torch.arange(self.pool_size, device=self.dropped.device)
        positions_NB = kept_B + (kept_B >= self.dropped[:, None])
        return self.shared_ids[positions_NB]


def draw_pools(
    positives_N: Tensor,
    *,
    num_classes: int,
    pool_size: int,
    generator: torch.Generator,
    validate: bool | None = None,
) -> Tensor:
    """``ids_NB``: for each point, independently, B distinct classes without its positive, in random order.

    O(B log B) per point whatever K, except that pools of more than K/4 are cut from a permutation of all classes.
    """
    _check(positives_N, num_classes, pool_size, generator, validate)
    ids_NB = draw_distinct(len(positives_N), pool_size, num_classes=num_classes - 1, generator=generator)
    return _step_over(ids_NB, positives_N)


def draw_pools_fixed(
    positives_N: Tensor,
    *,
    num_classes: int,
    pool_size: int,
    generator: torch.Generator,
    validate: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """``draw_pools`` with fixed shapes and no wait for the device: ``ids_NB`` and how many rows ran short.

    See ``draw_distinct_fixed`` for what happens to a row that does (chance below 2^-64 each).
    """
    _check(positives_N, num_classes, pool_size, generator, validate)
    ids_NB, shortages = draw_distinct_fixed(
        len(positives_N), pool_size, num_classes=num_classes - 1, generator=generator
    )
    return _step_over(ids_NB, positives_N), shortages


def draw_batch_pool(
    positives_N: Tensor,
    *,
    num_classes: int,
    pool_size: int,
    generator: torch.Generator,
    fixed_shapes: bool = False,
    validate: bool | None = None,
) -> BatchPool:
    """One pool for the batch. ``fixed_shapes``: nothing waits for the device; see ``draw_distinct_fixed``."""
    _check(positives_N, num_classes, pool_size, generator, validate)
    width = pool_size + 1
    shortages = torch.zeros((), dtype=torch.int64, device=generator.device)
    if width == num_classes:
        shared_W = torch.arange(num_classes, device=generator.device)
    elif fixed_shapes:
        ids_1W, shortages = draw_distinct_fixed(1, width, num_classes=num_classes, generator=generator)
        shared_W = ids_1W[0].sort().values
    else:
        shared_W = draw_subset(width, num_classes=num_classes, generator=generator)
    # Ascending, so that ids are found by bisection; which one a point drops is drawn apart from the order.
    where_N, is_in_N = find_in_shared(shared_W, positives_N)
    any_N1 = draw_with_repeats(len(positives_N), 1, num_classes=width, generator=generator)
    return BatchPool(shared_W, torch.where(is_in_N, where_N, any_N1[:, 0]), shortages)


def draw_pool_with_positives(
    positives_N: Tensor, *, num_classes: int, pool_size: int, generator: torch.Generator
) -> BatchPool:
    """One pool for the batch, with all positives of the batch in it; the others are drawn uniformly from the rest.

    So a class is as often among the negatives of other points as it is a positive, and a little more. Each point leaves
    out its own positive. Raises ValueError if there are more positives than places.
    """
    _check(positives_N, num_classes, pool_size, generator, False)
    own_P = torch.unique(positives_N)
    num_others = pool_size + 1 - len(own_P)
    if num_others < 0:
        raise ValueError(f"pool_size: given {pool_size}; wanted at least {len(own_P) - 1}, for the positives")
    shared_W = own_P
    if num_others:
        others = draw_subset(num_others, num_classes=num_classes - len(own_P), generator=generator)
        # Numbers of classes that are no positives, onto their ids: before the i-th positive p there are p - i others.
        others += torch.searchsorted(own_P - torch.arange(len(own_P), device=own_P.device), others, right=True)
        shared_W = torch.cat([own_P, others]).sort().values
    shortages = torch.zeros((), dtype=torch.int64, device=generator.device)
    return BatchPool(shared_W, torch.searchsorted(shared_W, positives_N), shortages)


def find_in_shared(shared_W: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """For each id (any shape): its position in ``shared_W`` (ascending), meaningless where the second result is
    False."""
    place = torch.searchsorted(shared_W, ids.to(shared_W)).clamp_max(len(shared_W) - 1)
    return place, shared_W[place] == ids


def _step_over(ids_NB: Tensor, positives_N: Tensor) -> Tensor:
    """Ids below K - 1 onto the classes without the positive: those from the positive on move up by one."""
    return ids_NB + (ids_NB >= positives_N[:, None])


def _check(
    positives_N: Tensor, num_classes: int, pool_size: int, generator: torch.Generator, validate: bool | None
) -> None:
    if num_classes < 2:
        raise ValueError(f"num_classes: given {num_classes}; wanted at least 2")
    if not 1 <= pool_size <= num_classes - 1:
        wanted = f"1 to {num_classes - 1}, as the positive is left out of {num_classes} classes"
        raise ValueError(f"pool_size: given {pool_size}; wanted {wanted}")
    if positives_N.ndim != 1 or len(positives_N) == 0:
        raise ValueError(f"positives: given shape {tuple(positives_N.shape)}; wanted one per point, at least one")
    check_class_ids("positives", positives_N, shape=(len(positives_N),), num_classes=num_classes, validate=validate)
    if generator.device.type != positives_N.device.type:
        wanted = f"{positives_N.device}, where the positives are"
        raise ValueError(f"generator: given one on {generator.device}; wanted {wanted}")
