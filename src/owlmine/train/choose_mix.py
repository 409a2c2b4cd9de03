"""How much the parts of a re-ranker count: whatever is most precise on validation points.

Shapes: N validation points, S places of a shortlist, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Float32
from owlmine.train.validate import cutoffs

# Dense scores lie in [-1, 1], linear ones mostly too.
_WEIGHTS = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2)
# Shares of the logarithm of inverse propensities, which go from 0 to about 3.
_LIFTS = (0.0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2)
# Votes lie in [0, 1].
_VOTE_WEIGHTS = (0.05, 0.1, 0.2, 0.4, 0.8)
# Matches of names lie in [0, 1], and mostly far below 1.
_NAME_WEIGHTS = (0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2, 3.3)
# Neighbours and names cost memory, and time for every query: each must bring so many points of the mean of P@1, P@3 and
# P@5.
_LEAST_GAIN = 0.1


@dataclass(frozen=True)
class Mix:
    """What a re-ranker is made of. ``kind`` and ``power``: which neighbours vote, None where none do."""

    cost: float = 1.0
    weight: float = 0.2
    lift: float = 0.0
    kind: str | None = None
    power: float = 0.0
    vote_weight: float = 0.0
    name_weight: float = 0.0

    @property
    def told(self) -> str:
        """In words."""
        neighbours = "no neighbours vote"
        if self.kind is not None:
            neighbours = f"{self.kind} neighbours {self.vote_weight:g} times"
        names = f"names {self.name_weight:g} times, " if self.name_weight else ""
        return (
            f"the linear model (cost {self.cost:g}) counts {self.weight:g} times, {neighbours}, {names}rare classes are"
            f" lifted by {self.lift:g}"
        )


@dataclass(frozen=True, eq=False)
class Shortlists:
    """Validation points: scores of the dense model, which places hold a label, and how rare their classes are."""

    scores_NS: Float32
    hits_NS: NDArray[np.bool_]
    rarities_NS: Float32

    @classmethod
    def joined(cls, lists: Sequence[Shortlists]) -> Shortlists:
        return cls(
            np.concatenate([part.scores_NS for part in lists]),
            np.concatenate([part.hits_NS for part in lists]),
            np.concatenate([part.rarities_NS for part in lists]),
        )

    def precision(self, mixed_NS: Float32) -> float:
        """The mean of P@1, P@3 and P@5 in percent, as many as there are places for."""
        ks = cutoffs(mixed_NS.shape[1])
        hits_Nk = np.take_along_axis(self.hits_NS, best_places(mixed_NS, ks[-1]), axis=1)
        return 100 * float(np.mean([hits_Nk[:, :k].mean() for k in ks]))


def best_places(scores_NS: Float32, k: int) -> NDArray[np.int64]:
    """[N, k] the places of the highest scores, highest first; among equals the first."""
    if k < scores_NS.shape[1]:
        # Fast, but with equals in any order: only to see what a score must reach.
        least_N1 = np.partition(scores_NS, -k, axis=1)[:, -k, None]
        scores_NS = np.where(scores_NS < least_N1, -np.inf, scores_NS)
    return np.argsort(-scores_NS, axis=1, kind="stable")[:, :k]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What else is known of the places of ``lists``. ``linear``: scores [N, S] by cost; ``votes``: [N, S] by kind and
    power; ``names_NS``: how far the query spells the name of the class, None where names do not count."""

    lists: Shortlists
    linear: Mapping[float, Float32]
    votes: Mapping[tuple[str, float], Float32]
    names_NS: Float32 | None = None

    def precision(self, mix: Mix) -> float:
        mixed_NS = self.lists.scores_NS + np.float32(mix.weight) * self.linear[mix.cost]
        mixed_NS += np.float32(mix.lift) * self.lists.rarities_NS
        if mix.kind is not None:
            mixed_NS += np.float32(mix.vote_weight) * self.votes[mix.kind, mix.power]
        if mix.name_weight:
            assert self.names_NS is not None
            mixed_NS += np.float32(mix.name_weight) * self.names_NS
        return self.lists.precision(mixed_NS)

    def best(self, mixes: Sequence[Mix]) -> tuple[Mix, float]:
        """Of equals the first."""
        figures = [self.precision(mix) for mix in mixes]
        if not figures:
            return Mix(), -np.inf
        best = int(np.argmax(figures))
        return mixes[best], figures[best]


def choose_mix(evidence: Evidence) -> tuple[Mix, float]:
    """The best mix and its mean precision.

    First the linear part and the lift, over all pairs of them; then votes, with what was chosen first free to move by
    a place; then names, after which everything moves by a place at a time for as long as that is better. Of equals the
    one that changes least.
    """
    chosen = evidence.best(_without_votes(evidence.linear))
    with_votes = evidence.best(_with_votes(chosen[0], evidence.votes))
    if with_votes[1] >= chosen[1] + _LEAST_GAIN:
        chosen = with_votes
    if evidence.names_NS is not None:
        with_names = _climbed(evidence, *evidence.best([replace(chosen[0], name_weight=w) for w in _NAME_WEIGHTS]))
        if with_names[1] >= chosen[1] + _LEAST_GAIN:
            chosen = with_names
    return chosen


def _climbed(evidence: Evidence, mix: Mix, figure: float) -> tuple[Mix, float]:
    """From there to where no single step to the next weight is better."""
    while True:
        better, higher = evidence.best(_next_to(mix))
        if higher <= figure:
            return mix, figure
        mix, figure = better, higher


def _next_to(mix: Mix) -> list[Mix]:
    grids = {"weight": _WEIGHTS, "lift": _LIFTS, "name_weight": _NAME_WEIGHTS}
    if mix.kind is not None:
        grids["vote_weight"] = _VOTE_WEIGHTS
    return [
        Mix(**{**vars(mix), name: value})
        for name, grid in grids.items()
        for value in _around(getattr(mix, name), grid)
        if value != getattr(mix, name)
    ]


def _without_votes(costs: Iterable[float]) -> list[Mix]:
    return [Mix(cost, weight, lift) for cost in costs for weight in _WEIGHTS for lift in _LIFTS]


def _with_votes(chosen: Mix, votes: Iterable[tuple[str, float]]) -> list[Mix]:
    return [
        replace(chosen, weight=weight, lift=lift, kind=kind, power=power, vote_weight=vote_weight)
        for kind, power in votes
        for vote_weight in _VOTE_WEIGHTS
        for weight in _around(chosen.weight, _WEIGHTS)
        for lift in _around(chosen.lift, _LIFTS)
    ]


def _around(value: float, values: Sequence[float]) -> Sequence[float]:
    place = values.index(value)
    return values[max(place - 1, 0) : place + 2]
