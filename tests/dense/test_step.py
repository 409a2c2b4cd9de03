"""Whole training steps against plain PyTorch: dense parameters, autograd through all N x K scores, torch.optim.SGD.
And how the positive of a step is drawn: uniformly among a point's labels, or in proportion to their weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor, nn

from owlmine.data import Store
from owlmine.data.rows import SparseRows
from owlmine.data.store import Batch
from owlmine.dense import objective, step
from owlmine.dense.objective import make_objective
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.row_table import RowTable
from owlmine.dense.settings import DenseSettings
from owlmine.dense.step import TrainingStep, draw_positives, rate_factor, step_seed
from owlmine.losses.modules.registry import LOSSES
from owlmine.mining import BatchPool
from owlmine.recipe.options import TRAINABLE

from .plain_losses import PLAIN_LOSSES, Point
from .trainings import shape_for, small_settings


@dataclass
class Drawn:
    """What the steps drew at random."""

    positives: list[np.ndarray] = field(default_factory=list)
    pools: list[BatchPool] = field(default_factory=list)


@contextmanager
def recorded() -> Iterator[Drawn]:
    drawn = Drawn()
    draw_pool, draw = objective.draw_batch_pool, step.draw_positives

    def pool(*args: Any, **named: Any) -> BatchPool:
        drawn.pools.append(draw_pool(*args, **named))
        return drawn.pools[-1]

    def positives(*args: Any) -> np.ndarray:
        drawn.positives.append(draw(*args))
        return drawn.positives[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective, "draw_batch_pool", pool)
        patch.setattr(step, "draw_positives", positives)
        yield drawn


class PlainModel(nn.Module):
    """The same model as dense parameters; ``momentum`` and rates by ``torch.optim.SGD``."""

    def __init__(self, tensors: dict[str, Tensor], settings: DenseSettings) -> None:
        super().__init__()
        self.settings = settings
        self.weights = nn.ParameterDict({n.replace(".", "_"): nn.Parameter(t.clone()) for n, t in tensors.items()})
        self.log_scale = nn.Parameter(self.weights["classes"].new_tensor(settings.scale).log())
        maps = [w for name, w in self.weights.items() if name.startswith("map")]
        groups: list[dict[str, Any]] = [{"params": [self.weights["classes"]], "lr": settings.class_rate}]
        if "table" in self.weights:
            groups.append({"params": [self.weights["table"]], "lr": settings.feature_rate})
        smooth = [*maps, *([self.log_scale] if settings.learn_scale else [])]
        groups.append({"params": smooth, "lr": settings.map_rate, "momentum": settings.momentum})
        self.optimizer = torch.optim.SGD(groups, lr=0.0)
        self.rates = [group["lr"] for group in groups]

    def scores(self, queries_NF: Tensor) -> Tensor:
        hidden = queries_NF
        if "table" in self.weights:
            hidden = hidden @ self.weights["table"]
            for name in sorted(name for name in self.weights if name.startswith("map")):
                hidden = hidden.clamp_min(0) @ self.weights[name]
            hidden = hidden / hidden.norm(dim=1, keepdim=True)
        return hidden @ self.weights["classes"].T

    def learn(self, queries_NF: Tensor, points: list[dict[str, Any]], *, factor: float, pool_size: int) -> float:
        scores_NK, scale = self.scores(queries_NF), self.log_scale.exp()
        losses = [
            PLAIN_LOSSES[self.settings.loss](Point(v, s=scale, B=pool_size, settings=self.settings, **point))
            for v, point in zip(scores_NK, points, strict=True)
        ]
        self.optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.step()
        if "table" in self.weights:
            with torch.no_grad():
                self.weights["classes"] /= self.weights["classes"].norm(dim=1, keepdim=True)
        return torch.stack(losses).mean().item()


def points_of(batch: Batch, positives: np.ndarray, pool: BatchPool | None, *, exclude: bool) -> list[dict[str, Any]]:
    points = []
    for n, positive in enumerate(positives.tolist()):
        known = set(batch.labels[n : n + 1].indices.tolist())
        assert positive in known
        members = [] if pool is None else pool.ids()[n].tolist()
        assert positive not in members
        left_out = frozenset(known) if exclude else frozenset()
        points.append({"y": positive, "pool": [j for j in members if j not in left_out], "known": left_out})
    return points


def compare(
    store: Store, settings: DenseSettings, *, dtype: torch.dtype, tolerance: float, num_steps: int = 3
) -> Drawn:
    """Steps of the library and of plain PyTorch on the same batches, pools and positives, from the same weights."""
    dense = store.meta["queries"] == "dense"
    shape = shape_for(store, settings)
    tensors = {name: tensor.to(dtype) for name, tensor in Retriever.new(shape, seed=1).tensors().items()}
    if settings.kind == "linear":  # zeros would make every class equally hard
        tensors["classes"] = torch.randn(tensors["classes"].shape, generator=torch.manual_seed(0), dtype=dtype)
    else:  # unit vectors in this precision too: the plain model scales every row, the other those that it touched
        tensors["classes"] = nn.functional.normalize(tensors["classes"], dim=1)
    plain = PlainModel(tensors, settings)
    model = Retriever.from_tensors(shape, {name: tensor.clone() for name, tensor in tensors.items()})
    learn = TrainingStep(model, settings)
    with recorded() as drawn:
        for number in range(num_steps):
            batch = store["train"].batch(np.arange(12) + 12 * number)
            if not dense:
                wide = replace(batch.queries, values=batch.queries.values.astype(str(dtype).removeprefix("torch.")))
                batch = Batch(wide, batch.labels)
                queries_NF = torch.from_numpy(np.asarray(wide.to_scipy(store.num_features).todense()))
            else:
                queries_NF = torch.from_numpy(batch.queries)
            progress = number / num_steps
            loss = learn(batch, number=number, progress=progress)
            pool = drawn.pools[-1] if LOSSES[settings.loss].inputs == "pool" else None
            if pool is not None:
                assert pool.ids().shape == (12, settings.pool)
            points = points_of(batch, drawn.positives[-1], pool, exclude=settings.exclude_known)
            expected = plain.learn(
                queries_NF, points, factor=rate_factor(settings.schedule, progress), pool_size=settings.pool
            )
            assert float(loss) == pytest.approx(expected, rel=tolerance, abs=tolerance)
    for name, tensor in model.tensors().items():
        torch.testing.assert_close(tensor, plain.weights[name.replace(".", "_")].data, rtol=tolerance, atol=tolerance)
        assert not torch.allclose(tensor, tensors[name], rtol=1e-4, atol=1e-6), f"{name} has not moved"
    if settings.learn_scale:
        assert learn.objective.loss.scale.item() == pytest.approx(plain.log_scale.exp().item(), rel=1e-5)
    return drawn


def test_every_loss_has_a_plain_twin() -> None:
    assert set(PLAIN_LOSSES) == set(TRAINABLE)


@pytest.mark.parametrize("loss", TRAINABLE)
@pytest.mark.parametrize("top", [1, 4])
def test_steps_equal_plain_pytorch(store: Store, loss: str, top: int) -> None:
    settings = small_settings(loss=loss, top=top, surrogate="logistic", scale=3.0, map_rate=0.01)
    compare(store, settings, dtype=torch.float64, tolerance=1e-9)


@pytest.mark.parametrize(
    "changes",
    [
        {"power": 1.5, "top": 5},
        {"least_weight": 0.01, "top": 3},
        {"power": 0.5, "top": 5, "least_weight": 0.02, "loss": "powl"},
        {"top": 20},
        {"surrogate": "hinge"},
        {"surrogate": "squared_hinge", "loss": "powl", "top": 2},
        {"surrogate": "exponential"},
        {"surrogate": "ramp", "loss": "powl"},
        {"depth": 0, "top": 2},
        {"depth": 2, "top": 2},
        {"kind": "linear", "top": 3},
        {"pool": 59, "top": 2},
        {"schedule": "cosine"},
        {"schedule": "constant", "momentum": 0.0},
    ],
    ids=str,
)
def test_steps_equal_plain_pytorch_with_other_settings(store: Store, changes: dict[str, Any]) -> None:
    settings = small_settings(**({"surrogate": "logistic", "map_rate": 0.01} | changes))
    compare(store, settings, dtype=torch.float64, tolerance=1e-9)


@pytest.mark.parametrize("loss", [loss for loss in TRAINABLE if LOSSES[loss].inputs == "pool"])
def test_known_labels_can_be_left_out(store: Store, loss: str) -> None:
    """The pool is every class but the positive, so that each point's other label is in it."""
    settings = small_settings(loss=loss, top=3, pool=59, surrogate="logistic", exclude_known=True, map_rate=0.01)
    compare(store, settings, dtype=torch.float64, tolerance=1e-9)


