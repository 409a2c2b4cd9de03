"""``owlmine demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from owlmine.cli.compare import RunShow
from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal
from owlmine.compare.demo import DemoOptions


@with_options(DemoOptions)
def demo_command(
    options: DemoOptions,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Folder for models and report. An earlier demo is resumed."),
    ] = Path("owlmine-demo"),
) -> None:
    """Train on the embedded sample, compare with the paper's models, and write a report.

    Trains the default model of owlmine train and, with one small budget, three models of the paper: top-1 and top-16
    stochastic negative mining, and negative sampling. Tests all four on packages they have not seen, and compares the
    ratios with the paper's Table 2. It takes one to three minutes on two cores. If it is stopped, the same command
    resumes it; with other options, it keeps the models that still fit and trains the others again.
    """
    from owlmine.cli.data import ConversionProgress
    from owlmine.compare.demo import run_demo
    from owlmine.compare.folder import REPORT, DemoFolder
    from owlmine.compare.terminal import print_demo
    from owlmine.data.datasets import SAMPLE, open_dataset

    # Before the sample is converted.
    DemoFolder(out).check()
    with ConversionProgress() as progress:
        store = open_dataset(SAMPLE, progress=progress)
    show = RunShow(Terminal(stderr=True), line_seconds=10.0)
    show.message(
        f"{len(store['train']):,} Debian packages, {store.num_classes:,} classes: the model of owlmine train, and three"
        " of the paper's"
    )
    results = run_demo(store, out, options, show)
    console = Terminal()
    print_demo(console, results)
    console.print(f"Report: {literal(str((out / REPORT).resolve()))}", soft_wrap=True, highlight=False)
