"""With the linear scorer every loss but semi-hard mining is convex in the class table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.data import Store
from owlmine.dense.objective import make_objective
from owlmine.dense.row_table import RowTable
from owlmine.model import ModelShape, Retriever, query_batch
from owlmine.recipe.options import TRAINABLE

from .runs import small_options


@pytest.mark.parametrize("loss", [loss for loss in TRAINABLE if loss != "semi-hard"])
@pytest.mark.parametrize("surrogate", ["hinge", "logistic"])
def test_losses_of_the_linear_scorer_are_convex(store: Store, loss: str, surrogate: str) -> None:
    """On random segments between two tables, with the same pool: f((1 - t) a + t b) <= (1 - t) f(a) + t f(b)."""
    options = small_options(kind="linear", loss=loss, top=3, surrogate=surrogate)
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, kind="linear"), seed=0)
    batch = store["train"].batch(np.arange(10))
    queries = model.encode(query_batch(batch.queries, torch.device("cpu"))).double()
    positives = torch.from_numpy(batch.labels.indices[batch.labels.offsets[:-1]].astype(np.int64))

    @torch.no_grad()
    def value(table: Tensor) -> float:
        pools = torch.Generator().manual_seed(7)
        return make_objective(options, RowTable(table))(queries, positives, batch.labels, pools).sum().item()

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
