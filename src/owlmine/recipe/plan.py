"""The plan: every size of a training, chosen from the options and the facts. The only place with tables of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import torch

from owlmine.data.store import Dataset
from owlmine.dense.objective import check_objective
from owlmine.dense.retriever import ModelShape
from owlmine.dense.settings import DenseSettings
from owlmine.index.approximate import faiss_module
from owlmine.rank import JudgeSizes
from owlmine.recipe.options import LossOptions, TrainOptions

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Facts:
    """What sizes depend on besides the options."""

    num_points: int
    num_classes: int
    num_features: int
    dense: bool
    """Whether queries are dense vectors."""
    has_dev: bool
    """Whether there is a dev split to validate on."""
    on_gpu: bool
    has_faiss: bool = False
    """Whether there can be an index."""

    @classmethod
    def of(cls, data: Dataset, device: torch.device) -> Facts:
        return cls(
            num_points=len(data["train"]),
            num_classes=data.num_classes,
            num_features=data.num_features,
            dense=data.meta["queries"] == "dense",
            has_dev="dev" in data.splits,
            on_gpu=device.type == "cuda",
            has_faiss=faiss_module() is not None,
        )

    @property
    def is_small_table(self) -> bool:
        """Whether there are few points of dense columns, for which sizes of their own are better."""
        return self.dense and self.num_points <= FEW_POINTS


@dataclass(frozen=True)
class Plan:
    """What ``fit`` does. Nothing is open, and nothing is guessed back from these numbers."""

    heads: int
    """Models in the ensemble."""
    model: DenseSettings
    """Of each of them, but for its seed."""
    judges: JudgeSizes
    validation: float
    validation_block: int
    index: bool
    """Whether an approximate index finds the best classes."""
    rehearsal: float
    """Share of the training points that a first fit leaves out to choose by, before the model learns from all of them;
    0: no rehearsal."""

    @property
    def is_single(self) -> bool:
        """Whether one dense model is trained, once, and nothing else."""
        return self.heads == 1 and not self.judges.shortlist and not self.rehearsal

    def member(self, number: int) -> DenseSettings:
        """Each model has a seed of its own, which no model of a run with another seed has."""
        return replace(self.model, seed=(self.model.seed * self.heads + number) % 2**32)

    def shape(self, facts: Facts) -> ModelShape:
        """Of each model."""
        return ModelShape(
            num_features=facts.num_features,
            num_classes=facts.num_classes,
            dense=facts.dense,
            kind=self.model.kind,
            dim=self.model.dim,
            depth=self.model.depth,
        )

    def holding_out(self, share: float) -> Plan:
        """The same with this share of the training points held out."""
        return replace(self, validation=share, rehearsal=0.0)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        plan = asdict(self)
        plan["judges"] = {n: list(v) if isinstance(v, tuple) else v for n, v in plan["judges"].items()}
        return plan


# With few points of dense columns an ordinary run has too few steps. Smaller batches and more visits give it enough of
# them, and few classes need a smaller dimension. Measured on tables of 100 to 2,000 points. Sparse points have no use
# for it: of 300 to 2,000 texts of the sample, a single model had a P@1 lower by 2 to 5, and an ensemble with judges had
# the same P@1 in two to seven times the time.
FEW_POINTS = 2_000
BATCH, LEAST_BATCH, LEAST_STEPS_PER_EPOCH, LEAST_STEPS = 256, 32, 16, 300
LEAST_DIM = 64
# Training points up to which an ensemble has so many models, on a GPU and on a CPU: few points leave more to chance,
# which averaging removes, and take less time.
HEADS_ON_GPU = ((25_000, 8), (60_000, 8), (200_000, 5), (math.inf, 3))
HEADS_ON_CPU = ((25_000, 5), (60_000, 3), (200_000, 1), (math.inf, 1))
# A dense model that judges stand behind may be small, which a CPU has the time for; more points need fewer visits.
DIM, DIM_ON_CPU = 512, 128
EPOCHS, EPOCHS_ON_CPU = 15.0, ((60_000, 8.0), (math.inf, 5.0))
# Below so many classes exact search is as fast in batches.
INDEX_FROM = 100_000
SHORTLIST = 50
NEIGHBOURS = 30
# Costs of the linear classifiers to choose from, where they have at most so many pairs to learn from.
COSTS = (0.1, 0.3, 1.0, 3.0)
PAIRS_ON_GPU, PAIRS_ON_CPU = 10_000_000, 1_000_000
# The hardest of nearly all classes is often one that is relevant and was not marked: a pool of an eighth does better.
# What a pool costs on two cores grows with it, and what it brings flattens out. On a GPU a batch shares 2^15 classes
# with the one that each point leaves out, so that tiles are full: one more costs up to 16 % of a step.
POOL_SHARE, LEAST_POOL, POOL_ON_CPU, POOL_ON_GPU = 8, 256, 4_096, 32_767
# So many validation points settle the mix. A rehearsal takes them where --validation gives fewer than half of them,
# from a fifth of train at most.
ENOUGH_POINTS = 1_000
MOST_OF_TRAIN = 0.2


@dataclass(frozen=True)
class LossNumbers:
    """What suits a loss: its gradients, and with them its best rates, differ from another's by orders of magnitude."""

    top: int
    scale: float
    class_rate: float
    feature_rate: float
    map_rate: float


