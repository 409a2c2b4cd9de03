"""``owlmine train``."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from owlmine.cli.data import DataArgument, open_data, with_reading_options
from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal
from owlmine.data.options import ConvertOptions
from owlmine.recipe.options import TrainOptions

if TYPE_CHECKING:
    from owlmine.model import Model


@with_reading_options
@with_options(TrainOptions)
def train_command(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The folder for the model; must not exist.")],
    options: TrainOptions,
    reading: ConvertOptions,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run in that folder.")] = False,
) -> None:
    """Train a model, and save it in a folder.

    --resume continues an interrupted run (Ctrl-C, SIGTERM, a crash) from its last checkpoint. --help-all also shows the
    options for loss, steps, reading and runs.
    """
    from owlmine.run import check_run, train
    from owlmine.run.curves import FOLDER
    from owlmine.run.reporters import BarReporter, LineReporter

    # Before data are converted, which can take an hour.
    check_run(out, options, resume=resume)
    store = open_data(data, reading, keep_texts=options.model.keep_texts)
    console = Terminal(stderr=True)
    bar = BarReporter(console) if console.is_terminal else None
    with bar or nullcontext():
        model = train(
            store, out, options, resume=resume, reporter=bar or LineReporter(console), data_name=Path(data).name
        )
    shown = Terminal()
    shape = model.dense.shape
    shown.print(
        f"{literal(str(out))}: {shape.num_parameters:,} parameters, {shape.num_classes:,} classes", soft_wrap=True
    )
    _print_figures(shown, model, has_dev="dev" in store.splits)
    if options.run.tensorboard:
        shown.print(f"Curves: tensorboard --logdir {literal(str(out / FOLDER))}", soft_wrap=True)
    if "test" in store.splits and len(store["test"]):
        command = f"owlmine evaluate {out} {data}{_for_evaluate(reading)}"
        shown.print(f"On the test split: {literal(command)}", soft_wrap=True)


def _print_figures(shown: Terminal, model: Model, *, has_dev: bool) -> None:
    record = model.record
    if not record.figures:
        return
    figures = ", ".join(f"{name} {value:.2f}" for name, value in record.figures.items())
    points = "On the dev split" if has_dev else "On validation points"
    if record.rehearsal is not None:
        points = f"On {record.rehearsal:.0%} of the training points, held out in a rehearsal"
    shown.print(f"{points}: {figures}.", soft_wrap=True)
    if not has_dev:
        shown.print("These points come from the training data; new ones can be harder.")


def _for_evaluate(reading: ConvertOptions) -> str:
    """The options that ``owlmine evaluate`` needs to read the same files."""
    from owlmine.evaluate.model_data import ReadOptions

    options = ""
    for field in fields(ReadOptions):
        if (given := getattr(reading, field.name, field.default)) != field.default:
            options += f" --{field.name.replace('_', '-')}" + ("" if given is True else f" {shlex.quote(str(given))}")
    return options
