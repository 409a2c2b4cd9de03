"""``owlmine demo``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal
from owlmine.demo.run import DemoOptions

if TYPE_CHECKING:
    from owlmine.train import Reporter


@with_options(DemoOptions)
def demo_command(
    options: DemoOptions,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Models, results and report; an earlier demo there goes on.")
    ] = Path("owlmine-demo"),
) -> None:
    """Compare mining with negative sampling on the embedded sample, and write a report to show.

    Trains top-1 and top-16 stochastic negative mining and negative sampling with
    the same budget, judges them on packages they have not seen, and prints the
    paper's Table 2 in miniature. Stopped, the same command goes on; with other
    options it keeps the models that fit them and trains the rest anew.
    """
    from owlmine.cli.data import ConversionProgress
    from owlmine.data.datasets import SAMPLE, open_dataset
    from owlmine.demo.earlier import REPORT, DemoFolder
    from owlmine.demo.run import run_demo
    from owlmine.demo.table import print_results

    # Before the sample is converted.
    DemoFolder(out).check()
    with ConversionProgress() as progress:
        store = open_dataset(SAMPLE, progress=progress)
    show = TrainingShow(Terminal(stderr=True))
    show.message(
        f"{len(store['train']):,} Debian packages, {store.num_classes:,} classes;"
        f" three methods, {options.epochs:g} epochs each"
    )
    results = run_demo(store, out, options, show)
    console = Terminal()
    print_results(console, results)
    console.print(f"Report: {literal(str((out / REPORT).resolve()))}", soft_wrap=True, highlight=False)


class TrainingShow:
    """A bar per method on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def training(self, title: str, number: int, total: int) -> Iterator[Reporter]:
        from owlmine.train.reporters import BarReporter, LineReporter

        if self._console.is_terminal:
            with BarReporter(self._console, f"{title:17}") as bar:
                yield bar
        else:
            self.message(f"{title} ({number} of {total})")
            yield LineReporter(self._console)

    def message(self, text: str) -> None:
        self._console.print(literal(text), soft_wrap=True, highlight=False)
