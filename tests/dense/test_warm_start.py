"""Class vectors start at the direction of their training points."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from owlmine.data import Store
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.warm_start import warm_start


def test_warm_start_is_the_direction_of_the_class_mean(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop; in several blocks, with some points left out and classes that have none."""
    monkeypatch.setattr("owlmine.dense.warm_start._BLOCK_ROWS", 7)
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=8), seed=0)
    before, rows = model.classes.weight.clone(), np.arange(0, 100, 3)
    sums: dict[int, torch.Tensor] = {}
    for row in rows:
        batch = store["train"].batch(np.array([row]))
        vector = model.encode(query_batch(batch.queries, torch.device("cpu")))[0]
        for label in batch.labels.indices.tolist():
            sums[label] = sums.get(label, torch.zeros(8)) + vector
    warm_start(model, store["train"], rows)
    for label in range(store.num_classes):
        expected = sums[label] / sums[label].norm() if label in sums else before[label]
        torch.testing.assert_close(model.classes.weight[label], expected, rtol=1e-4, atol=1e-5)
    assert len(sums) < store.num_classes


def test_the_linear_model_starts_at_zero(store: Store) -> None:
    """Its problem is convex, so a start brings nothing."""
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, kind="linear"), seed=0)
    warm_start(model, store["train"], np.arange(100))
    assert not model.classes.weight.any()


def test_stops_between_blocks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.dense.warm_start._BLOCK_ROWS", 7)
    calls: list[int] = []

    def between() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        warm_start(
            Retriever.new(ModelShape(store.num_features, store.num_classes, dim=8), seed=0),
            store["train"],
            np.arange(100),
            between=between,
        )
    assert len(calls) == 3
