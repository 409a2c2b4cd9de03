"""The options of a training run, in groups. The command line is generated from these classes, so each default is stated
once.

``None`` means "choose for me": ``plan.py`` chooses, from the data and the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from typing import Any, Self, get_args, get_type_hints

import numpy as np

from owlmine.losses.modules.registry import LOSSES
from owlmine.losses.surrogates import surrogate_names
from owlmine.options import option

# Losses that can be trained: those with one positive and a pool, or with one positive and all classes.
TRAINABLE = tuple(name for name, entry in LOSSES.items() if entry.inputs in ("pool", "classes"))
SCHEDULES = ("linear", "cosine", "constant")
RECIPES = ("best", "single")
OPTIMISERS = ("sgd", "adaptive")
EFFORTS = ("fast", "default", "most")

_common = partial(option, common=True)


@dataclass(frozen=True)
class LossOptions:
    """Which loss is learned, from which negatives."""

    loss: str = _common("mined-softmax", f"Loss: {', '.join(TRAINABLE)}.")
    top: int | None = option(
        None, "Number of hardest negatives that count, for losses that mine (default: depends on the loss)."
    )
    pool: int | None = option(None, "Classes drawn for each batch (default: depends on the data and the device).")
    pool_start: int | None = option(
        None, "Pool size of the first steps, doubled up to --pool as mistakes become rare (default: no growth)."
    )
    shared_pool: bool = option(True, "Share one pool in a batch (off: one per point, as in the paper; far slower).")
    surrogate: str = option("hinge", f"Surrogate of the ordered losses: {', '.join(surrogate_names())}.")
    scale: float | None = option(None, "Factor on scores inside the loss (default: depends on the loss).")
    learn_scale: bool = option(False, "Learn the factor on scores.")
    power: float = option(0.0, "Weight the kept negatives by rank^-power (0: equal weights).")
    least_weight: float = option(0.0, "Minimum weight of every negative of the pool.")
    exclude_known: bool = option(True, "Do not count a point's other labels as negatives (the paper does).")

    def __post_init__(self) -> None:
        _check_types(self)
        _check(
            self,
            ("loss", self.loss in TRAINABLE, f"one of {', '.join(TRAINABLE)}"),
            ("top", self.top is None or self.top >= 1, "1 or more"),
            ("pool", self.pool is None or self.pool >= 1, "1 or more"),
            (
                "pool_start",
                self.pool_start is None or self.pool_start >= max(self.top or 1, 2),
                "at least 2, and no fewer than --top",
            ),
            ("pool_start", self.pool_start is None or self.shared_pool, "a shared pool"),
            ("surrogate", self.surrogate in surrogate_names(), f"one of {', '.join(surrogate_names())}"),
            ("scale", self.scale is None or 0 < self.scale < math.inf, "above 0, and finite"),
            ("power", self.power >= 0, "0 or more"),
            ("least_weight", self.least_weight >= 0, "0 or more"),
        )


@dataclass(frozen=True)
class StepOptions:
    """How a model learns."""

    epochs: float | None = _common(None, "Visits to each training point (default: chosen by the recipe).")
    batch_size: int | None = option(None, "Points per step (default: depends on the number of points).")
    class_rate: float | None = option(None, "Step size of class vectors (default: depends on the loss).")
    feature_rate: float | None = option(None, "Step size of feature vectors (default: depends on the loss).")
    map_rate: float | None = option(
        None, "Step size of the maps and of a learned scale (default: depends on the loss)."
    )
    momentum: float = option(0.9, "Momentum of the linear maps.")
    optimiser: str = option("sgd", "Row updates: sgd, or adaptive (smaller steps for rows that have moved a lot).")
    schedule: str = option("linear", "How step sizes fall: linear (to 0), cosine or constant.")
    warm_start: bool = option(True, "Start class vectors at the mean vector of their training points.")

    def __post_init__(self) -> None:
        _check_types(self)
        _check(
            self,
            ("epochs", self.epochs is None or 0 < self.epochs < math.inf, "above 0, and finite"),
            ("batch_size", self.batch_size is None or self.batch_size >= 1, "1 or more"),
            *(
                (name, getattr(self, name) is None or 0 < getattr(self, name) < math.inf, "above 0, and finite")
                for name in ("class_rate", "feature_rate", "map_rate")
            ),
            ("momentum", 0 <= self.momentum < 1, "0 to below 1"),
            ("optimiser", self.optimiser in OPTIMISERS, f"one of {', '.join(OPTIMISERS)}"),
            ("schedule", self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
        )


@dataclass(frozen=True)
class ModelOptions:
    """The dense models, and the judges that rank their candidates."""

    recipe: str = _common(
        "best",
        "best: judges re-rank the candidates of the dense model; an ensemble on a GPU or with few points. single: one"
        " dense model alone, as in the paper.",
    )
    kind: str = option("embedding", "Dense model: embedding (the paper's), or linear (no hidden layer).")
    dim: int | None = _common(None, "Dimension of query and class vectors (default: chosen by the recipe).")
    depth: int = option(1, "Linear maps after the feature table.")
    heads: int | None = _common(None, "Models in the ensemble (default: chosen by the recipe).")
    shortlist: int | None = _common(
        None, "Number of best classes per query that judges re-rank (default: chosen by the recipe; 0: no judges)."
    )
    neighbours: int | None = _common(
        None, "Number of nearest training points that vote for their labels (default: chosen by the recipe; 0: none)."
    )
    names: bool = _common(True, "Use class names that appear in the text.")
    keep_texts: bool = option(
        False, "Keep the training texts in the model, to show those that vote (owlmine predict --explain)."
    )

    def __post_init__(self) -> None:
        _check_types(self)
        _check(
            self,
            ("recipe", self.recipe in RECIPES, f"one of {', '.join(RECIPES)}"),
            ("kind", self.kind in ("embedding", "linear"), "embedding or linear"),
            ("dim", self.dim is None or self.dim >= 1, "1 or more"),
            ("depth", 0 <= self.depth <= 8, "0 to 8"),
            ("heads", self.heads is None or self.heads >= 1, "1 or more"),
            ("heads", (self.heads or 1) == 1 or self.kind != "linear", "1 with a linear model"),
            ("shortlist", (self.shortlist or 0) >= 0, "0 or more"),
            ("neighbours", (self.neighbours or 0) >= 0, "0 or more"),
        )


@dataclass(frozen=True)
class RunOptions:
    """Effort, validation, seed, device and files of a run."""

    effort: str = _common(
        "default",
        "fast: smaller and fewer models. most: larger and more models, for the best accuracy. Options that are given"
        " stay as they are.",
    )
    minutes: float | None = _common(
        None,
        "Choose the largest effort that is estimated to fit into these minutes (default: --effort decides).",
    )
    validation: float = _common(0.02, "Share of the training data to validate on, if there is no dev split.")
    validation_block: int = option(1, "Neighbouring training points to hold out together.")
    patience: int = option(
        0, "Stop after this many epochs without a better validation P@1, and keep the best (0: off)."
    )
    seed: int = _common(0, "Random seed.")
    device: str = _common("auto", "cpu, cuda, or auto.")
    kernels: bool = option(True, "On a GPU, train with Triton kernels where available (off: plain PyTorch).")
    checkpoint_minutes: float = option(5.0, "Minutes between checkpoints.")
    tensorboard: bool = option(False, "Write event files for TensorBoard (pip install '.[tensorboard]').")

    def __post_init__(self) -> None:
        _check_types(self)
        _check(
            self,
            ("effort", self.effort in EFFORTS, f"one of {', '.join(EFFORTS)}"),
            ("minutes", self.minutes is None or 0 < self.minutes < math.inf, "above 0, and finite"),
            ("minutes", self.minutes is None or self.effort == "default", f"none with --effort {self.effort}"),
            ("validation", 0 <= self.validation < 1, "0 to below 1"),
            ("validation_block", self.validation_block >= 1, "1 or more"),
            ("patience", self.patience >= 0, "0 or more"),
            ("seed", 0 <= self.seed < 2**32, "0 to 2^32 - 1"),
            ("device", self.device in ("auto", "cpu", "cuda"), "auto, cpu or cuda"),
            ("checkpoint_minutes", self.checkpoint_minutes > 0, "above 0"),
        )


@dataclass(frozen=True)
class TrainOptions:
    """How a model is trained. The default is the best recipe, and the plan chooses the sizes.

    ``TrainOptions.of(epochs=3, loss="bowl")`` takes single options and puts them into their groups.
    """

    model: ModelOptions = field(default_factory=ModelOptions, metadata={"group": "Model"})
    loss: LossOptions = field(default_factory=LossOptions, metadata={"group": "Loss and mining"})
    steps: StepOptions = field(default_factory=StepOptions, metadata={"group": "Steps"})
    run: RunOptions = field(default_factory=RunOptions, metadata={"group": "Run"})

    @classmethod
    def of(cls, **given: Any) -> Self:
        """From single options by name. Raises TypeError for an unknown name."""
        groups: dict[str, Any] = {}
        # A grid search passes NumPy numbers.
        given = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        for group in fields(cls):
            names = [leaf.name for leaf in fields(_GROUPS[group.name])]
            groups[group.name] = _GROUPS[group.name](**{name: given.pop(name) for name in names if name in given})
        if given:
            names = list(cls().to_dict())
            close = get_close_matches(next(iter(given)), names, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; wanted some of {', '.join(names)}"
            raise TypeError(f"there is no option {', '.join(given)}{hint}")
        return cls(**groups)

    def to_dict(self) -> dict[str, Any]:
        """Single options by name."""
        return {name: value for group in fields(self) for name, value in asdict(getattr(self, group.name)).items()}

    def binding(self) -> dict[str, Any]:
        """The options that a model depends on: all except those for watching a run."""
        return {name: value for name, value in self.to_dict().items() if name not in _WATCHING}

    def with_(self, **changes: Any) -> Self:
        """A copy with some options changed."""
        return self.of(**(self.to_dict() | changes))

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> Self:
        """The inverse of ``to_dict``."""
        return cls.of(**options)


_WATCHING = ("tensorboard", "checkpoint_minutes")
_GROUPS: dict[str, Any] = {"model": ModelOptions, "loss": LossOptions, "steps": StepOptions, "run": RunOptions}


def _check_types(options: Any) -> None:
    """Raises ValueError for a value of the wrong type; an int is accepted as a float."""
    hints = get_type_hints(type(options))
    for leaf in fields(options):
        value, kinds = getattr(options, leaf.name), get_args(hints[leaf.name]) or (hints[leaf.name],)
        if type(value) not in kinds and not (type(value) is int and float in kinds):
            wanted = " or ".join(_IN_WORDS[kind] for kind in kinds)
            raise ValueError(f"{leaf.name} is {value!r}; wanted {wanted}")


_IN_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", type(None): "None"}


def _check(options: Any, *checks: tuple[str, bool, str]) -> None:
    for name, good, wanted in checks:
        if not good:
            raise ValueError(f"{name} is {getattr(options, name)!r}; wanted {wanted}")
