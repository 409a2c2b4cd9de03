"""Which classes the loss of a batch sees: a pool for each point against a loop, which settings fit each other, and
convexity with the linear scorer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.data import Store
from owlmine.data.rows import SparseRows
from owlmine.dense import objective as objectives
from owlmine.dense.encoder import query_batch
from owlmine.dense.objective import PointPoolObjective, PoolObjective, check_objective, make_objective
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.row_table import RowTable
from owlmine.recipe.options import TRAINABLE

from .trainings import small_settings, trained

NUM_CLASSES, DIM, POINTS = 30, 6, 5
LABELS = SparseRows(np.array([0, 1, 3, 6, 7, 9], np.int64), np.array([0, 3, 4, 5, 6, 7, 8, 9, 10], np.int64), None)
POSITIVES = torch.tensor([0, 4, 6, 8, 9])


def classes_and_queries() -> tuple[RowTable, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    classes = torch.randn(NUM_CLASSES, DIM, generator=generator, dtype=torch.float64)
    return RowTable(classes), torch.randn(POINTS, DIM, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("block", [1, 1 << 24])
@pytest.mark.parametrize("exclude_known", [False, True])
@pytest.mark.parametrize(("loss", "top"), [("bowl", 1), ("powl", 3), ("mined-softmax", 4)])
def test_against_a_loop(loss: str, top: int, exclude_known: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectives, "_BLOCK_NUMBERS", block)
    drawn: list[torch.Tensor] = []
    draw = objectives.draw_pools
    monkeypatch.setattr(objectives, "draw_pools", lambda *a, **o: drawn.append(draw(*a, **o)) or drawn[-1])
    classes, queries = classes_and_queries()
    settings = small_settings(loss=loss, top=top, shared_pool=False, exclude_known=exclude_known, scale=2.0)
    objective = make_objective(settings, classes)
    losses = objective(queries, POSITIVES, LABELS, torch.Generator().manual_seed(0)).detach()
    assert drawn[0].shape == (POINTS, 20)
    for point in range(POINTS):
        known = set(LABELS.indices[LABELS.offsets[point] : LABELS.offsets[point + 1]]) if exclude_known else set()
        allowed = [int(y) for y in drawn[0][point] if int(y) not in known]
        assert int(POSITIVES[point]) not in drawn[0][point]
        scores = sorted((2 * float(queries[point] @ classes.weight[y]) for y in allowed), reverse=True)
        positive = 2 * float(queries[point] @ classes.weight[POSITIVES[point]])
        assert float(losses[point]) == pytest.approx(by_hand(loss, top, positive, scores), abs=1e-12)


def by_hand(loss: str, top: int, positive: float, scores: list[float]) -> float:
    if loss == "bowl":
        return max(0.0, 1 - positive) + max(0.0, 1 + scores[0])
    if loss == "powl":
        return sum(max(0.0, 1 - positive + score) for score in scores[:top]) / top
    assert loss == "mined-softmax"
    return float(np.log(np.exp([positive, *scores[:top]]).sum()) - positive)


def test_gradient_reaches_kept_classes_alone() -> None:
    classes, queries = classes_and_queries()
    objective = make_objective(small_settings(shared_pool=False), classes)
    queries.requires_grad_()
    objective(queries, POSITIVES, LABELS, torch.Generator().manual_seed(0)).sum().backward()
    (touched,) = classes.take_touched()
    assert set(POSITIVES.tolist()) <= set(touched.ids_U.tolist())
    assert len(touched.ids_U) <= 2 * POINTS
    assert queries.grad is not None
    assert bool((queries.grad != 0).any(dim=1).all())


def test_a_pool_of_each_point_learns(store: Store) -> None:
    settings = small_settings(shared_pool=False, epochs=6.0, warm_start=False)
    losses = [record["loss"] for record in trained(store, settings).history]
    assert losses[0] > 2.3  # near what random vectors give
    assert losses[-1] < 2.1


GROWING = {"pool_start": 4}
POINT_POOLS = {"shared_pool": False}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": 30}, "pool is 30; wanted at most 29, all 30 classes except the positive"),
        ({"pool": 5, "top": 6}, "top is 6; wanted at most the pool of 5"),
        ({"loss": "softmax", "pool": 5, "top": 6}, "top is 6; wanted at most the pool of 5"),
        (GROWING | {"pool": 3}, "pool_start is 4; wanted at most the pool of 3"),
        (GROWING | {"top": 5}, r"pool_start is 4; wanted at least 2, and no fewer than the 5 that count \(--top\)"),
        (
            GROWING | {"loss": "mined-softmax", "top": 16},
            "pool_start is 4; wanted at least 2, and no fewer than the 16",
        ),
        ({"pool_start": 1}, "pool_start is 1; wanted at least 2"),
        (GROWING | POINT_POOLS, "pool_start is 4; wanted none with a pool for each point"),
    ],
    ids=str,
)
def test_numbers_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_objective(small_settings(**changes), num_classes=30)


@pytest.mark.parametrize("loss", ["softmax", "one-vs-all", "full-bowl"])
def test_losses_over_all_classes_have_no_pools(loss: str) -> None:
    classes, _ = classes_and_queries()
    with pytest.raises(ValueError, match="shared_pool is off; wanted it on with a loss over all classes"):
        make_objective(small_settings(loss=loss, **POINT_POOLS), classes)
    with pytest.raises(ValueError, match="pool_start is 4; wanted none with a loss over all classes"):
        make_objective(small_settings(loss=loss, **GROWING), classes)


WHOLE_POOL: list[dict[str, Any]] = [
    {"loss": "negative-sampling-bowl"},
    {"loss": "sampled-softmax"},
    {"loss": "semi-hard"},
    {"loss": "bowl", "least_weight": 0.01},
    # Equal weights for all of them are negative sampling; others leave no rank without a weight.
    {"loss": "powl", "top": 20},
    {"loss": "bowl", "top": 20, "power": 1.0},
]


@pytest.mark.parametrize("changes", WHOLE_POOL, ids=str)
def test_where_the_whole_pool_counts_it_is_shared_and_does_not_grow(changes: dict[str, Any]) -> None:
    """A pool for each point would be N x (B + 1) x D numbers at once."""
    classes, _ = classes_and_queries()
    with pytest.raises(ValueError, match="shared_pool is off; wanted it on with a loss in which the whole pool counts"):
        make_objective(small_settings(**(POINT_POOLS | changes)), classes)
    with pytest.raises(ValueError, match="pool_start is 4; wanted none with a loss in which the whole pool counts"):
        make_objective(small_settings(**(GROWING | changes)), classes)
    objective = make_objective(small_settings(**changes), classes)
    assert isinstance(objective, PoolObjective)
    assert objective.kept is None


@pytest.mark.parametrize(
    "changes", [{"top": 3}, {"loss": "powl", "top": 19, "power": 1.0}, {"loss": "mined-softmax", "top": 20}], ids=str
)
def test_losses_that_mine_see_the_hardest_alone(changes: dict[str, Any]) -> None:
    classes, _ = classes_and_queries()
    shared = make_objective(small_settings(**changes), classes)
    own = make_objective(small_settings(**changes, **POINT_POOLS), classes)
    assert isinstance(shared, PoolObjective)
    assert isinstance(own, PointPoolObjective)
    assert shared.kept == own.kept == changes["top"]


def test_a_pool_that_grows_begins_small() -> None:
    objective = make_objective(small_settings(**GROWING), classes_and_queries()[0])
    assert isinstance(objective, PoolObjective)
    assert objective.pool_size == 4


@pytest.mark.parametrize("loss", TRAINABLE)
def test_two_classes_are_enough(loss: str) -> None:
    """The pool is the other class, all of it."""
    table = RowTable(torch.eye(2, dtype=torch.float64))
    objective = make_objective(small_settings(loss=loss, pool=1, exclude_known=False, scale=3.0), table)
    queries = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    labels = SparseRows(np.array([0, 1]), np.array([0], np.int32), None)
    losses = objective(queries, torch.tensor([0]), labels, torch.Generator()).detach()
    assert losses.shape == (1,)
    assert float(losses) > 0
    with pytest.raises(ValueError, match="num_classes is 1; wanted 2 or more"):
        check_objective(small_settings(loss=loss, pool=0, top=0), num_classes=1)


@pytest.mark.parametrize("loss", [loss for loss in TRAINABLE if loss != "semi-hard"])
@pytest.mark.parametrize("surrogate", ["hinge", "logistic"])
def test_losses_of_the_linear_scorer_are_convex(store: Store, loss: str, surrogate: str) -> None:
    """On random segments between two tables, with the same pool: f((1 - t) a + t b) <= (1 - t) f(a) + t f(b).

    All but semi-hard mining, which is not.
    """
    settings = small_settings(kind="linear", loss=loss, top=3, surrogate=surrogate)
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, kind="linear"), seed=0)
    batch = store["train"].batch(np.arange(10))
    queries = model.encode(query_batch(batch.queries, torch.device("cpu"))).double()
    positives = torch.from_numpy(batch.labels.indices[batch.labels.offsets[:-1]].astype(np.int64))

    @torch.no_grad()
    def value(table: Tensor) -> float:
        pools = torch.Generator().manual_seed(7)
        return make_objective(settings, RowTable(table))(queries, positives, batch.labels, pools).sum().item()

    random = torch.Generator().manual_seed(1)
    strict = 0
    for _ in range(8):
        a, b = (3 * torch.randn(store.num_classes, store.num_features, generator=random).double() for _ in range(2))
        ends = value(a), value(b)
        for t in (0.1, 0.5, 0.8):
            between, chord = value((1 - t) * a + t * b), (1 - t) * ends[0] + t * ends[1]
            assert between <= chord + 1e-9
            strict += between < chord - 1e-6
    assert strict, "the segments must leave the straight line somewhere, else nothing was tested"
