"""Batches in a seeded random order, whose position can be saved and restored."""

from __future__ import annotations

from typing import Any

import numpy as np

from owlmine.data.rows import Int64
from owlmine.data.store import Batch, Split
from owlmine.errors import DataError


class Batches:
    """Endless batches of a split: every epoch visits each labelled point once, in an order given by seed and epoch.

    The order depends on nothing else, so ``(epoch, position)`` is the whole state. The last batch of an epoch is
    shorter if the batch size does not divide the number of points. ``rows`` restricts the batches to some points, each
    named once.
    """

    def __init__(self, split: Split, *, batch_size: int, seed: int, rows: Int64 | None = None) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; wanted 1 or more")
        self._split, self._batch_size, self._seed = split, batch_size, seed
        # A point without labels has no positive to learn from.
        is_labelled = np.diff(split.labels.offsets) > 0
        self.rows: Int64 = np.flatnonzero(is_labelled) if rows is None else np.sort(rows[is_labelled[rows]])
        if not len(self.rows):
            raise DataError(f"split {split.name!r}", found="no labelled point to learn from", wanted="at least one")
        self.epoch, self._position = 0, 0
        self._order = self._shuffled()

    def __len__(self) -> int:
        """Batches per epoch."""
        return (len(self.rows) + self._batch_size - 1) // self._batch_size

    def next(self) -> tuple[Int64, Batch]:
        """The row numbers of the next points, and the points."""
        rows = self.next_rows()
        return rows, self._split.batch(rows)

    def next_rows(self) -> Int64:
        """The row numbers of the next points."""
        if self._position >= len(self._order):
            self.epoch, self._position = self.epoch + 1, 0
            self._order = self._shuffled()
        rows = self._order[self._position : self._position + self._batch_size]
        self._position += len(rows)
        return rows

    def state_dict(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "epoch": self.epoch,
            "position": self._position,
            "points": len(self.rows),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        own = {"seed": self._seed, "points": len(self.rows)}
        for name, wanted in own.items():
            if state[name] != wanted:
                raise ValueError(f"the saved position has {name} {state[name]}; wanted {wanted}")
        self.epoch, self._position = int(state["epoch"]), int(state["position"])
        self._order = self._shuffled()

    def _shuffled(self) -> Int64:
        order: Int64 = np.random.default_rng([self._seed, self.epoch]).permutation(self.rows)
        return order
