"""The dense model's shortlist in a new order: its score, a share of the linear one, and an offset of the class.

Shapes: N queries, S places of a shortlist, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, SparseRows
from owlmine.rerank.linear_ranker import LinearRanker

_OFFSETS = "class_offsets"


@dataclass(frozen=True, eq=False)
class Reranker:
    """score = dense score + ``weight`` * linear score + offset, for the ``shortlist`` best classes of the dense model.

    The offsets lift rare classes: both models have seen little of them, and score them too low.
    """

    ranker: LinearRanker
    weight: float
    shortlist: int
    offsets_K: Float32

    def __post_init__(self) -> None:
        if self.offsets_K.shape != (self.ranker.num_classes,) or not np.isfinite(self.offsets_K).all():
            given, wanted = self.offsets_K.shape, self.ranker.num_classes
            raise ValueError(f"offsets have the shape {given}; wanted a finite number for each of {wanted} classes")
        if not (np.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"the weight of the linear model is {self.weight!r}; wanted a number of 0 or more")
        if self.shortlist < 1:
            raise ValueError(f"the shortlist is {self.shortlist!r}; wanted 1 or more")

    def reorder(
        self, queries: SparseRows, scores_NS: NDArray[np.float32], ids_NS: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and ids, best first. An empty place (id -1, score -inf) stays behind all others."""
        scores_NS = scores_NS + np.float32(self.weight) * self.ranker.scores(queries, ids_NS)
        scores_NS += self.offsets_K[np.maximum(ids_NS, 0)]
        order_NS = np.argsort(-scores_NS, axis=1, kind="stable")
        return np.take_along_axis(scores_NS, order_NS, axis=1), np.take_along_axis(ids_NS, order_NS, axis=1)

    def tensors(self) -> dict[str, Tensor]:
        return self.ranker.tensors() | {_OFFSETS: torch.from_numpy(self.offsets_K)}

    def to_dict(self) -> dict[str, Any]:
        """What ``tensors`` does not tell."""
        return {"weight": self.weight, "shortlist": self.shortlist}

    @classmethod
    def from_parts(cls, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Reranker:
        own = {name: tensor for name, tensor in tensors.items() if name != _OFFSETS}
        ranker, offsets_K = LinearRanker.from_tensors(own), tensors[_OFFSETS]
        if offsets_K.dtype != torch.float32:
            raise ValueError(f"offsets are {offsets_K.dtype}; wanted float32")
        return cls(ranker, float(told["weight"]), int(told["shortlist"]), offsets_K.numpy())
