"""The judge that knows how rare a class is. Models see little of rare classes and score them too low.

A class scores the logarithm of its inverse propensity: 0 for a class that is always labelled where it is relevant.

Shapes: N queries, S places of a list of candidates, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from owlmine.data.rows import Float32
from owlmine.dense.retriever import ModelShape
from owlmine.metrics import inverse_propensities
from owlmine.rank.candidates import Candidates
from owlmine.rank.judge import Training, Variant, check_settings, register
from owlmine.rank.points import as_arrays, as_tensors
from owlmine.rank.words import ClassWords

# With fewer training points, the propensity formula is undefined.
_FEWEST_POINTS = 3


@register
@dataclass(frozen=True, eq=False)
class RarityJudge:
    """A number for each class, independent of the query."""

    name: ClassVar[str] = "rarity"
    title: ClassVar[str] = "a boost for rare classes"
    prior: ClassVar[float] = 0.03
    must_help: ClassVar[bool] = False
    is_default: ClassVar[bool] = False
    default_variant: ClassVar[Variant] = None

    offsets_K: Float32

    def __post_init__(self) -> None:
        if self.offsets_K.ndim != 1 or self.offsets_K.dtype != np.float32 or not np.isfinite(self.offsets_K).all():
            shape, dtype = self.offsets_K.shape, self.offsets_K.dtype
            raise ValueError(f"offsets are {dtype} of shape {shape}; wanted a finite float32 for each class")

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        del chosen
        return {None: cls(rarities(training.classes))}

    def scores(self, candidates: Candidates) -> Float32:
        return self.offsets_K[candidates.lookup_ids]

    def with_classes(self, num_new: int) -> Self:
        return type(self)(np.concatenate([self.offsets_K, np.zeros(num_new, np.float32)]))

    def on(self, device: torch.device) -> Self:
        del device
        return self

    def tensors(self) -> dict[str, Tensor]:
        return as_tensors({"offsets": self.offsets_K})

    def settings(self) -> dict[str, Any]:
        return {}

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        check_settings(settings, {})
        judge = cls(as_arrays(tensors, {"offsets": torch.float32})["offsets"])
        if len(judge.offsets_K) != shape.num_classes:
            raise ValueError(f"{len(judge.offsets_K)} offsets of classes; wanted {shape.num_classes}")
        return judge


def rarities(classes: ClassWords) -> Float32:
    """[K] logarithms of inverse propensities; all 0 if there are too few points for them."""
    if classes.num_points < _FEWEST_POINTS:
        return np.zeros(len(classes.counts), np.float32)
    return np.log(inverse_propensities(classes.counts, classes.num_points)).astype(np.float32)
