"""Effort: the sizes of a run from the fastest to the most accurate, as a ladder. Each rung takes longer than the one
before it, and is at least as accurate on validation points (docs/research/log.md).

    fast        one model; on a CPU it also visits each point less often, and classifiers learn less
    ...         fewer models than the default
    default     the sizes of an ordinary run
    ...         more models; on a CPU, then larger ones
    most        on a CPU, the sizes that a GPU has by default; on a GPU, more models
"""

from __future__ import annotations

import math
from dataclasses import replace

from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import (
    DIM,
    EPOCHS,
    HEADS_ON_GPU,
    PAIRS_ON_GPU,
    Facts,
    Plan,
    Sizes,
    by_size,
    default_sizes,
    resolve,
)

# The numbers of models in an ensemble that rungs have.
HEADS = (1, 2, 3, 5, 8, 12)
# A fast run on a CPU: the share of the visits to each point, and the classes that classifiers learn from.
FAST_SHARE, FAST_CONFUSABLE = 0.6, 50
# More small models gain less than larger ones in the same time.
SMALL_HEADS = 3
MIDDLE_DIM, MIDDLE_EPOCHS, MIDDLE_HEADS = 256, 10.0, (3, 5)
LEAST_LARGE_HEADS = 2
# Twice the pool of an ordinary run on a CPU. The pool of a GPU, eight times, would take most of the time.
POOL_OF_MOST = 8_192


def ladder(options: TrainOptions, facts: Facts) -> list[Plan]:
    """The plans that --minutes chooses from, the fastest first. Rungs that the options make equal are one.

    Raises ValueError if the options are impossible.
    """
    plans: list[Plan] = []
    for sizes in rungs(options, facts):
        if (plan := resolve(options, facts, sizes)) not in plans:
            plans.append(plan)
    return plans


def plan_of_effort(options: TrainOptions, facts: Facts) -> Plan:
    """The plan of --effort. Raises ValueError if the options are impossible."""
    if options.run.effort == "default":
        return resolve(options, facts)
    return resolve(options, facts, rungs(options, facts)[0 if options.run.effort == "fast" else -1])


def rungs(options: TrainOptions, facts: Facts) -> list[Sizes]:
    """All sizes, the fastest first; those of an ordinary run are among them."""
    usual = default_sizes(options, facts)
    fast = replace(usual, heads=1)
    if not facts.on_gpu:
        fast = replace(
            fast,
            epochs=float(math.ceil(FAST_SHARE * usual.epochs)),
            most_confusable=FAST_CONFUSABLE,
            costs=(1.0,),
        )
    fewer = [replace(usual, heads=heads) for heads in HEADS if heads < usual.heads]
    return [fast, *(sizes for sizes in fewer if sizes != fast), usual, *_above(usual, options, facts)]


def _above(usual: Sizes, options: TrainOptions, facts: Facts) -> list[Sizes]:
    """The rungs above an ordinary run. A single model has none."""
    if options.model.recipe != "best" or options.model.kind != "embedding":
        return []
    more = [replace(usual, heads=heads) for heads in HEADS if heads > usual.heads]
    if facts.on_gpu:
        return more[:1]
    most_heads = by_size(facts.num_points, HEADS_ON_GPU)
    if usual.dim == DIM:
        return [sizes for sizes in more if sizes.heads <= most_heads]
    middle = replace(usual, dim=MIDDLE_DIM, epochs=MIDDLE_EPOCHS)
    large = replace(
        usual,
        dim=DIM,
        epochs=EPOCHS,
        most_in_pool=POOL_OF_MOST,
        positives_in_pool=False,
        by_vectors=True,
        most_pairs_of_choice=PAIRS_ON_GPU,
    )
    return [
        *(sizes for sizes in more if sizes.heads == SMALL_HEADS),
        *(replace(middle, heads=heads) for heads in MIDDLE_HEADS),
        *(replace(large, heads=heads) for heads in HEADS if LEAST_LARGE_HEADS <= heads <= most_heads),
    ]
