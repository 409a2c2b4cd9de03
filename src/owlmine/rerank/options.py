"""How the linear classifiers of a shortlist are learned."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from owlmine.options import option

LOSSES = ("squared-hinge", "hinge")


@dataclass(frozen=True)
class LinearOptions:
    """Per class: minimise |w|² / 2 + cost Σ max(0, 1 - y <w, x>)^p, p = 2 for the squared hinge and 1 for the hinge.

    x has a constant feature 1, whose weight is the bias: it counts in |w| like the others.
    """

    cost: float = option(1.0, "how much a point on the wrong side counts against large weights")
    loss: str = option("squared-hinge", f"one of {', '.join(LOSSES)}")
    max_passes: int = option(20, "passes over the points of a class at most")
    tolerance: float = option(0.1, "how far apart the slopes of a class's points may be at the end")
    threshold: float = option(0.05, "weights smaller than this are dropped, the bias never")

    def __post_init__(self) -> None:
        checks = (
            ("cost", isfinite(self.cost) and self.cost > 0, "a number above 0"),
            ("loss", self.loss in LOSSES, f"one of {', '.join(LOSSES)}"),
            ("max_passes", 1 <= self.max_passes < 2**31, "1 or more"),
            ("tolerance", isfinite(self.tolerance) and self.tolerance >= 0, "0 or more"),
            ("threshold", isfinite(self.threshold) and self.threshold >= 0, "0 or more"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")

    @property
    def highest_alpha(self) -> float:
        """The upper bound of a point's dual variable."""
        return self.cost if self.loss == "hinge" else float("inf")

    @property
    def ridge(self) -> float:
        """What the loss adds to the diagonal of the dual's quadratic form."""
        return 0.0 if self.loss == "hinge" else 0.5 / self.cost
