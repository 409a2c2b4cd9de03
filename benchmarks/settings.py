"""The numbers of one dense model, as the plan of ``owlmine train`` chooses them, and options given as text."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from owlmine.dense.retriever import ModelShape
from owlmine.dense.settings import DenseSettings
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Facts, resolve


def dense_settings(
    shape: ModelShape, *, num_points: int = 100_000, on_gpu: bool = False, **options: Any
) -> DenseSettings:
    """What ``TrainOptions`` of these names come to for a single model of this shape."""
    facts = Facts(
        num_points=num_points,
        num_classes=shape.num_classes,
        num_features=shape.num_features,
        dense=shape.dense,
        has_dev=False,
        on_gpu=on_gpu,
    )
    return resolve(TrainOptions.of(**{"recipe": "single", "dim": shape.dim} | options), facts).model


def parsed(text: str) -> dict[str, Any]:
    """Options of training from ``name=value`` pairs, separated by spaces."""
    kinds = _kinds()
    pairs = [pair.split("=", 1) for pair in text.split()]
    for name, *value in pairs:
        if name not in kinds or not value:
            raise ValueError(f"{' '.join([name, *value])!r} was given; wanted name=value with a name of TrainOptions")
    return {name: json.loads(value.lower()) if kinds[name] is bool else kinds[name](value) for name, value in pairs}


def _kinds() -> dict[str, Any]:
    """The type of each option; of one that may be left open, that of its value."""
    groups = [type(getattr(TrainOptions(), field.name)) for field in fields(TrainOptions)]
    hints = {name: hint for group in groups for name, hint in get_type_hints(group).items()}
    return {name: (get_args(hint) or (hint,))[0] for name, hint in hints.items()}
