"""The judge with a sparse linear classifier for each class, trained on the classes that the dense model confuses.

A dense model blurs rare words together; a classifier with a weight for each of them does not.

Shapes: N points, S places of a shortlist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.dense.progress import Heartbeat
from owlmine.dense.retriever import ModelShape
from owlmine.rank.candidates import Candidates
from owlmine.rank.judge import Training, Variant, check_settings, register
from owlmine.rank.linear_training import LinearOptions, MinedPairs, train_linear
from owlmine.rank.sparse_weights import SparseWeights

# Numbers of encoded queries at a time, if a query is as wide as all features.
_BLOCK_NUMBERS = 1 << 26


@register
@dataclass(frozen=True, eq=False)
class LinearJudge:
    """A sparse linear classifier for each class."""

    name: ClassVar[str] = "linear"
    title: ClassVar[str] = "linear classifiers"
    prior: ClassVar[float] = 0.2
    must_help: ClassVar[bool] = False
    is_default: ClassVar[bool] = True
    default_variant: ClassVar[Variant] = 1.0
    effect: ClassVar[str] = "linear"

    weights: SparseWeights

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        """Variants by the cost of the classifiers."""
        pairs, shape = mine_pairs(training), training.model.shape
        costs = training.sizes.costs if len(pairs) <= training.sizes.most_pairs_of_choice else (1.0,)
        variants: dict[Variant, Self] = {}
        for cost in costs if chosen is None else (float(str(chosen)),):
            what = f"a linear classifier for each of {shape.num_classes:,} classes"
            training.message(f"{what}, from {len(pairs):,} pairs, cost {cost:g}")
            beat = Heartbeat(training.message, "classifiers", shape.num_classes)

            def progress(done: int, total: int, beat: Heartbeat = beat) -> None:
                training.check(f"{done} of {total}")
                beat(done)

            weights = train_linear(
                training.queries,
                pairs,
                num_features=shape.num_features,
                options=LinearOptions(cost=cost),
                seed=training.seed,
                progress=progress,
            )
            variants[cost] = cls(weights)
        return variants

    def scores(self, candidates: Candidates) -> Float32:
        return self.weights.scores(candidates.sparse_queries, candidates.ids_NS)

    def effects(self, candidates: Candidates, query: SparseRows) -> Float32:
        """See ``ByFeatures``."""
        assert query.values is not None
        return self.weights.at(candidates.ids_NS[0], query.indices) * query.values

    def biases(self, ids_S: Int64) -> Float32:
        """See ``ByFeatures``."""
        return self.weights.biases_K[ids_S]

    def with_classes(self, num_new: int) -> Self:
        return type(self)(self.weights.with_more(csr_matrix((num_new, self.weights.num_features), dtype=np.float32)))

    def on(self, device: torch.device) -> Self:
        del device  # they stay on the CPU
        return self

    def tensors(self) -> dict[str, Tensor]:
        return self.weights.tensors()

    def settings(self) -> dict[str, Any]:
        return {}

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        check_settings(settings, {})
        return cls(SparseWeights.of_model(tensors, shape))


def mine_pairs(training: Training) -> MinedPairs:
    """The classes that the dense model confuses with the labels of training points."""
    model, num_points = training.model, len(training.labels)
    length = min(training.sizes.confusable, model.shape.num_classes)
    training.message(f"the {length} best classes of each training point, to find confusable classes")
    ranked_NS = np.empty((num_points, length), np.int32)
    if model.shape.kind == "linear":
        # A query is as wide as the features, and its few numbers are too uneven for bytes.
        num_rows = min(1024, max(_BLOCK_NUMBERS // model.shape.num_features, 1))
        for block in training.blocks("shortlists", num_rows):
            ranked_NS[block] = training.index.search(training.encode(block), length)[1].cpu().numpy()
    else:
        for block in training.blocks("shortlists"):
            ranked_NS[block] = training.index.rough(training.encode(block), length).cpu().numpy()
    return MinedPairs.of(ranked_NS, training.labels, num_classes=model.shape.num_classes)
