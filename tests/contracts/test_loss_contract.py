"""What every registered loss promises. Registering a loss enrols it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses.modules import LOSSES

from .loss_inputs import KEPT, B, K, N, P, build, call_for, with_negatives_in_another_order, with_positives_raised

every_loss = pytest.mark.parametrize("name", list(LOSSES))
# Its compiler still calls what it has deprecated.
of_pytorch_itself = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
MINES = ["bowl", "powl", "mined-softmax", "mined-softmax-estimate", "multi-positive-bowl"]


@every_loss
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.0, 1.0, 30.0]), scale=st.sampled_from([0.1, 1.0, 5.0]))
def test_finite_and_never_negative(name, seed, size, scale):
    call, loss = call_for(name, seed), build(name, scale=scale, reduction="none")
    for place in call.scores:
        call = call.with_arg(place, call.args[place] * size)
    call = call.leaves(torch.float32)
    value = loss(*call.args)
    assert value.shape == (N,)
    assert value.isfinite().all()
    assert (value >= 0).all()
    assert all(gradient.isfinite().all() for gradient in call.gradients(value.sum()))


@every_loss
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_negatives_is_irrelevant(name, seed):
    call, loss = call_for(name, seed), build(name, reduction="none")
    moved = with_negatives_in_another_order(name, call, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(loss(*moved.args), loss(*call.args), rtol=1e-12, atol=1e-14)


@every_loss
def test_reductions_agree(name):
    call = call_for(name)
    each = build(name, reduction="none")(*call.args)
    torch.testing.assert_close(build(name, reduction="mean")(*call.args), each.mean())
    torch.testing.assert_close(build(name, reduction="sum")(*call.args), each.sum())
    torch.testing.assert_close(build(name)(*call.args), each.mean())


@every_loss
@pytest.mark.parametrize("seed", [1, 2])
def test_gradcheck_in_scores_and_scale(name, seed):
    call, loss = call_for(name, seed).leaves(), build(name, scale=1.3, learn_scale=True, reduction="none").double()
    (log_scale,) = loss.parameters()

    def of(*scores_and_scale):
        for place, scores in zip(call.scores, scores_and_scale, strict=False):
            args[place] = scores
        return loss(*args)

    args = list(call.args)
    assert torch.autograd.gradcheck(of, (*(call.args[place] for place in call.scores), log_scale))


@every_loss
def test_a_learned_scale_is_one_parameter_that_stays_positive(name):
    loss, call = build(name, scale=2.0, learn_scale=True), call_for(name)
    fixed = build(name, scale=2.0)
    assert list(fixed.parameters()) == []
    (log_scale,) = loss.parameters()
    torch.testing.assert_close(loss(*call.args), fixed(*call.args), rtol=1e-6, atol=0)
    with torch.no_grad():
        log_scale -= 5
    assert float(loss.scale.detach()) == pytest.approx(2 * math.exp(-5), rel=1e-5)
    again = build(name, learn_scale=True)
    again.load_state_dict(loss.state_dict())
    assert torch.equal(again(*call.args), loss(*call.args))


@every_loss
@pytest.mark.parametrize(("dtype", "result"), [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
def test_lower_precision_is_close_to_float64(name, dtype, result):
    """The scores are rounded once, to the lower precision; what follows must lose no more than float32 does."""
    call, loss = call_for(name).leaves(dtype), build(name, scale=3.0)
    value = loss(*call.args)
    exact_call = call.leaves(torch.float64)
    exact = loss(*exact_call.args)
    assert value.dtype == result
    torch.testing.assert_close(value.double(), exact, rtol=3e-6, atol=1e-6)
    rounding = torch.finfo(dtype).eps
    for given_gradient, wanted in zip(call.gradients(value), exact_call.gradients(exact), strict=True):
        assert given_gradient.dtype == dtype
        torch.testing.assert_close(given_gradient.double(), wanted, rtol=4 * rounding, atol=max(1e-6, rounding**2))


@every_loss
def test_under_autocast(name):
    call, loss = call_for(name).leaves(torch.float32), build(name, learn_scale=True)
    outside = loss(*call.args)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(*call.args)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, outside)


@of_pytorch_itself
@every_loss
def test_compiled_equals_eager(name):
    torch.compiler.reset()
    loss = build(name, scale=1.7, learn_scale=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results = []
    for call_loss in (loss, compiled):
        call = call_for(name).leaves(torch.float32)
        value = call_loss(*call.args)
        results.append((value, *torch.autograd.grad(value, [*(call.args[i] for i in call.scores), *loss.parameters()])))
    for eager, traced in zip(*results, strict=True):
        torch.testing.assert_close(traced, eager)


@of_pytorch_itself
def test_compiled_by_inductor_equals_eager():
    """One loss, forward alone, without vectors: each kernel costs seconds of a C++ compiler."""
    torch.compiler.reset()
    loss, call = build("bowl", kept=1), call_for("bowl").leaves(torch.float32)
    quickly = {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False, "compile_threads": 1}
    with torch.no_grad():
        value = torch.compile(loss, fullgraph=True, options=quickly)(*call.args)
    torch.testing.assert_close(value, loss(*call.args).detach())


@every_loss
def test_the_same_bits_every_time(name):
    results = []
    for _ in range(2):
        call, loss = call_for(name).leaves(torch.float32), build(name)
        value = loss(*call.args)
        results.append((value, *call.gradients(value)))
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))


@pytest.mark.parametrize("name", [name for name, entry in LOSSES.items() if entry.falls_with_positive])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.sampled_from([0.01, 1.0, 20.0]))
def test_raising_positives_never_raises_the_loss(name, seed, most):
    call, loss = call_for(name, seed), build(name, reduction="none")
    by = most * torch.rand(N, P, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    raised = with_positives_raised(name, call, by)
    assert (loss(*raised.args) <= loss(*call.args) + 1e-12).all()


@pytest.mark.parametrize("name", [name for name, entry in LOSSES.items() if not entry.falls_with_positive])
def test_those_that_may_rise_with_a_positive_do(name):
    loss, rises = build(name, reduction="none"), []
    for seed in range(30):
        call = call_for(name, seed)
        by = torch.zeros(N, P, dtype=torch.float64)
        by[:, 0] = 1.0
        rises.append(loss(*with_positives_raised(name, call, by).args) > loss(*call.args) + 1e-3)
    assert torch.stack(rises).any()


@every_loss
def test_repr_tells_the_options(name):
    assert "scale=2.5, learned" in repr(build(name, scale=2.5, learn_scale=True))
    assert "reduction='sum'" in repr(build(name, reduction="sum"))


@every_loss
def test_bad_scores_are_refused(name):
    call, loss = call_for(name), build(name)
    for place in call.scores:
        scores = call.args[place]
        holed = scores.clone()
        holed.view(-1)[0] = math.nan
        with pytest.raises(ValueError, match="given NaN; wanted numbers"):
            loss(*call.with_arg(place, holed).args)
        with pytest.raises(ValueError, match=r"given dtype torch.int64; wanted floating point"):
            loss(*call.with_arg(place, scores.long()).args)
        with pytest.raises(ValueError, match="given shape"):
            loss(*call.with_arg(place, scores[None]).args)
    empty = [None if arg is None else arg[:0] for arg in call.args]
    with pytest.raises(ValueError, match="given an empty batch"):
        loss(*empty)


@pytest.mark.parametrize("name", [name for name, entry in LOSSES.items() if entry.inputs in ("classes", "labels")])
def test_bad_positives_are_refused(name):
    call, loss = call_for(name), build(name)
    for bad, message in (
        (torch.full_like(call.args[1], K), f"class ids from {K} to {K}"),
        (torch.full_like(call.args[1], -2), "class ids from -2 to -2"),
        (call.args[1].double(), "given dtype torch.float64; wanted integers"),
        (call.args[1][:-1], "given shape"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(*call.with_arg(1, bad).args)


@every_loss
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_scale_is_refused(name, scale):
    for learn in (False, True):
        with pytest.raises(ValueError, match=r"scale: given .*; wanted a positive finite number"):
            build(name, scale=scale, learn_scale=learn)


@every_loss
def test_a_bad_reduction_is_refused(name):
    with pytest.raises(ValueError, match="reduction: given 'median'; wanted one of mean, sum, none"):
        build(name, reduction="median")


@pytest.mark.parametrize("name", MINES)
def test_more_kept_than_the_pool_has_is_refused(name):
    with pytest.raises(ValueError, match=f"given {B + 1}"):
        build(name, kept=B + 1)(*call_for(name).args)


@pytest.mark.parametrize("name", [name for name, entry in LOSSES.items() if "pool" in entry.inputs])
def test_bad_masks_are_refused(name):
    call, loss = call_for(name), build(name)
    place = 3 if LOSSES[name].inputs == "kept_pool" else 2
    for bad in (call.args[place].double(), call.args[place][:, 1:]):
        with pytest.raises(ValueError, match="mask: given"):
            loss(*call.with_arg(place, bad).args)


@pytest.mark.parametrize("name", [name for name, entry in LOSSES.items() if "pool" in entry.inputs])
def test_hidden_entries_change_nothing(name):
    """Neither value nor gradient, whatever stands there; a row with all of its pool hidden is finite."""
    place = 2 if LOSSES[name].inputs == "kept_pool" else 1
    call, loss = call_for(name), build(name)
    mask = call.args[place + 1].clone()
    mask[0] = True
    results = []
    for fill in (0.0, 1e6, -math.inf, math.inf):
        filled = call.args[place].masked_fill(mask, fill)
        leaves = call.with_arg(place, filled).with_arg(place + 1, mask).leaves()
        value = loss(*leaves.args)
        results.append((value, *leaves.gradients(value)))
        assert all(result.isfinite().all() for result in results[-1])
        assert (results[-1][1 + leaves.scores.index(place)][mask] == 0).all()
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            torch.testing.assert_close(first, second)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_loss
def test_on_a_gpu(name):
    loss = build(name, scale=1.7, learn_scale=True)
    on_cpu = call_for(name).leaves(torch.float32)
    value = loss(*on_cpu.args)
    wanted = (value, *on_cpu.gradients(value))
    for dtype, slack in ((torch.float32, 1e-5), (torch.float64, 1e-5), (torch.bfloat16, 3e-2)):
        call, moved = call_for(name).leaves(dtype, "cuda"), build(name, scale=1.7, learn_scale=True).to("cuda")
        value = moved(*call.args)
        for given_result, wanted_result in zip((value, *call.gradients(value)), wanted, strict=True):
            torch.testing.assert_close(given_result.cpu().float(), wanted_result, rtol=slack, atol=slack)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@every_loss
def test_nothing_waits_for_a_gpu(name):
    """The first call may: weights go to the device once."""
    loss, call = build(name, learn_scale=True).to("cuda"), call_for(name).leaves(torch.float32, "cuda")
    loss(*call.args)
    try:
        torch.cuda.set_sync_debug_mode("error")
        loss(*call.args).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_every_way_to_call_is_covered():
    assert {entry.inputs for entry in LOSSES.values()} == {
        "classes",
        "labels",
        "pool",
        "pool_others",
        "kept_pool",
        "pool_labels",
    }
    assert set(MINES) <= set(LOSSES)
    assert KEPT < B < K
