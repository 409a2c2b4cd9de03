"""The choices of a training run. The command line is made from this class, so a default lives once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from owlmine.losses.modules.registry import LOSSES
from owlmine.losses.surrogates import surrogate_names
from owlmine.options import option
from owlmine.recipe.suited_settings import suited_setting

# Losses that the trainer can feed: those of one positive and a pool, or of one positive and all classes.
TRAINABLE = tuple(name for name, entry in LOSSES.items() if entry.inputs in ("pool", "classes"))
SCHEDULES = ("linear", "cosine", "constant")
RECIPES = ("best", "single")
OPTIMISERS = ("sgd", "adaptive")
# With the class that each point leaves out a batch shares 2^15, so that tiles and blocks are full: one more costs up to
# 16 % of a step.
MAX_POOL = 32_767
SINGLE_DIM, SINGLE_EPOCHS = 512, 15.0

# The panels of ``owlmine train --help``, in the order in which they stand there.
_loss = partial(option, group="Loss and mining")
_steps = partial(option, group="Steps")
_model = partial(option, group="Model")
_run = partial(option, group="Run")


@dataclass(frozen=True)
class TrainOptions:
    """How a model is trained: by default by the best recipe, one or more models whose shortlist is judged again, each
    under a softmax over the hardest classes of a pool, from a warm start.

    ``recipe="single"`` is one model and nothing else, ``loss="bowl"`` the paper's loss.

    What a 0 leaves open (``top``, ``scale`` and the rates) has the number that suits the loss once this is made, and
    with ``recipe="single"`` so have ``dim`` and ``epochs``; the best recipe leaves these two open until the device and
    the data are known. ``dataclasses.replace`` keeps those numbers, whatever the new loss or recipe.
    """

    loss: str = _loss("mined-softmax", f"Loss: {', '.join(TRAINABLE)}.")
    top: int = _loss(0, "How many of the hardest negatives count, for losses that mine (0: what suits the loss).")
    pool: int = _loss(0, "Classes drawn for each batch (0: what suits the device, at most 32,767).")
    pool_start: int = _loss(0, "Pool of the first steps, doubled up to --pool as mistakes become rare (0: no growth).")
    shared_pool: bool = _loss(True, "One pool for a batch (off: one for each point, as in the paper; far slower).")
    surrogate: str = _loss("hinge", f"Surrogate of the ordered losses: {', '.join(surrogate_names())}.")
    scale: float = _loss(0.0, "Factor on scores inside the loss (0: what suits the loss).")
    learn_scale: bool = _loss(False, "Learn the factor on scores.")
    power: float = _loss(0.0, "Weights of the kept negatives by rank^-power (0: equal).")
    tail: float = _loss(0.0, "Least weight of every negative of the pool.")
    exclude_known: bool = _loss(True, "Do not count the other labels of a point as negatives (the paper does).")
    epochs: float = _steps(0.0, "Visits to each training point (0: what the recipe says, 15 for a single model).")
    batch_size: int = _steps(256, "Points per step.")
    class_rate: float = _steps(0.0, "Step size of class vectors (0: what suits the loss).")
    feature_rate: float = _steps(0.0, "Step size of feature vectors (0: what suits the loss).")
    map_rate: float = _steps(0.0, "Step size of the linear maps and of a learned scale (0: what suits the loss).")
    momentum: float = _steps(0.9, "Momentum of the linear maps.")
    optimiser: str = _steps("sgd", "Row updates: sgd, or adaptive (steps shrink for rows that moved much).")
    schedule: str = _steps("linear", "How step sizes fall: linear (to 0), cosine or constant.")
    warm_start: bool = _steps(True, "Start class vectors from the mean vector of their training points.")
    kind: str = _model("embedding", "Model: embedding (the paper's), or linear (no hidden layer).")
    dim: int = _model(0, "Dimension of query and class vectors (0: what the recipe says, 512 for a single model).")
    depth: int = _model(1, "Linear maps behind the feature table.")
    heads: int = _model(0, "Models trained one after the other and put side by side (0: what the recipe says).")
    shortlist: int = _model(0, "Best classes of a query that linear classifiers score again (0: what the recipe says).")
    neighbours: int = _model(0, "Nearest training points that vote on the shortlist (0: what the recipe says).")
    names: bool = _model(True, "Let names of classes count that a text spells, where its shortlist is scored again.")
    recipe: str = _run(
        "best",
        "best: a re-ranker behind the model, and several models on a GPU or where points are few. single: one model"
        " alone, the paper's form.",
    )
    validation: float = _run(0.02, "Share of train to validate on, where there is no dev split; 5,000 at most.")
    validation_block: int = _run(1, "Neighbouring points of train that are cut off together.")
    patience: int = _run(0, "Stop after so many epochs without a better validation P@1, and keep the best (0: off).")
    seed: int = _run(0, "Seed of everything random.")
    device: str = _run("auto", "cpu, cuda, or auto.")
    kernels: bool = _run(True, "On a GPU, train by Triton kernels where there are some for it (off: plain PyTorch).")
    checkpoint_minutes: float = _run(5.0, "Minutes between checkpoints.")
    tensorboard: bool = _run(False, "Write event files for TensorBoard (pip install '.[tensorboard]').")

    def __post_init__(self) -> None:
        if self.loss not in TRAINABLE:
            raise ValueError(f"loss is {self.loss!r}; wanted one of {', '.join(TRAINABLE)}")
        # From here on no option is open: what is written down of a run are the numbers it was made with.
        for name, value in vars(suited_setting(self.loss)).items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        # The best recipe goes by the device and the data, which are not known here.
        if self.recipe != "best":
            object.__setattr__(self, "dim", self.dim or SINGLE_DIM)
            object.__setattr__(self, "epochs", self.epochs or SINGLE_EPOCHS)
        checks = (
            ("top", self.top >= 1, "1 or more, or 0"),
            ("pool", self.pool >= 0, "0 or more"),
            (
                "pool_start",
                self.pool_start == 0 or self.pool_start >= max(self.top, 2),
                "0, or at least 2 and no fewer than --top",
            ),
            ("pool_start", self.pool_start == 0 or self.shared_pool, "0 with a pool for each point"),
            ("surrogate", self.surrogate in surrogate_names(), f"one of {', '.join(surrogate_names())}"),
            ("scale", self.scale > 0, "above 0, or 0"),
            ("power", self.power >= 0, "0 or more"),
            ("tail", self.tail >= 0, "0 or more"),
            ("epochs", self.epochs >= 0, "above 0, or 0"),
            ("dim", self.dim >= 0, "1 or more, or 0"),
            ("batch_size", self.batch_size >= 1, "1 or more"),
            ("momentum", 0 <= self.momentum < 1, "0 to below 1"),
            ("optimiser", self.optimiser in OPTIMISERS, f"one of {', '.join(OPTIMISERS)}"),
            ("schedule", self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
            ("heads", self.heads >= 0, "0 or more"),
            ("heads", self.heads <= 1 or self.kind != "linear", "0 or 1 with a linear model"),
            ("shortlist", self.shortlist >= 0, "0 or more"),
            ("neighbours", self.neighbours >= 0, "0 or more"),
            ("recipe", self.recipe in RECIPES, f"one of {', '.join(RECIPES)}"),
            ("validation", 0 <= self.validation < 1, "0 to below 1"),
            ("validation_block", self.validation_block >= 1, "1 or more"),
            ("patience", self.patience >= 0, "0 or more"),
            ("seed", 0 <= self.seed < 2**32, "0 to 2^32 - 1"),
            ("device", self.device in ("auto", "cpu", "cuda"), "auto, cpu or cuda"),
            ("checkpoint_minutes", self.checkpoint_minutes > 0, "above 0"),
            *((name, getattr(self, name) > 0, "above 0, or 0") for name in ("class_rate", "feature_rate", "map_rate")),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")
