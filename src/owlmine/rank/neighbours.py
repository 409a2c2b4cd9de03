"""The judge of nearest neighbours: the training points nearest to a query vote for their labels.

Neither the dense model nor linear classifiers remember single points.

Shapes: N queries, S places of a shortlist, n neighbours, E labels of all neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, SparseRows, gather_rows
from owlmine.dense.retriever import ModelShape
from owlmine.rank.candidates import Candidates
from owlmine.rank.judge import Training, Variant, check_settings, register
from owlmine.rank.points import DensePoints, SparsePoints, as_arrays, as_tensors, checked_rows, first_head

Points = DensePoints | SparsePoints
# By which cosines are raised before they become shares of the vote.
_POWERS = (2.0, 4.0, 16.0)
# Powers that no cosine overflows with.
_HIGHEST_POWER = 100.0
# Vectors of training points beyond this are not tried.
_MOST_VECTOR_BYTES = 4 << 30
_KINDS: dict[str, type[DensePoints] | type[SparsePoints]] = {"dense": DensePoints, "sparse": SparsePoints}


@register
@dataclass(frozen=True, eq=False)
class NeighbourJudge:
    """votes of class c = Σ s_i^power [c is a label of i] / Σ s_i^power over the ``count`` points nearest to the query.

    s is the cosine of the two as ``points`` sees them, 0 where it is below.
    """

    name: ClassVar[str] = "neighbours"
    prior: ClassVar[float] = 0.1
    must_help: ClassVar[bool] = True
    is_default: ClassVar[bool] = False
    default_variant: ClassVar[Variant] = None

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
            raise ValueError(f"{given}; wanted labels for each point, and some points")
        object.__setattr__(self, "labels", SparseRows(rows.offsets, rows.indices, None))
        if not 1 <= self.count < 2**31:
            raise ValueError(f"{self.count} neighbours vote; wanted 1 to 2^31 - 1")
        if not 0 < self.power <= _HIGHEST_POWER:
            raise ValueError(f"the power of neighbours is {self.power!r}; wanted above 0, at most {_HIGHEST_POWER:g}")

    @property
    def kind(self) -> str:
        return next(kind for kind, points in _KINDS.items() if isinstance(self.points, points))

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        """Forms by the kind of neighbours, and by how much the nearest of them count more than others."""
        forms: dict[Variant, Self] = {}
        count, num_classes = training.sizes.neighbours, training.model.shape.num_classes
        for kind in training.sizes.neighbour_kinds if count else ():
            powers = {f"{kind}, power {power:g}": power for power in _POWERS}
            wanted = powers if chosen is None else {v: power for v, power in powers.items() if v == chosen}
            # What was chosen on somewhat fewer points is not given up for the sake of a few more.
            if not wanted or (chosen is None and not _may_vote(training, kind)):
                continue
            points = _points(training, kind)
            for variant, power in wanted.items():
                forms[variant] = cls(points, training.labels, count, power, num_classes)
        return forms

    @classmethod
    def scores_of_all(cls, forms: Mapping[Variant, Self], candidates: Candidates) -> dict[Variant, Float32]:
        """Neighbours of a kind are looked up once."""
        nearest: dict[str, tuple[Float32, NDArray[np.int64]]] = {}
        scores = {}
        for variant, judge in forms.items():
            if judge.kind not in nearest:
                nearest[judge.kind] = judge.nearest(candidates)
            scores[variant] = judge.votes_of(*nearest[judge.kind], candidates.ids_NS)
        return scores

    def scores(self, candidates: Candidates) -> Float32:
        """Votes in [0, 1]; 0 where the id is below 0, an empty place."""
        return self.votes_of(*self.nearest(candidates), candidates.ids_NS)

    def nearest(self, candidates: Candidates) -> tuple[Float32, NDArray[np.int64]]:
        """Cosines and numbers [N, n] of the training points nearest to each query."""
        return self.points.nearest(candidates.sparse_queries, candidates.encoded.vectors_ND, self.count)

    def with_classes(self, num_new: int) -> Self:
        del num_new  # no training point has a new class among its labels
        return self

    def on(self, device: torch.device) -> Self:
        return replace(self, points=self.points.on(device))

    def votes_of(self, cosines_Nn: Float32, points_Nn: NDArray[np.int64], ids_NS: NDArray[Any]) -> Float32:
        """[N, S] votes of these neighbours for classes."""
        shares_Nn = np.maximum(cosines_Nn, 0.0).astype(np.float64) ** self.power
        shares_Nn /= np.maximum(shares_Nn.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        offsets, positions_E = gather_rows(self.labels.offsets, points_Nn.ravel())
        counts = np.diff(offsets)
        rows_E = np.repeat(np.repeat(np.arange(len(points_Nn)), points_Nn.shape[1]), counts)
        keys_E = rows_E * self.num_classes + self.labels.indices[positions_E]
        # A label of several neighbours has all of their shares.
        voted, places_E = np.unique(keys_E, return_inverse=True)
        if not len(voted):
            return np.zeros(ids_NS.shape, np.float32)
        sums = np.bincount(places_E, np.repeat(shares_Nn.ravel(), counts), minlength=len(voted))
        ids_NS = np.asarray(ids_NS, np.int64)
        wanted_NS = np.arange(len(ids_NS))[:, None] * self.num_classes + ids_NS
        found_NS = np.searchsorted(voted, wanted_NS).clip(max=len(voted) - 1)
        # A class that was added later has an id beyond those that points can have as label.
        is_voted_NS = (voted[found_NS] == wanted_NS) & (ids_NS >= 0) & (ids_NS < self.num_classes)
        return np.where(is_voted_NS, sums[found_NS], 0.0).astype(np.float32)

    def tensors(self) -> dict[str, Tensor]:
        labels = as_tensors({"label_offsets": self.labels.offsets, "labels": self.labels.indices})
        return labels | {f"points.{name}": tensor for name, tensor in self.points.tensors().items()}

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "count": self.count, "power": self.power, "num_classes": self.num_classes}

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        check_settings(settings, {"kind": str, "count": int, "power": float, "num_classes": int})
        if settings["kind"] not in _KINDS:
            raise ValueError(f"neighbours of the kind {settings['kind']!r}; wanted one of {', '.join(_KINDS)}")
        prefix = "points."
        points = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        labels = as_arrays(
            {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)},
            {"label_offsets": torch.int64, "labels": torch.int32},
        )
        judge = cls(
            _KINDS[settings["kind"]].from_tensors(points),
            SparseRows(labels["label_offsets"], labels["labels"], None),
            settings["count"],
            settings["power"],
            settings["num_classes"],
        )
        judge._check_fits(shape)
        return judge

    def _check_fits(self, shape: ModelShape) -> None:
        if isinstance(self.points, DensePoints):
            width, wanted = self.points.vectors_PW.shape[1], shape.dim // shape.heads
            fits = shape.kind == "embedding" and width == wanted
        else:
            width, wanted = self.points.num_features, shape.num_features
            fits = width == wanted
        if not fits or shape.dense:
            raise ValueError(
                f"{self.kind} neighbours of width {width}; wanted {wanted}, for a model of the shape {shape}"
            )
        if self.num_classes > shape.num_classes:
            raise ValueError(f"neighbours have {self.num_classes} classes; wanted {shape.num_classes} at most")


def _may_vote(training: Training, kind: str) -> bool:
    """Whether points of this kind are there, and not too many."""
    shape = training.model.shape
    num_bytes = 2 * len(training.queries) * shape.dim // shape.heads
    return kind == "sparse" or (shape.kind == "embedding" and num_bytes <= _MOST_VECTOR_BYTES)


def _points(training: Training, kind: str) -> Points:
    model = training.model
    if kind == "sparse":
        training.message("training points by their features, for neighbours that vote")
        return SparsePoints.of(training.queries, num_features=model.shape.num_features)
    width = model.shape.dim // model.shape.heads
    training.message("training points by their vectors, for neighbours that vote")
    vectors_PW = torch.empty(len(training.queries), width, dtype=torch.bfloat16, device=model.device)
    for block in training.blocks("vectors of training points"):
        vectors_PW[block] = first_head(training.encode(block), width).to(torch.bfloat16)
    return DensePoints(vectors_PW).on(model.device)
