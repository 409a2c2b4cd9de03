"""Steps by kernels against the plain step: where nothing is drawn at random, the same result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from owlmine.data.rows import SparseRows
from owlmine.data.store import SparseTable, Split
from owlmine.dense.class_sides import BlockedPoolSide, PoolSide, StepInputs, pool_side
from owlmine.dense.encoder import query_batch
from owlmine.dense.fused_step import FusedStep, why_not_fused
from owlmine.dense.loop import HostStep, choose_step
from owlmine.dense.objective import PoolObjective, make_objective, padded_labels
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.dense.step import TrainingStep, step_seed
from owlmine.losses.modules import PoolLoss
from owlmine.mining import BatchPool
from owlmine.mining.distinct import permuted
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.pool_rows import pool_rows
from owlmine.mining.kernels.positives import draw_positives

from .conftest import Rounded

NUM_POINTS, NUM_FEATURES, NUM_CLASSES, DIM = 60, 40, 30, 16


def _split(labels_each: int = 1) -> Split:
    random = np.random.default_rng(0)
    offsets = np.arange(NUM_POINTS + 1, dtype=np.int64)
    ids = random.integers(0, NUM_FEATURES, NUM_POINTS * 5).astype(np.int32)
    values = random.random(len(ids)).astype(np.float32)
    labels = np.concatenate([random.permutation(NUM_CLASSES)[:labels_each] for _ in range(NUM_POINTS)])
    tables = SparseTable(offsets * 5, ids, values), SparseTable(offsets * labels_each, labels.astype(np.int32), None)
    return Split("train", *tables, None)


def _settings(**chosen: Any) -> DenseSettings:
    shared: dict[str, Any] = {
        "kind": "embedding",
        "dim": DIM,
        "depth": 1,
        "loss": "bowl",
        "top": 1,
        "pool": NUM_CLASSES - 1,
        "pool_start": None,
        "shared_pool": True,
        "positives_in_pool": False,
        "surrogate": "hinge",
        "scale": 1.0,
        "learn_scale": False,
        "power": 0.0,
        "least_weight": 0.0,
        "exclude_known": True,
        "epochs": 1.0,
        "batch_size": 20,
        "class_rate": 0.1,
        "feature_rate": 1.0,
        "map_rate": 0.01,
        "momentum": 0.9,
        "optimiser": "sgd",
        "schedule": "linear",
        "warm_start": True,
        "patience": 0,
        "kernels": True,
        "seed": 0,
    }
    return DenseSettings(**(shared | chosen))


@pytest.mark.parametrize(
    "chosen",
    [
        {"top": 1},
        {"top": 3, "loss": "powl", "surrogate": "logistic"},
        {"top": 2, "loss": "mined-softmax", "scale": 5.0},
        {"top": 1, "depth": 0},
        {"top": 2, "depth": 2, "exclude_known": False},
    ],
)
def test_mining_all_classes_equals_the_plain_step(chosen: dict[str, Any], device: str) -> None:
    settings, split = _settings(**chosen), _split()
    shape = ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM, depth=settings.depth)
    plain, fused = Retriever.new(shape, seed=0, device=device), Retriever.new(shape, seed=0, device=device)
    # Vectors on a grid of bfloat16, so that both ways mine the same classes.
    for model in (plain, fused):
        model.classes.weight.copy_(model.classes.weight.bfloat16().float())
    plain_step, fused_step = TrainingStep(plain, settings), FusedStep(fused, settings, split)
    rows = np.random.default_rng(1).permutation(NUM_POINTS)[:20]
    losses = plain_step(split.batch(rows), number=0, progress=0.1), fused_step(rows, number=0, progress=0.1)
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-5)
    for name, tensor in plain.tensors().items():
        assert torch.allclose(tensor, fused.tensors()[name], atol=2e-5), name
    for name, tensor in plain_step.state_tensors().items():
        assert torch.allclose(tensor, fused_step.state_tensors()[name], atol=1e-4), name


@pytest.mark.parametrize("loss", ["softmax", "one-vs-all"])
def test_all_classes_come_near_the_plain_step(loss: str, device: str) -> None:
    """Operands are rounded to bfloat16 here, so results are near and not equal."""
    settings, split = _settings(loss=loss, scale=3.0, class_rate=0.01), _split()
    shape = ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM)
    plain, fused = Retriever.new(shape, seed=0, device=device), Retriever.new(shape, seed=0, device=device)
    rows = np.random.default_rng(1).permutation(NUM_POINTS)[:20]
    losses = (
        TrainingStep(plain, settings)(split.batch(rows), number=0, progress=0.1),
        FusedStep(fused, settings, split)(rows, number=0, progress=0.1),
    )
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=0.01)
    start = Retriever.new(shape, seed=0, device=device).tensors()
    for name, tensor in plain.tensors().items():
        moved, moved_here = tensor - start[name], fused.tensors()[name] - start[name]
        assert float((moved - moved_here).norm() / moved.norm()) < 0.05, name


@pytest.mark.parametrize(
    ("chosen", "kind"),
    [
        ({"loss": "negative-sampling-bowl"}, BlockedPoolSide),
        ({"loss": "sampled-softmax"}, BlockedPoolSide),
        ({"loss": "pooled-one-vs-all"}, BlockedPoolSide),
        ({"loss": "bowl", "top": 2, "least_weight": 0.01}, PoolSide),
        ({"loss": "semi-hard"}, PoolSide),
    ],
)
def test_a_whole_pool_against_autograd(chosen: dict[str, Any], kind: type, device: str) -> None:
    width, num_points, factor = 12, 7, -0.05
    settings = _settings(pool=width, **chosen)
    torch.manual_seed(0)
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0, device=device)
    objective = make_objective(settings, model.classes)
    assert isinstance(objective, PoolObjective)
    side = pool_side(objective.loss, model.classes, pool_size=width)
    assert type(side) is kind
    queries = functional.normalize(torch.randn(num_points, DIM, device=device), dim=1).bfloat16().float()
    positives = torch.randint(NUM_CLASSES, (num_points,), device=device)
    before = model.classes.weight.bfloat16().float()
    model.classes.weight.copy_(before)
    inputs = StepInputs(
        queries,
        queries.bfloat16(),
        positives,
        Exclusions.of_padded(torch.stack([positives, positives.roll(1)], dim=1)),
        pool_key=torch.tensor([99], device=device),
        rounding_key=torch.tensor([5], device=device),
        factor=torch.tensor([factor], device=device),
    )
    losses, gradient = side(inputs)
    pool = permuted(torch.arange(width + 1), key=99, num_classes=NUM_CLASSES).to(device)
    hidden = (pool == _left_out(pool, positives)[:, None]) | (pool == positives.roll(1)[:, None])
    true_losses, true_gradient, moved = _by_autograd(objective.loss, queries, before, positives, pool, hidden)
    assert torch.allclose(losses, true_losses, rtol=1e-4)
    assert float((gradient - true_gradient).norm() / true_gradient.norm()) < 0.02
    wanted = torch.where(
        moved.abs().sum(dim=1, keepdim=True) > 0, functional.normalize(before + factor * moved), before
    )
    touched = torch.zeros(NUM_CLASSES, dtype=torch.bool, device=device)
    touched[torch.cat([pool, positives])] = True
    assert torch.equal(model.classes.weight[~touched], before[~touched])
    assert torch.allclose(model.classes.weight[touched], wanted[touched], atol=2e-3)


@pytest.mark.parametrize(
    "chosen",
    [
        {"loss": "negative-sampling-bowl"},
        {"loss": "negative-sampling-powl", "surrogate": "logistic", "scale": 3.0},
        {"loss": "sampled-softmax", "scale": 5.0},
    ],
)
def test_steps_on_a_whole_pool_track_the_plain_ones(
    chosen: dict[str, Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain step is given the pools that the kernels draw; operands of the kernels are rounded to bfloat16."""
    settings, split = _settings(pool=17, batch_size=8, feature_rate=0.1, **chosen), _split()
    shape = ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM)
    plain, fused = Retriever.new(shape, seed=0, device=device), Retriever.new(shape, seed=0, device=device)
    plain_step, fused_step = TrainingStep(plain, settings), FusedStep(fused, settings, split)

    def same_pool(*_: Any, **__: Any) -> BatchPool:
        key = step_seed(settings.seed, 3 * number + 1) & 0xFFFFFFFF
        ids = permuted(torch.arange(18), key=key, num_classes=NUM_CLASSES).to(device)
        return BatchPool(ids, torch.zeros(8), torch.zeros(()))

    def hidden(_: PoolObjective, pool: BatchPool, labels: SparseRows) -> torch.Tensor:
        # Each point has one label, its positive.
        own = padded_labels(labels, pool.shared_ids.device)
        return pool.shared_ids[None, :] == _left_out(pool.shared_ids, own)

    monkeypatch.setattr("owlmine.dense.objective.draw_batch_pool", same_pool)
    monkeypatch.setattr(PoolObjective, "_mask", hidden)
    order = np.random.default_rng(1).permutation(NUM_POINTS)
    for number in range(2):
        rows = order[8 * number : 8 * (number + 1)]
        wanted = plain_step(split.batch(rows), number=number, progress=0.1)
        assert float(fused_step(rows, number=number, progress=0.1)) == pytest.approx(float(wanted), rel=0.005)
    start = Retriever.new(shape, seed=0, device=device).tensors()
    for name, tensor in plain.tensors().items():
        moved, moved_here = tensor - start[name], fused.tensors()[name] - start[name]
        assert float((moved - moved_here).norm() / moved.norm()) < 0.03, name


