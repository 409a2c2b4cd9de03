"""Mined softmax: loops over Python floats, bias and variance by enumeration, and where its minimum lies."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from owlmine.losses import (
    as_one_pool,
    crammer_singer,
    draw_others,
    mined_softmax_loss,
    mined_softmax_loss_reference,
    sampled_softmax_loss,
    softmax_loss,
    stratified_softmax_loss,
    stratified_softmax_loss_reference,
    theta_from_vartheta,
    top_k,
    uniform_log_q,
)
from owlmine.losses.mined_softmax import _among_others
from owlmine.mining import draw_pools, known_in_pools

K, Y = 8, 3
SCORES = torch.tensor([2.6, -0.4, 1.1, 0.3, -1.2, 1.9, 0.1, -0.7], dtype=torch.float64)
OTHERS = [c for c in range(K) if c != Y]


def scores_of(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def subsets(items, size):
    return torch.tensor(list(itertools.combinations(items, size)))


def partition(loss, scale=1.0):
    return torch.exp(loss + scale * SCORES[Y])


def every_estimate(pool_size, kept, num_others):
    """The estimated partition for every pool (rows) and every choice of others (columns)."""
    pools, choices = subsets(OTHERS, pool_size), subsets(range(pool_size - kept), num_others)
    log_q = uniform_log_q(num_classes=K, pool_size=pool_size)
    loss = mined_softmax_loss(
        SCORES[Y].expand(len(pools) * len(choices)),
        SCORES[pools].repeat_interleave(len(choices), dim=0),
        None,
        choices.repeat(len(pools), 1),
        kept=kept,
        tail="estimate",
        log_q=log_q,
        reduction="none",
    )
    return partition(loss).reshape(len(pools), len(choices))


def every_sampled(pool_size):
    pools = subsets(OTHERS, pool_size)
    log_q = uniform_log_q(num_classes=K, pool_size=pool_size)
    own = SCORES[Y].expand(len(pools))
    return partition(sampled_softmax_loss(own, SCORES[pools], log_q=log_q, reduction="none"))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kept=st.integers(1, 6),
    num_others=st.integers(0, 3),
    scale=st.sampled_from([1.0, 0.3, 4.0]),
    masked=st.sampled_from([0.0, 0.4, 1.0]),
    log_q=st.sampled_from([0.0, -1.3]),
)
def test_by_loop(seed, kept, num_others, scale, masked, log_q):
    assume(num_others <= 6 - kept)
    positive, pool = scores_of(seed, 3).requires_grad_(), scores_of(seed + 1, 3, 6).requires_grad_()
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(3, 6, generator=generator) < masked
    others = None
    if num_others:
        others = draw_others(3, width=6, kept=kept, num_others=num_others, generator=generator)
    expected = 0.0
    for n in range(3):
        hidden = mask[n].tolist()
        order = sorted(range(6), key=lambda b: (hidden[b], -pool[n, b].item(), b))
        shares = [0.0 if hidden[b] else math.exp(scale * pool[n, b].item()) for b in range(6)]
        total = sum(shares[b] for b in order[:kept])
        if num_others:
            rest = sorted(order[kept:])
            total += sum(shares[rest[r]] for r in others[n].tolist()) * len(rest) / num_others
        own = math.exp(scale * positive[n].item())
        expected -= math.log(own / (own + total / math.exp(log_q))) / 3
    options = {"kept": kept, "log_q": log_q, "scale": scale}
    tail = "estimate" if num_others else "drop"
    fast = mined_softmax_loss(positive, pool, mask, others, tail=tail, **options)
    plain = mined_softmax_loss_reference(positive, pool, mask, others, **options)
    assert fast.item() == pytest.approx(expected, rel=1e-11, abs=1e-14)
    assert plain.item() == pytest.approx(expected, rel=1e-11, abs=1e-14)
    for first, second in zip(
        torch.autograd.grad(fast, (positive, pool)), torch.autograd.grad(plain, (positive, pool)), strict=True
    ):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-13)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 3.0]), masked=st.sampled_from([0.0, 0.4, 1.0]))
def test_stratified_by_loop(seed, scale, masked):
    tensors = [scores_of(seed, 3), scores_of(seed + 1, 3, 2), scores_of(seed + 2, 3, 5)]
    positive, kept, pool = (tensor.requires_grad_() for tensor in tensors)
    mask = torch.rand(3, 5, generator=torch.Generator().manual_seed(seed)) < masked
    expected = 0.0
    for n in range(3):
        own = math.exp(scale * positive[n].item())
        total = own + sum(math.exp(scale * v) for v in kept[n].tolist())
        total += sum(math.exp(scale * v + 1.1) for b, v in enumerate(pool[n].tolist()) if not mask[n, b])
        expected -= math.log(own / total) / 3
    gradients = []
    for loss in (stratified_softmax_loss, stratified_softmax_loss_reference):
        value = loss(positive, kept, pool, mask, log_q=-1.1, scale=scale)
        assert value.item() == pytest.approx(expected, rel=1e-11)
        gradients.append(torch.autograd.grad(value, (positive, kept, pool)))
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("kept", [1, 3, 7])
def test_others_are_counted_past_the_kept(kept):
    kept_NT = torch.stack([torch.randperm(8, generator=torch.Generator().manual_seed(s))[:kept] for s in range(9)])
    numbers = torch.arange(8 - kept).expand(9, -1)
    for row, kept_T in zip(_among_others(kept_NT, numbers).tolist(), kept_NT.tolist(), strict=True):
        assert row == [position for position in range(8) if position not in kept_T]


@pytest.mark.parametrize(("pool_size", "kept", "num_others"), [(4, 1, 1), (5, 2, 2), (5, 4, 1), (7, 2, 1), (7, 3, 4)])
def test_the_estimated_partition_is_unbiased_and_its_variance_is_as_stated(pool_size, kept, num_others):
    estimates, full = every_estimate(pool_size, kept, num_others), torch.exp(SCORES).sum()
    torch.testing.assert_close(estimates.mean(), full, rtol=1e-12, atol=0)
    # Given the pool, only the others vary; what remains is the variance of plain sampling with the whole pool.
    num_left, expand = pool_size - kept, (K - 1) / pool_size
    within = torch.zeros((), dtype=torch.float64)
    if num_left > 1:
        left = torch.exp(SCORES[subsets(OTHERS, pool_size)]).sort(dim=1).values[:, :num_left]
        within = (expand**2 * num_left**2 / num_others * (1 - num_others / num_left) * left.var(dim=1)).mean()
    stated = every_sampled(pool_size).var(correction=0) + within
    torch.testing.assert_close(estimates.var(correction=0), stated, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("pool_size", [1, 3, 6, 7])
def test_variance_of_plain_sampling_is_as_stated(pool_size):
    spread = torch.exp(SCORES[OTHERS]).var()
    stated = (K - 1) ** 2 / pool_size * (1 - pool_size / (K - 1)) * spread
    torch.testing.assert_close(every_sampled(pool_size).var(correction=0), stated, rtol=1e-10, atol=1e-12)


def test_at_the_same_number_of_gradients_mining_varies_less_than_sampling():
    """k + m = 4 negatives with a gradient: the hardest 2 of 6 and 2 others, or 4 at random."""
    assert every_estimate(6, 2, 2).var(correction=0) < 0.7 * every_sampled(4).var(correction=0)
    assert every_estimate(7, 2, 2).var(correction=0) < 0.1 * every_sampled(4).var(correction=0)


@pytest.mark.parametrize("kept_classes", [[0], [0, 5], [4, 1], [0, 2, 5, 6]])
@pytest.mark.parametrize("pool_size", [2, 5, 7])
def test_stratified_partition_is_unbiased_for_any_kept_classes(kept_classes, pool_size):
    pools = subsets(OTHERS, pool_size)
    kept_ids = torch.tensor(kept_classes).expand(len(pools), -1)
    loss = stratified_softmax_loss(
        SCORES[Y].expand(len(pools)),
        SCORES[kept_ids],
        SCORES[pools],
        known_in_pools(pools, kept_ids, num_classes=K),
        log_q=uniform_log_q(num_classes=K, pool_size=pool_size),
        reduction="none",
    )
    torch.testing.assert_close(partition(loss).mean(), torch.exp(SCORES).sum(), rtol=1e-12, atol=0)
    left = torch.exp(SCORES)
    left[kept_classes] = 0
    stated = (K - 1) ** 2 / pool_size * (1 - pool_size / (K - 1)) * left[OTHERS].var()
    torch.testing.assert_close(partition(loss).var(correction=0), stated, rtol=1e-10, atol=1e-12)
    if kept_classes == [0, 5]:
        assert stated <= 0.1 * every_sampled(pool_size).var(correction=0)


def test_weight_one_on_the_hardest_of_a_random_pool_is_biased():
    """Mean of Σ_i w_i e_[i] is Σ_j θ_j e_[j]; θ = 1 everywhere only for w = (K - 1)/B everywhere."""
    pool_size, kept = 4, 2
    spread_over = (K - 1 - kept) / (pool_size - kept)
    shares = torch.exp(SCORES[subsets(OTHERS, pool_size)]).sort(dim=1, descending=True).values
    tempting = (shares[:, :kept].sum(dim=1) + spread_over * shares[:, kept:].sum(dim=1)).mean()
    full = torch.exp(SCORES[OTHERS]).sum()
    assert tempting < 0.8 * full
    # The map from w to θ loses nothing: B independent w give B independent θ, so no second w has θ = 1.
    thetas = torch.stack(
        [theta_from_vartheta(top_k(i, pool_size=pool_size), num_classes=K) for i in range(1, pool_size + 1)]
    )
    assert torch.linalg.matrix_rank(thetas) == pool_size


def test_dropping_is_low_by_the_log_of_what_is_dropped_and_less_so_with_more_kept():
    full = softmax_loss(SCORES[None], torch.tensor([Y]))
    shares = torch.exp(SCORES[OTHERS]).sort(descending=True).values
    gaps = []
    for kept in range(1, K):
        loss = mined_softmax_loss(*as_one_pool(SCORES[None], torch.tensor([Y])), kept=kept)
        held = torch.exp(SCORES[Y]) + shares[:kept].sum()
        torch.testing.assert_close(full - loss, torch.log1p(shares[kept:].sum() / held), rtol=1e-10, atol=1e-14)
        gaps.append((full - loss).item())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == pytest.approx(0, abs=1e-14)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), pool_size=st.integers(1, 9))
def test_dropping_never_exceeds_the_full_loss_and_grows_with_what_is_kept(seed, pool_size):
    scores, positives = scores_of(seed, 4, 10), torch.randint(10, (4,), generator=torch.Generator().manual_seed(seed))
    full = softmax_loss(scores, positives, reduction="none")
    generator = torch.Generator().manual_seed(seed)
    pools = draw_pools(positives, num_classes=10, pool_size=pool_size, generator=generator)
    own, last = scores.gather(1, positives[:, None])[:, 0], torch.zeros(4, dtype=torch.float64)
    for kept in range(1, pool_size + 1):
        loss = mined_softmax_loss(own, scores.gather(1, pools), kept=kept, reduction="none")
        assert (loss <= full + 1e-12).all()
        assert (loss > last).all()
        last = loss


@pytest.mark.parametrize(("pool_size", "kept", "num_others"), [(4, 1, 1), (5, 2, 2), (7, 2, 1)])
def test_the_estimated_loss_is_low_by_no_more_than_jensen_allows(pool_size, kept, num_others):
    estimates, full = every_estimate(pool_size, kept, num_others), torch.exp(SCORES).sum()
    low_by = (full.log() - estimates.log()).mean()
    assert 0 < low_by < estimates.var(correction=0) / (2 * estimates.min() ** 2)


def test_one_kept_is_the_pairwise_logistic_loss_of_the_hardest():
    scores, positives = scores_of(1, 5, 9), torch.tensor([0, 4, 8, 2, 2])
    mined = mined_softmax_loss(*as_one_pool(scores, positives), kept=1, scale=1.7)
    ordered = crammer_singer()(scores, positives, phi="logistic", scale=1.7)
    torch.testing.assert_close(mined, math.log(2) * ordered)


def best_scores(chances, kept):
    """The minimum of the truncated softmax on all classes: see docs/mined-softmax.md."""
    num_apart = 0
    for r in range(1, kept + 1):
        if chances[r - 1] > chances[r:].sum() / (kept + 1 - r):
            num_apart = r
    level = chances[num_apart:].sum() / (kept + 1 - num_apart)
    scores = chances.log()
    scores[num_apart:] = level.log()
    return scores, num_apart


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_classes=st.integers(3, 7), kept=st.integers(1, 6), peak=st.floats(0.3, 3))
def test_where_the_truncated_softmax_is_best(seed, num_classes, kept, peak):
    """No nearby scores have a lower expected loss; the loss is convex, so no others do."""
    assume(kept < num_classes)
    chances = torch.exp(peak * scores_of(seed, num_classes)).sort(descending=True).values
    chances = chances / chances.sum()
    best, _ = best_scores(chances, kept)
    directions = scores_of(seed + 1, 200, num_classes)
    tried = best + torch.cat([torch.zeros(1, num_classes).double(), 1e-3 * directions, 0.3 * directions])
    expected = torch.zeros(len(tried), dtype=torch.float64)
    for y in range(num_classes):
        pool = as_one_pool(tried, torch.full((len(tried),), y))
        expected += chances[y] * mined_softmax_loss(*pool, kept=kept, reduction="none")
    assert (expected[1:] >= expected[0] - 1e-12).all()


def test_truncation_is_calibrated_with_a_heavy_head_and_not_with_a_flat_one():
    heavy, flat = torch.tensor([0.6, 0.2, 0.1, 0.1]).double(), torch.tensor([0.4, 0.2, 0.2, 0.2]).double()
    assert best_scores(heavy, 1)[1] == 1
    # 0.4 < 0.6, what all others have together: the hardest alone cannot tell the best class from the rest.
    assert best_scores(flat, 1)[1] == 0
    assert best_scores(flat, 2)[1] == 1
    probabilities = best_scores(heavy, 1)[0].exp()
    assert probabilities[0].item() == pytest.approx(0.6)
    assert probabilities[1].item() == pytest.approx(0.4)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), kept=st.integers(1, 5), mix=st.floats(0, 1))
def test_truncation_is_convex(seed, kept, mix):
    ends, positives = 3 * scores_of(seed, 2, 6), torch.tensor([2, 2])
    between = mix * ends[:1] + (1 - mix) * ends[1:]
    at_ends = mined_softmax_loss(*as_one_pool(ends, positives), kept=kept, reduction="none")
    value = mined_softmax_loss(*as_one_pool(between, positives[:1]), kept=kept)
    assert value <= mix * at_ends[0] + (1 - mix) * at_ends[1] + 1e-12


ZEROS, POOL = torch.zeros(2), torch.zeros(2, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mined_softmax_loss(ZEROS, POOL, kept=5), "kept: given 5 of a pool of 4; wanted 1 to 4"),
        (lambda: mined_softmax_loss(ZEROS, POOL, kept=0), "kept: given 0"),
        (lambda: mined_softmax_loss(ZEROS, POOL, kept=1, tail="keep"), "tail: given 'keep'; wanted one of drop, est"),
        (lambda: mined_softmax_loss(ZEROS, POOL, kept=1, tail="estimate"), 'tail "estimate": given no others'),
        (
            lambda: mined_softmax_loss(ZEROS, POOL, None, torch.zeros(2, 1).long(), kept=1),
            'tail "drop": given others',
        ),
        (
            lambda: mined_softmax_loss(ZEROS, POOL, None, torch.full((2, 1), 3), kept=1, tail="estimate"),
            "others: given class ids from 3 to 3; wanted 0 to 2",
        ),
        (
            lambda: mined_softmax_loss(ZEROS, POOL, None, torch.zeros(2, 0).long(), kept=1, tail="estimate"),
            r"others: given shape \(2, 0\); wanted 2 rows of 1 to 3",
        ),
        (
            lambda: mined_softmax_loss(ZEROS, POOL, None, torch.zeros(2, 1).long(), kept=4, tail="estimate"),
            "others: given shape",
        ),
        (
            lambda: draw_others(2, width=4, kept=2, num_others=3, generator=torch.Generator()),
            "num_others: given 3; wanted 1 to 2",
        ),
        (lambda: stratified_softmax_loss(ZEROS, torch.zeros(3, 1), POOL, log_q=0.0), r"kept_scores: given shape \(3"),
        (lambda: stratified_softmax_loss(ZEROS, torch.zeros(2, 0), POOL, log_q=0.0), "at least one class"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
