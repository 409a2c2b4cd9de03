"""Training points as witnesses: those nearest to a query vote for their labels.

Shapes: N queries, S places of a shortlist, n neighbours, E labels of all neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, SparseRows, gather_rows
from owlmine.rank.points import DensePoints, SparsePoints, checked_rows

Points = DensePoints | SparsePoints
_KINDS: dict[str, type[DensePoints] | type[SparsePoints]] = {"dense": DensePoints, "sparse": SparsePoints}


@dataclass(frozen=True, eq=False)
class Neighbours:
    """votes of class c = Σ s_i^power [c is a label of i] / Σ s_i^power over the ``count`` points nearest to the query.

    s is the cosine of the two as ``points`` sees them, 0 where it is below.
    """

    points: Points
    labels: SparseRows
    count: int
    power: float
    num_classes: int

    def __post_init__(self) -> None:
        if not 0 < len(self.points) == len(self.labels):
            given = f"{len(self.points)} points and labels of {len(self.labels)}"
            raise ValueError(f"{given}; wanted labels for each point, and some points")
        rows = checked_rows(self.labels, num_features=self.num_classes)
        object.__setattr__(self, "labels", SparseRows(rows.offsets, rows.indices, None))
        if self.count < 1 or not (np.isfinite(self.power) and self.power > 0):
            raise ValueError(f"{self.count} neighbours with the power {self.power!r}; wanted 1 or more and above 0")

    @property
    def kind(self) -> str:
        return next(kind for kind, points in _KINDS.items() if isinstance(self.points, points))

    @property
    def sees_vectors(self) -> bool:
        """Whether neighbours are found by the dense model's vectors: others do without them."""
        return isinstance(self.points, DensePoints)

    def on(self, device: torch.device) -> Neighbours:
        return replace(self, points=self.points.on(device))

    def votes(self, queries: SparseRows, vectors_ND: Tensor | None, ids_NS: NDArray[Any]) -> Float32:
        """[N, S] for the classes of shortlists, each in [0, 1]; 0 where the id is below 0, an empty place.

        ``vectors_ND``: the same queries as the dense model sees them, where ``sees_vectors``.
        """
        return self.votes_of(*self.points.nearest(queries, vectors_ND, self.count), ids_NS)

    def votes_of(self, cosines_Nn: Float32, points_Nn: NDArray[np.int64], ids_NS: NDArray[Any]) -> Float32:
        """The same of neighbours that were found before."""
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
        labels = {
            "label_offsets": torch.from_numpy(np.array(self.labels.offsets, np.int64)),
            "labels": torch.from_numpy(np.array(self.labels.indices, np.int32)),
        }
        return labels | {f"points.{name}": tensor for name, tensor in self.points.tensors().items()}

    def to_dict(self) -> dict[str, Any]:
        """What ``tensors`` does not tell."""
        return {"kind": self.kind, "count": self.count, "power": self.power, "num_classes": self.num_classes}

    @classmethod
    def from_parts(cls, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Neighbours:
        """ValueError where numbers do not fit each other, from wherever they come."""
        if told["kind"] not in _KINDS:
            raise ValueError(f"neighbours of the kind {told['kind']!r}; wanted one of {', '.join(_KINDS)}")
        own = {name.removeprefix("points."): tensor for name, tensor in tensors.items() if name.startswith("points.")}
        points = _KINDS[told["kind"]].from_tensors(own)
        labels = SparseRows(tensors["label_offsets"].numpy(), tensors["labels"].numpy(), None)
        return cls(points, labels, int(told["count"]), float(told["power"]), int(told["num_classes"]))
