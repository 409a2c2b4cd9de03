"""An evaluation as a picture: quality by k, precision by kind of class, recall of head, torso and tail; and a
reliability diagram if the model has probabilities."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from owlmine.pictures import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from owlmine.evaluate.of_model import Evaluation, Reliability

_BIN_COLORS = {"head": "#1f4e79", "torso": "#4f9d8f", "tail": "#d9822b"}
_LINES = {"P": "#1f4e79", "R": "#b3541e", "nDCG": "#4f9d8f", "PSP": "#7b5ea7", "PSnDCG": "#8a8a8a"}


def plot_evaluation(evaluation: Evaluation, path: str | Path, *, title: str) -> None:
    """Draws the panels into a file. Its extension gives the format (png, pdf, svg)."""
    from matplotlib.figure import Figure

    reliability = evaluation.reliability
    num_panels = 3 if reliability is None else 4
    figure = Figure(figsize=(13 / 3 * num_panels, 4.4), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, wspace=0.04)  # type: ignore[union-attr,call-arg]
    figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)
    by_k, parts, recall, *more = figure.subplots(1, num_panels)
    _draw_quality(by_k, evaluation)
    _draw_precision(parts, evaluation)
    _draw_recall(recall, evaluation)
    for axes in (by_k, parts, recall):
        _finish(axes, evaluation)
    if reliability is not None:
        _draw_reliability(more[0], reliability)
    save_picture(figure, path, dpi=140)


def _draw_quality(axes: Axes, evaluation: Evaluation) -> None:
    places = range(len(evaluation.ks))
    for name, color in _LINES.items():
        values = [evaluation.figures.get(f"{name}@{k}", math.nan) for k in evaluation.ks]
        if not all(map(math.isnan, values)):
            # PSP and PSnDCG lie close together: with one dashed, both are visible.
            style = "o--" if name == "PSnDCG" else "o-"
            axes.plot(places, values, style, color=color, label=name, linewidth=2, markersize=5)
    axes.set(title="Quality by k", ylabel="percent", ylim=(0, None))
    # Space above the lines, so that the legend does not cover them.
    axes.set_ylim(top=axes.get_ylim()[1] * 1.22)
    axes.legend(frameon=False, fontsize=9, ncols=3, loc="upper center")


def _draw_precision(axes: Axes, evaluation: Evaluation) -> None:
    figures, bottoms = evaluation.figures, [0.0] * len(evaluation.ks)
    for name, size in evaluation.bins.items():
        heights = [figures[f"P@{k}/{name}"] for k in evaluation.ks]
        axes.bar(
            range(len(heights)),
            heights,
            0.62,
            bottoms,
            color=_BIN_COLORS[name],
            label=f"{name}: {size.classes:,} classes",
        )
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    for place, top in enumerate(bottoms):
        axes.annotate(f"{top:.1f}", (place, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set(title="P@k by kind of class", ylabel="P@k, percent", ylim=(0, max(*bottoms, 1.0) * 1.35))
    axes.legend(frameon=False, fontsize=9, loc="upper right", reverse=True)


def _draw_recall(axes: Axes, evaluation: Evaluation) -> None:
    cuts = evaluation.cuts
    spans = {"head": f"{cuts.head} or more", "torso": f"{cuts.torso} to {cuts.head - 1}", "tail": f"below {cuts.torso}"}
    places = range(len(evaluation.ks))
    for name, color in _BIN_COLORS.items():
        values = [evaluation.figures[f"R@{k}/{name}"] for k in evaluation.ks]
        if not all(map(math.isnan, values)):
            axes.plot(places, values, "o-", color=color, label=f"{name} ({spans[name]})", linewidth=2, markersize=5)
    axes.set(title="Recall by training points of the class", ylabel="R@k, percent", ylim=(0, None))
    axes.set_ylim(top=max(axes.get_ylim()[1] * 1.3, 1.0))
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def _draw_reliability(axes: Axes, reliability: Reliability) -> None:
    bins = reliability.bins
    axes.plot([0, 100], [0, 100], "--", color="#8a8a8a", linewidth=1, label="perfectly calibrated")
    for one in bins:
        axes.plot([100 * one.probability] * 2, [100 * one.probability, 100 * one.hits], color="#d9822b", linewidth=2)
    axes.plot(
        [100 * one.probability for one in bins],
        [100 * one.hits for one in bins],
        "o",
        color="#1f4e79",
        markersize=6,
        label=f"about {sorted(one.count for one in bins)[len(bins) // 2]:,} predictions each",
    )
    axes.set(
        title=f"Probabilities: off by {reliability.error:.1f} points, top {reliability.places}",
        xlabel="mean predicted probability, percent",
        ylabel="right, percent",
        xlim=(0, 100),
        ylim=(0, 100),
        aspect="equal",
    )
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    _lighten(axes)


def _finish(axes: Axes, evaluation: Evaluation) -> None:
    axes.set_xticks(range(len(evaluation.ks)), [str(k) for k in evaluation.ks])
    axes.set_xlim(-0.5, len(evaluation.ks) - 0.5)
    axes.set_xlabel("k, classes retrieved")
    _lighten(axes)


def _lighten(axes: Axes) -> None:
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
