"""Several positives per point."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import (
    as_one_pool_of_many,
    mined_loss,
    multi_positive_loss,
    multi_positive_softmax_loss,
    multi_positive_softmax_loss_reference,
    sampled_softmax_loss,
    softmax_loss,
    top_k,
)

LABELS = torch.tensor([[0, 4, -1], [3, -1, -1], [5, 1, 2]])
ONE = torch.zeros(2, 1)
FORMS = ["mean_log", "log_sum", "decoupled"]


def scores_of(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 0.2, 5.0]))
def test_softmax_by_loop(form, seed, scale):
    scores = scores_of(seed, 3, 6).requires_grad_()
    expected = 0.0
    for row, labels in zip(scores.tolist(), LABELS.tolist(), strict=True):
        own = [math.exp(scale * row[c]) for c in labels if c >= 0]
        total = sum(math.exp(scale * v) for v in row)
        rest = sum(math.exp(scale * v) for c, v in enumerate(row) if c not in labels)
        if form == "mean_log":
            expected -= sum(math.log(o / total) for o in own) / len(own) / 3
        elif form == "log_sum":
            expected -= math.log(sum(own) / total) / 3
        else:
            expected -= sum(math.log(o / (o + rest)) for o in own) / len(own) / 3
    fast = multi_positive_softmax_loss(scores, LABELS, form=form, scale=scale)
    plain = multi_positive_softmax_loss_reference(scores, LABELS, form=form, scale=scale)
    assert fast.item() == pytest.approx(expected, rel=1e-11)
    assert plain.item() == pytest.approx(expected, rel=1e-9)
    gradients = [torch.autograd.grad(value, scores)[0] for value in (fast, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_with_one_positive_each_form_is_softmax(form):
    scores, positives = scores_of(1, 4, 6), torch.tensor([0, 5, 2, 2])
    padded = torch.stack([positives, torch.full_like(positives, -1)], dim=1)
    torch.testing.assert_close(multi_positive_softmax_loss(scores, padded, form=form), softmax_loss(scores, positives))


def test_what_the_forms_want_of_positives():
    """One of two positives leads: log_sum lets it, mean_log pushes it down, decoupled pushes neither down."""
    scores, labels = torch.tensor([[5.0, 0.0, 0.0]], dtype=torch.float64), torch.tensor([[0, 1]])

    def slopes(form):
        leaf = scores.clone().requires_grad_()
        (slope,) = torch.autograd.grad(multi_positive_softmax_loss(leaf, labels, form=form), leaf)
        return slope[0, :2].tolist()

    assert slopes("mean_log")[0] > 0.4
    assert slopes("mean_log")[1] < -0.4
    assert max(slopes("log_sum")) < 0
    assert abs(slopes("log_sum")[1]) < 1e-4
    assert max(slopes("decoupled")) < 0
    assert slopes("decoupled")[1] < -0.1


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_mean_over_positives_by_loop(seed):
    """Each positive alone against the classes that are not positives of its point."""
    scores = scores_of(seed, 3, 6)
    positive, pool, mask, padding = as_one_pool_of_many(scores, LABELS)
    loss = partial(mined_loss, weights=top_k(2, pool_size=5), phi="logistic", reduction="none")
    expected = []
    for row, labels in zip(scores.tolist(), LABELS.tolist(), strict=True):
        negatives = sorted((v for c, v in enumerate(row) if c not in labels), reverse=True)[:2]
        each = [
            math.log2(1 + math.exp(-row[c])) + sum(math.log2(1 + math.exp(v)) for v in negatives) / 2
            for c in labels
            if c >= 0
        ]
        expected.append(sum(each) / len(each))
    value = multi_positive_loss(loss, positive, pool, mask, padding, reduction="none")
    assert value.tolist() == pytest.approx(expected, rel=1e-12)
    reduced = multi_positive_loss(loss, positive, pool, mask, padding)
    assert reduced.item() == pytest.approx(sum(expected) / 3, rel=1e-12)


def test_the_mean_over_positives_of_softmax_is_the_decoupled_form():
    scores = scores_of(3, 3, 6)
    mean = multi_positive_loss(
        partial(sampled_softmax_loss, log_q=0.0, scale=2.0, reduction="none"), *as_one_pool_of_many(scores, LABELS)
    )
    torch.testing.assert_close(mean, multi_positive_softmax_loss(scores, LABELS, scale=2.0))


def test_without_padding_all_positives_count():
    positive, pool = scores_of(4, 2, 3), scores_of(5, 2, 4)
    loss = partial(sampled_softmax_loss, log_q=0.0, reduction="none")
    mean = sum(loss(positive[:, p], pool) for p in range(3)) / 3
    torch.testing.assert_close(multi_positive_loss(loss, positive, pool, reduction="none"), mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda loss: multi_positive_loss(loss, torch.zeros(2), torch.zeros(2, 3)), "wanted 2 dimension"),
        (lambda loss: multi_positive_loss(loss, torch.zeros(2, 0), torch.zeros(2, 3)), "at least one positive"),
        (
            lambda loss: multi_positive_loss(loss, ONE, torch.zeros(2, 3), None, torch.ones(2, 1).bool()),
            "a point without a positive",
        ),
        (
            lambda loss: multi_positive_loss(
                loss, torch.zeros(2, 1), torch.zeros(2, 3), None, torch.zeros(2, 2).bool()
            ),
            "padding: given torch.bool of shape",
        ),
        (lambda _: multi_positive_softmax_loss(torch.zeros(2, 3), LABELS[:2] % 3, form="max"), "form: given 'max'"),
        (lambda _: multi_positive_softmax_loss(torch.zeros(2, 3), torch.tensor([0, 1])), r"given shape \(2,\)"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(partial(sampled_softmax_loss, log_q=0.0, reduction="none"))
