"""Top-k' mining compared with negative sampling, for the same number of classes and the same pool (paper, section 4).

Weights have the paper's scale. Top-k' SNM gives ϑ = (K - 1)/(k'B) to the k' hardest of the pool, so that θ_1 .. θ_k'
are 1/k'. Negative sampling gives (K - 1)/(kB) to all B, so that every θ_j is 1/k, where k is how many classes are
retrieved. ``factor`` is the guarantee: POWL >= factor x retrieval loss at k. A bound on the retrieval loss divides the
loss by it, so ``l1_per_factor`` compares methods on an equal footing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from owlmine.losses.rank_weights import RankWeights, negative_sampling, top_k
from owlmine.losses.theta import theta_from_vartheta
from owlmine.pictures import save_picture
from owlmine.theory.calibration import retrieval_factor
from owlmine.theory.weights import Float64, ThetaNorms, l2_bound_from_pool, theta_norms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# theta is held in memory whole, 8 bytes a class, with its running sum.
_MOST_CLASSES = 100_000_000
# Points of a curve: on a log axis more would fall on the same pixels.
_CURVE_POINTS = 800


@dataclass(frozen=True)
class Setting:
    """K classes, pools of B, ``tops`` mined from them, k retrieved."""

    num_classes: int
    pool_size: int
    tops: tuple[int, ...]
    k: int = 5

    def __post_init__(self) -> None:
        checks = (
            ("num_classes", self.num_classes, 2 <= self.num_classes <= _MOST_CLASSES, f"2 to {_MOST_CLASSES:,}"),
            ("pool_size", self.pool_size, 1 <= self.pool_size < self.num_classes, f"1 to {self.num_classes - 1}"),
            ("tops", self.tops, all(1 <= top <= self.pool_size for top in self.tops), f"1 to {self.pool_size} each"),
            ("tops", self.tops, len(self.tops) > 0, "at least one"),
            ("tops", self.tops, len(set(self.tops)) == len(self.tops), "each number once"),
            ("k", self.k, 1 <= self.k < self.num_classes, f"1 to {self.num_classes - 1}"),
        )
        for name, given, good, wanted in checks:
            if not good:
                raise ValueError(f"{name}: given {given}; wanted {wanted}")


@dataclass(frozen=True)
class Compared:
    """One method. ``top`` is None for negative sampling.

    The curves are taken at ranks spaced evenly on a log axis: theta, and the share of all weight up to that rank.
    """

    top: int | None
    vartheta: float
    norms: ThetaNorms
    l2_bound: float
    factor: float
    curve_ranks: Float64
    curve_theta: Float64
    curve_share: Float64

    @property
    def name(self) -> str:
        return "negative sampling" if self.top is None else f"Top-{self.top} SNM"

    @property
    def l1_per_factor(self) -> float:
        return self.norms.l1 / self.factor


def compare(setting: Setting) -> Iterator[Compared]:
    """The tops in the order given, then negative sampling; one at a time, as theta has K - 1 entries."""
    sizes = {"pool_size": setting.pool_size, "num_classes": setting.num_classes}
    for top in setting.tops:
        yield _compared(top, top_k(top, convention="paper", **sizes), setting)
    yield _compared(None, negative_sampling(convention="paper", k=setting.k, **sizes), setting)


def _compared(top: int | None, weights: RankWeights, setting: Setting) -> Compared:
    theta = theta_from_vartheta(weights, num_classes=setting.num_classes)
    ranks = _log_spaced(setting.num_classes - 1)
    theta_J: Float64 = theta.numpy()
    return Compared(
        top=top,
        vartheta=weights.l1 / weights.kept,
        norms=theta_norms(theta),
        l2_bound=l2_bound_from_pool(weights, num_classes=setting.num_classes),
        factor=retrieval_factor(theta[: setting.k], k=setting.k),
        curve_ranks=ranks.astype(np.float64),
        curve_theta=theta_J[ranks - 1],
        curve_share=np.cumsum(theta_J)[ranks - 1] / weights.l1,
    )


def _log_spaced(last: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.unique(np.geomspace(1, last, _CURVE_POINTS).round().astype(np.int64))


# Pictures of theta: which negatives a method looks at, and where its weight sits.


_SAMPLING = "#7a7a7a"
# How far below the lowest plateau the left picture extends: smaller weights add nothing to a loss.
_DEPTH = 1e-4


def plot_theta(setting: Setting, compared: Sequence[Compared], path: str | Path) -> None:
    """Draws theta by rank (log-log), and the share of all weight that the hardest ranks hold."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(
        f"{setting.num_classes:,} classes, pools of {setting.pool_size:,}"
        f" (negative sampling weighted for k = {setting.k})",
        fontsize=12,
    )
    mined = [method for method in compared if method.top is not None]
    for method in compared:
        place = mined.index(method) / max(len(mined) - 1, 1) if method.top is not None else 0.0
        color = _SAMPLING if method.top is None else colormaps["viridis"](0.02 + 0.82 * place)
        style = {"color": color, "linewidth": 2.2, "linestyle": "--" if method.top is None else "-"}
        left.loglog(method.curve_ranks, method.curve_theta, label=method.name, **style)
        right.semilogx(method.curve_ranks, 100 * method.curve_share, label=method.name, **style)
    lowest = min(method.norms.first for method in compared)
    highest = max(method.norms.first for method in compared)
    left.set(title="Weight of a negative by its rank", ylabel="θ of that rank", ylim=(lowest * _DEPTH, highest * 3))
    right.set(title="Where the weight sits", ylabel="share of ‖θ‖₁ up to that rank, %", ylim=(-2, 102))
    for axes in (left, right):
        _finish(axes, setting)
    left.legend(loc="lower left", frameon=False, fontsize=9)
    save_picture(figure, path, dpi=130)


def _finish(axes: Axes, setting: Setting) -> None:
    axes.set_xlim(1, max(setting.num_classes - 1, 2))
    axes.set_xlabel("rank of the negative among all, 1 is the hardest")
    axes.grid(which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
