"""The judges of nearest neighbours: the training points nearest to a query vote for their labels, and suggest them.

Neither the dense model nor linear classifiers remember single points. Points are compared by their features, or by
their vectors in the dense model.

Shapes: N queries, S places of a shortlist, n neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows, gather_rows
from owlmine.dense.retriever import ModelShape
from owlmine.rank.candidates import Candidates, Encoded
from owlmine.rank.coded_entries import WHOLE, checked_arrays, narrowest, offsets_of
from owlmine.rank.judge import Training, Variant, check_settings, register
from owlmine.rank.points import DensePoints, SparsePoints, as_tensors, checked_rows, first_head
from owlmine.rank.votes import most_voted, shares_of, votes_for

Points = DensePoints | SparsePoints
# Exponents applied to cosines before voting.
_POWERS = (2.0, 4.0, 16.0)
_POWER_OF_SUGGESTIONS = 4.0
# Largest power without overflow.
_HIGHEST_POWER = 100.0
# Larger vectors of training points are not used.
_MOST_VECTOR_BYTES = 4 << 30


@register
@dataclass(frozen=True, eq=False)
class NeighbourJudge:
    """Points are compared by their features.

    votes of class c = Σ s_i^power [c is a label of i] / Σ s_i^power over the ``count`` points nearest to the query.

    s_i is the cosine of point i and the query as ``points`` computes it; negative cosines count as 0.
    """

    name: ClassVar[str] = "neighbours"
    title: ClassVar[str] = "votes of similar training points"
    prior: ClassVar[float] = 0.1
    must_help: ClassVar[bool] = True
    is_default: ClassVar[bool] = False
    default_variant: ClassVar[Variant] = None
    kind: ClassVar[str] = "sparse"
    """Its name in ``JudgeSizes.neighbour_kinds``."""

    points: Points
    labels: SparseRows
    count: int
    power: float
    num_classes: int

    def __post_init__(self) -> None:
        if self.num_classes < 1:
            raise ValueError(f"labels of {self.num_classes} classes; wanted 1 or more")
        rows = checked_rows(self.labels, num_features=self.num_classes)
        if not 0 < len(self.points) == len(rows):
            given = f"{len(self.points)} points and labels of {len(rows)}"
            raise ValueError(f"{given}; wanted labels for each point, and at least one point")
        object.__setattr__(self, "labels", SparseRows(rows.offsets, rows.indices, None))
        if not 1 <= self.count < 2**31:
            raise ValueError(f"the count of neighbours is {self.count}; wanted 1 to 2^31 - 1")
        if not 0 < self.power <= _HIGHEST_POWER:
            raise ValueError(f"the power of neighbours is {self.power!r}; wanted above 0, at most {_HIGHEST_POWER:g}")

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        """A variant is a power: the higher it is, the more the nearest points count."""
        sizes, powers = training.sizes, {f"power {power:g}": power for power in _POWERS}
        wanted = powers if chosen is None else {v: power for v, power in powers.items() if v == chosen}
        # A judge chosen in a rehearsal stays, even if all points are too many to try it.
        may_vote = chosen is not None or cls._may_vote(training)
        if not sizes.neighbours or cls.kind not in sizes.neighbour_kinds or not wanted or not may_vote:
            return {}
        points, num_classes = cls._points_of(training), training.model.shape.num_classes
        return {v: cls(points, training.labels, sizes.neighbours, power, num_classes) for v, power in wanted.items()}

    def scores(self, candidates: Candidates) -> Float32:
        """Votes in [0, 1]; 0 in empty places, where the id is below 0."""
        return self.votes_of(*self.nearest(candidates.encoded), candidates.ids_NS)

    def nearest(self, encoded: Encoded) -> tuple[Float32, NDArray[np.int64]]:
        """Cosines and row numbers [N, n] of the training points nearest to each query; computed once and cached."""
        lookup = (self.points, self.count)
        if lookup not in encoded.lookups:
            encoded.lookups[lookup] = self.points.nearest(encoded.sparse_queries, encoded.vectors_ND, self.count)
        nearest: tuple[Float32, NDArray[np.int64]] = encoded.lookups[lookup]
        return nearest

    def suggest(self, encoded: Encoded, count: int) -> Int64:
        """The ids [N, n] of the classes with the most votes, n = min(count, K); -1 if no further class has any.

        They do not depend on the power, so all variants suggest the same classes.
        """
        cosines_Nn, points_Nn = self.nearest(encoded)
        shares_Nn, width = shares_of(cosines_Nn, _POWER_OF_SUGGESTIONS), min(count, self.num_classes)
        return most_voted(points_Nn, shares_Nn, self.labels, self.num_classes, width)

    def with_classes(self, num_new: int) -> Self:
        del num_new  # no training point has a new class among its labels
        return self

    def on(self, device: torch.device) -> Self:
        return replace(self, points=self.points.on(device))

    def votes_of(self, cosines_Nn: Float32, points_Nn: NDArray[np.int64], ids_NS: NDArray[Any]) -> Float32:
        """Votes [N, S] of these neighbours for classes."""
        return votes_for(ids_NS, points_Nn, shares_of(cosines_Nn, self.power), self.labels, self.num_classes)

    @property
    def num_points(self) -> int:
        return len(self.points)

    def voters(self, encoded: Encoded, class_id: int) -> tuple[Int64, Float32, NDArray[np.float64]]:
        """The neighbours [V] of the first query that vote for a class, the nearest first: their numbers, cosines and
        shares of all votes. The shares sum to the score of the class."""
        cosines_Nn, points_Nn = self.nearest(encoded)
        shares_n, points_n = shares_of(cosines_Nn[:1], self.power)[0], points_Nn[0]
        offsets, positions_E = gather_rows(self.labels.offsets, points_n)
        is_label_E = self.labels.indices[positions_E] == class_id
        votes_n = np.bincount(
            np.repeat(np.arange(len(points_n)), np.diff(offsets))[is_label_E], minlength=len(points_n)
        )
        voting = np.flatnonzero((votes_n > 0) & (shares_n > 0))
        return points_n[voting], cosines_Nn[0, voting], shares_n[voting]

    def tensors(self) -> dict[str, Tensor]:
        labels = as_tensors({"label_counts": narrowest(self.labels.counts), "labels": narrowest(self.labels.indices)})
        return labels | {f"points.{name}": tensor for name, tensor in self.points.tensors().items()}

    def settings(self) -> dict[str, Any]:
        return {"count": self.count, "power": self.power, "num_classes": self.num_classes}

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        check_settings(settings, {"count": int, "power": float, "num_classes": int})
        prefix = "points."
        points = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        labels = checked_arrays(
            {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)},
            {"label_counts": WHOLE, "labels": WHOLE},
        )
        judge = cls(
            cls._points_from(points),
            SparseRows(offsets_of(labels["label_counts"], len(labels["labels"])), labels["labels"], None),
            settings["count"],
            settings["power"],
            settings["num_classes"],
        )
        judge._check_fits(shape)
        return judge

    def _check_fits(self, shape: ModelShape) -> None:
        width, wanted = self._widths(shape)
        if width != wanted or shape.dense:
            raise ValueError(f"{self.name} of width {width}; wanted {wanted}, for a model of the shape {shape}")
        if self.num_classes > shape.num_classes:
            raise ValueError(f"{self.name} have {self.num_classes} classes; wanted at most {shape.num_classes}")

    # These members depend on the kind of points.

    @classmethod
    def _may_vote(cls, training: Training) -> bool:
        """Whether there are points of this kind, and not too many."""
        return True

    @classmethod
    def _points_of(cls, training: Training) -> Points:
        training.message("indexing the training points by features, for neighbour votes")
        return SparsePoints.of(training.queries, num_features=training.model.shape.num_features)

    @classmethod
    def _points_from(cls, tensors: Mapping[str, Tensor]) -> Points:
        return SparsePoints.from_tensors(tensors)

    def _widths(self, shape: ModelShape) -> tuple[int, int]:
        """The width of the points, and the width that the model has."""
        assert isinstance(self.points, SparsePoints)
        return self.points.num_features, shape.num_features


@register
@dataclass(frozen=True, eq=False)
class VectorNeighbourJudge(NeighbourJudge):
    """The same with points compared by their vectors."""

    name: ClassVar[str] = "vector_neighbours"
    title: ClassVar[str] = "votes of training points with similar vectors"
    kind: ClassVar[str] = "dense"

    @classmethod
    def _may_vote(cls, training: Training) -> bool:
        shape = training.model.shape
        num_bytes = 2 * len(training.queries) * shape.dim // shape.heads
        return shape.kind == "embedding" and num_bytes <= _MOST_VECTOR_BYTES

    @classmethod
    def _points_of(cls, training: Training) -> Points:
        model = training.model
        width = model.shape.dim // model.shape.heads
        training.message("encoding the training points, for neighbour votes")
        vectors_PW = torch.empty(len(training.queries), width, dtype=torch.bfloat16, device=model.device)
        for block in training.blocks("vectors of training points"):
            vectors_PW[block] = first_head(training.encode(block), width).to(torch.bfloat16)
        return DensePoints.of(vectors_PW).on(model.device)

    @classmethod
    def _points_from(cls, tensors: Mapping[str, Tensor]) -> Points:
        return DensePoints.from_tensors(tensors)

    def _widths(self, shape: ModelShape) -> tuple[int, int]:
        assert isinstance(self.points, DensePoints)
        return self.points.width, shape.dim // shape.heads if shape.kind == "embedding" else 0
