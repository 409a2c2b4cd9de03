"""The dense model's shortlist in a new order: its score plus a share of the linear one.

Shapes: N queries, S places of a shortlist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.rerank.linear_ranker import LinearRanker


@dataclass(frozen=True, eq=False)
class Reranker:
    """score = dense score + ``weight`` * linear score, for the ``shortlist`` best classes of the dense model."""

    ranker: LinearRanker
    weight: float
    shortlist: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"the weight of the linear model is {self.weight!r}; wanted a number of 0 or more")
        if self.shortlist < 1:
            raise ValueError(f"the shortlist is {self.shortlist!r}; wanted 1 or more")

    def reorder(
        self, queries: SparseRows, scores_NS: NDArray[np.float32], ids_NS: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and ids, best first. An empty place (id -1, score -inf) stays behind all others."""
        scores_NS = scores_NS + np.float32(self.weight) * self.ranker.scores(queries, ids_NS)
        order_NS = np.argsort(-scores_NS, axis=1, kind="stable")
        return np.take_along_axis(scores_NS, order_NS, axis=1), np.take_along_axis(ids_NS, order_NS, axis=1)

    def tensors(self) -> dict[str, Tensor]:
        return self.ranker.tensors()

    def to_dict(self) -> dict[str, Any]:
        """What ``tensors`` does not tell."""
        return {"weight": self.weight, "shortlist": self.shortlist}

    @classmethod
    def from_parts(cls, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Reranker:
        return cls(LinearRanker.from_tensors(tensors), float(told["weight"]), int(told["shortlist"]))