@pytest.mark.parametrize("loss", [loss for loss in TRAINABLE if LOSSES[loss].inputs == "classes"])
def test_known_labels_can_count_as_negatives(store: Store, loss: str) -> None:
    """Losses over all classes leave them out by default, as the tests above show."""
    settings = small_settings(loss=loss, top=3, surrogate="logistic", exclude_known=False, map_rate=0.01)
    compare(store, settings, dtype=torch.float64, tolerance=1e-9)


@pytest.mark.parametrize("loss", ["full-bowl", "full-powl", "softmax", "one-vs-all"])
def test_known_labels_may_be_all_other_classes(loss: str) -> None:
    """Nothing is left to push away: the positive alone counts; every gradient is finite, a learned scale's too."""
    settings = small_settings(loss=loss, top=2, scale=50.0, learn_scale=True, surrogate="squared_hinge", pool=3)
    table = torch.randn(4, 5, generator=torch.manual_seed(0)).requires_grad_()
    queries = torch.randn(2, 5, generator=torch.manual_seed(1)).requires_grad_()
    labels = SparseRows(np.array([0, 4, 8]), np.array([2, 0, 1, 3, 3, 1, 0, 2], np.int32), None)
    rows = RowTable(table)
    objective_of_all = make_objective(settings, rows)
    losses = objective_of_all(queries, torch.tensor([1, 3]), labels, torch.Generator())
    own = 50 * (queries * table[[1, 3]]).sum(dim=1)
    expected = {
        "full-bowl": (1 - own).clamp_min(0) ** 2,
        "full-powl": torch.zeros(2),
        "softmax": torch.zeros(2),
        "one-vs-all": torch.nn.functional.softplus(-own),
    }
    torch.testing.assert_close(losses, expected[loss])
    losses.sum().backward()
    (touched,) = rows.take_touched()
    assert touched.gradient_UD[[0, 2]].abs().max() == 0
    for gradient in (touched.gradient_UD, queries.grad, *(p.grad for p in objective_of_all.loss.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("changes", [{}, {"loss": "sampled-softmax", "scale": 8.0}, {"depth": 2, "top": 4}], ids=str)
def test_steps_in_single_precision(store: Store, changes: dict[str, Any]) -> None:
    compare(store, small_settings(**changes), dtype=torch.float32, tolerance=2e-4)


@pytest.mark.parametrize("loss", ["bowl", "softmax"])
def test_dense_queries(dense_store: Store, loss: str) -> None:
    """The table moves at the rate of features and without momentum, as its rows do for sparse queries."""
    settings = small_settings(loss=loss, surrogate="logistic", map_rate=0.01, feature_rate=0.1)
    compare(dense_store, settings, dtype=torch.float32, tolerance=2e-4)


@pytest.mark.parametrize("loss", ["mined-softmax", "softmax"])
def test_learned_scale(store: Store, loss: str) -> None:
    """The scale is kept in single precision, whatever the model."""
    settings = small_settings(loss=loss, top=3, scale=4.0, learn_scale=True, map_rate=0.01)
    compare(store, settings, dtype=torch.float64, tolerance=1e-5)


def test_each_step_draws_anew(store: Store) -> None:
    """Positives and pools of the same points: in eight steps both labels of nearly every point, and most classes."""
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=8), seed=0)
    learn, batch = TrainingStep(model, small_settings()), store["train"].batch(np.arange(40))
    with recorded() as drawn:
        for number in range(8):
            learn(batch, number=number, progress=0.0)
    positives, pools = np.stack(drawn.positives), [tuple(pool.shared_ids.tolist()) for pool in drawn.pools]
    assert len({tuple(row) for row in positives.tolist()}) == len(set(pools)) == 8
    # A point of two labels keeps to one of them in eight steps once in 128 times.
    assert ((positives != positives[0]).any(axis=0)).sum() > 30
    # A class is missed by eight pools of 20 among 59 others 4 times in 100.
    assert len(set().union(*pools)) > 50


