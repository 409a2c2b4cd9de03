"""``owlmine train``."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from owlmine.cli.data import DataArgument, open_data, with_reading_options
from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal
from owlmine.data.options import ConvertOptions
from owlmine.recipe.options import TrainOptions


@with_reading_options
@with_options(TrainOptions)
def train_command(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The folder for the model; must not exist.")],
    options: TrainOptions,
    reading: ConvertOptions,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run in that folder.")] = False,
) -> None:
    """Train a model, and keep it in a folder.

    Interrupted (Ctrl-C, SIGTERM, a crash), the run goes on with --resume where its last checkpoint is.
    """
    from owlmine.train import check_run, train
    from owlmine.train.event_file import FOLDER
    from owlmine.train.reporters import BarReporter, LineReporter

    # Before data are converted, which can take an hour.
    check_run(out, options, resume=resume)
    store = open_data(data, reading)
    console = Terminal(stderr=True)
    bar = BarReporter(console) if console.is_terminal else None
    with bar or nullcontext():
        predictor = train(
            store, out, options, resume=resume, reporter=bar or LineReporter(console), data_name=Path(data).name
        )
    shown = Terminal()
    shape = predictor.retriever.shape
    shown.print(
        f"{literal(str(out))}: {shape.num_parameters:,} parameters, {shape.num_classes:,} classes", soft_wrap=True
    )
    kept = predictor.config["kept"] or {}
    if figures := ", ".join(f"{name} {kept[name]:.2f}" for name in ("P@1", "P@3", "P@5") if name in kept):
        share = predictor.config.get("rehearsal")
        points = "On validation points" if share is None else f"In a rehearsal, on {share:.0%} of train left out"
        shown.print(f"{points}: {figures}.")
        shown.print("These points come with the training data, and new ones can be harder.")
    if options.tensorboard:
        shown.print(f"Curves: tensorboard --logdir {literal(str(out / FOLDER))}", soft_wrap=True)
    if "test" in store.splits and len(store["test"]):
        command = f"owlmine evaluate {out} {data}{_for_evaluate(reading)}"
        shown.print(f"On the test split: {literal(command)}", soft_wrap=True)


def _for_evaluate(reading: ConvertOptions) -> str:
    """The options that ``owlmine evaluate`` needs to read the same files."""
    from owlmine.evaluate.model_data import ReadOptions

    options = ""
    for field in fields(ReadOptions):
        if (given := getattr(reading, field.name, field.default)) != field.default:
            options += f" --{field.name.replace('_', '-')}" + ("" if given is True else f" {shlex.quote(str(given))}")
    return options
