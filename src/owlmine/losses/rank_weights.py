"""vartheta: the weight of each rank in a pool of B negatives (paper, Algorithm 1 and the text after Lemma 2).

Two conventions for the size of the weights:

- "average" (default): they sum to 1, so the loss is a weighted mean over negatives. Top-k gives 1/k to the
  first k, negative sampling 1/B to all.
- "paper": (K - 1)/(kB) for each, so that the expected loss has θ_j = 1/k for j <= k, which is what makes it
  an upper bound of the retrieval loss (Theorem 3, Lemma 2). With "average" θ_j = B/(k(K - 1)) there, and the
  bound is lost.

For POWL the two differ by a factor of the whole loss, that is, of the step size. For BOWL they are different losses:
the positive keeps weight 1, so the paper's convention gives all negatives together (K - 1)/B times its weight.

Legend: B pool, T ranks with a weight of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

Convention = Literal["average", "paper"]


@dataclass(frozen=True, eq=False)
class RankWeights:
    """Non-increasing weights of the ranks 1 .. pool_size: ``prefix``, then ``tail`` for all that follow."""

    prefix: Tensor
    tail: float
    pool_size: int
    _placed: dict[tuple[torch.dtype, torch.device], Tensor] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        prefix_T = torch.as_tensor(self.prefix, dtype=torch.float64, device="cpu").detach()
        if self.pool_size < 1:
            raise ValueError(f"vartheta: given a pool of {self.pool_size}; wanted at least 1")
        if prefix_T.ndim != 1 or len(prefix_T) > self.pool_size:
            wanted = f"up to {self.pool_size} weights"
            raise ValueError(f"vartheta: given shape {tuple(prefix_T.shape)}; wanted {wanted}")
        weights = prefix_T
        if len(prefix_T) < self.pool_size:
            weights = torch.cat([prefix_T, torch.tensor([self.tail], dtype=torch.float64)])
        if not bool(((weights >= 0) & (weights < torch.inf)).all()):
            raise ValueError("vartheta: given a weight that is negative, infinite or NaN; wanted finite weights >= 0")
        if bool((weights[1:] > weights[:-1]).any()):
            rank = int((weights[1:] > weights[:-1]).nonzero()[0]) + 2
            raise ValueError(f"vartheta: given weights that rise at rank {rank}; wanted non-increasing ones")
        # A full prefix leaves the tail without a rank: the last weight takes its place, and what equals it
        # joins.
        tail = float(weights[-1])
        object.__setattr__(self, "tail", tail)
        object.__setattr__(self, "prefix", prefix_T[prefix_T > tail].contiguous())

    @property
    def kept(self) -> int:
        """How many leading ranks have a weight above 0."""
        return self.pool_size if self.tail > 0 else len(self.prefix)

    @property
    def l1(self) -> float:
        return float(self.prefix.sum()) + self.tail * (self.pool_size - len(self.prefix))

    @property
    def l2(self) -> float:
        return math.sqrt(float(self.prefix.square().sum()) + self.tail**2 * (self.pool_size - len(self.prefix)))

    def dense(self) -> Tensor:
        """All B weights, float64."""
        rest = torch.full((self.pool_size - len(self.prefix),), self.tail, dtype=torch.float64)
        return torch.cat([self.prefix, rest])

    def prefix_on(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The prefix on the device of the scores; copied once, so that later steps do not wait for a transfer."""
        if torch.compiler.is_compiling():
            return self.prefix.to(device=device, dtype=dtype)
        key = (dtype, device)
        if key not in self._placed:
            self._placed[key] = self.prefix.to(device=device, dtype=dtype)
        return self._placed[key]

    def with_tail(self, epsilon: float) -> RankWeights:
        """Every weight raised to at least ``epsilon``, which keeps calibration (footnote after Lemma 2).

        The others do not change, so the sum grows by about ``epsilon`` times the number of ranks with weight 0.
        """
        if not 0 < epsilon < math.inf:
            raise ValueError(f"epsilon: given {epsilon}; wanted a positive finite number")
        return RankWeights(self.prefix.clamp_min(epsilon), max(self.tail, epsilon), self.pool_size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RankWeights):
            return NotImplemented
        same = self.pool_size == other.pool_size and self.tail == other.tail
        return same and torch.equal(self.prefix, other.prefix)

    def __hash__(self) -> int:
        return hash((self.pool_size, self.tail, len(self.prefix)))


