"""One-vs-all on all classes and on pools, with one positive and with several."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import (
    lee_lin_wahba,
    one_vs_all_loss,
    one_vs_all_loss_reference,
    pooled_one_vs_all_loss,
    pooled_one_vs_all_loss_reference,
    uniform_log_q,
)


def scores_of(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LABELS = torch.tensor([[0, 4, -1], [3, -1, -1], [5, 1, 2]])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 0.2, 5.0]), several=st.booleans())
def test_all_classes_by_loop(seed, scale, several):
    scores, positives = scores_of(seed, 3, 6).requires_grad_(), LABELS if several else LABELS[:, 0]
    expected = 0.0
    for n, c in itertools.product(range(3), range(6)):
        sign = 1 if c in positives[n].reshape(-1).tolist() else -1
        expected += math.log1p(math.exp(-sign * scale * scores[n, c].item())) / 3
    fast = one_vs_all_loss(scores, positives, scale=scale)
    plain = one_vs_all_loss_reference(scores, positives, scale=scale)
    assert fast.item() == pytest.approx(expected, rel=1e-12)
    assert plain.item() == pytest.approx(expected, rel=1e-12)
    gradients = [torch.autograd.grad(value, scores)[0] for value in (fast, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-13)


def test_it_is_the_field_s_cross_entropy_and_a_binary_ordered_loss():
    scores = scores_of(0, 3, 6)
    targets = torch.zeros(3, 6, dtype=torch.float64)
    for n, row in enumerate(LABELS.tolist()):
        targets[n, [c for c in row if c >= 0]] = 1
    field = torch.nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
    torch.testing.assert_close(one_vs_all_loss(scores, LABELS, reduction="sum"), field)
    ordered = lee_lin_wahba(6)(scores, LABELS[:, 0], phi="logistic")
    torch.testing.assert_close(one_vs_all_loss(scores, LABELS[:, 0]), math.log(2) * ordered)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 3.0]), per_entry=st.booleans())
def test_pool_by_loop(seed, scale, per_entry):
    positive, pool = scores_of(seed, 3).requires_grad_(), scores_of(seed + 1, 3, 4).requires_grad_()
    mask = torch.rand(3, 4, generator=torch.Generator().manual_seed(seed)) < 0.3
    log_q = scores_of(seed + 2, 3, 4) if per_entry else -0.7
    q = torch.as_tensor(log_q, dtype=torch.float64).expand(3, 4).exp().tolist()
    expected = 0.0
    for n in range(3):
        expected += math.log1p(math.exp(-scale * positive[n].item())) / 3
        for b in range(4):
            if not mask[n, b]:
                expected += math.log1p(math.exp(scale * pool[n, b].item())) / q[n][b] / 3
    options = {"log_q": log_q, "scale": scale}
    fast = pooled_one_vs_all_loss(positive, pool, mask, **options)
    plain = pooled_one_vs_all_loss_reference(positive, pool, mask, **options)
    assert fast.item() == pytest.approx(expected, rel=1e-12)
    assert plain.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pool_size", [1, 3, 6])
def test_the_mean_over_all_pools_is_the_loss_on_all_classes(pool_size):
    scores, y = scores_of(2, 7), 4
    scores.requires_grad_()
    pools = torch.tensor(list(itertools.combinations([c for c in range(7) if c != y], pool_size)))
    log_q = uniform_log_q(num_classes=7, pool_size=pool_size)
    mean = pooled_one_vs_all_loss(scores[y].expand(len(pools)), scores[pools], log_q=log_q)
    full = one_vs_all_loss(scores[None], torch.tensor([y]))
    torch.testing.assert_close(mean, full, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(value, scores)[0] for value in (mean, full)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("positives", "message"),
    [
        (torch.tensor([[0, 0], [1, -1]]), "the same class twice"),
        (torch.tensor([[-1, -1], [1, -1]]), "a point without a positive"),
        (torch.zeros(2, 0).long(), r"given shape \(2, 0\)"),
        (torch.zeros(2, 1, 1).long(), r"given shape \(2, 1, 1\)"),
        (torch.tensor([[0, 6], [1, -1]]), "class ids from -1 to 6; wanted -1 to 5"),
    ],
)
def test_refused(positives, message):
    with pytest.raises(ValueError, match=message):
        one_vs_all_loss(torch.zeros(2, 6), positives)
