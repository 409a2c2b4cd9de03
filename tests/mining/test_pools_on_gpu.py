"""What is promised for a GPU: nothing waits for the device, and the results are those of the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

import pytest
import torch

from owlmine.losses import bowl, mined_loss, negative_sampling, power_law, top_k
from owlmine.mining import draw_batch_pool, draw_pools_fixed, known_in_batch_pool, known_in_pools
from owlmine.mining.hardest_classes import highest, highest_reference

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@contextmanager
def no_waiting() -> Iterator[None]:
    """Any wait of the host for the device is an error inside."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def one_step(weights, positives, known, offsets, ids, generator):
    """Draw, mask, score, lose, differentiate: everything that a training step does here."""
    options = {"num_classes": 1000, "pool_size": 64, "generator": generator}
    pool = draw_batch_pool(positives, fixed_shapes=True, **options)
    own_ids, shortages = draw_pools_fixed(positives, **options)
    masks = [pool.mask(), known_in_batch_pool(pool, known), known_in_batch_pool(pool, (offsets, ids))]
    own_mask = known_in_pools(own_ids, known, num_classes=1000)
    queries = torch.ones(len(positives), 8, device="cuda", requires_grad=True)
    table = torch.linspace(-1, 1, 8000, device="cuda").reshape(1000, 8).requires_grad_()
    own = (queries * table[positives]).sum(dim=1)
    loss = sum(
        mined_loss(own, queries @ table[pool.shared_ids].T, mask, weights=weights, kind=kind)
        for mask in masks
        for kind in ("powl", "bowl")
    )
    own_scores = torch.einsum("nd,nbd->nb", queries, table[own_ids])
    loss = loss + mined_loss(own, own_scores, own_mask, weights=weights)
    return torch.autograd.grad(loss, (queries, table)), pool.shortages + shortages


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_step_does_not_wait_for_the_device():
    generator = torch.Generator("cuda").manual_seed(0)
    positives = torch.arange(16, device="cuda")
    known = torch.arange(32, device="cuda").reshape(16, 2)
    offsets, ids = torch.arange(0, 34, 2, device="cuda"), torch.arange(32, device="cuda")
    for weights in (
        top_k(1, pool_size=64),
        top_k(5, pool_size=64).with_tail(0.001),
        negative_sampling(pool_size=64),
        power_law(1, pool_size=64),
    ):
        arguments = (weights, positives, known, offsets, ids, generator)
        # The first step loads kernels and places the weights.
        one_step(*arguments)
        with no_waiting():
            gradients, shortages = one_step(*arguments)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert int(shortages) == 0


def test_ties_on_the_gpu_go_to_the_smaller_position():
    generator = torch.Generator().manual_seed(1)
    for width, count in ((3000, 1), (3000, 2), (3000, 17), (3000, 2000), (7, 3), (65_537, 64)):
        scores = torch.randn(9, width, generator=generator).bfloat16()
        on_gpu = highest(scores.cuda(), count)
        assert torch.equal(on_gpu.cpu(), highest_reference(scores, count))


def test_losses_equal_those_of_the_cpu():
    scores = torch.randn(8, 300, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    positives, theta = torch.arange(8), torch.linspace(1, 0, 40, dtype=torch.float64)
    for phi in ("hinge", "logistic"):
        on_cpu = bowl(scores, positives, theta=theta, phi=phi)
        on_gpu = bowl(scores.cuda(), positives.cuda(), theta=theta, phi=phi)
        torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-12, atol=0)


def test_values_are_looked_at_only_when_told_so():
    scores = torch.full((1, 4), torch.nan, device="cuda")
    positives = torch.zeros(1, dtype=torch.int64, device="cuda")
    assert bowl(scores, positives, theta=[1.0]).isnan()
    with pytest.raises(ValueError, match="scores: given NaN"):
        bowl(scores, positives, theta=[1.0], validate=True)


def test_fixed_shapes_are_uniform_over_all_subsets():
    num_classes, pool_size, positive = 9, 2, 4
    positives = torch.full((56_000,), positive, device="cuda")
    generator = torch.Generator("cuda").manual_seed(3)
    ids, _ = draw_pools_fixed(positives, num_classes=num_classes, pool_size=pool_size, generator=generator)
    others = [c for c in range(num_classes) if c != positive]
    counts = dict.fromkeys(combinations(others, pool_size), 0)
    for row in ids.sort(dim=1).values.tolist():
        counts[tuple(row)] += 1
    expected = len(ids) / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    # Chi-square with 27 degrees of freedom: above 68.5 in 2 of 100,000 runs.
    assert statistic < 68.5
