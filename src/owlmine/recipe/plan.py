"""The plan: every size of a training run, chosen from options and facts. The only place with tables of sizes."""

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

Size = TypeVar("Size")


@dataclass(frozen=True)
class Facts:
    """What sizes depend on, besides the options."""

    num_points: int
    num_classes: int
    num_features: int
    dense: bool
    """Whether queries are dense vectors."""
    has_dev: bool
    """Whether there is a dev split to validate on."""
    on_gpu: bool
    has_faiss: bool = False
    """Whether faiss is installed, which an index needs."""

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
        """Whether there are few points with dense queries, which need different sizes."""
        return self.dense and self.num_points <= FEW_POINTS


@dataclass(frozen=True)
class Plan:
    """What ``fit`` does: every size is fixed, and nothing is inferred from these numbers."""

    heads: int
    """Models in the ensemble."""
    side_by_side: bool
    """Whether they are trained at the same time, if there is a GPU or threads for that."""
    model: DenseSettings
    """The settings of each model, except for its seed."""
    judges: JudgeSizes
    validation: float
    validation_block: int
    index: bool
    """Whether an approximate index finds the best classes."""
    coded: bool
    """Whether the rows of the joined model are rounded to bytes."""
    rehearsal: float
    """Share of the training points held out in a first fit, before the model is trained on all points; 0: no
    rehearsal."""

    @property
    def is_single(self) -> bool:
        """Whether training is one dense model, trained once, and nothing else."""
        return self.heads == 1 and not self.judges.shortlist and not self.rehearsal

    def trains_side_by_side(self, facts: Facts) -> bool:
        """Whether models are trained at the same time in this process."""
        return self.side_by_side and (facts.on_gpu or torch.get_num_threads() > 1)

    def member(self, number: int) -> DenseSettings:
        """The settings of one model. Its seed is unique in the run, and among runs with other seeds."""
        return replace(self.model, seed=(self.model.seed * self.heads + number) % 2**32)

    def shape(self, facts: Facts) -> ModelShape:
        """The shape of each model."""
        return ModelShape(
            num_features=facts.num_features,
            num_classes=facts.num_classes,
            dense=facts.dense,
            kind=self.model.kind,
            dim=self.model.dim,
            depth=self.model.depth,
        )

    def holding_out(self, share: float) -> Plan:
        """The same plan with this share of the training points held out."""
        return replace(self, validation=share, rehearsal=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        plan = asdict(self)
        plan["judges"] = {n: list(v) if isinstance(v, tuple) else v for n, v in plan["judges"].items()}
        return plan


@dataclass(frozen=True)
class Sizes:
    """The sizes that cost time and bring accuracy. Options override them."""

    heads: int
    """Models in the ensemble."""
    dim: int
    epochs: float
    most_in_pool: int
    """Classes drawn for a batch, at most."""
    positives_in_pool: bool
    """Whether all positives of a batch are among them."""
    by_vectors: bool
    """Whether neighbours are also found by vectors."""
    most_confusable: int
    """Classes of each training point that linear classifiers learn from, at most."""
    costs: tuple[float, ...]
    """Costs of the linear classifiers to choose from, ..."""
    most_pairs_of_choice: int
    """... with at most so many pairs to learn from."""


# With few dense queries, an ordinary run has too few steps. Smaller batches and more epochs give it enough, and few
# classes need a smaller dimension. Measured on tables of 100 to 2,000 points. Sparse queries do not benefit: on 300 to
# 2,000 texts of the sample, P@1 of a single model was lower by 2 to 5, and an ensemble with judges had the same P@1 in
# two to seven times the time.
FEW_POINTS = 2_000
BATCH, LEAST_BATCH, LEAST_STEPS_PER_EPOCH, LEAST_STEPS = 256, 32, 16, 300
LEAST_DIM = 64
# The number of models in an ensemble up to so many training points, on a GPU and on a CPU. Few points leave more to
# chance, which averaging removes, and take less time. On a CPU, one model of 128 dimensions is too small for many
# points, and two at the same time, with a thread each, wait less than one: two of three epochs are better than one of
# five.
HEADS_ON_GPU = ((60_000, 8), (200_000, 5), (800_000, 3), (math.inf, 2))
HEADS_ON_CPU = ((25_000, 5), (60_000, 3), (math.inf, 2))
# Small batches wait for the host, most of all on a GPU. An ensemble with judges is as good with larger ones, if points
# are many.
BATCH_ON_GPU = ((25_000, 256), (200_000, 512), (math.inf, 1_024))
BATCH_ON_CPU = ((200_000, 256), (math.inf, 512))
# Multiplications of a step from which models are trained side by side on a CPU: shorter steps would wait for Python.
SIDE_BY_SIDE_FROM = 1 << 25
# With judges, the dense model may be small, which suits a CPU, and more points need fewer epochs: each number was
# measured on a dataset of about that size.
DIM, DIM_ON_CPU = 512, 128
EPOCHS, EPOCHS_ON_CPU = 15.0, ((25_000, 8.0), (60_000, 5.0), (200_000, 3.0), (800_000, 5.0), (math.inf, 4.0))
# With fewer classes, exact search is as fast in batches.
INDEX_FROM = 100_000
SHORTLIST = 50
NEIGHBOURS = 30
# Classes of each training point that linear classifiers learn to tell apart from its labels: longer lists make better
# classifiers, within limits on all pairs of a point and a class, for memory and time. On a CPU, up to so many points,
# they bring more than further epochs of the dense model would in the same time.
MOST_PAIRS, LEAST_CONFUSABLE, CONFUSABLE = 30_000_000, 10, 100
CONFUSABLE_ON_CPU = ((60_000, 150), (math.inf, CONFUSABLE))
# Costs of the linear classifiers to choose from, up to so many points, with at most so many pairs to learn from. Small
# costs suit few points.
COSTS = ((60_000, (0.3, 1.0, 3.0)), (math.inf, (1.0, 3.0)))
PAIRS_ON_GPU, PAIRS_ON_CPU = 10_000_000, 1_000_000
# The hardest of nearly all classes is often relevant but not labelled: a pool of an eighth of the classes does better.
# On two cores, the cost of a pool grows with its size, while the gain flattens out. On a GPU, a batch shares 2^15
# classes, with the one that each point leaves out, so that tiles are full: one more costs up to 16 % of a step.
POOL_SHARE, LEAST_POOL, POOL_ON_CPU, POOL_ON_GPU = 8, 256, 4_096, 32_767
# On a CPU, an ensemble learns as much from half as many classes, if all positives of the batch are among them.
POOL_WITH_POSITIVES = 2_047
# This many validation points are enough to fit the mix. If --validation gives fewer than half of them, a rehearsal
# holds them out, but at most a fifth of train.
ENOUGH_POINTS = 1_000
MOST_OF_TRAIN = 0.2


@dataclass(frozen=True)
class LossNumbers:
    """Defaults for a loss. Gradients, and with them the best rates, differ between losses by orders of magnitude."""

    top: int
    scale: float
    class_rate: float
    feature_rate: float
    map_rate: float


_HINGE = LossNumbers(top=1, scale=1.0, class_rate=0.1, feature_rate=10.0, map_rate=0.001)
# Scores lie in [-1, 1]: without a scale, the probability of a positive among many classes could not come near 1.
_SOFTMAX = LossNumbers(top=1, scale=20.0, class_rate=0.03, feature_rate=3.0, map_rate=0.0003)
# Class vectors hardly move, and the encoder learns to match them.
_WHOLE_POOL = LossNumbers(top=1, scale=1.0, class_rate=0.001, feature_rate=3.0, map_rate=0.003)

LOSS_NUMBERS = {
    "bowl": _HINGE,
    "mined-softmax": LossNumbers(top=16, scale=10.0, class_rate=0.03, feature_rate=3.0, map_rate=0.0003),
    "sampled-softmax": _SOFTMAX,
    "softmax": _SOFTMAX,
    "negative-sampling-bowl": _WHOLE_POOL,
    "negative-sampling-powl": _WHOLE_POOL,
}
"""Losses with a search of their own. All others use the numbers of ``bowl``, the paper's."""


def default_sizes(options: TrainOptions, facts: Facts) -> Sizes:
    """The sizes of an ordinary run on this data and device."""
    model, best = options.model, options.model.recipe == "best"
    is_ensemble = best and model.kind == "embedding"
    # Without judges to make up for less, the sizes are those of a single model.
    small = is_ensemble and not facts.on_gpu and not facts.dense
    positives_in_pool = small and options.loss.loss == "mined-softmax" and options.loss.shared_pool
    return Sizes(
        heads=by_size(facts.num_points, HEADS_ON_GPU if facts.on_gpu else HEADS_ON_CPU) if is_ensemble else 1,
        dim=DIM_ON_CPU if small else DIM,
        epochs=by_size(facts.num_points, EPOCHS_ON_CPU) if small else EPOCHS,
        most_in_pool=POOL_ON_GPU if facts.on_gpu else POOL_WITH_POSITIVES if positives_in_pool else POOL_ON_CPU,
        positives_in_pool=positives_in_pool,
        by_vectors=facts.on_gpu,
        most_confusable=CONFUSABLE if facts.on_gpu else by_size(facts.num_points, CONFUSABLE_ON_CPU),
        costs=by_size(facts.num_points, COSTS) if best else (1.0,),
        most_pairs_of_choice=PAIRS_ON_GPU if facts.on_gpu else PAIRS_ON_CPU,
    )


def resolve(options: TrainOptions, facts: Facts, sizes: Sizes | None = None) -> Plan:
    """The sizes that the options give, and for all others ``sizes``, or defaults for this data and device.

    Raises ValueError if the options are impossible.
    """
    model, run, sizes = options.model, options.run, sizes or default_sizes(options, facts)
    best = model.recipe == "best"
    judges = _judges(options, facts, sizes)
    settings = _dense_settings(options, facts, sizes)
    check_objective(settings, num_classes=facts.num_classes)
    plan = Plan(
        heads=model.heads or sizes.heads,
        side_by_side=(model.heads or sizes.heads) > 1 and (facts.on_gpu or _work(settings) >= SIDE_BY_SIDE_FROM),
        model=settings,
        judges=judges,
        validation=run.validation,
        validation_block=run.validation_block,
        index=facts.has_faiss and suits_index(options, facts),
        # A single model is compared with the paper's, and a linear one is made of very uneven numbers.
        coded=best and model.kind == "embedding",
        rehearsal=_rehearsal(options, facts) if best and (judges.shortlist or facts.is_small_table) else 0.0,
    )
    plan.shape(facts)  # raises ValueError for what no model can be
    return plan


def _work(settings: DenseSettings) -> int:
    """The multiplications of a step: every point with every class of the pool."""
    return settings.batch_size * settings.pool * settings.dim


def suits_index(options: TrainOptions, facts: Facts) -> bool:
    """Whether an approximate index would find candidates faster."""
    return not facts.on_gpu and options.model.kind == "embedding" and facts.num_classes >= INDEX_FROM


def _dense_settings(options: TrainOptions, facts: Facts, sizes: Sizes) -> DenseSettings:
    """Small tables have a dimension and epochs of their own."""
    loss, steps, run, dim, epochs = options.loss, options.steps, options.run, sizes.dim, sizes.epochs
    numbers, batch_size = LOSS_NUMBERS.get(loss.loss, _HINGE), steps.batch_size or _batch_size(options, facts)
    if facts.is_small_table:
        # Gradients are sums over a batch, and every point contributes to the maps and to every feature.
        points_in_batch = min(batch_size, facts.num_points)
        numbers = replace(
            numbers,
            map_rate=numbers.map_rate * BATCH / points_in_batch,
            feature_rate=numbers.feature_rate / points_in_batch,
        )
        dim = min(dim, max(LEAST_DIM, 2 ** round(math.log2(4 * math.sqrt(facts.num_classes)))))
        epochs = max(epochs, float(math.ceil(LEAST_STEPS / math.ceil(facts.num_points / batch_size))))
    pool = loss.pool or default_pool(loss, num_classes=facts.num_classes, most=sizes.most_in_pool)
    return DenseSettings(
        kind=options.model.kind,
        dim=options.model.dim or dim,
        depth=options.model.depth,
        loss=loss.loss,
        # A default is cut to the size of the pool; a number that the options give is not.
        top=loss.top or min(numbers.top, pool),
        pool=pool,
        pool_start=loss.pool_start,
        shared_pool=loss.shared_pool,
        # They must leave room for others.
        positives_in_pool=sizes.positives_in_pool and batch_size <= (loss.pool_start or pool) // 2,
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


def _batch_size(options: TrainOptions, facts: Facts) -> int:
    if not facts.is_small_table:
        if facts.dense or options.model.recipe != "best" or options.model.kind != "embedding":
            return BATCH
        return by_size(facts.num_points, BATCH_ON_GPU if facts.on_gpu else BATCH_ON_CPU)
    return min(BATCH, max(LEAST_BATCH, facts.num_points // LEAST_STEPS_PER_EPOCH))


def default_pool(loss: LossOptions, *, num_classes: int, most: int) -> int:
    """The size of the pool if the options give none."""
    top = loss.top or LOSS_NUMBERS.get(loss.loss, _HINGE).top
    return min(most, max(num_classes // POOL_SHARE, LEAST_POOL, top), num_classes - 1)


def _judges(options: TrainOptions, facts: Facts, sizes: Sizes) -> JudgeSizes:
    """Models for dense queries have no judges, because all judges use sparse features."""
    model, best = options.model, options.model.recipe == "best"
    for name in ("shortlist", "neighbours"):
        if facts.dense and getattr(model, name):
            raise ValueError(f"{name} is {getattr(model, name)}; wanted 0 with dense queries")
    shortlist = model.shortlist if model.shortlist is not None else SHORTLIST if best and not facts.dense else 0
    if not shortlist and model.neighbours:
        raise ValueError(f"neighbours is {model.neighbours}; wanted 0 without a shortlist")
    neighbours = model.neighbours if model.neighbours is not None else NEIGHBOURS if best and shortlist else 0
    by_vectors = sizes.by_vectors or bool(model.neighbours)
    return JudgeSizes(
        shortlist=min(shortlist, facts.num_classes),
        confusable=min(max(MOST_PAIRS // facts.num_points, LEAST_CONFUSABLE), sizes.most_confusable, facts.num_classes),
        neighbours=min(neighbours, facts.num_points),
        neighbour_kinds=("sparse", "dense") if by_vectors else ("sparse",),
        # Vectors of a linear model have a number for each feature, which is too long to build for a list of classes.
        names=model.names and shortlist > 0 and model.kind == "embedding",
        costs=sizes.costs,
        most_pairs_of_choice=sizes.most_pairs_of_choice,
    )


def by_size(num_points: int, sizes: Sequence[tuple[float, Size]]) -> Size:
    """The value of the first size that is large enough."""
    return next(value for most, value in sizes if num_points <= most)


def _rehearsal(options: TrainOptions, facts: Facts) -> float:
    """0 with a dev split, and with patience, which needs validation points until the end."""
    run, num_points = options.run, facts.num_points
    if facts.has_dev or run.patience or run.validation == 0 or run.validation * num_points >= ENOUGH_POINTS / 2:
        return 0.0
    share = max(min(ENOUGH_POINTS / num_points, MOST_OF_TRAIN), run.validation)
    return share if int(share * num_points) >= run.validation_block else 0.0
