"""What loss modules add to the functions: options checked when they are built, pools shared by a batch, a registry."""

import math

import pytest
import torch

from owlmine.losses import (
    FullSoftmax,
    LossSetting,
    MinedLoss,
    MinedSoftmax,
    MultiPositiveSoftmax,
    OrderedLoss,
    OrderedWeightedLoss,
    PooledOneVsAll,
    SampledSoftmax,
    SemiHard,
    StratifiedSoftmax,
    crammer_singer,
    mined_loss,
    negative_sampling,
    negative_sampling_loss,
    sampled_softmax_loss,
    top_k,
    top_k_loss,
    uniform_log_q,
)
from owlmine.losses.modules import LOSSES
from owlmine.mining import draw_batch_pool

SIZES = {"num_classes": 20, "pool_size": 6}


@pytest.fixture
def shared():
    """Scores of a batch for one shared pool, which is one class wider than each point's own."""
    generator = torch.Generator().manual_seed(0)
    positives = torch.arange(4)
    pool = draw_batch_pool(positives, generator=generator, **SIZES)
    return pool, torch.randn(4, generator=generator), torch.randn(4, 7, generator=generator)


def test_q_is_that_of_the_points_own_pool_also_where_a_batch_shares_one(shared):
    pool, positive, scores = shared
    own_pools = scores[~pool.mask()].reshape(4, 6)
    expected = sampled_softmax_loss(positive, own_pools, log_q=math.log(6 / 19))
    torch.testing.assert_close(SampledSoftmax(**SIZES)(positive, scores, pool.mask()), expected)
    assert uniform_log_q(num_classes=20, pool_size=pool.pool_size) == pytest.approx(math.log(6 / 19))


def test_negative_sampling_is_the_mined_loss_with_equal_weights(shared):
    pool, positive, scores = shared
    loss = negative_sampling_loss(pool_size=6, kind="powl", phi="logistic", scale=2.0)
    weights = negative_sampling(pool_size=6)
    expected = mined_loss(positive, scores, pool.mask(), weights=weights, kind="powl", phi="logistic", scale=2.0)
    torch.testing.assert_close(loss(positive, scores, pool.mask()), expected)


def test_the_learned_scale_learns():
    loss = FullSoftmax(scale=0.5, learn_scale=True)
    optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
    scores, positives = 3 * torch.eye(4), torch.arange(4)
    before = loss(scores, positives)
    for _ in range(10):
        optimizer.zero_grad()
        loss(scores, positives).backward()
        optimizer.step()
    assert loss(scores, positives) < before / 2
    assert loss.scale.item() > 1


def test_only_a_learned_scale_is_state():
    assert list(OrderedWeightedLoss(crammer_singer()).state_dict()) == []
    assert list(MinedLoss(top_k(1, pool_size=3), learn_scale=True).state_dict()) == ["log_scale"]


def test_theta_goes_to_a_device_once():
    """A short one; where every rank has a weight, theta stays where its values may be looked at."""
    loss, scores = OrderedWeightedLoss(top_k_loss(3)), torch.empty(2, 9, device="meta")
    first = loss._member_for(scores)
    assert (first.kind, first.theta.device.type) == ("powl", "meta")
    assert loss._member_for(scores) is first
    assert loss._member_for(scores[:, :4]) is loss.member
    assert loss._member_for(torch.empty(2, 9)) is loss.member


@pytest.mark.parametrize("weight", [-0.5, math.nan, math.inf])
def test_weights_that_are_no_weights_are_refused_at_once(weight):
    """On a GPU values are not looked at when the loss is called."""
    with pytest.raises(ValueError, match="theta: given a weight that is negative, infinite or NaN"):
        OrderedWeightedLoss(OrderedLoss("bowl", torch.tensor([1.0, weight])))


def test_one_setting_builds_every_loss():
    setting = LossSetting(num_classes=50, pool_size=10, kept=3, reduction="sum")
    assert {entry.build(setting).reduction for entry in LOSSES.values()} == {"sum"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FullSoftmax(scal=2.0), "FullSoftmax: given scal; wanted options among scale"),
        (lambda: SampledSoftmax(num_classes=5, pool_size=5), "pool_size: given 5; wanted 1 to 4"),
        (lambda: StratifiedSoftmax(num_classes=5, pool_size=0), "pool_size: given 0"),
        (lambda: MinedSoftmax(kept=0), "kept: given 0"),
        (lambda: MinedSoftmax(kept=7, tail="estimate", **SIZES), "kept: given 7 of a pool of 6"),
        (lambda: MinedSoftmax(kept=1, tail="all"), "tail: given 'all'"),
        (lambda: MinedSoftmax(kept=1, tail="estimate", num_classes=5), "pool_size = None; wanted both"),
        (lambda: PooledOneVsAll(num_classes=5), "wanted both or neither"),
        (lambda: SemiHard(margin=-1.0), "margin: given -1.0"),
        (lambda: MultiPositiveSoftmax(form="max"), "form: given 'max'"),
        (lambda: MinedLoss(top_k(1, pool_size=3), kind="x"), "kind: given 'x'"),
        (lambda: MinedLoss(top_k(1, pool_size=3), phi="x"), "phi: given 'x'"),
        (lambda: SampledSoftmax(**SIZES)(torch.zeros(2), torch.zeros(2, 7)), "given 7 wide; wanted 6"),
        (
            lambda: SampledSoftmax(**SIZES)(torch.zeros(2), torch.zeros(2, 5), torch.zeros(2, 5).bool()),
            "given 5 wide; wanted at least 6",
        ),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
