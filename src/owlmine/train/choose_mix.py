"""What a re-ranker is made of and how much each part counts: whatever ranks validation points best (``MixLoss``).

Shapes: N validation points, S places of a shortlist, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Float32
from owlmine.train.fit_mix import MixLoss
from owlmine.train.validate import cutoffs

# Where the fit begins, and stays where points are few: what suits most datasets. The dense score in the softmax, and
# how many times as much the linear one, the logarithm of inverse propensities, votes and names count.
_SCALE = 10.0
_LINEAR, _LIFT, _VOTES, _NAMES = 0.2, 0.03, 0.1, 1.5
# So many points, and precision itself is not moved by chance alone: then it has the last word, step by step.
_POINTS_TO_CLIMB = 2_000
_STEP = 1.3
# Where a weight of 0 steps to.
_FIRST_STEP = 0.02
# Neighbours and names cost memory, and time for every query: each must make the loss smaller by this share.
_LEAST_GAIN = 0.002


@dataclass(frozen=True)
class Mix:
    """What a re-ranker is made of. ``kind`` and ``power``: which neighbours vote, None where none do."""

    cost: float = 1.0
    weight: float = _LINEAR
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

    def __len__(self) -> int:
        return len(self.scores_NS)

    def precision(self, mixed_NS: Float32) -> float:
        """The mean of P@1, P@3 and P@5 in percent, as many as there are places for."""
        ks = cutoffs(mixed_NS.shape[1])
        best_Nk = np.argsort(-mixed_NS, axis=1, kind="stable")[:, : ks[-1]]
        hits_Nk = np.take_along_axis(self.hits_NS, best_Nk, axis=1)
        return 100 * float(np.mean([hits_Nk[:, :k].mean() for k in ks]))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What else is known of the places of ``lists``, of which the first ``listed`` are those of the dense model and the
    others, where there are some, those that names suggest. ``linear``: scores [N, S] by cost; ``votes``: [N, S] by kind
    and power; ``names_NS``: scores of the classes' names, None where names do not count."""

    lists: Shortlists
    listed: int
    linear: Mapping[float, Float32]
    votes: Mapping[tuple[str, float], Float32]
    names_NS: Float32 | None = None

    @classmethod
    def joined(cls, parts: Sequence[Evidence]) -> Evidence:
        """Of the points of all, in turn."""
        first, names = parts[0], [part.names_NS for part in parts if part.names_NS is not None]
        return cls(
            Shortlists.joined([part.lists for part in parts]),
            first.listed,
            {cost: np.concatenate([part.linear[cost] for part in parts]) for cost in first.linear},
            {key: np.concatenate([part.votes[key] for part in parts]) for key in first.votes},
            np.concatenate(names) if names else None,
        )

    @property
    def without_names(self) -> Evidence:
        """Of the dense model's places alone."""
        own = (slice(None), slice(self.listed))
        lists = Shortlists(self.lists.scores_NS[own], self.lists.hits_NS[own], self.lists.rarities_NS[own])
        return Evidence(
            lists,
            self.listed,
            {cost: scores_NS[own] for cost, scores_NS in self.linear.items()},
            {key: votes_NS[own] for key, votes_NS in self.votes.items()},
        )

    def precision(self, mix: Mix) -> float:
        mixed_NS = self.lists.scores_NS + np.float32(mix.weight) * self.linear[mix.cost]
        mixed_NS += np.float32(mix.lift) * self.lists.rarities_NS
        if mix.kind is not None:
            mixed_NS += np.float32(mix.vote_weight) * self.votes[mix.kind, mix.power]
        if mix.name_weight:
            assert self.names_NS is not None
            mixed_NS += np.float32(mix.name_weight) * self.names_NS
        return self.lists.precision(mixed_NS)

    def fitted(self, mix: Mix, *, names: bool) -> tuple[Mix, float]:
        """With the weights that suit its cost and neighbours best, and their loss."""
        parts = {"weight": (self.linear[mix.cost], _LINEAR), "lift": (self.lists.rarities_NS, _LIFT)}
        if mix.kind is not None:
            parts["vote_weight"] = (self.votes[mix.kind, mix.power], _VOTES)
        if names:
            assert self.names_NS is not None
            parts["name_weight"] = (self.names_NS, _NAMES)
        prior_J = _SCALE * np.array([1.0, *(prior for _, prior in parts.values())])
        scores = [self.lists.scores_NS, *(part_NS for part_NS, _ in parts.values())]
        u_J, loss = MixLoss(scores, self.lists.hits_NS, prior_J).smallest()
        # Three digits, which people can read, say all that validation points can tell.
        weights = {name: float(f"{u / u_J[0]:.3g}") for name, u in zip(parts, u_J[1:], strict=True)}
        return Mix(**{**vars(mix), **weights}), loss