def test_only_rows_of_the_batch_move(store: Store) -> None:
    """Every other row of both tables stays as it is, bit for bit; class vectors stay unit vectors."""
    settings = small_settings(top=2)
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=8), seed=0)
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    batch = store["train"].batch(np.arange(6))
    with recorded() as drawn:
        TrainingStep(model, settings)(batch, number=0, progress=0.0)
    moved = {
        name: set((model.tensors()[name] != before[name]).any(dim=1).nonzero()[:, 0].tolist())
        for name in ("table", "classes")
    }
    assert moved["table"]
    assert moved["table"] <= set(batch.queries.indices.tolist())
    assert set(drawn.positives[0].tolist()) <= moved["classes"]
    assert moved["classes"] <= set(drawn.positives[0].tolist()) | set(drawn.pools[0].shared_ids.tolist())
    assert len(moved["classes"]) <= 6 * 3, "the positive and two kept negatives of each point, not the whole pool"
    torch.testing.assert_close(model.classes.weight.norm(dim=1), torch.ones(store.num_classes))


@pytest.mark.parametrize("optimiser", ["sgd", "adaptive"])
def test_class_vectors_stay_unit_vectors(store: Store, optimiser: str) -> None:
    settings = small_settings(optimiser=optimiser, class_rate=0.5)
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=8), seed=0)
    learn = TrainingStep(model, settings)
    for number in range(20):
        learn(store["train"].batch(np.arange(10 * number, 10 * number + 10)), number=number, progress=0.0)
    torch.testing.assert_close(model.classes.weight.norm(dim=1), torch.ones(store.num_classes))


