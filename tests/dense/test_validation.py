"""Validation points are watched, never learned from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data import Batches, Store, convert
from owlmine.data.store import Batch, Split
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.validation import _MAX_POINTS, ValidationPart, _chosen_blocks
from owlmine.dense.warm_start import warm_start

from .trainings import small_settings, trained


def test_cut_from_train(store: Store) -> None:
    part = ValidationPart(store, share=0.1, seed=3)
    assert len(part) == 40
    assert sorted([*part.rows.tolist(), *part.train_rows.tolist()]) == list(range(400))
    same, other = (ValidationPart(store, share=0.1, seed=seed) for seed in (3, 4))
    assert part.rows.tolist() == same.rows.tolist() != other.rows.tolist()


def test_no_more_than_asked_or_5000(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(ValidationPart(store, share=0.0, seed=0)) == 0
    assert len(ValidationPart(store, share=0.001, seed=0)) == 0
    monkeypatch.setattr("owlmine.dense.validation._MAX_POINTS", 17)
    assert len(ValidationPart(store, share=0.5, seed=0)) == 17


def test_a_dev_split_leaves_all_of_train(store_with_dev: Store) -> None:
    part = ValidationPart(store_with_dev, share=0.5, seed=0)
    assert part.train_rows.tolist() == list(range(400))
    assert part.rows.tolist() == list(range(50))
    assert part.split.name == "dev"


def test_a_brief_look_takes_every_so_many_points(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where classes are many; patience, which decides by the figures, looks at all."""
    part = ValidationPart(store, share=0.3, seed=0)
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=4), seed=0)
    looked: list[int] = []
    batches = ValidationPart.batches
    monkeypatch.setattr(ValidationPart, "batches", lambda own, step=1: looked.append(step) or batches(own, step))
    assert part.measure(model, briefly=True) == part.measure(model)
    monkeypatch.setattr("owlmine.dense.validation._BRIEF_SCORES", 40 * store.num_classes)
    monkeypatch.setattr("owlmine.dense.validation._BRIEF_POINTS", 30)
    assert part.measure(model, briefly=True) != part.measure(model)
    monkeypatch.setattr("owlmine.dense.validation._BRIEF_SCORES", 1)
    part.measure(model, briefly=True)
    assert looked == [1, 1, 3, 1, 4]
    assert [len(batch) for batch in batches(part, 4)] == [30]
    looked.clear()
    trained(store, small_settings(epochs=1.0), validation=0.3)
    trained(store, small_settings(epochs=1.0, patience=1), validation=0.3)
    assert looked == [4, 1]


