"""Algorithm 1: a loop over Python floats, the reference, the fast version, gradients, score functions, masks."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import (
    Ramp,
    from_vector,
    mined_loss,
    mined_loss_from,
    mined_loss_from_matrix,
    mined_loss_reference,
    negative_sampling,
    ordered_loss,
    power_law,
    surrogate,
    surrogate_names,
    theta_from_vartheta,
    top_k,
    top_k_loss,
)
from owlmine.mining import draw_batch_pool, draw_pools, known_in_batch_pool

KINDS = ["powl", "bowl"]
PHIS = [*surrogate_names(), Ramp(0.5)]
VARTHETAS = [
    top_k(1, pool_size=12),
    top_k(3, pool_size=12),
    negative_sampling(pool_size=12),
    power_law(1.0, pool_size=12),
    power_law(1.0, pool_size=12, kept=4).with_tail(0.02),
    top_k(12, pool_size=12),
]


def by_loop(positive, pool, mask, vartheta, kind, phi, scale) -> float:
    def of(u: float) -> float:
        return float(surrogate(phi)(torch.tensor(scale * u, dtype=torch.float64)))

    total = 0.0
    for n, own in enumerate(positive.tolist()):
        row = sorted((v for v, hide in zip(pool[n].tolist(), mask[n], strict=True) if not hide), reverse=True)
        total += of(own) if kind == "bowl" else 0.0
        pairs = zip(vartheta, row, strict=False)
        total += sum(w * of(own - v if kind == "powl" else -v) for w, v in pairs)
    return total / len(positive)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    weights=st.sampled_from(VARTHETAS),
    kind=st.sampled_from(KINDS),
    phi=st.sampled_from(PHIS),
    scale=st.sampled_from([1.0, 0.3, 4.0]),
    ties=st.booleans(),
    masked=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_loop_reference_and_fast_version_agree(seed, weights, kind, phi, scale, ties, masked):
    generator = torch.Generator().manual_seed(seed)
    positive = torch.randn(3, generator=generator, dtype=torch.float64, requires_grad=True)
    pool = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    pool = (pool.round() if ties else pool).requires_grad_()
    mask = torch.rand(3, 12, generator=generator) < masked
    options = {"weights": weights, "kind": kind, "phi": phi, "scale": scale}
    expected = by_loop(positive, pool, mask.tolist(), weights.dense().tolist(), kind, phi, scale)
    gradients = []
    for loss in (mined_loss, mined_loss_reference):
        value = loss(positive, pool, mask, **options)
        assert value.item() == pytest.approx(expected, rel=1e-12, abs=1e-14)
        gradients.append(torch.autograd.grad(value, (positive, pool), allow_unused=True))
    for fast, plain in zip(*gradients, strict=True):
        expected = torch.zeros_like(fast) if plain is None else plain
        torch.testing.assert_close(fast, expected, rtol=1e-12, atol=1e-13)
    if masked == 0:
        torch.testing.assert_close(mined_loss(positive, pool, **options), value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", surrogate_names())
@pytest.mark.parametrize("vartheta", [[1.0, 0, 0, 0], [0.6, 0.4, 0, 0], [0.25] * 4, [0.7, 0.1, 0.1, 0.1]], ids=str)
def test_gradcheck(kind, phi, vartheta):
    positive = torch.tensor([0.31, -0.66], dtype=torch.float64, requires_grad=True)
    pool = torch.tensor(
        [[0.07, 1.43, -0.29, 0.71], [0.93, -0.36, 0.18, -1.57]], dtype=torch.float64, requires_grad=True
    )
    scale = torch.tensor(1.13, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[False] * 4, [True, False, False, False]])

    def loss(positive, pool, scale):
        options = {"weights": from_vector(vartheta), "kind": kind, "phi": phi, "scale": scale}
        return mined_loss(positive, pool, mask, reduction="none", **options)

    assert torch.autograd.gradcheck(loss, (positive, pool, scale))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", PHIS, ids=str)
@pytest.mark.parametrize(
    "weights",
    [
        top_k(2, pool_size=3, convention="paper", num_classes=7),
        power_law(1.0, pool_size=3).with_tail(0.4),
        negative_sampling(pool_size=3),
        top_k(1, pool_size=6),
        from_vector([0.8]),
    ],
    ids=range(5),
)
def test_mean_over_all_pools_is_the_ordered_loss_in_value_and_gradient(kind, phi, weights):
    """Lemma 2: Algorithm 1 is an unbiased estimate of the ordered loss with theta in closed form."""
    num_classes, y = 7, 2
    scores = torch.randn(1, num_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    scores.requires_grad_()
    others = [c for c in range(num_classes) if c != y]
    pools = torch.tensor(list(itertools.combinations(others, weights.pool_size)))
    rows = scores.expand(len(pools), -1)
    mean = mined_loss_from_matrix(rows, torch.full((len(pools),), y), pools, weights=weights, kind=kind, phi=phi)
    theta = theta_from_vartheta(weights, num_classes=num_classes)
    exact = ordered_loss(scores, torch.tensor([y]), theta=theta, kind=kind, phi=phi)
    torch.testing.assert_close(mean, exact, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(value, scores)[0] for value in (mean, exact)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_of_every_class_is_the_top_k_loss(kind):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 9, generator=generator, dtype=torch.float64)
    positives = torch.tensor([0, 8, 3, 4, 1])
    weights = top_k(3, pool_size=8, convention="paper", num_classes=9)
    options = {"num_classes": 9, "pool_size": 8, "generator": generator}
    for pool in (draw_pools(positives, **options), draw_batch_pool(positives, **options)):
        mined = mined_loss_from_matrix(scores, positives, pool, weights=weights, kind=kind)
        torch.testing.assert_close(mined, top_k_loss(3, kind=kind)(scores, positives))


def test_equal_weights_are_negative_sampling():
    generator = torch.Generator().manual_seed(0)
    positive, pool = torch.randn(4, generator=generator), torch.randn(4, 6, generator=generator)
    weights = negative_sampling(pool_size=6, convention="paper", num_classes=61, k=5)
    loss = mined_loss(positive, pool, weights=weights, kind="powl", reduction="none")
    torch.testing.assert_close(loss, 60 / (5 * 6) * torch.relu(1 - positive[:, None] + pool).sum(1))


def test_shared_and_written_out_pools_give_the_same_loss():
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(16, 40, generator=generator, dtype=torch.float64)
    positives = torch.randint(40, (16,), generator=generator)
    pool = draw_batch_pool(positives, num_classes=40, pool_size=7, generator=generator)
    for weights in (top_k(2, pool_size=7), top_k(2, pool_size=7).with_tail(0.01), negative_sampling(pool_size=7)):
        shared = mined_loss_from_matrix(scores, positives, pool, weights=weights)
        written = mined_loss_from_matrix(scores, positives, pool.ids(), weights=weights)
        torch.testing.assert_close(shared, written)


class Table:
    """A linear model that counts what it scores with gradient."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(8)
        self.queries = torch.randn(6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
        self.classes = torch.randn(50, 3, generator=generator, dtype=torch.float64, requires_grad=True)
        self.with_gradient = 0

    def __call__(self, ids):
        if torch.is_grad_enabled():
            self.with_gradient += ids.numel()
        if ids.ndim == 1:
            return self.queries @ self.classes[ids].T
        return torch.einsum("nd,nmd->nm", self.queries, self.classes[ids])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "weights", [top_k(2, pool_size=10), power_law(1, pool_size=10), top_k(1, pool_size=10).with_tail(0.1)], ids=range(3)
)
def test_scoring_on_demand_gives_the_same_loss_and_gradients(shared, kind, weights):
    table = Table()
    positives = torch.tensor([4, 4, 0, 49, 7, 12])
    draw = draw_batch_pool if shared else draw_pools
    pool = draw(positives, num_classes=50, pool_size=10, generator=torch.Generator().manual_seed(2))
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    options = {"weights": weights, "kind": kind, "phi": "logistic", "scale": scale}
    lazy = mined_loss_from(table, positives, pool, **options)
    if weights.tail == 0:
        assert table.with_gradient == 6 * (1 + weights.kept)
    full = mined_loss_from_matrix(table.queries @ table.classes.T, positives, pool, **options)
    torch.testing.assert_close(lazy, full)
    leaves = (table.queries, table.classes, scale)
    for a, b in zip(torch.autograd.grad(lazy, leaves), torch.autograd.grad(full, leaves), strict=True):
        torch.testing.assert_close(a, b)


