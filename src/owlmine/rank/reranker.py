"""The dense model's shortlist in a new order: its score, a share of the linear one, the votes of neighbours, how far
the query spells the name of the class, and an offset of the class.

Shapes: N queries, S places of a shortlist, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, SparseRows
from owlmine.rank.linear import LinearRanker
from owlmine.rank.names import NameMatches
from owlmine.rank.neighbours import Neighbours

_OFFSETS = "class_offsets"
_DENSE_WEIGHTS = "dense_weights"
_NEIGHBOURS = "neighbours"
_NAMES = "names"


@dataclass(frozen=True, eq=False)
class Reranker:
    """score = dense score + ``weight`` * linear score + ``vote_weight`` * votes + ``name_weight`` * score of the name +
    offset, for the ``shortlist`` best classes of the dense model, and for those that names suggest.

    The offsets lift rare classes: both models have seen little of them, and score them too low. Where there are
    ``dense_weights_K``, the dense score of a class counts so many times: classes that were added later have long
    vectors, so as to be listed, and are then judged by less.
    """

    ranker: LinearRanker
    weight: float
    shortlist: int
    offsets_K: Float32
    neighbours: Neighbours | None = None
    vote_weight: float = 0.0
    dense_weights_K: Float32 | None = None
    names: NameMatches | None = None
    name_weight: float = 0.0
    num_trained: int | None = None
    """Classes that training knew, where others were added behind them: how sure the dense model is depends on these."""

    def __post_init__(self) -> None:
        if self.offsets_K.shape != (self.ranker.num_classes,) or not np.isfinite(self.offsets_K).all():
            given, wanted = self.offsets_K.shape, self.ranker.num_classes
            raise ValueError(f"offsets have the shape {given}; wanted a finite number for each of {wanted} classes")
        weights_K = self.dense_weights_K
        if weights_K is not None and (
            weights_K.shape != self.offsets_K.shape or not (np.isfinite(weights_K) & (weights_K > 0)).all()
        ):
            given, wanted = weights_K.shape, self.ranker.num_classes
            raise ValueError(
                f"dense weights have the shape {given}; wanted a number above 0 for each of {wanted} classes"
            )
        if self.names is not None and self.names.ranker.shape != self.ranker.shape:
            raise ValueError(f"names of {self.names.ranker.shape} classes and features; wanted {self.ranker.shape}")
        weights = (("the linear model", self.weight), ("neighbours", self.vote_weight), ("names", self.name_weight))
        for whose, weight in weights:
            if not (np.isfinite(weight) and weight >= 0):
                raise ValueError(f"the weight of {whose} is {weight!r}; wanted a number of 0 or more")
        if self.num_trained is not None and not 0 < self.num_trained <= self.ranker.num_classes:
            raise ValueError(f"{self.num_trained} classes of {self.ranker.num_classes} were trained; wanted 1 to all")
        if self.shortlist < 1:
            raise ValueError(f"the shortlist is {self.shortlist!r}; wanted 1 or more")

    @property
    def sees_vectors(self) -> bool:
        """Whether ``reorder`` needs the vectors of queries."""
        return self.neighbours is not None and self.neighbours.sees_vectors

    def reorder(
        self,
        queries: SparseRows,
        vectors_ND: Tensor | None,
        scores_NS: NDArray[np.float32],
        ids_NS: NDArray[np.int64],
        *,
        best_N: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and ids, best first. An empty place (id -1, score -inf) stays behind all others.

        ``vectors_ND``: the same queries as the dense model sees them, for neighbours. ``best_N``: the best score that
        the dense model has for each of them, for names; where it is left out, that class is in the list.
        """
        if best_N is None:
            best_N = self.best_dense(scores_NS, ids_NS)
        if self.dense_weights_K is not None:
            scores_NS = scores_NS * self.dense_weights_K[np.maximum(ids_NS, 0)]
        scores_NS = scores_NS + np.float32(self.weight) * self.ranker.scores(queries, ids_NS)
        scores_NS += self.offsets_K[np.maximum(ids_NS, 0)]
        if self.neighbours is not None:
            scores_NS += np.float32(self.vote_weight) * self.neighbours.votes(queries, vectors_ND, ids_NS)
        if self.names is not None:
            scores_NS += np.float32(self.name_weight) * self.names.scores(queries, ids_NS, best_N)
        order_NS = np.argsort(-scores_NS, axis=1, kind="stable")
        return np.take_along_axis(scores_NS, order_NS, axis=1), np.take_along_axis(ids_NS, order_NS, axis=1)

    def best_dense(self, scores_NS: NDArray[np.float32], ids_NS: NDArray[np.int64]) -> NDArray[np.float32]:
        """[N] the best score of a class that training knew."""
        if self.num_trained is not None:
            scores_NS = np.where(ids_NS < self.num_trained, scores_NS, np.float32(-np.inf))
        best_N: NDArray[np.float32] = scores_NS.max(axis=1, initial=-np.inf)
        return best_N

    def on(self, device: torch.device) -> Reranker:
        """For query vectors that lie there."""
        return self if self.neighbours is None else replace(self, neighbours=self.neighbours.on(device))

    def tensors(self) -> dict[str, Tensor]:
        tensors = self.ranker.tensors() | {_OFFSETS: torch.from_numpy(self.offsets_K)}
        if self.dense_weights_K is not None:
            tensors[_DENSE_WEIGHTS] = torch.from_numpy(self.dense_weights_K)
        if self.neighbours is not None:
            tensors |= _of_part(_NEIGHBOURS, self.neighbours.tensors())
        if self.names is not None:
            tensors |= _of_part(_NAMES, self.names.tensors())
        return tensors

    def to_dict(self) -> dict[str, Any]:
        """What ``tensors`` does not tell."""
        told: dict[str, Any] = {"weight": self.weight, "shortlist": self.shortlist}
        if self.neighbours is not None:
            told |= {"vote_weight": self.vote_weight, _NEIGHBOURS: self.neighbours.to_dict()}
        if self.names is not None:
            told["name_weight"] = self.name_weight
        if self.num_trained is not None:
            told["num_trained"] = self.num_trained
        return told

    @classmethod
    def from_parts(cls, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Reranker:
        of_classes, parts = (_OFFSETS, _DENSE_WEIGHTS), (f"{_NEIGHBOURS}.", f"{_NAMES}.")
        own = {n: tensor for n, tensor in tensors.items() if n not in of_classes and not n.startswith(parts)}
        ranker, offsets_K, dense_weights_K = (
            LinearRanker.from_tensors(own),
            tensors[_OFFSETS],
            tensors.get(_DENSE_WEIGHTS),
        )
        for what, given in (("offsets", offsets_K), ("dense weights", dense_weights_K)):
            if given is not None and given.dtype != torch.float32:
                raise ValueError(f"{what} are {given.dtype}; wanted float32")
        neighbours = names = None
        if (about := told.get(_NEIGHBOURS)) is not None:
            neighbours = Neighbours.from_parts(about, _part_of(_NEIGHBOURS, tensors))
        if "name_weight" in told:
            names = NameMatches.from_tensors(_part_of(_NAMES, tensors))
        return cls(
            ranker,
            float(told["weight"]),
            int(told["shortlist"]),
            offsets_K.numpy(),
            neighbours,
            float(told.get("vote_weight", 0.0)),
            None if dense_weights_K is None else dense_weights_K.numpy(),
            names,
            float(told.get("name_weight", 0.0)),
            None if told.get("num_trained") is None else int(told["num_trained"]),
        )


def _of_part(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}.{name}": tensor for name, tensor in tensors.items()}


def _part_of(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): t for name, t in tensors.items() if name.startswith(f"{part}.")}