_HINGE = LossNumbers(top=1, scale=1.0, class_rate=0.1, feature_rate=10.0, map_rate=0.001)
# Scores lie in [-1, 1]: without a scale the probability of a positive among many could never come near 1.
_SOFTMAX = LossNumbers(top=1, scale=20.0, class_rate=0.03, feature_rate=3.0, map_rate=0.0003)
# Class vectors that hardly move, and an encoder that learns to meet them.
_WHOLE_POOL = LossNumbers(top=1, scale=1.0, class_rate=0.001, feature_rate=3.0, map_rate=0.003)

LOSS_NUMBERS = {
    "bowl": _HINGE,
    "mined-softmax": LossNumbers(top=16, scale=10.0, class_rate=0.03, feature_rate=3.0, map_rate=0.0003),
    "sampled-softmax": _SOFTMAX,
    "softmax": _SOFTMAX,
    "negative-sampling-bowl": _WHOLE_POOL,
    "negative-sampling-powl": _WHOLE_POOL,
}
"""Losses that were searched on their own. All others take the numbers of ``bowl``, the paper's."""


def resolve(options: TrainOptions, facts: Facts) -> Plan:
    """What the options ask for, and where they leave it open what suits the data and the device.

    Raises ValueError where they cannot be had.
    """
    model, run = options.model, options.run
    best = model.recipe == "best"
    judges = _judges(options, facts)
    heads = model.heads or (
        _by_size(facts.num_points, _heads_table(facts)) if best and model.kind == "embedding" else 1
    )
    # Where no judge makes up for less, the sizes are those of a single model.
    small = best and not facts.on_gpu and not facts.dense and model.kind == "embedding"
    settings = _dense_settings(
        options,
        facts,
        dim=DIM_ON_CPU if small else DIM,
        epochs=_by_size(facts.num_points, EPOCHS_ON_CPU) if small else EPOCHS,
    )
    check_objective(settings, num_classes=facts.num_classes)
    plan = Plan(
        heads=heads,
        model=settings,
        judges=judges,
        validation=run.validation,
        validation_block=run.validation_block,
        index=facts.has_faiss and not facts.on_gpu and model.kind == "embedding" and facts.num_classes >= INDEX_FROM,
        rehearsal=_rehearsal(options, facts) if best and (judges.shortlist or facts.is_small_table) else 0.0,
    )
    plan.shape(facts)  # raises ValueError for what no model can be
    return plan


