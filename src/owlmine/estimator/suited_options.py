"""Training options for whatever was left open: those of ``owlmine train``, or what suits little data."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from owlmine.recipe.options import TrainOptions

# Below this many steps in all, more epochs help; measured on data of 100 to 2,000 points.
_LEAST_STEPS = 300
_LEAST_STEPS_PER_EPOCH = 16
_LEAST_BATCH = 32
_LEAST_DIM = 64
# random_state stands for the seed; the others belong to runs that have a folder.
_NOT_HERE = (
    "seed",
    "validation",
    "patience",
    "checkpoint_minutes",
    "tensorboard",
    "heads",
    "shortlist",
    "neighbours",
    "recipe",
)


@dataclass(frozen=True)
class DataSize:
    """What the choice of options depends on."""

    num_points: int
    num_classes: int
    features_per_point: float
    """As a share of all features."""


def suited_options(given: dict[str, Any], size: DataSize, *, seed: int) -> TrainOptions:
    """The options in ``given`` that are not None, and for the others what suits ``size``.

    Gradients are sums over a batch: every point adds to the maps, and to those features that it has. So the rate of
    the maps goes with one over the batch size, and that of features with one over the points that share a feature.
    """
    defaults = TrainOptions(recipe="single")
    known = {f.name: getattr(defaults, f.name) for f in fields(TrainOptions) if f.name not in _NOT_HERE}
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"options has {', '.join(unknown)}; wanted some of {', '.join(known)}")
    chosen = {name: _typed(name, value, known[name]) for name, value in given.items() if value is not None}
    for name in ("dim", "epochs"):
        if name in chosen and not chosen[name] > 0:
            raise ValueError(f"{name} is {chosen[name]!r}; wanted above 0, or None for what suits the data")
    defaults = TrainOptions(recipe="single", loss=chosen.get("loss", defaults.loss))

    if "dim" not in chosen:
        power = 2 ** round(math.log2(4 * math.sqrt(size.num_classes)))
        chosen["dim"] = min(defaults.dim, max(_LEAST_DIM, power))
    if "batch_size" not in chosen:
        least = max(_LEAST_BATCH, size.num_points // _LEAST_STEPS_PER_EPOCH)
        chosen["batch_size"] = min(defaults.batch_size, least)
    batch = max(min(chosen["batch_size"], size.num_points), 1)
    if "epochs" not in chosen:
        steps_per_epoch = math.ceil(size.num_points / batch)
        chosen["epochs"] = max(defaults.epochs, float(math.ceil(_LEAST_STEPS / steps_per_epoch)))
    if "map_rate" not in chosen:
        chosen["map_rate"] = defaults.map_rate * defaults.batch_size / batch
    if "feature_rate" not in chosen:
        chosen["feature_rate"] = defaults.feature_rate / max(batch * size.features_per_point, 1.0)
    return TrainOptions(**{**chosen, "recipe": "single", "seed": seed, "validation": 0.0})


def _typed(name: str, value: Any, default: Any) -> Any:
    """Values of any make (a grid search hands out NumPy's) as plain ones."""
    kind = type(default)
    accepted: Any = {bool: (bool, np.bool_), int: numbers.Integral, float: numbers.Real, str: str}[kind]
    if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{name} is {value!r}; wanted {kind.__name__}")
    return kind(value)
