"""A small model with training points, words and names: all that judges learn from, drawn from a seed.

Shapes: N queries, P training points, F features, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from owlmine.data.arrays import StringTable
from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.dense.retriever import ModelShape, Retriever, join_models
from owlmine.index import ExactIndex
from owlmine.rank.candidates import Candidates, Encoded, find_candidates
from owlmine.rank.judge import JudgeSizes, Training
from owlmine.rank.words import ClassWords, FeatureWords

WORDS = (
    "river",
    "castle",
    "violin",
    "falcon",
    "copper",
    "ballad",
    "meadow",
    "lantern",
    "harbour",
    "pepper",
    "glacier",
    "saddle",
    "garden",
    "window",
    "bridge",
    "candle",
    "forest",
    "mirror",
    "rocket",
    "turtle",
)
SHORTLIST = 6


@dataclass(frozen=True, eq=False)
class World:
    """``queries``: of no training point; the last one is empty."""

    training: Training
    queries: SparseRows

    @property
    def model(self) -> Retriever:
        return self.training.model

    def candidates(self, queries: SparseRows | None = None, **options: Any) -> Candidates:
        encoded = Encoded.of(self.model, self.queries if queries is None else queries)
        count = options.pop("count", SHORTLIST)
        return find_candidates(self.model, encoded, count, index=self.training.index, **options)


def world(
    seed: int = 0,
    *,
    num_classes: int = 24,
    num_features: int = len(WORDS),
    num_points: int = 90,
    dim: int = 8,
    heads: int = 1,
    kind: str = "embedding",
) -> World:
    """Class c is about word c, modulo their number: it is spelled in its name, and frequent in queries about it."""
    generator = np.random.default_rng(seed)
    labels = [np.unique(generator.zipf(1.5, 3) % num_classes) for _ in range(num_points)]
    queries = [_text(generator, own, num_features) for own in labels]
    asked = [_text(generator, generator.integers(0, num_classes, 2), num_features) for _ in range(11)]
    asked.append(np.zeros(num_features))
    label_rows = SparseRows(
        offsets_from_counts(np.array([len(own) for own in labels])), np.concatenate(labels).astype(np.int32), None
    )
    words = [*WORDS, *(f"w{number}x" for number in range(num_features))][:num_features]
    names = [f"{words[c % num_features].title()}s of {c}" for c in range(num_classes)]
    model = _model(seed, ModelShape(num_features, num_classes, kind=kind, dim=dim), heads)
    training = Training(
        model,
        rows_of(np.stack(queries)),
        label_rows,
        ClassWords(
            StringTable.of([f"c{c}" for c in range(num_classes)]),
            StringTable.of(names),
            np.bincount(label_rows.indices, minlength=num_classes),
            num_points,
        ),
        FeatureWords(
            {"kind": "none"}, StringTable.of(words), (np.stack(queries) > 0).sum(axis=0).astype(np.int64), None
        ),
        JudgeSizes(
            shortlist=SHORTLIST,
            neighbours=7,
            neighbour_kinds=("sparse", "dense"),
            names=True,
            costs=(0.3, 1.0),
            most_pairs_of_choice=10**6,
        ),
        seed,
        ExactIndex(model.classes.weight),
    )
    return World(training, rows_of(np.stack(asked)))


def rows_of(matrix: np.ndarray[Any, Any]) -> SparseRows:
    rows, columns = np.nonzero(matrix)
    offsets = offsets_from_counts(np.bincount(rows, minlength=len(matrix)))
    return SparseRows(offsets, columns.astype(np.int32), matrix[rows, columns].astype(np.float32))


def _text(generator: np.random.Generator, about: Any, num_features: int) -> np.ndarray[Any, Any]:
    """Unit length, as those of texts are."""
    counts = generator.poisson(0.2, num_features).astype(np.float64)
    np.add.at(counts, np.asarray(about) % num_features, generator.random(len(about)) + 0.5)
    return counts / np.linalg.norm(counts)


def _model(seed: int, shape: ModelShape, heads: int) -> Retriever:
    """Of some queries it is surer than of others."""
    if heads > 1:
        part = replace(shape, dim=shape.dim // heads)
        return join_models([Retriever.new(part, seed=seed + number) for number in range(heads)])
    model, generator = Retriever.new(shape, seed=seed), torch.Generator().manual_seed(seed)
    if shape.kind == "linear":
        model.classes.weight.copy_(torch.randn(model.classes.weight.shape, generator=generator))
    else:
        model.classes.weight.mul_(0.1 + 1.6 * torch.rand(shape.num_classes, 1, generator=generator) ** 2)
    return model