def choose_mix(evidence: Evidence) -> tuple[Mix, float]:
    """The best mix, and the mean of its P@1, P@3 and P@5.

    First names, where the data has some, then the cost of the classifiers, then neighbours: whichever makes the loss
    smallest, and names and neighbours where they earn their place. All weights are fitted anew each time. Where points
    are many, weights then move on for as long as precision rises.
    """
    if evidence.names_NS is not None and not _names_help(evidence):
        return choose_mix(evidence.without_names)
    names = evidence.names_NS is not None
    chosen, loss = min((evidence.fitted(Mix(cost), names=names) for cost in evidence.linear), key=_loss)
    with_votes = [
        evidence.fitted(replace(chosen, kind=kind, power=power), names=names) for kind, power in evidence.votes
    ]
    if with_votes and (best := min(with_votes, key=_loss))[1] < (1 - _LEAST_GAIN) * loss:
        chosen = best[0]
    if names and not chosen.name_weight:
        # They helped beside classifiers of another cost. The model has no places for them, then.
        return choose_mix(evidence.without_names)
    figure = evidence.precision(chosen)
    return _climbed(evidence, chosen, figure) if len(evidence.lists) >= _POINTS_TO_CLIMB else (chosen, figure)


def _climbed(evidence: Evidence, mix: Mix, figure: float) -> tuple[Mix, float]:
    """From there to where no single step is better."""
    while True:
        near = _next_to(mix, evidence.votes)
        figures = [evidence.precision(other) for other in near]
        best = int(np.argmax(figures))
        if figures[best] <= figure:
            return mix, figure
        mix, figure = near[best], figures[best]


def _next_to(mix: Mix, votes: Iterable[tuple[str, float]]) -> list[Mix]:
    """One weight a step higher or lower, or other neighbours."""
    near = []
    for name in ("weight", "lift", "vote_weight", "name_weight"):
        weight = getattr(mix, name)
        # Neighbours and names that did not earn their place have none.
        steps = (weight * _STEP, weight / _STEP) if weight else (_FIRST_STEP,) if name in ("weight", "lift") else ()
        near += [Mix(**{**vars(mix), name: float(f"{step:.3g}")}) for step in steps]
    if mix.kind is not None:
        near += [
            replace(mix, kind=kind, power=power) for kind, power in votes if (kind, power) != (mix.kind, mix.power)
        ]
    return near


def _names_help(evidence: Evidence) -> bool:
    """Whether they make the loss of the same lists smaller."""
    cost = 1.0 if 1.0 in evidence.linear else next(iter(evidence.linear))
    (_, without), (_, with_names) = (evidence.fitted(Mix(cost), names=names) for names in (False, True))
    return with_names < (1 - _LEAST_GAIN) * without


def _loss(fitted: tuple[Mix, float]) -> float:
    return fitted[1]


def usual_mix(*, names: bool) -> Mix:
    """Where there is nothing to choose by."""
    return Mix(name_weight=_NAMES if names else 0.0)
