"""Pictures of theta: which negatives a method looks at, and where its weight sits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from owlmine.pictures import save_picture
from owlmine.theory.comparison import Compared, Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAMPLING = "#7a7a7a"
# How far below the lowest plateau the left picture goes on: what lies deeper adds nothing to a loss.
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
