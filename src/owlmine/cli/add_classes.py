"""``owlmine add-classes``."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from owlmine.add_classes.vectors import CAUTION
from owlmine.cli.data import JsonOption
from owlmine.cli.model_options import DeviceOption, ModelArgument, open_model
from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal, visible_json
from owlmine.errors import OwlmineError
from owlmine.exchange.labelled import ExampleOptions
from owlmine.files import check_free

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from owlmine.add_classes.add import Addition
    from owlmine.add_classes.examples import Examples

_SHOWN_KEYS = 8


@with_options(ExampleOptions)
def add_classes_command(
    model: ModelArgument,
    options: ExampleOptions,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Write the model with the new classes here; must not exist.")
    ],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Examples with labels, in any format of training data: a file, a folder, or a store."
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="Names of new classes, with or without examples: one name per line, or key, tab and name.",
        ),
    ] = None,
    caution: Annotated[
        float,
        typer.Option(
            "--caution",
            help="How many standard deviations a query must stand out to get a new class; lower values show new"
            " classes more often.",
        ),
    ] = CAUTION,
    split: Annotated[
        str | None, typer.Option("--split", help="Folders and stores: the split to read.", show_default="train")
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Add classes to a model from a few examples of each, or from their names, without training.

    Labels that the model does not know become new classes; known labels are ignored. Prints how well the new classes
    are found: each example in turn is left out and ranked with a class made from the other examples.
    """
    from owlmine.add_classes.add import add_classes
    from owlmine.add_classes.examples import Examples
    from owlmine.exchange.labelled import read_names
    from owlmine.model import Model

    if source is None and names is None:
        raise OwlmineError("no classes were given; wanted a file of examples, or --names")
    if source is None and split is not None:
        raise OwlmineError(f"names have no splits; leave out --split {split}")
    if not 0 < caution < math.inf:
        raise OwlmineError(f"--caution is {caution:g}; wanted a number above 0")
    check_free(out)
    predictor = open_model(model, device)
    new_names = None if names is None else read_names(names)
    examples = None if source is None else Examples.read(predictor, source, options=options, split=split)
    files = ", ".join(path.name for path in (source, names) if path is not None)
    addition = add_classes(predictor, examples, new_names, caution=caution, source=files)
    Model.of(addition.predictor).save(out)
    if as_json:
        text = json.dumps(_as_json(addition, examples, out), indent=1, ensure_ascii=False)
        typer.echo(visible_json(text) if sys.stdout.isatty() else text)
    else:
        _print(Terminal(), addition, examples, out)


def _groups(addition: Addition) -> dict[str, NDArray[np.bool_]]:
    """Classes by their number of examples."""
    counts = addition.counts_C
    bounds = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 9), (10, None))
    groups = {}
    for low, high in bounds:
        name = f"{low} or more" if high is None else f"{low}" if low == high else f"{low} to {high}"
        groups[name] = (counts >= low) if high is None else (counts >= low) & (counts <= high)
    groups = {name: group for name, group in groups.items() if group.any()}
    return groups if len(groups) == 1 else {**groups, "all": counts >= 0}


def _print(console: Console, addition: Addition, examples: Examples | None, out: Path) -> None:
    title = f"{len(addition.keys):,} new classes, {int(addition.counts_C.sum()):,} examples"
    table = Table(
        "examples\nper class", "classes", "left-out\nexamples", "R@1", "R@5",
        title=title, box=SIMPLE, padding=(0, 1), title_justify="left", title_style="bold",
    )  # fmt: skip
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    for name, group in _groups(addition).items():
        left_out = int(((addition.ranks_P > 0) & group[addition.classes_P]).sum())
        figures = (_percent(addition.recall(k, group)) for k in (1, 5))
        table.add_row(name, f"{int(group.sum()):,}", f"{left_out:,}" if left_out else "–", *figures)
    console.print(table)
    console.print(
        "In percent: left-out examples whose class is ranked first, or among the first five.",
        highlight=False,
    )
    for note in _notes(addition, examples):
        console.print(literal(note), highlight=False, soft_wrap=True)
    num_classes = addition.predictor.dense.shape.num_classes
    console.print(f"{literal(str(out))}: a model with {num_classes:,} classes.", highlight=False, soft_wrap=True)


def _notes(addition: Addition, examples: Examples | None) -> list[str]:
    by_count = [
        [key for key, count in zip(addition.keys, addition.counts_C.tolist(), strict=True) if count == wanted]
        for wanted in (0, 1)
    ]
    lists = (
        ("Not measured, because they have only a name", by_count[0]),
        ("Not measured, because they have only one example", by_count[1]),
        ("Not added, because the model knows no feature of their examples and names", list(addition.unknown)),
    )
    counts = [("Names of classes that the model already has, ignored", addition.known_names)]
    if examples is not None:
        counts += [
            ("Labels of classes that the model already has, ignored", examples.known_labels),
            ("Examples without a feature known to the model, ignored", examples.without_features),
        ]
    notes = [f"{note}: {_some(keys)}." for note, keys in lists if keys]
    return notes + [f"{note}: {count:,}." for note, count in counts if count]


def _some(keys: list[str]) -> str:
    shown = ", ".join(keys[:_SHOWN_KEYS])
    return shown if len(keys) <= _SHOWN_KEYS else f"{shown} and {len(keys) - _SHOWN_KEYS:,} more"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def _as_json(addition: Addition, examples: Examples | None, out: Path) -> dict[str, Any]:
    figures = {f"R@{k}": addition.recall(k) for k in (1, 5)}
    return {
        "model": str(out),
        "classes": addition.predictor.dense.shape.num_classes,
        "added": [
            {"key": key, "examples": count, "by_name": named}
            for key, count, named in zip(
                addition.keys, addition.counts_C.tolist(), addition.named_C.tolist(), strict=True
            )
        ],
        "left_out_examples": int((addition.ranks_P > 0).sum()),
        **{name: None if math.isnan(share) else round(100 * share, 4) for name, share in figures.items()},
        "not_added": list(addition.unknown),
        "known_names": addition.known_names,
        "known_labels": 0 if examples is None else examples.known_labels,
        "examples_without_features": 0 if examples is None else examples.without_features,
    }
