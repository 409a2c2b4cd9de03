"""Half precision, autocast and torch.compile."""

import pytest
import torch

from owlmine.losses import bowl, mined_loss, negative_sampling, power_law, powl, top_k
from owlmine.mining import draw_batch_pool

GENERATOR = torch.Generator().manual_seed(0)
POSITIVE, POOL = torch.randn(8, generator=GENERATOR), torch.randn(8, 512, generator=GENERATOR)
WEIGHTS = [
    top_k(4, pool_size=512),
    negative_sampling(pool_size=512),
    power_law(1, pool_size=512),
    top_k(4, pool_size=512).with_tail(0.01),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", WEIGHTS, ids=range(4))
def test_half_precision_is_added_up_in_float32(dtype, weights):
    positive, pool = POSITIVE.to(dtype).requires_grad_(), POOL.to(dtype).requires_grad_()
    loss = mined_loss(positive, pool, weights=weights, phi="logistic")
    assert loss.dtype == torch.float32
    exact = mined_loss(positive.double(), pool.double(), weights=weights, phi="logistic")
    # 512 terms added in bfloat16 would be off by about 1e-2.
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=0)
    loss.backward()
    assert pool.grad.dtype == dtype


@pytest.mark.parametrize("loss", [powl, bowl])
def test_ordered_losses_in_half_precision(loss):
    scores = POOL.bfloat16()
    value = loss(scores, torch.arange(8), theta=torch.linspace(1, 0.5, 511), phi="logistic")
    exact = loss(scores.double(), torch.arange(8), theta=torch.linspace(1, 0.5, 511), phi="logistic")
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=0)


def test_mixed_dtypes_meet_in_the_wider():
    loss = mined_loss(POSITIVE, POOL.bfloat16(), weights=WEIGHTS[0])
    assert loss.dtype == torch.float32
    assert mined_loss(POSITIVE.double(), POOL, weights=WEIGHTS[0]).dtype == torch.float64


def test_under_autocast():
    queries = torch.randn(8, 16, generator=GENERATOR, requires_grad=True)
    classes = torch.randn(64, 16, generator=GENERATOR, requires_grad=True)
    positives = torch.arange(8)
    pool = draw_batch_pool(positives, num_classes=64, pool_size=20, generator=GENERATOR)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pool_scores = queries @ classes[pool.shared_ids].T
        positive_scores = (queries * classes[positives]).sum(dim=1)
        assert pool_scores.dtype == torch.bfloat16
        loss = mined_loss(positive_scores, pool_scores, pool.mask(), weights=top_k(3, pool_size=20))
    assert loss.dtype == torch.float32
    loss.backward()
    assert queries.grad.isfinite().all()


@pytest.mark.parametrize("weights", [WEIGHTS[0], WEIGHTS[3]], ids=["top", "tail"])
def test_mined_loss_compiles_without_a_break(weights):
    def step(positive, pool, mask, scale):
        return mined_loss(positive, pool, mask, weights=weights, scale=scale, phi="logistic")

    pool = POOL.clone().requires_grad_()
    scale, mask = torch.tensor(2.0, requires_grad=True), POOL > 2
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    gradients = []
    for call in (step, compiled):
        value = call(POSITIVE, pool, mask, scale)
        gradients.append((value, *torch.autograd.grad(value, (pool, scale))))
    for eager, traced in zip(*gradients, strict=True):
        torch.testing.assert_close(eager, traced)


def test_ordered_loss_compiles_without_a_break():
    theta = torch.tensor([0.5, 0.25, 0.25])
    compiled = torch.compile(powl, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(POOL, torch.arange(8), theta=theta), powl(POOL, torch.arange(8), theta=theta))