def top_k(
    kept: int,
    *,
    pool_size: int,
    convention: Convention = "average",
    num_classes: int | None = None,
    k: int | None = None,
) -> RankWeights:
    """Top-k SNM: equal weights for the ``kept`` hardest of the pool, 0 for the rest.

    The paper's Top-k' SNM with k' < k is ``kept=k'``. In the paper's convention the weight is (K - 1)/(kB),
    where ``k`` is how many classes are retrieved, ``kept`` if not given.
    """
    if not 1 <= kept <= pool_size:
        raise ValueError(f"top_k: given {kept} kept of a pool of {pool_size}; wanted 1 to {pool_size}")
    weight = 1 / kept
    if _is_paper(convention, num_classes=num_classes, k=k):
        weight = _paper_weight(pool_size, num_classes=num_classes, k=kept if k is None else k)
    return RankWeights(torch.full((kept,), weight, dtype=torch.float64), 0.0, pool_size)


def negative_sampling(
    *,
    pool_size: int,
    convention: Convention = "average",
    num_classes: int | None = None,
    k: int | None = None,
) -> RankWeights:
    """Equal weights for the whole pool: 1/B, or (K - 1)/(kB) in the paper's convention, which needs ``k``."""
    if pool_size < 1:
        raise ValueError(f"negative_sampling: given a pool of {pool_size}; wanted at least 1")
    weight = 1 / pool_size
    if _is_paper(convention, num_classes=num_classes, k=k):
        weight = _paper_weight(pool_size, num_classes=num_classes, k=k)
    return RankWeights(torch.empty(0, dtype=torch.float64), weight, pool_size)


def power_law(
    alpha: float,
    *,
    pool_size: int,
    kept: int | None = None,
    convention: Convention = "average",
    num_classes: int | None = None,
) -> RankWeights:
    """Weights proportional to i^-alpha for the first ``kept`` ranks (default: all), 0 for the rest.

    The paper gives the shape but no scale. Here they sum to 1, or in the paper's convention to (K - 1)/B, like those of
    Top-k SNM.
    """
    kept = pool_size if kept is None else kept
    if not 0 <= alpha < math.inf:
        raise ValueError(f"power_law: given alpha = {alpha}; wanted a finite number >= 0")
    if not 1 <= kept <= pool_size:
        raise ValueError(f"power_law: given {kept} kept of a pool of {pool_size}; wanted 1 to {pool_size}")
    weights_T = torch.arange(1, kept + 1, dtype=torch.float64) ** -alpha
    total = 1.0
    if _is_paper(convention, num_classes=num_classes, k=None):
        total = _paper_weight(pool_size, num_classes=num_classes, k=1)
    return RankWeights(weights_T * (total / weights_T.sum()), 0.0, pool_size)


def from_vector(vartheta: Sequence[float] | Tensor, *, pool_size: int | None = None) -> RankWeights:
    """Any non-negative, non-increasing weights. ``pool_size``, if given, must be their number."""
    weights_B = torch.as_tensor(vartheta, dtype=torch.float64)
    if weights_B.ndim != 1 or (pool_size is not None and len(weights_B) != pool_size):
        wanted = "a vector" if pool_size is None else f"{pool_size} weights, one per rank of the pool"
        raise ValueError(f"vartheta: given shape {tuple(weights_B.shape)}; wanted {wanted}")
    return RankWeights(weights_B, 0.0, len(weights_B))


def _is_paper(convention: str, *, num_classes: int | None, k: int | None) -> bool:
    if convention not in get_args(Convention):
        raise ValueError(f"convention: given {convention!r}; wanted one of {', '.join(get_args(Convention))}")
    if convention == "average" and (num_classes is not None or k is not None):
        given = f"num_classes = {num_classes}, k = {k}"
        raise ValueError(f'convention "average": given {given}; wanted neither, only "paper" uses them')
    return convention == "paper"


def _paper_weight(pool_size: int, *, num_classes: int | None, k: int | None) -> float:
    """(K - 1)/(kB)."""
    if num_classes is None or num_classes - 1 < pool_size:
        wanted = f"at least {pool_size + 1}, for a pool of {pool_size}"
        raise ValueError(f'convention "paper": given num_classes = {num_classes}; wanted {wanted}')
    if k is None or k < 1:
        raise ValueError(f'convention "paper": given k = {k}; wanted how many classes are retrieved, 1 or more')
    return (num_classes - 1) / (k * pool_size)