def test_training_never_sees_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in batches nor in the warm start."""
    part = ValidationPart(store, share=0.3, seed=0)
    learned: set[int] = set()
    batch, batches = Split.batch, ValidationPart.batches
    measuring: list[bool] = []

    def watched(self: Split, row_ids: np.ndarray) -> Any:
        if not measuring:
            learned.update(row_ids.tolist())
        return batch(self, row_ids)

    def measured(self: ValidationPart, step: int) -> Iterator[Batch]:
        measuring.append(True)
        try:
            yield from batches(self, step)
        finally:
            measuring.pop()

    monkeypatch.setattr(Split, "batch", watched)
    monkeypatch.setattr(ValidationPart, "batches", measured)
    trained(store, small_settings(), validation=0.3)
    assert learned == set(part.train_rows.tolist())
    assert len(part) == 120


def test_every_training_point_once_an_epoch(store: Store) -> None:
    part = ValidationPart(store, share=0.3, seed=0)
    batches = Batches(store["train"], batch_size=40, seed=0, rows=part.train_rows)
    seen = np.concatenate([batches.next()[0] for _ in range(len(batches))])
    assert sorted(seen.tolist()) == part.train_rows.tolist()


def test_figures_against_a_loop(store: Store) -> None:
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=128), seed=0)
    warm_start(model, store["train"], np.arange(400))
    part = ValidationPart(store, share=0.2, seed=0)
    found = part.measure(model)
    hits = {1: 0, 3: 0, 5: 0}
    for row in part.rows.tolist():
        batch = store["train"].batch(np.array([row]))
        dense = torch.from_numpy(np.asarray(batch.queries.to_scipy(store.num_features).todense()))
        hidden = (dense @ model.encoder.table.weight).clamp_min(0) @ model.encoder.maps[0].detach()
        scores = (model.classes.weight @ (hidden / hidden.norm())[0]).tolist()
        order = sorted(range(len(scores)), key=lambda c: -scores[c])
        for k in hits:
            hits[k] += len(set(order[:k]) & set(batch.labels.indices.tolist()))
    assert found == pytest.approx({f"P@{k}": 100 * hits[k] / k / len(part) for k in hits})
    assert found["P@1"] > 20, "the warm start alone must be a fair model"


def test_two_classes_have_no_p_at_3(tmp_path: Path) -> None:
    vectors = np.tile(np.eye(2, dtype=np.float32), (20, 1))
    store = convert({"train": (vectors, [[i % 2] for i in range(40)])}, tmp_path / "store")
    (record,) = trained(store, small_settings(pool=1, epochs=1.0), validation=0.2).history
    assert set(record) == {"step", "epoch", "loss", "P@1", "seconds"}


def test_blocks_are_cut_whole(store: Store) -> None:
    num_rows = len(store["train"])
    part = ValidationPart(store, share=0.3, seed=1, block=7)
    assert abs(len(part) - 0.3 * num_rows) <= 7
    assert set(part.rows) | set(part.train_rows) == set(range(num_rows))
    assert not set(part.rows) & set(part.train_rows)
    for block in range(-(-num_rows // 7)):
        members = np.arange(7 * block, min(7 * block + 7, num_rows))
        assert np.isin(members, part.rows).all() or np.isin(members, part.train_rows).all()
    other = ValidationPart(store, share=0.3, seed=2, block=7)
    assert set(part.rows) != set(other.rows)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30_000), st.floats(0, 1), st.integers(1, _MAX_POINTS), st.integers(0, 99))
def test_as_many_blocks_as_come_nearest(num_rows: int, share: float, block: int, seed: int) -> None:
    count = min(int(num_rows * share), _MAX_POINTS)
    rows = _chosen_blocks(num_rows, count, seed, block=block)
    assert sorted(set(rows.tolist())) == rows.tolist()
    assert set(rows.tolist()) <= set(range(num_rows))
    assert (len(rows) > 0) == (count > 0)
    assert len(rows) <= _MAX_POINTS
    whole = num_rows // block * block
    if count >= block and count + block <= _MAX_POINTS:
        # The last block of the split may be short by all but one.
        assert count - block / 2 - (block - 1 if whole < num_rows else 0) <= len(rows) <= count + block / 2


def test_one_block_at_least(store: Store) -> None:
    part = ValidationPart(store, share=0.02, seed=0, block=50)
    assert len(part) == 50
    assert part.rows.tolist() == list(range(part.rows[0], part.rows[0] + 50))
    assert len(part.train_rows) == 350
    assert len(ValidationPart(store, share=0.001, seed=0, block=50)) == 0


def test_blocks_are_no_more_than_5000_points(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.dense.validation._MAX_POINTS", 17)
    assert [len(ValidationPart(store, share=0.5, seed=0, block=block)) for block in (5, 8, 10, 16)] == [15, 16, 10, 16]
    with pytest.raises(ValueError, match="validation_block is 20; wanted at most 17, the most points to validate on"):
        ValidationPart(store, share=0.5, seed=0, block=20)
    assert len(ValidationPart(store, share=0.0, seed=0, block=20)) == 0


def test_something_is_left_to_learn_from(store: Store) -> None:
    message = (
        "validation_block is 400 with validation 0.6, which takes all 400 points of train; wanted some left to learn"
    )
    with pytest.raises(ValueError, match=message):
        ValidationPart(store, share=0.6, seed=0, block=400)
    with pytest.raises(ValueError, match=r"validation_block is 1000 with validation 0\.02, which takes all 400"):
        ValidationPart(store, share=0.02, seed=0, block=1000)


def test_a_dev_split_knows_no_blocks(store_with_dev: Store) -> None:
    assert len(ValidationPart(store_with_dev, share=0.6, seed=0, block=400)) == 50
