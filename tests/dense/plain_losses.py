"""Every loss that can be trained, written down once more for one point, from its definition alone.

v: scores of all classes [K]; y: the positive; pool: ids of the point's pool (less known labels where those are left
out); known: the labels left out of all classes; s: the scale; B: the pool as drawn. Sums over ranks use a full sort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from owlmine.dense.settings import DenseSettings


@dataclass(frozen=True)
class Point:
    v: Tensor
    y: int
    pool: Sequence[int]
    s: float | Tensor
    B: int
    settings: DenseSettings
    known: frozenset[int] = frozenset()

    @property
    def K(self) -> int:
        return len(self.v)

    @property
    def others(self) -> list[int]:
        return [j for j in range(self.K) if j != self.y and j not in self.known]

    def ranked(self, ids: Sequence[int]) -> Tensor:
        return self.v[list(ids)].sort(descending=True).values

    def phi(self, u: Tensor) -> Tensor:
        name = self.settings.surrogate
        if name == "hinge":
            return (1 - u).clamp_min(0)
        if name == "squared_hinge":
            return (1 - u).clamp_min(0) ** 2
        if name == "exponential":
            return torch.exp(-u)
        if name == "ramp":
            return (1 - u).clamp(0, 1)
        assert name == "logistic"
        return softplus(-u) / torch.log(torch.tensor(2.0, dtype=u.dtype))

    def ordered(self, kind: str, ranked: Tensor, weights: Sequence[float]) -> Tensor:
        """Weights by rank; a pool that lost known labels has fewer ranks than weights."""
        total = self.phi(self.s * self.v[self.y]) if kind == "bowl" else 0 * self.v[self.y]
        for score, weight in zip(ranked, weights, strict=False):
            margin = -score if kind == "bowl" else self.v[self.y] - score
            total = total + weight * self.phi(self.s * margin)
        return total

    def mined(self, kind: str) -> Tensor:
        top, power, least = self.settings.top, self.settings.power, self.settings.least_weight
        first = [rank**-power for rank in range(1, top + 1)]
        weights = [weight / sum(first) for weight in first] + [0.0] * (self.B - top)
        return self.ordered(kind, self.ranked(self.pool), [max(weight, least) for weight in weights])

    def full(self, kind: str) -> Tensor:
        top = self.settings.top
        return self.ordered(kind, self.ranked(self.others)[:top], [1 / top] * top)

    def softmax(self, negatives: Tensor, weight: float = 1.0) -> Tensor:
        own = torch.exp(self.s * self.v[self.y])
        return -torch.log(own / (own + weight * torch.exp(self.s * negatives).sum()))

    def one_vs_all(self, ids: Sequence[int], weight: float = 1.0) -> Tensor:
        return softplus(-self.s * self.v[self.y]) + weight * softplus(self.s * self.v[list(ids)]).sum()

    def semi_hard(self) -> Tensor:
        negatives = [self.v[j] for j in self.pool]
        below = [score for score in negatives if score < self.v[self.y]]
        chosen = max(below) if below else min(negatives)
        return (0.2 - self.s * (self.v[self.y] - chosen)).clamp_min(0)

    @property
    def expand(self) -> float:
        """What one member of the pool stands for."""
        return (self.K - 1) / self.B


PLAIN_LOSSES: dict[str, Callable[[Point], Tensor]] = {
    "bowl": lambda p: p.mined("bowl"),
    "powl": lambda p: p.mined("powl"),
    "negative-sampling-bowl": lambda p: p.ordered("bowl", p.ranked(p.pool), [1 / p.B] * p.B),
    "negative-sampling-powl": lambda p: p.ordered("powl", p.ranked(p.pool), [1 / p.B] * p.B),
    "full-bowl": lambda p: p.full("bowl"),
    "full-powl": lambda p: p.full("powl"),
    "softmax": lambda p: p.softmax(p.v[p.others]),
    "sampled-softmax": lambda p: p.softmax(p.v[list(p.pool)], p.expand),
    "mined-softmax": lambda p: p.softmax(p.ranked(p.pool)[: p.settings.top]),
    "one-vs-all": lambda p: p.one_vs_all(p.others),
    "pooled-one-vs-all": lambda p: p.one_vs_all(p.pool, p.expand),
    "semi-hard": lambda p: p.semi_hard(),
}