def test_a_pool_of_all_classes_is_full_softmax(device: str) -> None:
    """But for the rounding of operands to bfloat16."""
    split, shape = _split(), ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM)
    losses = []
    for loss in ("sampled-softmax", "softmax"):
        model = Retriever.new(shape, seed=0, device=device)
        step = FusedStep(model, _settings(loss=loss, scale=3.0), split)
        losses.append(float(step(np.arange(20), number=0, progress=0.0)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def _left_out(shared: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """Of the classes that a batch shares: each point's positive if it is there, otherwise the last."""
    return torch.where(torch.isin(positives, shared), positives, shared[-1])


def _by_autograd(
    loss: PoolLoss,
    queries: torch.Tensor,
    classes: torch.Tensor,
    positives: torch.Tensor,
    pool: torch.Tensor,
    hidden: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    queries, classes = queries.clone().requires_grad_(), classes.clone().requires_grad_()
    positive = (queries * classes[positives]).sum(dim=1)
    losses = loss.of_each_point(positive, queries @ classes[pool].T, hidden)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert queries.grad is not None
    assert classes.grad is not None
    return losses.detach(), queries.grad, classes.grad


@pytest.mark.parametrize("exclude_known", [True, False])
@pytest.mark.parametrize(
    "chosen",
    [{"top": 1}, {"top": 3, "loss": "mined-softmax", "scale": 5.0}, {"loss": "softmax", "scale": 5.0}],
    ids=lambda chosen: chosen.get("loss", "bowl"),
)
def test_known_labels_are_left_out_or_not(chosen: dict[str, Any], exclude_known: bool, device: str) -> None:
    """Points have many labels, of which only the first has a weight: that is the positive of both steps."""
    split = _split(labels_each=15)
    weights = np.tile(np.array([1] + [0] * 14, np.float32), NUM_POINTS)
    split.labels = SparseTable(split.labels.offsets, split.labels.indices, weights)
    settings = _settings(exclude_known=exclude_known, **chosen)
    shape, rows = ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), np.arange(20)
    losses = {}
    for known in (True, False):
        model = Retriever.new(shape, seed=0, device=device)
        plain = TrainingStep(model, replace(settings, exclude_known=known))
        losses[known] = float(plain(split.batch(rows), number=0, progress=0.0))
    assert losses[True] < 0.985 * losses[False]
    fused = FusedStep(Retriever.new(shape, seed=0, device=device), settings, split)
    # Operands are rounded to bfloat16 here.
    assert float(fused(rows, number=0, progress=0.0)) == pytest.approx(losses[exclude_known], rel=0.005)


@pytest.mark.parametrize("chosen", [{"top": 1}, {"top": 3, "loss": "mined-softmax", "scale": 5.0}], ids=str)
def test_the_hardest_are_those_of_the_whole_pool(chosen: dict[str, Any], device: str) -> None:
    """The pool is the beginning of the step's permutation without the positive; half of it would have a lower loss."""
    width, split = 24, _split()
    settings = _settings(pool=width, **chosen)
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0, device=device)
    objective = make_objective(settings, model.classes)
    assert isinstance(objective, PoolObjective)
    batch = split.batch(np.arange(20))
    positives = torch.from_numpy(batch.labels.indices.astype(np.int64)).to(device)
    units = model.encode(query_batch(batch.queries, model.device))
    scores = units @ model.classes.weight.T
    own = scores.gather(1, positives[:, None])[:, 0]
    learn, wanted = FusedStep(model, settings, split), {}
    for number in range(2):
        key = step_seed(settings.seed, 3 * number + 1) & 0xFFFFFFFF
        order = permuted(torch.arange(width + 1), key=key, num_classes=NUM_CLASSES).to(device)
        for size in (width, width // 2):
            shared = order[: size + 1]
            rivals = scores[:, shared].masked_fill(shared == _left_out(shared, positives)[:, None], -torch.inf)
            hardest = rivals.topk(settings.top, dim=1).values
            wanted[number, size] = float(objective.loss.of_each_point(own, hardest, None).mean())
    assert wanted[0, width // 2] < 0.98 * wanted[0, width]
    assert wanted[1, width] != wanted[0, width]
    for number in range(2):
        learn = FusedStep(Retriever.new(model.shape, seed=0, device=device), settings, split)
        # Which are the hardest is found in bfloat16.
        assert float(learn(np.arange(20), number=number, progress=0.0)) == pytest.approx(
            wanted[number, width], rel=0.01
        )


@pytest.mark.parametrize(
    "chosen", [{"loss": "negative-sampling-bowl"}, {"loss": "bowl", "top": 2, "least_weight": 0.01}], ids=str
)
def test_each_class_of_the_pool_moves(chosen: dict[str, Any], device: str) -> None:
    width = 24
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0, device=device)
    before = model.classes.weight.clone()
    settings, split = _settings(pool=width, batch_size=8, **chosen), _split()
    FusedStep(model, settings, split)(np.arange(8), number=0, progress=0.0)
    shared = permuted(torch.arange(width + 1), key=step_seed(settings.seed, 1) & 0xFFFFFFFF, num_classes=NUM_CLASSES)
    positives = torch.from_numpy(split.batch(np.arange(8)).labels.indices.astype(np.int64))
    counts = shared != _left_out(shared, positives)[:, None]
    moved = (model.classes.weight != before).any(dim=1).nonzero()[:, 0].tolist()
    assert set(moved) == {*shared.expand(8, -1)[counts].tolist(), *positives.tolist()}


def test_each_step_draws_anew(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positives and pools of the same points, in the steps that follow each other."""
    positives: list[torch.Tensor] = []
    pools: list[torch.Tensor] = []

    def drawn_positives(*given: Any) -> torch.Tensor:
        positives.append(draw_positives(*given))
        return positives[-1]

    def drawn_pool(*given: Any, **named: Any) -> tuple[torch.Tensor, torch.Tensor]:
        ids_W, rows_WD = pool_rows(*given, **named)
        pools.append(ids_W)
        return ids_W, rows_WD

    monkeypatch.setattr("owlmine.dense.fused_step.draw_positives", drawn_positives)
    monkeypatch.setattr("owlmine.dense.class_sides.pool_rows", drawn_pool)
    # A batch that is not full is never recorded as a graph, which would not come by here again.
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0, device=device)
    learn = FusedStep(model, _settings(pool=10, batch_size=NUM_POINTS), _split(labels_each=4))
    for number in range(6):
        learn(np.arange(20), number=number, progress=0.0)
    assert len({tuple(ids.tolist()) for ids in positives}) == 6
    assert len({tuple(sorted(ids.tolist())) for ids in pools}) == 6


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_step_is_as_large_as_its_progress_leaves_it(schedule: str, device: str) -> None:
    """At the very end of a run nothing moves any more."""
    split, shape = _split(), ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM)
    start = Retriever.new(shape, seed=0, device=device).tensors()
    moved = []
    for progress in (0.0, 0.5, 1.0):
        model = Retriever.new(shape, seed=0, device=device)
        FusedStep(model, _settings(schedule=schedule, feature_rate=0.01), split)(
            np.arange(20), number=0, progress=progress
        )
        moved.append({name: float((tensor - start[name]).norm()) for name, tensor in model.tensors().items()})
    for name in start:
        assert moved[2][name] < 1e-5
        # Class vectors come back to length 1, so that half the step is not quite half the way.
        assert moved[1][name] == pytest.approx(0.5 * moved[0][name], rel=0.15), name


def test_a_bfloat16_table_stays_one(device: str) -> None:
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0, device=device)
    model.classes.weight = model.classes.weight.bfloat16()
    for pool in (NUM_CLASSES - 1, 10):
        step = FusedStep(model, _settings(pool=pool), _split(labels_each=3))
        loss = step(np.arange(20), number=0, progress=0.5)
        assert bool(torch.isfinite(loss))
        assert step.copy_bytes == 0
    assert model.classes.weight.dtype == torch.bfloat16
    assert torch.allclose(model.classes.weight.float().norm(dim=1), torch.ones((), device=device), atol=0.02)


@pytest.mark.parametrize("chosen", [{"loss": "softmax"}, {"loss": "one-vs-all"}, {"loss": "bowl", "top": 1}])
def test_the_copy_of_all_classes_follows_them(chosen: dict[str, Any], device: str, rounded: Rounded) -> None:
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0, device=device)
    before = model.classes.weight.clone()
    step = FusedStep(model, _settings(**chosen), _split())
    for number in range(2):
        step(np.arange(20), number=number, progress=0.0)
    copy = step._class_side.copy_KD
    assert copy is not None
    assert step.copy_bytes == copy.nbytes
    moved = (model.classes.weight != before).any(dim=1)
    assert bool(moved.any())
    assert torch.equal(copy[moved], rounded(model.classes.weight[moved], torch.bfloat16))


def test_a_grown_pool_is_as_one_of_that_size(device: str) -> None:
    split, shape = _split(), ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM)
    models = [Retriever.new(shape, seed=0, device=device) for _ in range(3)]
    grown = FusedStep(models[0], _settings(pool=20, pool_start=2, batch_size=8), split)
    grown.grow(20)
    whole = FusedStep(models[1], _settings(pool=20, batch_size=8), split)
    small = FusedStep(models[2], _settings(pool=20, pool_start=2, batch_size=8), split)
    losses = [float(step(np.arange(8), number=0, progress=0.0)) for step in (grown, whole, small)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    # Rows of features move by atomic additions, whose order on a GPU changes the last bits.
    for name, tensor in models[0].tensors().items():
        assert torch.allclose(tensor, models[1].tensors()[name], atol=1e-5), name


def test_own_labels_are_never_mined(device: str) -> None:
    """Two classes only, both labels of every point: nothing is left to mine, and nothing breaks."""
    random = np.random.default_rng(0)
    offsets = np.arange(21, dtype=np.int64)
    labels = np.tile(np.array([0, 1], np.int32), 20)
    queries = SparseTable(offsets * 2, random.integers(0, 9, 40).astype(np.int32), None)
    split = Split("train", queries, SparseTable(offsets * 2, labels, None), None)
    model = Retriever.new(ModelShape(9, 2, dim=8), seed=0, device=device)
    loss = FusedStep(model, _settings(loss="mined-softmax", pool=1, dim=8, scale=10.0), split)(
        np.arange(20), number=0, progress=0.0
    )
    assert bool(torch.isfinite(loss))


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"kind": "linear"}, "the model is linear"),
        ({"optimiser": "adaptive"}, "the optimiser is adaptive"),
        ({"learn_scale": True}, "the scale is learned"),
        ({"shared_pool": False}, "each point has a pool of its own"),
        ({"loss": "full-bowl"}, "there is no kernel for full-bowl"),
        ({"dim": 12}, "the dimension is not a multiple of 8"),
    ],
)
def test_says_what_it_cannot_do(chosen: dict[str, Any], words: str) -> None:
    settings = _settings(**chosen)
    shape = ModelShape(NUM_FEATURES, NUM_CLASSES, dim=settings.dim, kind=settings.kind)
    assert why_not_fused(Retriever.new(shape, seed=0), settings, _split()) == words


@pytest.mark.parametrize("loss", ["softmax", "sampled-softmax"])
def test_pools_of_points_are_refused_where_they_mean_nothing(loss: str) -> None:
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0)
    with pytest.raises(ValueError, match="shared_pool is off; wanted"):
        FusedStep(model, _settings(loss=loss, shared_pool=False), _split())


def test_dense_queries_go_the_plain_way() -> None:
    split = Split("train", np.zeros((NUM_POINTS, NUM_FEATURES), np.float32), _split().labels, None)
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM, dense=True), seed=0)
    assert why_not_fused(model, _settings(), split) == "queries are dense"
    assert isinstance(choose_step(model, _settings(), split, print), HostStep)