def test_adaptive_steps_are_divided_by_the_rows_own_history(store: Store) -> None:
    """row -= rate g / sqrt(sum of mean g²): the same gradients as SGD would have had, read off at rate 1."""
    shape = ModelShape(store.num_features, store.num_classes, kind="linear")
    table = torch.randn(store.num_classes, store.num_features, generator=torch.manual_seed(0))
    settings = small_settings(kind="linear", loss="softmax", schedule="constant", class_rate=0.5, scale=1.0)
    adaptive = Retriever.from_tensors(shape, {"classes": table.clone()})
    learn = TrainingStep(adaptive, replace(settings, optimiser="adaptive"))
    expected, sums = table.clone(), torch.zeros(store.num_classes)
    for number in range(3):
        batch = store["train"].batch(np.arange(8 * number, 8 * number + 8))
        plain = Retriever.from_tensors(shape, {"classes": expected.clone()})
        TrainingStep(plain, replace(settings, class_rate=1.0))(batch, number=number, progress=0.0)
        gradient = expected - plain.classes.weight
        sums += gradient.square().mean(dim=1)
        expected -= 0.5 * gradient / (sums.sqrt() + 1e-10)[:, None]
        learn(batch, number=number, progress=0.0)
        torch.testing.assert_close(adaptive.classes.weight, expected, rtol=1e-3, atol=1e-4)


REPEATS = 4000


def drawn_counts(weights: list[list[float]], *, weighted: bool) -> list[list[int]]:
    """How often each label is drawn; all points in one batch, REPEATS times over."""
    offsets = np.cumsum([0, *[len(row) for row in weights]])
    ids = np.arange(offsets[-1], dtype=np.int32) + 100
    values = np.array([w for row in weights for w in row], np.float32) if weighted else None
    labels, rng = SparseRows(offsets, ids, values), np.random.default_rng(5)
    counts = np.zeros(offsets[-1], np.int64)
    for _ in range(REPEATS):
        positives = draw_positives(labels, rng) - 100
        assert (positives >= offsets[:-1]).all()
        assert (positives < offsets[1:]).all()
        counts[positives] += 1
    return [counts[low:high].tolist() for low, high in pairwise(offsets)]


def test_uniform() -> None:
    for counts in drawn_counts([[1] * n for n in (1, 2, 7, 3)], weighted=False):
        assert sum(counts) == REPEATS
        if len(counts) > 1:
            assert chisquare(counts).pvalue > 1e-4


def test_in_proportion_to_weights() -> None:
    weights = [[1.0, 3.0], [5.0], [0.1, 0.2, 0.3, 0.4], [1e-3, 2e-3], [1e6, 1e6]]
    for counts, row in zip(drawn_counts(weights, weighted=True), weights, strict=True):
        assert sum(counts) == REPEATS
        if len(row) > 1:
            expected = np.array(row) / sum(row) * REPEATS
            assert chisquare(counts, expected).pvalue > 1e-4


def test_a_label_of_weight_zero_is_not_drawn() -> None:
    (counts,) = drawn_counts([[0.0, 1.0, 0.0]], weighted=True)
    assert counts == [0, REPEATS, 0]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_seeds_of_steps_differ(seed: int) -> None:
    seeds = {step_seed(own, number) for own in (seed, seed ^ 1) for number in range(2000)}
    assert len(seeds) == 4000
    assert all(0 <= value < 2**63 for value in seeds)
