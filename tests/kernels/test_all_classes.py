"""Losses over all classes and their step against float64 autograd of the plain formula.

Shapes: N queries, K classes, D dimension, E excluded of a query.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from owlmine.losses import (
    one_vs_all_loss,
    one_vs_all_loss_reference,
    softmax_loss,
    softmax_loss_reference,
)
from owlmine.mining.kernels.all_classes import all_class_losses, all_class_step
from owlmine.mining.kernels.class_passes import Passes
from owlmine.mining.kernels.class_sums import class_sums
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.move_rows import move_rows
from owlmine.mining.kernels.negative_terms import NegativeTerms
from owlmine.mining.kernels.tile_scores import Tiling

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# Of NumPy under the interpreter, where no class of a tile counts; the result, -inf, is meant.
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero encountered in log2:RuntimeWarning")

DEVICE = "cpu" if INTERPRETED else "cuda"
# Several tiles in every direction at sizes that the interpreter goes through quickly.
SMALL = Passes(
    chunk=48,
    operands=torch.float32,
    sums=Tiling(tile_n=16, tile_k=16, tile_d=16),
    slopes=Tiling(tile_n=16, tile_k=32, tile_d=16),
)
HALF = replace(SMALL, operands=torch.bfloat16)
LOSSES = ("softmax", "one-vs-all")
SHAPES = [(1, 1, 1), (3, 130, 7), (35, 85, 40), (18, 48, 24)]


@dataclass
class Case:
    queries_ND: Tensor
    classes_KD: Tensor
    positives_N: Tensor
    excluded_NE: Tensor

    @property
    def exclusions(self) -> Exclusions:
        return Exclusions.of_padded(self.excluded_NE)


def make_case(num_queries: int, num_classes: int, dim: int, *, width: int = 5) -> Case:
    """Lists with padding, duplicates, neighbours, the last class, and for every other query its positive."""
    generator = torch.Generator().manual_seed(num_queries * 7919 + num_classes * 31 + dim)
    positives_N = torch.randint(num_classes, (num_queries,), generator=generator)
    excluded_NE = torch.randint(-1, num_classes, (num_queries, width), generator=generator)
    excluded_NE[0, 0] = num_classes - 1
    excluded_NE[:, 1] = excluded_NE[:, 0]
    excluded_NE[:, 2] = (excluded_NE[:, 0] + 1).clamp(max=num_classes - 1)
    excluded_NE[::2, 3] = positives_N[::2]
    rows = [functional.normalize(torch.randn(count, dim, generator=generator)) for count in (num_queries, num_classes)]
    return Case(*(tensor.to(DEVICE) for tensor in (*rows, positives_N, excluded_NE)))


@dataclass
class Truth:
    """Of operands of this type, all else in float64."""

    losses_N: Tensor
    slopes_NK: Tensor
    queries_ND: Tensor
    classes_KD: Tensor

    def query_gradients(self) -> Tensor:
        return self.slopes_NK @ self.classes_KD

    def moved(self, rows_KD: Tensor, factor: float) -> Tensor:
        return rows_KD.double() + factor * self.slopes_NK.T @ self.queries_ND


def truth_of(case: Case, *, loss: str, scale: float, excluded: bool, dtype: torch.dtype) -> Truth:
    queries_ND, classes_KD = case.queries_ND.to(dtype).double(), case.classes_KD.to(dtype).double()
    scores_NK = (queries_ND @ classes_KD.T).requires_grad_()
    ids_K = torch.arange(len(classes_KD), device=DEVICE)
    is_positive_NK = ids_K == case.positives_N[:, None]
    hidden_NK = (ids_K[None, :, None] == case.excluded_NE[:, None, :]).any(dim=2) & ~is_positive_NK & excluded
    logits_NK = scale * scores_NK
    if loss == "softmax":
        losses_N = torch.logsumexp(logits_NK.masked_fill(hidden_NK, -torch.inf), dim=1) - logits_NK[is_positive_NK]
    else:
        each_NK = functional.softplus(torch.where(is_positive_NK, -logits_NK, logits_NK), threshold=700)
        losses_N = each_NK.masked_fill(hidden_NK, 0).sum(dim=1)
    (slopes_NK,) = torch.autograd.grad(losses_N.sum(), scores_NK)
    return Truth(losses_N.detach(), slopes_NK, queries_ND, classes_KD)


def rounding(dtype: torch.dtype) -> float:
    """Of a slope, relative. The interpreter cuts bfloat16 off, up to twice as far as rounding goes."""
    return 5e-5 + (0 if dtype == torch.float32 else 2**-7 if INTERPRETED else 2**-8)


def assert_losses(given_N: Tensor, truth: Truth) -> None:
    torch.testing.assert_close(given_N.double(), truth.losses_N, rtol=2e-6, atol=2e-5)


def assert_gradients(given_ND: Tensor, truth: Truth, dtype: torch.dtype) -> None:
    bound_ND = rounding(dtype) * truth.slopes_NK.abs() @ truth.classes_KD.abs() + 2e-5
    assert ((given_ND - truth.query_gradients()).abs() <= bound_ND).all()


def assert_rows(given_KD: Tensor, before_KD: Tensor, truth: Truth, factor: float, dtype: torch.dtype) -> None:
    moved_KD = truth.moved(before_KD, factor)
    lengths_K = moved_KD.norm(dim=1)
    off_K = abs(factor) * (truth.slopes_NK.abs().T @ truth.queries_ND.abs()).norm(dim=1) / lengths_K
    assert ((given_KD - moved_KD / lengths_K[:, None]).norm(dim=1) <= 2 * rounding(dtype) * off_K + 2e-6).all()
    assert (given_KD.norm(dim=1) - 1).abs().max() < 1e-6


def number(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(value, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize("passes", [SMALL, HALF], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES[::2])
def test_losses_equal_float64(shape: tuple[int, int, int], loss: str, passes: Passes) -> None:
    case = make_case(*shape)
    truth = truth_of(case, loss=loss, scale=9.0, excluded=False, dtype=passes.operands)
    # A table of the operands' type is read as it is, another one chunk by chunk.
    for table in (case.classes_KD, case.classes_KD.to(passes.operands)):
        losses_N = all_class_losses(case.queries_ND, table, case.positives_N, loss=loss, scale=9.0, passes=passes)
        assert losses_N.dtype == torch.float32
        assert_losses(losses_N, truth)


@pytest.mark.parametrize(
    ("loss", "quick", "reference"),
    [("softmax", softmax_loss, softmax_loss_reference), ("one-vs-all", one_vs_all_loss, one_vs_all_loss_reference)],
)
def test_losses_equal_the_library(loss, quick, reference) -> None:
    case = make_case(5, 70, 12)
    losses_N = all_class_losses(case.queries_ND, case.classes_KD, case.positives_N, loss=loss, scale=4, passes=SMALL)
    scores_NK = case.queries_ND.double() @ case.classes_KD.double().T
    for function in (quick, reference):
        wanted_N = function(scores_NK, case.positives_N, scale=4.0, reduction="none")
        torch.testing.assert_close(losses_N.double(), wanted_N, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("passes", [SMALL, HALF], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("loss", LOSSES)
# With lists few queries: the interpreter takes 15 ms for each entry.
@pytest.mark.parametrize(("shape", "excluded"), [*((s, False) for s in SHAPES), (SHAPES[1], True), ((6, 48, 24), True)])
def test_step_equals_float64(shape: tuple[int, int, int], loss: str, passes: Passes, excluded: bool) -> None:
    case, factor = make_case(*shape), -0.3
    truth = truth_of(case, loss=loss, scale=6.0, excluded=excluded, dtype=passes.operands)
    # What lies behind the table must stay as it is.
    space = torch.cat([case.classes_KD, torch.full((64, shape[2]), 7.0, device=DEVICE)])
    table_KD = space[: shape[1]]
    losses_N, gradients_ND = all_class_step(
        case.queries_ND,
        table_KD,
        case.positives_N,
        number(factor),
        loss=loss,
        scale=6.0,
        excluded=case.exclusions if excluded else None,
        passes=passes,
    )
    assert_losses(losses_N, truth)
    assert gradients_ND.shape == case.queries_ND.shape
    assert gradients_ND.dtype == torch.float32
    assert_gradients(gradients_ND, truth, passes.operands)
    assert_rows(table_KD, case.classes_KD, truth, factor, passes.operands)
    assert (space[shape[1] :] == 7.0).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("operands", "num_queries", "excluded"),
    [(torch.float32, 70, False), (torch.bfloat16, 133, False), (torch.bfloat16, 4, True)],
)
def test_default_tiles(loss: str, operands: torch.dtype, num_queries: int, excluded: bool) -> None:
    case = make_case(num_queries, 300, 72)
    truth = truth_of(case, loss=loss, scale=10.0, excluded=excluded, dtype=operands)
    table_KD = case.classes_KD.clone()
    losses_N, gradients_ND = all_class_step(
        case.queries_ND,
        table_KD,
        case.positives_N,
        number(-0.1),
        loss=loss,
        scale=10.0,
        excluded=case.exclusions if excluded else None,
        passes=Passes(chunk=129, operands=operands),
    )
    assert_losses(losses_N, truth)
    assert_gradients(gradients_ND, truth, operands)
    assert_rows(table_KD, case.classes_KD, truth, -0.1, operands)


# A smaller example would take the interpreter minutes to find.
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 90), st.integers(1, 20)),
    width=st.integers(4, 9),
    chunk=st.integers(1, 120),
    loss=st.sampled_from(LOSSES),
    scale=st.floats(0.01, 40.0),
)
def test_any_shape_chunk_and_list(shape: tuple[int, int, int], width: int, chunk: int, loss: str, scale: float) -> None:
    case = make_case(*shape, width=width)
    truth = truth_of(case, loss=loss, scale=scale, excluded=True, dtype=torch.float32)
    table_KD = case.classes_KD.clone()
    losses_N, gradients_ND = all_class_step(
        case.queries_ND,
        table_KD,
        case.positives_N,
        number(-0.05),
        loss=loss,
        scale=scale,
        excluded=case.exclusions,
        passes=replace(SMALL, chunk=chunk),
    )
    torch.testing.assert_close(losses_N.double(), truth.losses_N, rtol=1e-5, atol=1e-4)
    bound_ND = 1e-4 * (truth.slopes_NK.abs() @ truth.classes_KD.abs()) + 1e-4
    assert ((gradients_ND - truth.query_gradients()).abs() <= bound_ND).all()
    torch.testing.assert_close(
        table_KD.double(), functional.normalize(truth.moved(case.classes_KD, -0.05)), rtol=0, atol=2e-3
    )


def test_lists_of_a_dataset() -> None:
    """Rows that point into the labels of many points, with ids of 32 bits and an empty list."""
    case = make_case(4, 60, 8)
    lists = [[5, 9], [], [59, 0, 59], [31]]
    ids = torch.tensor([label for labels in lists for label in labels], dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([0, 2, 2, 5, 6], device=DEVICE)
    rows_N = torch.tensor([2, 0, 1, 2], device=DEVICE)
    padded = [lists[row] + [-1] * (3 - len(lists[row])) for row in rows_N.tolist()]
    case.excluded_NE = torch.tensor(padded, device=DEVICE)
    for loss in LOSSES:
        truth = truth_of(case, loss=loss, scale=5.0, excluded=True, dtype=torch.float32)
        losses_N, gradients_ND = all_class_step(
            case.queries_ND,
            case.classes_KD.clone(),
            case.positives_N,
            number(0.0),
            loss=loss,
            scale=5.0,
            excluded=Exclusions(rows_N, offsets, ids, 3),
            passes=SMALL,
        )
        assert_losses(losses_N, truth)
        assert_gradients(gradients_ND, truth, torch.float32)


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_left_but_the_positive(loss: str) -> None:
    case = make_case(2, 20, 8)
    everything = Exclusions.of_padded(torch.arange(20, device=DEVICE).expand(2, 20))
    table_KD = case.classes_KD.clone()
    losses_N, _ = all_class_step(
        case.queries_ND,
        table_KD,
        case.positives_N,
        number(-1.0),
        loss=loss,
        scale=3.0,
        excluded=everything,
        passes=SMALL,
    )
    own_N = (case.queries_ND * case.classes_KD[case.positives_N]).sum(dim=1)
    wanted_N = torch.zeros_like(own_N) if loss == "softmax" else functional.softplus(-3 * own_N)
    torch.testing.assert_close(losses_N, wanted_N, rtol=1e-5, atol=2e-6)
    others = torch.ones(20, dtype=torch.bool, device=DEVICE).index_fill_(0, case.positives_N, False)
    assert torch.equal(table_KD[others], case.classes_KD[others])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_large_scales_neither_overflow_nor_vanish(loss: str, sign: float) -> None:
    case = make_case(4, 75, 16)
    # All scores on one side, hundreds times the scale away from 0.
    case.classes_KD = functional.normalize(sign * case.queries_ND[0] + 0.3 * case.classes_KD)
    case.queries_ND = functional.normalize(case.queries_ND[0] + 0.1 * case.queries_ND)
    truth = truth_of(case, loss=loss, scale=800.0, excluded=True, dtype=torch.float32)
    losses_N = all_class_losses(
        case.queries_ND,
        case.classes_KD,
        case.positives_N,
        loss=loss,
        scale=800.0,
        excluded=case.exclusions,
        passes=SMALL,
    )
    torch.testing.assert_close(losses_N.double(), truth.losses_N, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("logit", [-60.0, -20.0, -6.0, -5.5, -1.0, 0.0, 1.0, 30.0])
def test_sums_keep_small_terms(logit: float, dtype: torch.dtype) -> None:
    """Each of 40 classes has this score times the scale; 8 classes of the last tile are past the end."""
    queries_ND = torch.zeros(3, 8, dtype=dtype, device=DEVICE)
    queries_ND[:, 0] = 0.5
    classes_KD = torch.ones(40, 8, dtype=dtype, device=DEVICE)
    x = torch.tensor(logit, dtype=torch.float64)
    for kind, whole in (("softmax", x + torch.tensor(16.0).log()), ("logistic", 16 * functional.softplus(x))):
        sums_MN = torch.full((3, 3), torch.nan, device=DEVICE)
        tiling = Tiling(tile_n=16, tile_k=16, tile_d=16)
        # The scale is above 0: the sign is the score's.
        signed = queries_ND if logit >= 0 else -queries_ND
        scale = number(2 * abs(logit) or 1e-30)
        class_sums(signed, classes_KD, NegativeTerms(kind, scale), sums_MN, tiling=tiling)
        part = x + torch.tensor(8.0).log() if kind == "softmax" else whole / 2
        wanted = torch.stack([whole, whole, part])[:, None].expand(3, 3)
        torch.testing.assert_close(sums_MN.double().cpu(), wanted.double(), rtol=2e-5, atol=0)


@pytest.mark.parametrize(
    ("dtype", "with_copy"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)]
)
def test_factor_0_leaves_every_bit(dtype: torch.dtype, with_copy: bool) -> None:
    case = make_case(5, 60, 16)
    # Not of unit length: it is not scaled either.
    before_KD = (1.5 * case.classes_KD).to(dtype)
    table_KD, copy_KD = before_KD.clone(), before_KD.to(torch.bfloat16) if with_copy else None
    all_class_step(
        case.queries_ND,
        table_KD,
        case.positives_N,
        number(0.0),
        copy_KD=copy_KD,
        key=number(3, torch.int64),
        passes=HALF,
    )
    assert torch.equal(table_KD, before_KD)
    if copy_KD is not None:
        assert torch.equal(copy_KD, before_KD.to(torch.bfloat16))


def test_copy_is_read_and_kept_equal() -> None:
    case = make_case(9, 100, 24)
    # A copy that differs from its table tells which of the two is read.
    read = Case(case.queries_ND, case.classes_KD.roll(1, dims=1), case.positives_N, case.excluded_NE)
    truth = truth_of(read, loss="softmax", scale=7.0, excluded=False, dtype=torch.bfloat16)
    table_KD, copy_KD = case.classes_KD.clone(), read.classes_KD.to(torch.bfloat16)
    losses_N, gradients_ND = all_class_step(
        case.queries_ND, table_KD, case.positives_N, number(-0.2), scale=7.0, copy_KD=copy_KD, passes=HALF
    )
    assert_losses(losses_N, truth)
    assert_gradients(gradients_ND, truth, torch.bfloat16)
    assert_rows(table_KD, case.classes_KD, truth, -0.2, torch.bfloat16)
    assert ((copy_KD.float() - table_KD).abs() <= 2**-7 * table_KD.abs()).all()


def test_bfloat16_table() -> None:
    case = make_case(3, 100, 24)
    truth = truth_of(case, loss="softmax", scale=7.0, excluded=True, dtype=torch.bfloat16)
    tables = [case.classes_KD.to(torch.bfloat16) for _ in range(3)]
    for table_KD, key in zip(tables, (1, 1, 2), strict=True):
        losses_N, gradients_ND = all_class_step(
            case.queries_ND,
            table_KD,
            case.positives_N,
            number(-0.2),
            scale=7.0,
            excluded=case.exclusions,
            key=number(key, torch.int64),
            passes=HALF,
        )
        assert_losses(losses_N, truth)
        assert_gradients(gradients_ND, truth, torch.bfloat16)
        wanted_KD = functional.normalize(truth.moved(case.classes_KD.to(torch.bfloat16), -0.2))
        assert (table_KD - wanted_KD).abs().max() < 0.01
        assert (table_KD.float().norm(dim=1) - 1).abs().max() < 0.01
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_rounding_at_random_keeps_the_mean() -> None:
    generator = torch.Generator().manual_seed(5)
    before_CD = functional.normalize(torch.randn(24, 20, generator=generator)).to(DEVICE, torch.bfloat16)
    steps_CD = torch.randn(24, 20, generator=generator).to(DEVICE)
    exact_CD = functional.normalize(before_CD.double() + 0.01 * steps_CD.double())
    # Neighbours in bfloat16, towards 0 and away from it; results lie 0 to 1 of the way between.
    low_CD = (exact_CD.float().view(torch.int32) & -65536).view(torch.float32).double()
    high_CD = ((low_CD.float().view(torch.int32) + 65536).view(torch.float32)).double()
    ups = []
    for key in range(100):
        rows_CD = before_CD.clone()
        move_rows(rows_CD, steps_CD, number(0.01), key=number(key, torch.int64), first=key % 7)
        up_CD = (rows_CD.double() - low_CD) / (high_CD - low_CD)
        assert ((up_CD == 0) | (up_CD == 1)).float().mean() > 0.99
        ups.append(up_CD)
    chances_CD = (exact_CD - low_CD) / (high_CD - low_CD)
    off_CD = torch.stack(ups).mean(dim=0) - chances_CD
    # Standard deviation of one mean at most 0.5 / sqrt(100) = 0.05, of all 480 together 0.0023.
    assert off_CD.abs().max() < 0.22
    assert abs(off_CD.mean()) < 0.009
    # Neighbouring entries are rounded independently.
    noise = torch.stack(ups) - chances_CD
    assert abs((noise[..., 1:] * noise[..., :-1]).mean()) < 0.005
    assert abs((noise[:, 1:] * noise[:, :-1]).mean()) < 0.005


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_broken_gradients_show(dtype: torch.dtype) -> None:
    rows_CD = functional.normalize(torch.ones(3, 8, device=DEVICE)).to(dtype)
    gradients_CD = torch.zeros(3, 8, device=DEVICE)
    gradients_CD[1, 2] = torch.nan
    move_rows(rows_CD, gradients_CD, number(-0.1), key=number(1, torch.int64), first=0)
    assert rows_CD.isnan().any(dim=1).tolist() == [False, True, False]


@pytest.mark.parametrize("loss", LOSSES)
def test_scale_on_the_device_and_its_derivative(loss: str) -> None:
    case = make_case(5, 60, 16)
    results = [
        all_class_step(
            case.queries_ND,
            case.classes_KD.clone(),
            case.positives_N,
            number(0.0),
            loss=loss,
            scale=scale,
            passes=SMALL,
        )
        for scale in (3.5, number(3.5))
    ]
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)
    scale = torch.tensor(3.5, dtype=torch.float64, device=DEVICE, requires_grad=True)
    function = softmax_loss if loss == "softmax" else one_vs_all_loss
    scores_NK = case.queries_ND.double() @ case.classes_KD.double().T
    function(scores_NK, case.positives_N, scale=scale, reduction="sum").backward()
    derivative = (case.queries_ND * results[0][1]).sum() / 3.5
    torch.testing.assert_close(derivative.double(), scale.grad, rtol=1e-5, atol=1e-5)


def test_table_that_is_not_aligned() -> None:
    case = make_case(3, 40, 8)
    space = torch.zeros(40 * 8 + 1, device=DEVICE)
    table_KD = space[1:].view(40, 8)
    table_KD.copy_(case.classes_KD)
    truth = truth_of(case, loss="softmax", scale=5.0, excluded=False, dtype=torch.float32)
    losses_N, _ = all_class_step(case.queries_ND, table_KD, case.positives_N, number(-0.1), scale=5.0, passes=SMALL)
    assert_losses(losses_N, truth)
    assert_rows(table_KD, case.classes_KD, truth, -0.1, torch.float32)


BAD_BATCHES = {
    "loss": {"loss": "hinge"},
    "scale": {"scale": 0.0},
    "queries": {"queries_ND": torch.zeros(0, 8)},
    "classes": {"classes_KD": torch.zeros(8, 20).T},
    "classes: given torch.float64": {"classes_KD": torch.zeros(20, 8, dtype=torch.float64)},
    "dimension": {"classes_KD": torch.zeros(20, 9)},
    "positives": {"positives_N": torch.zeros(3, dtype=torch.int32)},
    "positives: given torch.int64": {"positives_N": torch.zeros(2, dtype=torch.int64)},
    "excluded": {"excluded": Exclusions.of_padded(torch.zeros(2, 1))},
    "passes": {"passes": Passes(chunk=0)},
    "passes: given": {"passes": Passes(operands=torch.float16)},
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_bad_batches(what: str) -> None:
    good = {
        "queries_ND": torch.zeros(3, 8),
        "classes_KD": torch.zeros(20, 8),
        "positives_N": torch.zeros(3, dtype=torch.int64),
    }
    with pytest.raises(ValueError, match=f"^{what}"):
        all_class_losses(**(good | BAD_BATCHES[what]))


BAD_TABLES = {
    "classes: given torch.float16": {"classes_KD": torch.zeros(20, 8, dtype=torch.float16)},
    "classes: given bfloat16": {"classes_KD": torch.zeros(20, 8, dtype=torch.bfloat16)},
    "copy: given torch.float32": {"copy_KD": torch.zeros(20, 8)},
    "copy": {"copy_KD": torch.zeros(19, 8, dtype=torch.bfloat16)},
    "factor": {"factor": torch.zeros((), dtype=torch.float64)},
}


@pytest.mark.parametrize("what", BAD_TABLES)
def test_bad_tables(what: str) -> None:
    good = {
        "queries_ND": torch.zeros(3, 8),
        "classes_KD": torch.zeros(20, 8),
        "positives_N": torch.zeros(3, dtype=torch.int64),
        "factor": torch.zeros(()),
    }
    with pytest.raises(ValueError, match=f"^{what}"):
        all_class_step(**(good | BAD_TABLES[what]))


@pytest.mark.skipif(DEVICE == "cpu", reason="graphs want a GPU")
def test_step_in_a_graph() -> None:
    case, factor, key = make_case(70, 1000, 64), number(-0.1), number(1, torch.int64)
    start_KD = case.classes_KD.to(torch.bfloat16)
    table_KD = start_KD.clone()

    def step() -> tuple[Tensor, Tensor]:
        return all_class_step(
            case.queries_ND,
            table_KD,
            case.positives_N,
            factor,
            scale=9.0,
            excluded=case.exclusions,
            key=key,
            passes=Passes(chunk=384),
        )

    eager = [*step(), table_KD.clone()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    table_KD.copy_(start_KD)
    graph.replay()
    for ours, theirs in zip([*captured, table_KD], eager, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-3)
