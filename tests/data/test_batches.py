"""Batches: every labelled point once an epoch, the same order from the same seed, a position that can be restored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from owlmine.data import Batches, ConvertOptions, Split, convert


@pytest.fixture
def split(tmp_path: Path) -> Split:
    random = np.random.default_rng(5)
    queries = sparse.random(103, 30, 0.2, format="csr", random_state=random)
    labels = [[] if row % 10 == 3 else [row % 7] for row in range(103)]
    return convert({"train": (queries, labels)}, tmp_path / "store", ConvertOptions(weighting="none"))["train"]


def test_an_epoch_visits_each_labelled_point_once(split: Split) -> None:
    batches = Batches(split, batch_size=10, seed=1)
    seen = np.concatenate([batches.next()[0] for _ in range(len(batches))])
    assert sorted(seen) == [row for row in range(len(split)) if row % 10 != 3]
    assert batches.epoch == 0
    second = np.concatenate([batches.next()[0] for _ in range(len(batches))])
    assert batches.epoch == 1
    assert sorted(second) == sorted(seen)
    assert second.tolist() != seen.tolist()


def test_batch_holds_the_rows_it_names(split: Split) -> None:
    rows, batch = Batches(split, batch_size=8, seed=2).next()
    assert batch.labels.indices.tolist() == [row % 7 for row in rows]


@pytest.mark.parametrize("steps", [0, 1, 9, 10, 23])
def test_position_is_restored(split: Split, steps: int) -> None:
    first = Batches(split, batch_size=10, seed=3)
    for _ in range(steps):
        first.next()
    second = Batches(split, batch_size=10, seed=3)
    second.load_state_dict(first.state_dict())
    for _ in range(15):
        np.testing.assert_array_equal(first.next()[0], second.next()[0])


def test_seeds_differ_and_states_of_others_are_refused(split: Split) -> None:
    one, other = Batches(split, batch_size=10, seed=1), Batches(split, batch_size=10, seed=2)
    assert one.next()[0].tolist() != other.next()[0].tolist()
    with pytest.raises(ValueError, match="saved position has seed 1; wanted 2"):
        other.load_state_dict(one.state_dict())


def test_bad_options(split: Split, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_size is 0; wanted 1 or more"):
        Batches(split, batch_size=0, seed=1)
