"""``owlmine data``: convert, describe, verify, synthesize."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal, print_line
from owlmine.data.convert import convert
from owlmine.data.datasets import SAMPLE, open_dataset, sample_folder
from owlmine.data.describe import conversion_notes, describe, plot_description
from owlmine.data.options import ConvertOptions
from owlmine.data.store import Store
from owlmine.data.synthetic import SyntheticOptions, Truth, synthesize
from owlmine.errors import DataError
from owlmine.pictures import check_picture

data_app = typer.Typer(help="Convert, describe, verify and synthesize datasets.", no_args_is_help=True)

with_reading_options = with_options(
    ConvertOptions, parameter="reading", panel="Reading files", advanced=True, without=("keep_texts",)
)
"""For commands that take a store or files to convert: their parameter ``reading``."""

DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="A store, a file or folder to convert, or: sample.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


@data_app.command("convert")
@with_options(ConvertOptions)
def convert_command(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="A file, a folder with train.*, test.*, dev.*, or: sample.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The store to make; must not exist.")],
    options: ConvertOptions,
) -> None:
    """Turn files of any known format into a store.

    Reads the old and new text formats of the extreme-classification repository, svmlight, SciPy and PECOS npz, dense
    npy vectors, jsonl, csv, tsv and parquet; plain or compressed with gz, xz or zst.
    """
    with ConversionProgress() as progress:
        store = convert(sample_folder() if str(source) == SAMPLE else source, out, options, progress=progress)
    _print_conversion(Terminal(), store)


@data_app.command("describe")
@with_options(ConvertOptions, without=("keep_texts",))
def describe_command(
    data: DataArgument,
    options: ConvertOptions,
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Plot the class distribution to this file; must not exist.")
    ] = None,
) -> None:
    """Show sizes, averages and the tail of the classes."""
    if plot is not None:
        check_picture(plot)
    with ConversionProgress() as progress:
        store = open_dataset(data, options, progress=progress)
    description = describe(store)
    console = Terminal()
    if as_json:
        typer.echo(json.dumps(description, indent=1))
    else:
        _print_description(console, data, description)
    if plot is None:
        return
    plot_description(store, plot)
    if not as_json:
        console.print(f"Picture: {literal(str(plot))}", soft_wrap=True)


@data_app.command("verify")
def verify_command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store to check.")],
) -> None:
    """Read every array of a store, and verify its checksum and its content."""
    opened = Store.open(store)
    damaged = opened.verify()
    if damaged:
        raise DataError(
            store,
            found=f"changed bytes in {', '.join(name + '.npy' for name in damaged)}",
            wanted="the recorded checksums",
        )
    opened.check_content()
    print_line(f"{store}: {len(opened.meta['arrays'])} arrays, all checksums match")


@data_app.command("synthesize")
@with_options(SyntheticOptions)
def synthesize_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The store to make; must not exist.")],
    options: SyntheticOptions,
) -> None:
    """Generate a dataset for which the best answer to every query is known."""
    store = synthesize(out, options)
    best = Truth.of(store)
    print_line(
        f"{out}: {store.num_classes:,} classes, {store.num_features:,} features,"
        f" {options.train_points:,} train and {options.test_points:,} test points"
    )
    for k in (1, 3, 5):
        if k <= store.num_classes:
            risk = best.bayes_risk("test", k)
            typer.echo(f"Lowest possible chance of missing the label with {k} retrieved: {risk:.4f}")


def open_data(data: str, reading: ConvertOptions, *, keep_texts: bool = False) -> Store:
    """The dataset of a command. Notes on its conversion go to standard error."""
    with ConversionProgress() as progress:
        store = open_dataset(data, reading, keep_texts=keep_texts, progress=progress)
    console = Terminal(stderr=True)
    for note in conversion_notes(store):
        console.print(literal(note), soft_wrap=True, highlight=False)
    return store


class ConversionProgress:
    """A bar per split if standard error is a terminal, else nothing."""

    def __init__(self) -> None:
        console = Terminal(stderr=True)
        self._bars = Progress(
            TextColumn("reading {task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[points]:,} points"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, split: str, fraction: float, points: int) -> None:
        if split not in self._tasks:
            self._tasks[split] = self._bars.add_task(split, total=1.0, points=0)
        self._bars.update(self._tasks[split], completed=fraction, points=points)

    def __enter__(self) -> ConversionProgress:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()


def _print_conversion(console: Console, store: Store) -> None:
    meta = store.meta
    console.print(
        f"[bold]{literal(str(store.path))}[/]: {store.num_classes:,} classes, {store.num_features:,} features,"
        f" {meta['queries']} queries; weighting {meta['weighting']['kind']} ({meta['weighting']['why']})",
        soft_wrap=True,
    )
    table = Table("split", *("points read", "emptied", "kept", "labels", "unseen labels dropped"))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, split in meta["splits"].items():
        emptied = split["emptied_of_labels"] + split["emptied_of_features"]
        table.add_row(name, *(f"{n:,}" for n in (
            split["points_read"], emptied, split["points"], split["labels"], split["unseen_labels_dropped"],
        )))  # fmt: skip
    console.print(table)
    for note in conversion_notes(store):
        console.print(literal(note), soft_wrap=True, highlight=False)


def _print_description(console: Console, name: str, description: dict[str, Any]) -> None:
    columns = (
        "features",
        "classes",
        "train\npoints",
        "test\npoints",
        "points\nper class",
        "classes\nper point",
    )
    table = Table(*columns, title=literal(name))
    for column in table.columns:
        column.justify = "right"
    table.add_row(
        *(f"{description[key]:,}" for key in ("features", "classes", "train_points", "test_points")),
        *(f"{description[key]:.2f}" for key in ("points_per_class", "classes_per_point")),
    )
    console.print(table)
    tail = Table("training points of a class", "classes", "share", title="The tail")
    tail.columns[1].justify = tail.columns[2].justify = "right"
    for band, count in description["classes_by_training_points"].items():
        tail.add_row(band, f"{count:,}", f"{count / description['classes']:.1%}")
    console.print(tail)
    console.print(
        f"The largest class has {description['largest_class']:,} training points, the median class"
        f" {description['median_class']:g}; the top 1 % of classes hold"
        f" {description['label_share_of_top_percent']:.0%} of all labels."
        f" Weighting: {description['weighting']}."
    )
