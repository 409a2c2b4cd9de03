"""Models and classes as JSON objects."""

from __future__ import annotations

from typing import Any

from owlmine.rank.judge import JUDGES
from owlmine.serve.models import Loaded, ServedModels


def list_models(models: ServedModels) -> dict[str, Any]:
    return {
        "models": [
            {
                "name": served.name,
                "takes": None if served.loaded is None else served.loaded.model.takes,
                "classes": None if served.loaded is None else served.loaded.num_classes,
                "version": None if served.loaded is None else served.loaded.version,
                "ready": served.loaded is not None,
                "problem": served.problem,
            }
            for served in models
        ]
    }


def describe_model(loaded: Loaded) -> dict[str, Any]:
    model = loaded.model
    calibration = model.record.calibration
    return {
        "name": loaded.name,
        "takes": model.takes,
        "version": loaded.version,
        "classes": loaded.num_classes,
        "features": model.dense.shape.num_features,
        "points": model.classes.num_points,
        "data": model.record.data,
        "figures": dict(model.record.figures),
        "probabilities": calibration is not None,
        "thresholds": [] if calibration is None else [entry.to_dict() for entry in calibration.thresholds],
        "judges": [
            {"name": name, "title": JUDGES[name].title, "weight": weight}
            for name, weight in model.ranker.mix.weights.items()
        ],
        "index": loaded.facts.index,
        "record": model.record.to_dict(),
        "card": loaded.card,
        "pictures": list(loaded.pictures()),
        "examples": loaded.examples,
    }


def describe_class(loaded: Loaded, key: str) -> dict[str, Any]:
    number, words = loaded.class_number(key), loaded.model.classes
    return {
        "key": words.keys[number],
        "name": words.names[number],
        "examples": int(words.counts[number]),
    }
