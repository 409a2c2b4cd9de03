"""Losses on a whole pool, worked out in blocks, against autograd of the losses themselves.

Shapes: N queries, K classes, W = B + 1 shared by the queries, of which each leaves out one, D dimension, E excluded of
a query.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from owlmine.dense.class_sides import pool_form
from owlmine.losses import from_vector, softmax_loss, top_k
from owlmine.losses.modules import (
    LOSSES,
    LossSetting,
    MinedLoss,
    PooledOneVsAll,
    PoolLoss,
    SampledSoftmax,
    SemiHard,
    negative_sampling_loss,
)
from owlmine.losses.surrogates import Logistic, Ramp, Surrogate, surrogate, surrogate_names
from owlmine.mining.distinct import permuted
from owlmine.mining.kernels.class_passes import Passes
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.negative_terms import terms_and_slopes
from owlmine.mining.kernels.pool_classes import Pool, PoolForm, pool_class_step
from owlmine.mining.kernels.tile_scores import Tiling

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
# Of NumPy under the interpreter, where no class of a tile counts; the result, -inf, is meant.
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero encountered in log2:RuntimeWarning")

KEY = 99
# Several tiles and chunks at sizes that the interpreter goes through quickly.
SMALL = Passes(
    chunk=32,
    operands=torch.float32,
    sums=Tiling(tile_n=16, tile_k=16, tile_d=16),
    slopes=Tiling(tile_n=16, tile_k=16, tile_d=16),
)
HALF = replace(SMALL, operands=torch.bfloat16)
ORDERED = [f"{kind} {phi}" for kind in ("bowl", "powl") for phi in surrogate_names()]
NAMES = [*ORDERED, "sampled-softmax", "pooled-one-vs-all"]
# One of each way through the passes.
FEW = ["bowl hinge", "powl logistic", "sampled-softmax", "pooled-one-vs-all"]


def make_loss(name: str, *, num_classes: int, width: int, scale: float = 1.0) -> PoolLoss:
    if name == "sampled-softmax":
        return SampledSoftmax(num_classes=num_classes, pool_size=width - 1, scale=scale, validate=False)
    if name == "pooled-one-vs-all":
        return PooledOneVsAll(num_classes=num_classes, pool_size=width - 1, scale=scale, validate=False)
    kind, phi = name.split()
    return negative_sampling_loss(pool_size=width - 1, kind=kind, phi=phi, scale=scale, validate=False)


@dataclass
class Case:
    queries_ND: Tensor
    classes_KD: Tensor
    positives_N: Tensor
    excluded_NE: Tensor
    width: int


def make_case(num_queries: int, num_classes: int, dim: int, *, width: int, listed: int = 4) -> Case:
    """Lists with padding, a class twice, classes of the pool and others, and for every other query its positive."""
    generator = torch.Generator().manual_seed(num_queries * 7919 + num_classes * 31 + dim + width)
    pool_W = permuted(torch.arange(width), key=KEY, num_classes=num_classes)
    positives_N = torch.randint(num_classes, (num_queries,), generator=generator)
    positives_N[::3] = pool_W[torch.randint(width, (len(positives_N[::3]),), generator=generator)]
    excluded_NE = torch.randint(-1, num_classes, (num_queries, listed), generator=generator)
    excluded_NE[:, 0] = pool_W[torch.randint(width, (num_queries,), generator=generator)]
    excluded_NE[:, 1] = excluded_NE[:, 0]
    excluded_NE[::2, 2] = positives_N[::2]
    rows = [functional.normalize(torch.randn(count, dim, generator=generator)) for count in (num_queries, num_classes)]
    # On the grid of bfloat16, as operands are rounded in one way by the interpreter and in another by PyTorch.
    tensors = [*(row.bfloat16().float() for row in rows), positives_N, excluded_NE]
    return Case(*(tensor.to(DEVICE) for tensor in tensors), width)


@dataclass
class Truth:
    """By autograd in float64, from slopes to gradients."""

    losses_N: Tensor
    positive_slopes_N: Tensor
    slopes_NW: Tensor
    pool_W: Tensor

    def queries(self, case: Case, *, size: bool = False) -> Tensor:
        """Gradients of the queries; ``size``: with absolute values, for what rounding may take away."""
        parts = self.slopes_NW, case.classes_KD[self.pool_W], self.positive_slopes_N, case.classes_KD[case.positives_N]
        slopes_NW, rows_WD, positive_slopes_N, own_ND = (p.double().abs() if size else p.double() for p in parts)
        return slopes_NW @ rows_WD + positive_slopes_N[:, None] * own_ND

    def classes(self, case: Case, *, size: bool = False) -> Tensor:
        queries_ND, slopes_NW, own_N = case.queries_ND.double(), self.slopes_NW, self.positive_slopes_N
        if size:
            queries_ND, slopes_NW, own_N = queries_ND.abs(), slopes_NW.abs(), own_N.abs()
        gradients_KD = torch.zeros_like(case.classes_KD, dtype=torch.float64)
        gradients_KD.index_add_(0, self.pool_W, slopes_NW.T @ queries_ND)
        return gradients_KD.index_add_(0, case.positives_N, own_N[:, None] * queries_ND)


def truth_of(case: Case, loss: PoolLoss) -> Truth:
    pool_W = permuted(torch.arange(case.width), key=KEY, num_classes=len(case.classes_KD)).to(DEVICE)
    queries_ND, classes_KD = case.queries_ND.double(), case.classes_KD.double()
    left_out_N = torch.where(torch.isin(case.positives_N, pool_W), case.positives_N, pool_W[-1])
    listed_NE = torch.cat([case.excluded_NE, left_out_N[:, None]], dim=1)
    hidden_NW = (pool_W[None, :, None] == listed_NE[:, None, :]).any(dim=2)
    positive_N = (queries_ND * classes_KD[case.positives_N]).sum(dim=1).requires_grad_()
    scores_NW = (queries_ND @ classes_KD[pool_W].T).requires_grad_()
    losses_N = loss.of_each_point(positive_N, scores_NW, hidden_NW)
    slopes_N, slopes_NW = torch.autograd.grad(losses_N.sum(), (positive_N, scores_NW))
    return Truth(losses_N.detach(), slopes_N, slopes_NW, pool_W)


def number(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor([value], dtype=dtype, device=DEVICE)


def run(case: Case, loss: PoolLoss, passes: Passes, *, factor: float, table_KD: Tensor) -> tuple[Tensor, Tensor]:
    form = pool_form(loss)
    assert isinstance(form, PoolForm)
    return pool_class_step(
        case.queries_ND,
        table_KD,
        case.positives_N,
        number(factor),
        form=form,
        pool=Pool(number(KEY, torch.int64), case.width - 1),
        excluded=Exclusions.of_padded(case.excluded_NE),
        key=number(5, torch.int64),
        passes=passes,
    )


def assert_step(case: Case, loss: PoolLoss, passes: Passes, *, factor: float = -0.2) -> None:
    truth, table_KD = truth_of(case, loss), case.classes_KD.clone()
    losses_N, gradients_ND = run(case, loss, passes, factor=factor, table_KD=table_KD)
    torch.testing.assert_close(losses_N.double(), truth.losses_N, rtol=5e-6, atol=5e-6)
    # Of a slope, relative. The interpreter cuts bfloat16 off, up to twice as far as rounding goes.
    unit = 5e-5 if passes.operands == torch.float32 else 2**-7 if INTERPRETED else 2**-8
    assert gradients_ND.dtype == torch.float32
    off_ND = (gradients_ND - truth.queries(case)).abs()
    assert (off_ND <= unit * truth.queries(case, size=True) + 1e-6).all()
    gradients_KD = truth.classes(case)
    moves_K = (gradients_KD != 0).any(dim=1)
    moved_KD = case.classes_KD.double() + factor * gradients_KD
    wanted_KD = torch.where(moves_K[:, None], functional.normalize(moved_KD), case.classes_KD.double())
    size_K = abs(factor) * truth.classes(case, size=True).norm(dim=1) / moved_KD.norm(dim=1)
    assert ((table_KD - wanted_KD).norm(dim=1) <= 2 * unit * size_K + 2e-6).all()
    assert torch.equal(table_KD[~moves_K], case.classes_KD[~moves_K])


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_equals_autograd(name: str) -> None:
    # Places past the last whole tile and chunk; scores on both sides of the kinks of hinge and ramp.
    case = make_case(2, 60, 24, width=37)
    assert_step(case, make_loss(name, num_classes=60, width=37, scale=3.0), SMALL)


@pytest.mark.parametrize("name", FEW)
def test_in_bfloat16(name: str) -> None:
    assert_step(make_case(3, 60, 16, width=37), make_loss(name, num_classes=60, width=37, scale=2.0), HALF)


@pytest.mark.parametrize("name", FEW[:3])
@pytest.mark.parametrize(
    ("num_queries", "num_classes", "dim", "width"), [(1, 2, 8, 2), (1, 200, 8, 83), (2, 33, 7, 33)]
)
def test_odd_shapes(name: str, num_queries: int, num_classes: int, dim: int, width: int) -> None:
    """Among them a single query, a pool of one class, all classes in the pool, and rows that are filled up."""
    case = make_case(num_queries, num_classes, dim, width=width)
    assert_step(case, make_loss(name, num_classes=num_classes, width=width, scale=2.0), SMALL)


def test_sampled_softmax_of_all_others_is_the_full_softmax() -> None:
    case = make_case(12, 9, 8, width=9)
    case.excluded_NE = torch.full_like(case.positives_N, -1)[:, None]
    loss = make_loss("sampled-softmax", num_classes=9, width=9, scale=3.0)
    losses_N, _ = run(case, loss, SMALL, factor=0.0, table_KD=case.classes_KD.clone())
    full_N = softmax_loss(3.0 * case.queries_ND @ case.classes_KD.T, case.positives_N, reduction="none")
    torch.testing.assert_close(losses_N, full_N, rtol=5e-6, atol=5e-6)


def test_more_queries_than_a_tile() -> None:
    case = make_case(17, 40, 12, width=20)
    # Positives alone: the interpreter takes 15 ms for each entry of a list.
    case.excluded_NE = case.positives_N[:, None]
    assert_step(case, make_loss("bowl hinge", num_classes=40, width=20, scale=2.0), SMALL)


@pytest.mark.parametrize("name", ["bowl logistic", "sampled-softmax"])
def test_default_tiles(name: str) -> None:
    case = make_case(2, 300, 72, width=200, listed=3)
    loss = make_loss(name, num_classes=300, width=200, scale=4.0)
    assert_step(case, loss, Passes(chunk=129))


@pytest.mark.parametrize("name", FEW)
def test_a_whole_pool_excluded(name: str) -> None:
    case = make_case(2, 30, 8, width=9)
    pool_W = permuted(torch.arange(9), key=KEY, num_classes=30).to(DEVICE)
    others = torch.ones(30, dtype=torch.bool, device=DEVICE).index_fill_(0, pool_W, False).nonzero()[:, 0]
    # One positive in the pool, one outside it.
    case.positives_N = torch.stack([pool_W[3], others[0]])
    case.excluded_NE = pool_W.expand(2, 9).contiguous()
    assert_step(case, make_loss(name, num_classes=30, width=9), SMALL)


def test_large_excluded_terms_leave_no_rounding_errors() -> None:
    """An excluded class adds e^60 to what the others have, about 1 each."""
    case = make_case(2, 40, 16, width=32)
    pool_W = permuted(torch.arange(32), key=KEY, num_classes=40).to(DEVICE)
    case.excluded_NE = pool_W[:2, None].contiguous()
    case.classes_KD = 0.01 * case.classes_KD
    case.classes_KD[pool_W[:2]] = case.queries_ND
    case.queries_ND = case.queries_ND.clone()
    for name in ("bowl exponential", "powl exponential", "sampled-softmax"):
        loss = make_loss(name, num_classes=40, width=32, scale=60.0)
        truth = truth_of(case, loss)
        losses_N, _ = run(case, loss, SMALL, factor=0.0, table_KD=case.classes_KD.clone())
        torch.testing.assert_close(losses_N.double(), truth.losses_N, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["powl squared_hinge", "sampled-softmax"])
def test_a_bfloat16_table(name: str) -> None:
    case = make_case(3, 50, 16, width=21)
    loss = make_loss(name, num_classes=50, width=21)
    table_KD = case.classes_KD.bfloat16()
    losses_N, _ = run(case, loss, HALF, factor=-0.2, table_KD=table_KD)
    truth = truth_of(case, loss)
    torch.testing.assert_close(losses_N.double(), truth.losses_N, rtol=5e-6, atol=5e-6)
    moved_KD = functional.normalize(case.classes_KD - 0.2 * truth.classes(case).float())
    moves_K = (truth.classes(case) != 0).any(dim=1)
    assert (table_KD[moves_K].float() - moved_KD[moves_K]).abs().max() < 0.01
    assert torch.equal(table_KD[~moves_K].float(), case.classes_KD[~moves_K])


def test_factor_0_leaves_every_bit() -> None:
    case = make_case(3, 50, 16, width=21)
    # Not of unit length: a row that does not move is not scaled either. Positives in the pool only, as others are
    # moved by update_classes, which scales whatever has a slope.
    before_KD = 1.5 * case.classes_KD
    pool_W = permuted(torch.arange(21), key=KEY, num_classes=50).to(DEVICE)
    case.positives_N = pool_W[:3].clone()
    table_KD = before_KD.clone()
    run(case, make_loss("bowl hinge", num_classes=50, width=21), SMALL, factor=0.0, table_KD=table_KD)
    assert torch.equal(table_KD, before_KD)


# A smaller example would take the interpreter minutes to find.
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(5, 60), st.integers(1, 20)),
    share=st.floats(0.1, 1.0),
    chunk=st.integers(1, 60),
    name=st.sampled_from(NAMES),
    scale=st.floats(0.1, 8.0),
)
def test_any_shape_and_chunk(shape: tuple[int, int, int], share: float, chunk: int, name: str, scale: float) -> None:
    width = max(2, int(share * shape[1]))
    case = make_case(*shape, width=width)
    loss, passes = make_loss(name, num_classes=shape[1], width=width, scale=scale), replace(SMALL, chunk=chunk)
    truth, table_KD = truth_of(case, loss), case.classes_KD.clone()
    losses_N, gradients_ND = run(case, loss, passes, factor=-0.05, table_KD=table_KD)
    torch.testing.assert_close(losses_N.double(), truth.losses_N, rtol=1e-5, atol=1e-5)
    # A score at a kink may fall on either side of it.
    off_ND = (gradients_ND - truth.queries(case)).abs()
    assert (off_ND <= 1e-4 * truth.queries(case, size=True) + 1e-4).all()


@pytest.mark.parametrize("phi", surrogate_names())
def test_terms_are_those_of_the_surrogates(phi: str) -> None:
    x = torch.tensor([-90.0, -1.0, -0.999, -0.5, 0.0, 0.5, 1.0, 40.0], dtype=torch.float64, requires_grad=True)
    values = surrogate(phi)(-x) * (math.log(2) if phi == "logistic" else 1)
    (slopes,) = torch.autograd.grad(values.sum(), x)
    terms, own_slopes = terms_and_slopes(x.detach(), phi)
    torch.testing.assert_close(terms, values.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(own_slopes, slopes, rtol=1e-12, atol=1e-12)


def test_every_registered_loss_has_a_form_or_a_reason() -> None:
    setting = LossSetting(num_classes=50, pool_size=20, kept=3)
    forms = {name: pool_form(entry.build(setting)) for name, entry in LOSSES.items() if entry.inputs == "pool"}
    in_blocks = {name for name, form in forms.items() if isinstance(form, PoolForm)}
    assert in_blocks == {
        "negative-sampling-bowl",
        "negative-sampling-powl",
        "sampled-softmax",
        "pooled-one-vs-all",
    }


@dataclass(frozen=True)
class _Steeper(Surrogate):
    name = "steeper"
    convex = True
    differentiable = True

    def __call__(self, margins: Tensor) -> Tensor:
        return torch.exp(-2 * margins)

    def _steepest(self, low: float, high: float) -> float:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (SampledSoftmax(num_classes=50, pool_size=20, learn_scale=True), "the scale is learned"),
        (MinedLoss(top_k(3, pool_size=20).with_tail(0.01)), "weights differ from rank to rank"),
        (SemiHard(), "there is no kernel for SemiHard"),
        (negative_sampling_loss(pool_size=20, phi=_Steeper()), "there is no kernel for steeper"),
    ],
)
def test_what_is_not_worked_out_in_blocks(loss: PoolLoss, words: str) -> None:
    assert pool_form(loss) == words


def test_equal_weights_by_another_name() -> None:
    """Every negative kept, or a vector of equal weights, is the same as negative sampling; a wide ramp has its rho."""
    for weights in (top_k(12, pool_size=12), from_vector([0.5] * 12)):
        loss = MinedLoss(weights, phi=Ramp(rho=2.5), scale=3.0, validate=False)
        assert_step(make_case(3, 40, 16, width=12), loss, SMALL)
    assert pool_form(MinedLoss(top_k(2, pool_size=2), phi=Logistic())) == pool_form(
        negative_sampling_loss(pool_size=2, phi="logistic")
    )
