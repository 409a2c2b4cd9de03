"""A pool for each point: the hardest of it is found, and the loss is that of the pool written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data import Store
from owlmine.data.rows import SparseRows
from owlmine.dense import objective as point_pools
from owlmine.dense.objective import make_objective
from owlmine.dense.row_table import RowTable
from owlmine.errors import OwlmineError
from owlmine.train import TrainOptions, train

from .runs import small_options

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
    monkeypatch.setattr(point_pools, "_BLOCK_NUMBERS", block)
    drawn: list[torch.Tensor] = []
    draw = point_pools.draw_pools
    monkeypatch.setattr(point_pools, "draw_pools", lambda *a, **o: drawn.append(draw(*a, **o)) or drawn[-1])
    classes, queries = classes_and_queries()
    options = TrainOptions(loss=loss, top=top, pool=20, shared_pool=False, exclude_known=exclude_known, scale=2.0)
    objective = make_objective(options, classes)
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
    objective = make_objective(TrainOptions(top=1, pool=20, shared_pool=False), classes)
    queries.requires_grad_()
    objective(queries, POSITIVES, LABELS, torch.Generator().manual_seed(0)).sum().backward()
    (touched,) = classes.take_touched()
    assert set(POSITIVES.tolist()) <= set(touched.ids_U.tolist())
    assert len(touched.ids_U) <= 2 * POINTS
    assert queries.grad is not None
    assert bool((queries.grad != 0).any(dim=1).all())


def test_a_run_learns(store: Store, tmp_path: Path) -> None:
    options = small_options(shared_pool=False, epochs=6.0, warm_start=False)
    losses = [record["loss"] for record in train(store, tmp_path / "model", options).config["history"]]
    assert losses[0] > 2.3  # near what random vectors give
    assert losses[-1] < 2.1


def test_no_growth_with_pools_of_points() -> None:
    with pytest.raises(ValueError, match="pool_start is 4; wanted 0 with a pool for each point"):
        TrainOptions(loss="bowl", pool_start=4, shared_pool=False)


@pytest.mark.parametrize("loss", ["softmax", "one-vs-all", "full-bowl"])
def test_losses_over_all_classes_have_no_pools(loss: str, store: Store, tmp_path: Path) -> None:
    told = "shared_pool is off; wanted it on with a loss over all classes"
    with pytest.raises(ValueError, match=told):
        make_objective(TrainOptions(loss=loss, pool=20, shared_pool=False), classes_and_queries()[0])
    with pytest.raises(OwlmineError, match=told):
        train(store, tmp_path / "model", small_options(loss=loss, shared_pool=False))


@pytest.mark.parametrize(
    "chosen", [{"loss": "negative-sampling-bowl"}, {"loss": "sampled-softmax"}, {"loss": "bowl", "tail": 0.01}]
)
def test_a_whole_pool_of_each_point_is_refused(chosen: dict[str, Any]) -> None:
    """It would be N x (B + 1) x D numbers at once."""
    with pytest.raises(ValueError, match="shared_pool is off; wanted a loss that mines"):
        make_objective(TrainOptions(pool=20, shared_pool=False, **chosen), classes_and_queries()[0])