def test_known_positives_do_not_count():
    scores = torch.zeros(1, 8, dtype=torch.float64)
    scores[0, [3, 5]] = torch.tensor([2.0, 1.0], dtype=torch.float64)
    positives = torch.tensor([0])
    pool = draw_batch_pool(positives, num_classes=8, pool_size=7, generator=torch.Generator())
    weights = top_k(1, pool_size=7)
    plain = mined_loss_from_matrix(scores, positives, pool, weights=weights, kind="powl")
    mask = known_in_batch_pool(pool, torch.tensor([[0, 3, -1]]))
    without = mined_loss_from_matrix(scores, positives, pool, mask, weights=weights, kind="powl")
    assert (plain.item(), without.item()) == (3.0, 2.0)


def test_a_row_with_everything_masked_has_no_negative_part():
    pool = torch.tensor([[torch.inf, -torch.inf, 1e30]], requires_grad=True)
    scale = torch.tensor(1.0, requires_grad=True)
    mask = torch.ones(1, 3, dtype=torch.bool)
    for weights in (negative_sampling(pool_size=3), top_k(2, pool_size=3)):
        positive = torch.tensor([-200.0], requires_grad=True)
        options = {"kind": "powl", "phi": "exponential", "scale": scale}
        loss = mined_loss(positive, pool, mask, weights=weights, **options)
        assert loss.item() == 0
        for gradient in torch.autograd.grad(loss, (positive, pool, scale)):
            assert torch.all(gradient == 0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), weights=st.sampled_from(VARTHETAS), kind=st.sampled_from(KINDS))
def test_order_of_the_pool_is_irrelevant(seed, weights, kind):
    generator = torch.Generator().manual_seed(seed)
    positive = torch.randn(2, generator=generator).double()
    pool = torch.randn(2, 12, generator=generator).double()
    shuffled = pool[:, torch.randperm(12, generator=generator)]
    torch.testing.assert_close(
        mined_loss(positive, pool, weights=weights, kind=kind),
        mined_loss(positive, shuffled, weights=weights, kind=kind),
    )
