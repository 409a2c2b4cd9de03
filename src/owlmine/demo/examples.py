"""Some test points of the sample in words: what was asked, what is true, what each method answers."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from typing import Any

import numpy as np

from owlmine.data.datasets import sample_folder
from owlmine.data.rows import Int64
from owlmine.data.store import Store
from owlmine.model.predictor import Predictor

NUM_EXAMPLES = 5
NUM_PREDICTED = 5
# Fewer dependencies say little about five answers; more are too many to read.
_FEWEST, _MOST = 2, 6


def pick_rows(store: Store, *, seed: int) -> Int64:
    """Rows of the test split, drawn at random from those with two to six labels."""
    counts = np.diff(store["test"].labels.offsets)
    fitting = np.flatnonzero((counts >= _FEWEST) & (counts <= _MOST))
    return np.sort(np.random.default_rng([seed, 5]).choice(fitting, NUM_EXAMPLES, replace=False))


def examples(store: Store, predictors: Mapping[str, Predictor], *, seed: int) -> list[dict[str, Any]]:
    """One record per example; predictions by method, best first, each with whether it is true."""
    rows = pick_rows(store, seed=seed)
    batch = store["test"].batch(rows)
    texts = _texts(len(store["test"]))
    answers = {name: predictor.top(batch.queries, NUM_PREDICTED) for name, predictor in predictors.items()}
    told = []
    for place, row in enumerate(rows.tolist()):
        labels = batch.labels[place : place + 1].indices.tolist()
        true = {store.class_names[label] for label in labels}
        package, summary = _title(texts[row])
        predicted = {
            name: [
                {"name": (found := store.class_names[c]), "score": round(score, 3), "hit": found in true}
                for c, score in zip(ids[place].tolist(), scores[place].tolist(), strict=True)
            ]
            for name, (scores, ids) in answers.items()
        }
        told.append({"package": package, "summary": summary, "true": sorted(true), "predicted": predicted})
    return told


def _texts(num_points: int) -> list[dict[str, Any]]:
    """The points of the sample's test file. None of them is left out of the store, so rows and lines agree."""
    with lzma.open(sample_folder() / "test.jsonl.xz", "rt", encoding="utf-8") as file:
        points = [json.loads(line) for line in file]
    assert len(points) == num_points
    return points


def _title(point: dict[str, Any]) -> tuple[str, str]:
    """The package, and the first sentence of its description; the texts read ``package words: summary. more``."""
    _, _, description = point["text"].partition(": ")
    return point["id"], description.partition(". ")[0].rstrip(".")
