"""``owlmine evaluate``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from owlmine.cli.data import ConversionProgress, JsonOption
from owlmine.cli.model_options import (
    DeviceOption,
    ExactOption,
    ModelArgument,
    ShareBar,
    TailOption,
    open_model,
    whole_numbers,
)
from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal
from owlmine.errors import OwlmineError
from owlmine.evaluate.model_data import ReadOptions
from owlmine.metrics.propensity import PropensityConstants
from owlmine.pictures import check_picture

if TYPE_CHECKING:
    from owlmine.evaluate.of_model import Evaluation

_COLUMNS = ("P", "R", "nDCG", "PSP", "PSnDCG", "coverage")


@with_options(ReadOptions)
def evaluate_command(
    model: ModelArgument,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Labelled points: a store, a file, a folder of files, or: sample.")
    ],
    options: ReadOptions,
    split: Annotated[
        str | None,
        typer.Option("--split", help="The split to evaluate on.", show_default="test; all of a single file"),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option("-k", "--k", help="Numbers of answers per query, separated by commas.", show_default="1,3,5,10"),
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(
            "--propensity",
            metavar="A,B",
            help="Propensity constants of PSP and PSnDCG.",
            show_default="those of the training data",
        ),
    ] = None,
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Plot the figures to this file; must not exist.")
    ] = None,
    tail: TailOption = 0.0,
    exact: ExactOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Evaluate a model on a split: precision, recall, nDCG, propensity-scored figures, coverage.

    DATA can differ from the training data: files are read with the model's own vocabulary and weighting, and their
    labels are looked up among the model's classes. A store must have been made like the training data.
    """
    from owlmine.evaluate.model_data import open_for_model
    from owlmine.evaluate.of_model import evaluate_model
    from owlmine.evaluate.picture import plot_evaluation

    ks = None if k is None else whole_numbers(k, "--k", "1,3,5")
    constants = None if propensity is None else _constants(propensity)
    if plot is not None:
        check_picture(plot)
    predictor = open_model(model, device, exact=exact)
    num_classes = len(predictor.classes)
    if ks is not None and not 1 <= min(ks) <= max(ks) <= num_classes:
        raise OwlmineError(f"--k is {k}; wanted 1 to {num_classes:,}, the number of classes")
    with TemporaryDirectory(prefix="owlmine-") as scratch:
        with ConversionProgress() as reading:
            store, name = open_for_model(predictor, data, Path(scratch), split=split, options=options, progress=reading)
        with ShareBar("evaluating") as bar:
            evaluation = evaluate_model(
                predictor,
                store[name],
                ks=ks,
                constants=constants,
                tail=tail,
                progress=lambda done, total: bar.update(done / total),
            )
        counts = store.meta["splits"][name]
    title = Path(data).name if Path(data).is_file() else f"{Path(data).name}, {name} split"
    console = Terminal()
    if as_json:
        typer.echo(json.dumps({"model": str(model), "data": data, "split": name} | evaluation.to_dict(), indent=1))
    else:
        _print_tables(console, title, evaluation)
        _print_notes(console, evaluation, counts)
    if plot is None:
        return
    plot_evaluation(evaluation, plot, title=f"{model.resolve().name} on {title}: {evaluation.num_points:,} points")
    if not as_json:
        console.print(f"Picture: {literal(str(plot))}", soft_wrap=True)


def _constants(text: str) -> PropensityConstants:
    try:
        a, b = (float(part) for part in text.split(","))
        return PropensityConstants(a, b)
    except ValueError:
        wanted = "two numbers from 0.001 to 100, separated by a comma, such as 0.55,1.5"
        raise OwlmineError(f"--propensity is {text!r}; wanted {wanted}") from None


def _print_tables(console: Console, title: str, evaluation: Evaluation) -> None:
    figures = evaluation.figures
    heading = f"{literal(title)}: {evaluation.num_points:,} points, {evaluation.num_classes:,} classes"
    columns = [name for name in _COLUMNS if f"{name}@{evaluation.ks[0]}" in figures]
    whole = _table(heading, columns)
    for k in evaluation.ks:
        whole.add_row(str(k), *(_percent(figures[f"{name}@{k}"]) for name in columns))
    console.print(whole)
    bins = list(evaluation.bins)
    parts = _table(
        "Common and rare classes", [f"R of\n{name}" for name in bins] + [f"part of P\nfrom {name}" for name in bins]
    )
    for k in evaluation.ks:
        parts.add_row(str(k), *(_percent(figures[f"{what}@{k}/{name}"]) for what in ("R", "P") for name in bins))
    console.print(parts)
    console.print(_kinds(evaluation))


def _kinds(evaluation: Evaluation) -> Table:
    """The limits and sizes of head, torso and tail."""
    cuts, labels = evaluation.cuts, max(sum(size.labels for size in evaluation.bins.values()), 1)
    spans = {"head": f"{cuts.head} or more", "torso": f"{cuts.torso} to {cuts.head - 1}", "tail": f"below {cuts.torso}"}
    table = Table("kind", "training points", "classes", "labels", box=SIMPLE, padding=(0, 1))
    for name, size in evaluation.bins.items():
        table.add_row(name, spans[name], f"{size.classes:,}", f"{size.labels:,} ({size.labels / labels:.0%})")
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _table(title: str, columns: list[str]) -> Table:
    table = Table("k", *columns, title=title, box=SIMPLE, padding=(0, 1), title_justify="left", title_style="bold")
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    return table


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _print_notes(console: Console, evaluation: Evaluation, counts: dict[str, Any]) -> None:
    constants = evaluation.constants
    with_constants = "" if constants is None else f" Propensities with A = {constants.a:g} and B = {constants.b:g}."
    console.print(
        f"In percent.{with_constants} R of head, torso and tail is over the points with a label of that kind.",
        highlight=False,
    )
    if (reliability := evaluation.reliability) is not None:
        console.print(
            f"Probabilities of the top {reliability.places} are off by {reliability.error:.2f} percentage points"
            f" (expected calibration error, {len(reliability.bins)} bins of equal mass).",
            highlight=False,
        )
    notes = (
        ("Points without a label, counted as 0", evaluation.without_label),
        ("Labels of classes that are not in the model, dropped", counts["unseen_labels_dropped"]),
        ("Points left without a label or feature, not evaluated", counts["points_read"] - counts["points"]),
    )
    for note, count in notes:
        if count:
            console.print(f"{note}: {count:,}.", highlight=False)