def _dense_settings(options: TrainOptions, facts: Facts, *, dim: int, epochs: float) -> DenseSettings:
    """``dim`` and ``epochs``: where nothing else is asked for, and the data is no small table."""
    loss, steps, run = options.loss, options.steps, options.run
    numbers, batch_size = LOSS_NUMBERS.get(loss.loss, _HINGE), steps.batch_size or _batch_size(facts)
    if facts.is_small_table:
        # Gradients are sums over a batch, and every point adds to the maps and to every feature.
        points_in_batch = min(batch_size, facts.num_points)
        numbers = replace(
            numbers,
            map_rate=numbers.map_rate * BATCH / points_in_batch,
            feature_rate=numbers.feature_rate / points_in_batch,
        )
        dim = min(dim, max(LEAST_DIM, 2 ** round(math.log2(4 * math.sqrt(facts.num_classes)))))
        epochs = max(epochs, float(math.ceil(LEAST_STEPS / math.ceil(facts.num_points / batch_size))))
    pool = loss.pool or default_pool(loss, num_classes=facts.num_classes, on_gpu=facts.on_gpu)
    return DenseSettings(
        kind=options.model.kind,
        dim=options.model.dim or dim,
        depth=options.model.depth,
        loss=loss.loss,
        # What suits the loss may be more than few classes can give; a number that somebody chose may not.
        top=loss.top or min(numbers.top, pool),
        pool=pool,
        pool_start=loss.pool_start,
        shared_pool=loss.shared_pool,
        surrogate=loss.surrogate,
        scale=loss.scale or numbers.scale,
        learn_scale=loss.learn_scale,
        power=loss.power,
        least_weight=loss.least_weight,
        exclude_known=loss.exclude_known,
        epochs=steps.epochs or epochs,
        batch_size=batch_size,
        class_rate=steps.class_rate or numbers.class_rate,
        feature_rate=steps.feature_rate or numbers.feature_rate,
        map_rate=steps.map_rate or numbers.map_rate,
        momentum=steps.momentum,
        optimiser=steps.optimiser,
        schedule=steps.schedule,
        warm_start=steps.warm_start,
        patience=run.patience,
        kernels=run.kernels,
        seed=run.seed,
    )


def _batch_size(facts: Facts) -> int:
    if not facts.is_small_table:
        return BATCH
    return min(BATCH, max(LEAST_BATCH, facts.num_points // LEAST_STEPS_PER_EPOCH))


def default_pool(loss: LossOptions, *, num_classes: int, on_gpu: bool) -> int:
    """The size of the pool where none is asked for."""
    top = loss.top or LOSS_NUMBERS.get(loss.loss, _HINGE).top
    most = POOL_ON_GPU if on_gpu else POOL_ON_CPU
    return min(most, max(num_classes // POOL_SHARE, LEAST_POOL, top), num_classes - 1)


def _judges(options: TrainOptions, facts: Facts) -> JudgeSizes:
    """Dense queries have no judges: all of them look at sparse features."""
    model, best = options.model, options.model.recipe == "best"
    for name in ("shortlist", "neighbours"):
        if facts.dense and getattr(model, name):
            raise ValueError(f"{name} is {getattr(model, name)}; wanted 0 with dense queries")
    shortlist = model.shortlist if model.shortlist is not None else SHORTLIST if best and not facts.dense else 0
    if not shortlist and model.neighbours:
        raise ValueError(f"neighbours is {model.neighbours}; wanted 0 without a shortlist")
    neighbours = model.neighbours if model.neighbours is not None else NEIGHBOURS if best and shortlist else 0
    by_vectors = facts.on_gpu or bool(model.neighbours)
    return JudgeSizes(
        shortlist=min(shortlist, facts.num_classes),
        neighbours=min(neighbours, facts.num_points),
        neighbour_kinds=("sparse", "dense") if by_vectors else ("sparse",),
        # A linear model has vectors as long as there are features: too long to be made for a list of classes.
        names=model.names and shortlist > 0 and model.kind == "embedding",
        costs=COSTS if best else (1.0,),
        most_pairs_of_choice=PAIRS_ON_GPU if facts.on_gpu else PAIRS_ON_CPU,
    )


def _heads_table(facts: Facts) -> Sequence[tuple[float, int]]:
    return HEADS_ON_GPU if facts.on_gpu else HEADS_ON_CPU


def _by_size(num_points: int, sizes: Sequence[tuple[float, Number]]) -> Number:
    """What belongs to the first size that is large enough."""
    return next(value for most, value in sizes if num_points <= most)


def _rehearsal(options: TrainOptions, facts: Facts) -> float:
    """None with patience, which needs validation points to the end, and none where there is a dev split."""
    run, num_points = options.run, facts.num_points
    if facts.has_dev or run.patience or run.validation == 0 or run.validation * num_points >= ENOUGH_POINTS / 2:
        return 0.0
    share = max(min(ENOUGH_POINTS / num_points, MOST_OF_TRAIN), run.validation)
    return share if int(share * num_points) >= run.validation_block else 0.0
