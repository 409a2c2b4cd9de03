"""phi: non-increasing functions of a margin u that lie above the 0/1 loss, phi(u) >= 1[u <= 0] (paper,
section 3).

Each surrogate is a small frozen object that can be called on a tensor. Give it float32 or float64: the losses
widen half precision before they call it, because logistic(0) in bfloat16 would round below 1. At a kink,
where the slope is not defined, the gradient is 0 for every surrogate here; for the convex ones 0 is a
subgradient at that place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Surrogate(ABC):
    """The interface of phi for the losses and the theory."""

    name: ClassVar[str]
    convex: ClassVar[bool]
    # Everywhere, which calibration requires (Theorem 4) together with phi'(u) < 0 for u <= 0.
    differentiable: ClassVar[bool]

    @abstractmethod
    def __call__(self, margins: Tensor) -> Tensor:
        """phi of each entry, in the dtype given."""

    @abstractmethod
    def _steepest(self, low: float, high: float) -> float:
        """sup |phi'| between low < high."""

    def lipschitz(self, low: float = -math.inf, high: float = math.inf) -> float:
        """The smallest L with |phi(a) - phi(b)| <= L |a - b| for a, b in [low, high]; may be infinite."""
        if not low <= high:
            raise ValueError(f"lipschitz: given the interval [{low}, {high}]; wanted low <= high")
        return 0.0 if low == high else self._steepest(low, high)


_S = TypeVar("_S", bound=type[Surrogate])
_registry: dict[str, Callable[[], Surrogate]] = {}


def register(cls: _S) -> _S:
    """Registers a surrogate by its name; the contract tests run over all registered ones."""
    if cls.name in _registry:
        raise ValueError(f"register: given the surrogate name {cls.name!r}; wanted one not yet in use")
    _registry[cls.name] = cls
    return cls


def surrogate_names() -> tuple[str, ...]:
    return tuple(_registry)


def surrogate(phi: str | Surrogate) -> Surrogate:
    """The object for a name (with its default options), or the object itself."""
    if isinstance(phi, Surrogate):
        return phi
    if not isinstance(phi, str) or phi not in _registry:
        raise ValueError(f"phi: given {phi!r}; wanted a Surrogate or one of {', '.join(_registry)}")
    return _registry[phi]()


@register
@dataclass(frozen=True)
class Hinge(Surrogate):
    """max(1 - u, 0). Kink at u = 1."""

    name = "hinge"
    convex = True
    differentiable = False

    def __call__(self, margins: Tensor) -> Tensor:
        return torch.relu(1 - margins)

    def _steepest(self, low: float, high: float) -> float:
        return 1.0 if low < 1 else 0.0


@register
@dataclass(frozen=True)
class Logistic(Surrogate):
    """log2(1 + exp(-u)). Base 2 makes phi(0) = 1."""

    name = "logistic"
    convex = True
    differentiable = True

    def __call__(self, margins: Tensor) -> Tensor:
        # softplus switches to a straight line at 20, which costs float64 half of its digits.
        return functional.logsigmoid(margins) / -math.log(2)

    def _steepest(self, low: float, high: float) -> float:
        # |phi'(u)| = 1 / (ln 2 (1 + e^u)), written so that exp cannot overflow.
        sigmoid = math.exp(-low) / (1 + math.exp(-low)) if low > 0 else 1 / (1 + math.exp(low))
        return sigmoid / math.log(2)


@register
@dataclass(frozen=True)
class SquaredHinge(Surrogate):
    """max(1 - u, 0)²."""

    name = "squared_hinge"
    convex = True
    differentiable = True

    def __call__(self, margins: Tensor) -> Tensor:
        return torch.relu(1 - margins).square()

    def _steepest(self, low: float, high: float) -> float:
        return 2 * max(1 - low, 0.0)


@register
@dataclass(frozen=True)
class Exponential(Surrogate):
    """exp(-u). Overflows float32 for u below about -88."""

    name = "exponential"
    convex = True
    differentiable = True

    def __call__(self, margins: Tensor) -> Tensor:
        return torch.exp(-margins)

    def _steepest(self, low: float, high: float) -> float:
        # exp(709.8) is the largest that fits a double.
        return math.exp(-low) if low > -709 else math.inf


@register
@dataclass(frozen=True)
class Ramp(Surrogate):
    """1 for u <= 0, 1 - u / rho up to rho, then 0. Not convex. Kinks at 0 and rho."""

    rho: float = 1.0

    name = "ramp"
    convex = False
    differentiable = False

    def __post_init__(self) -> None:
        if not (0 < self.rho < math.inf):
            raise ValueError(f"ramp: given rho = {self.rho}; wanted a positive finite number")

    def __call__(self, margins: Tensor) -> Tensor:
        # The inner relu keeps the flat part exactly 1, which (1 - u) - (-u) in floats would not.
        return torch.relu(1 - torch.relu(margins) / self.rho)

    def _steepest(self, low: float, high: float) -> float:
        return 1 / self.rho if low < self.rho and high > 0 else 0.0
