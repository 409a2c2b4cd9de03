"""What a model is put together from: how many models side by side, and what judges their shortlists again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from owlmine.recipe.options import SINGLE_DIM, SINGLE_EPOCHS, TrainOptions

Number = TypeVar("Number", int, float)

_BEST_SHORTLIST = 50
_BEST_NEIGHBOURS = 30
# Training points up to which so many models are trained, on a GPU and on a CPU: few points leave more to chance, which
# averaging removes, and take less time.
_HEADS_ON_GPU = ((60_000, 8), (200_000, 5))
_FEWEST_HEADS_ON_GPU = 3
_HEADS_ON_CPU = ((25_000, 5), (60_000, 3))
# Costs of the linear classifiers to choose from, where they have no more than so many pairs to learn from.
_COSTS = (0.1, 0.3, 1.0, 3.0)
_PAIRS_ON_GPU, _PAIRS_ON_CPU = 10_000_000, 1_000_000
# So many validation points settle what a re-ranker is made of. A rehearsal takes them where --validation gives fewer
# than half of them, from a fifth of train at most.
_ENOUGH_POINTS = 1_000
_MOST_OF_TRAIN = 0.2
# A dense model that is re-ranked may be small, which a CPU has the time for; more points need fewer visits to each.
_DIM_ON_CPU = 128
_EPOCHS_ON_CPU = ((60_000, 8.0),)
_FEWEST_EPOCHS_ON_CPU = 5.0


@dataclass(frozen=True)
class Composition:
    """``heads`` models side by side; ``shortlist`` classes of each query are judged again (0: none) by linear
    classifiers and by ``neighbours`` training points (0: none).
    """

    heads: int = 1
    shortlist: int = 0
    neighbours: int = 0
    dense_neighbours: bool = False
    """Whether neighbours may be found by their vectors too, and not by their features alone."""
    costs: tuple[float, ...] = (1.0,)
    most_pairs_of_a_choice: int = 0
    """A choice among ``costs`` takes a training each: it is made where classifiers have no more pairs than this."""
    names: bool = False
    """Whether the names of classes may count, where queries are texts."""
    rehearsal: float = 0.0
    """Share of train that a first model leaves out, to choose on, before the model itself learns from all (0: none)."""

    @property
    def is_single(self) -> bool:
        return self.heads == 1 and self.shortlist == 0


def composition(
    options: TrainOptions, *, device: torch.device, dense: bool, num_classes: int, num_points: int, has_dev: bool
) -> Composition:
    """What the options ask for, and where they leave it open what suits the device and the data.

    Where points are many a CPU has time for one model, and the re-ranker makes up for most of the rest. Dense queries
    have no sparse classifiers.
    """
    best, on_gpu = options.recipe == "best", device.type == "cuda"
    heads = options.heads or (_best_heads(num_points, on_gpu) if best and options.kind == "embedding" else 1)
    for name in ("shortlist", "neighbours"):
        if dense and getattr(options, name):
            raise ValueError(f"{name} is {getattr(options, name)}; wanted 0 with dense queries")
    shortlist = options.shortlist or (_BEST_SHORTLIST if best and not dense else 0)
    if not shortlist and options.neighbours:
        raise ValueError(f"neighbours is {options.neighbours}; wanted 0 without --shortlist or --recipe best")
    return Composition(
        heads,
        min(shortlist, num_classes),
        min(options.neighbours or (_BEST_NEIGHBOURS if best and shortlist else 0), num_points),
        dense_neighbours=on_gpu or options.neighbours > 0,
        costs=_COSTS if best else (1.0,),
        most_pairs_of_a_choice=_PAIRS_ON_GPU if on_gpu else _PAIRS_ON_CPU,
        # A linear model has vectors as long as there are features: too long to be made for a list of classes.
        names=options.names and shortlist > 0 and options.kind == "embedding",
        rehearsal=_rehearsal(options, num_points) if best and shortlist and not has_dev else 0.0,
    )


def without_open_sizes(options: TrainOptions, *, device: torch.device, dense: bool, num_points: int) -> TrainOptions:
    """With the dimension and epochs that the best recipe has on this device, where the options leave them open.

    Those of a single model, where no re-ranker would make up for less.
    """
    dim, epochs = SINGLE_DIM, SINGLE_EPOCHS
    if device.type == "cpu" and not dense and options.kind == "embedding":
        dim, epochs = _DIM_ON_CPU, _by_size(num_points, _EPOCHS_ON_CPU, _FEWEST_EPOCHS_ON_CPU)
    return replace(options, dim=options.dim or dim, epochs=options.epochs or epochs)


def _best_heads(num_points: int, on_gpu: bool) -> int:
    return _by_size(num_points, *((_HEADS_ON_GPU, _FEWEST_HEADS_ON_GPU) if on_gpu else (_HEADS_ON_CPU, 1)))


def _by_size(num_points: int, sizes: Sequence[tuple[int, Number]], otherwise: Number) -> Number:
    """What belongs to the first size that is large enough."""
    return next((value for most, value in sizes if num_points <= most), otherwise)


def _rehearsal(options: TrainOptions, num_points: int) -> float:
    """A run with patience has none: it needs validation points to the end."""
    if options.patience or options.validation == 0 or options.validation * num_points >= _ENOUGH_POINTS / 2:
        return 0.0
    share = max(min(_ENOUGH_POINTS / num_points, _MOST_OF_TRAIN), options.validation)
    return share if int(share * num_points) >= options.validation_block else 0.0
