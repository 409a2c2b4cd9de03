"""Pools of the reference and of the kernels keep one promise: uniform over the B-subsets without the positive."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from owlmine.mining import draw_batch_pool, draw_pools, draw_pools_fixed
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.pool_rows import left_out_of_pool, pool_rows
from tests.contracts.pools import assert_uniform_without

# The interpreter takes a fifth of a second for a draw.
NUM_DRAWS = 2000 if torch.cuda.is_available() else 48
Draw = Callable[[Tensor, int, int, torch.Generator], Tensor]
"""Positives [N], classes K, pool size B: pools [N, B]."""


def own(positives: Tensor, num_classes: int, pool_size: int, generator: torch.Generator) -> Tensor:
    return draw_pools(positives, num_classes=num_classes, pool_size=pool_size, generator=generator)


def own_fixed(positives: Tensor, num_classes: int, pool_size: int, generator: torch.Generator) -> Tensor:
    return draw_pools_fixed(positives, num_classes=num_classes, pool_size=pool_size, generator=generator)[0]


def shared(positives: Tensor, num_classes: int, pool_size: int, generator: torch.Generator) -> Tensor:
    return draw_batch_pool(positives, num_classes=num_classes, pool_size=pool_size, generator=generator).ids()


def by_kernels(positives: Tensor, num_classes: int, pool_size: int, generator: torch.Generator) -> Tensor:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    positives, width = positives.to(device), pool_size + 1
    key = torch.randint(1 << 32, (1,), generator=generator).to(device)
    ids, _ = pool_rows(torch.zeros(num_classes, 1, device=device), key, width=width, dtype=torch.float32)
    nothing = Exclusions.of_padded(torch.full_like(positives, -1)[:, None])
    left_out = left_out_of_pool(positives, nothing, key, num_classes=num_classes, width=width)
    counts = ~left_out.mask(width)
    assert bool((counts.sum(dim=1) == pool_size).all())
    return ids.expand(len(positives), -1)[counts].reshape(-1, pool_size).cpu()


@pytest.mark.parametrize("draw", [own, own_fixed, shared, by_kernels])
@pytest.mark.parametrize(("num_classes", "pool_size"), [(4, 2), (5, 3)])
def test_pools_are_uniform_without_the_positive(draw: Draw, num_classes: int, pool_size: int) -> None:
    positives, generator = torch.tensor([0, num_classes - 1]), torch.Generator().manual_seed(num_classes)
    draws = torch.stack([draw(positives, num_classes, pool_size, generator) for _ in range(NUM_DRAWS)])
    for point, positive in enumerate(positives.tolist()):
        assert_uniform_without(draws[:, point].tolist(), positive, num_classes)
