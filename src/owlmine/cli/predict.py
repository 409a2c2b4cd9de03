"""``owlmine predict``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from owlmine.cli.model_options import DeviceOption, ExactOption, ModelArgument, ShareBar, TailOption, open_model
from owlmine.cli.options import with_options
from owlmine.cli.terminal import Terminal, literal, visible, visible_json
from owlmine.errors import OwlmineError
from owlmine.exchange.queries import QueryOptions
from owlmine.files import check_new_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from owlmine.data.rows import Int64
    from owlmine.exchange.answers import Answer
    from owlmine.index import Filter
    from owlmine.model import Model

_FORMATS = ("jsonl", "csv", "table")
_DEFAULT_K = 5
_BAR_WIDTH = 16
_FILE_WIDTH = 100


@with_options(QueryOptions)
def predict_command(
    model: ModelArgument,
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Queries: a text file, a table (jsonl, csv, tsv, parquet), vectors (npy, npz, svmlight, xmc), a store,"
            " or - for standard input (one text per line, unless --input-format says otherwise).",
        ),
    ],
    options: QueryOptions,
    k: Annotated[
        int | None, typer.Option("--k", "-k", help="Number of classes per query.", show_default=str(_DEFAULT_K))
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--classes",
            metavar="KEY,KEY",
            help="Score only these classes: keys or names, separated by commas. If a key or name contains a comma, give"
            " it in a --classes of its own.",
        ),
    ] = None,
    allowed: Annotated[
        Path | None,
        typer.Option("--allowed", metavar="FILE", help="Choose from the classes of this file only, one key per line."),
    ] = None,
    forbidden: Annotated[
        Path | None,
        typer.Option("--forbidden", metavar="FILE", help="Leave out the classes of this file, one key per line."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", help="Answer format: jsonl, csv or table.", show_default="table on a terminal, else jsonl"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write answers to this file, whole or not at all; must not exist."),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Stores: the split to answer.", show_default="test")
    ] = None,
    at_least: Annotated[
        float | None, typer.Option("--at-least", metavar="P", help="Leave out classes with a lower probability.")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            "--precision",
            metavar="SHARE",
            help="Leave out the least probable classes, so that this share of the rest is correct, as measured on"
            " validation points.",
        ),
    ] = None,
    tail: TailOption = 0.0,
    exact: ExactOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Retrieve the best classes for queries: texts or vectors in, one line of JSON per query out.

    Works in a pipe: echo "PHP module for LDAP" | owlmine predict MODEL -

    A table may choose the classes of each query: its columns "allowed" and "forbidden" hold keys, as lists or separated
    by semicolons.

    The answer to a query is empty if the model knows none of its features, or if no class is probable enough
    (--at-least, --precision).
    """
    from owlmine.exchange.answers import answer
    from owlmine.exchange.queries import open_queries, standard_input

    if format is not None and format not in _FORMATS:
        raise OwlmineError(f"--format is {format!r}; wanted {', '.join(_FORMATS)}")
    if out is not None:
        check_new_file(out)
    if source == "-" and split is not None:
        raise OwlmineError(f"standard input has no splits; leave out --split {split}")
    predictor = open_model(model, device, exact=exact)
    only = _only(predictor, classes, allowed, forbidden)
    available = len(predictor.classes) if only is None else only.most
    count = _count(available, k, default=_DEFAULT_K if classes is None else available)
    least = _least_probability(predictor, at_least, precision)
    if source == "-":
        if sys.stdin.isatty():
            name = "text" if options.input_format == "auto" else options.input_format
            typer.echo(f"One query per line ({name}); Ctrl-D ends.", err=True)
        queries = standard_input(predictor, sys.stdin.buffer, options=options)
    else:
        queries = open_queries(predictor, Path(source), options=options, split=split)
    blocks = answer(predictor, queries, count, only=only, at_least=least, tail=tail)
    format = format or ("table" if out is None and sys.stdout.isatty() else "jsonl")
    num_queries = unknown = without_class = predictions = 0
    probabilities = predictor.record.calibration is not None
    with ShareBar("answering", shown=out is not None) as bar, _sink(out, format, probabilities=probabilities) as write:
        for block in blocks:
            write(block.answers)
            bar.update(block.progress)
            num_queries += len(block.answers)
            unknown += sum(not found.known for found in block.answers)
            without_class += sum(found.known and not found.classes for found in block.answers)
            predictions += sum(len(found.classes) for found in block.answers)
    if unknown:
        typer.echo(
            f"{unknown:,} of {num_queries:,} queries have no feature that the model knows; their answers are empty",
            err=True,
        )
    if least and num_queries > unknown:
        share = predictions / (count * (num_queries - unknown))
        typer.echo(
            f"kept {share:.1%} of the predictions; no class is probable enough for {without_class:,} of {num_queries:,}"
            " queries",
            err=True,
        )


def _least_probability(predictor: Model, at_least: float | None, precision: float | None) -> float:
    if at_least is None and precision is None:
        return 0.0
    if at_least is not None and precision is not None:
        raise OwlmineError("--at-least and --precision were both given; wanted one of them")
    for option, given in (("--at-least", at_least), ("--precision", precision)):
        if given is not None and not 0 < given <= 1:
            raise OwlmineError(f"{option} is {given:g}; wanted a number above 0, at most 1 (0.8 is 80 %)")
    calibration = predictor.record.calibration
    if calibration is None:
        option = "--at-least" if precision is None else "--precision"
        raise OwlmineError(f"{option}: the model has no probabilities; train it with validation points (--validation)")
    if precision is None:
        assert at_least is not None
        return at_least
    found = calibration.threshold_for(precision)
    if found is None:
        highest = max((entry.precision for entry in calibration.thresholds), default=None)
        reached = "none was reached" if highest is None else f"the highest was {highest:g}"
        raise OwlmineError(
            f"--precision {precision:g} was not reached on the {calibration.num_points:,} validation points; {reached}"
        )
    typer.echo(
        f"classes with a probability of {found.threshold:.4g} or more: on {calibration.num_points:,} validation points,"
        f" this reached a precision of {found.precision:g} and kept {found.kept:.1%} of the predictions",
        err=True,
    )
    return found.threshold


def _only(predictor: Model, classes: list[str] | None, allowed: Path | None, forbidden: Path | None) -> Filter | None:
    """The classes to choose from, for all queries; None for all."""
    from owlmine.index import Filter
    from owlmine.rank.filters import classes_in_file

    if classes is not None and allowed is not None:
        raise OwlmineError("--classes and --allowed were both given; wanted one of them")
    num_classes, only = len(predictor.classes), None
    if classes is not None:
        only = Filter.allowing(_chosen(predictor, classes), num_classes)
    elif allowed is not None:
        only = Filter.allowing(classes_in_file(predictor.finder, allowed), num_classes)
    if forbidden is not None:
        left_out = Filter.forbidding(classes_in_file(predictor.finder, forbidden), num_classes)
        only = left_out if only is None else only & left_out
    if only is not None and not only.most:
        given = {"--allowed": allowed, "--forbidden": forbidden}
        names = " and ".join(f"{option} {file}" for option, file in given.items() if file is not None)
        raise OwlmineError(f"{names}: no class is left to choose from")
    return only


def _chosen(predictor: Model, given: list[str]) -> Int64:
    values = [value.strip() for value in given]
    has_commas = any("," in value for value in values)
    # A key may contain a comma: a value that is a class as a whole is not split.
    classes = {*predictor.classes.keys, *predictor.classes.names} if has_commas else set()
    words: list[str] = []
    for value in values:
        words += [value] if value in classes else [word.strip() for word in value.split(",") if word.strip()]
    if not words:
        raise OwlmineError("--classes has no class; wanted keys separated by commas")
    try:
        return predictor.finder.find(words)
    except OwlmineError as error:
        hint = "; if a key contains a comma, give it in a --classes of its own" if has_commas else ""
        raise OwlmineError(f"--classes: {error}{hint}") from error


def _count(available: int, k: int | None, *, default: int) -> int:
    """The number of classes per query."""
    if k is None:
        return min(default, available)
    if not 1 <= k <= available:
        raise OwlmineError(f"--k is {k}; wanted 1 to {available:,}, the number of classes to choose from")
    return k


@contextmanager
def _sink(out: Path | None, format: str, *, probabilities: bool) -> Iterator[Callable[[list[Answer]], None]]:
    """The output; each block is flushed, so that a pipe sees answers immediately."""
    from owlmine.exchange.answers import csv_lines, json_lines, new_file

    lines, shown = (
        (partial(csv_lines, probabilities=probabilities), visible) if format == "csv" else (json_lines, visible_json)
    )
    on_terminal = out is None and sys.stdout.isatty()
    if out is None:
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    with nullcontext(sys.stdout) if out is None else new_file(out) as file:
        console = Terminal(file=file, width=None if out is None else _FILE_WIDTH)

        def write(answers: list[Answer]) -> None:
            if format == "table":
                _print_answers(console, answers)
            else:
                file.write(shown(lines(answers)) if on_terminal else lines(answers))
            file.flush()

        yield write


def _print_answers(console: Console, answers: list[Answer]) -> None:
    for answer in answers:
        text = " ".join((answer.text or "").split())
        number = f"{answer.number}" if answer.id is None else f"{answer.number} {answer.id}"
        console.print(
            f"[bold]{literal(number)}[/]  {literal(text)}", no_wrap=True, overflow="ellipsis", highlight=False
        )
        if not answer.classes:
            why = "no class is probable enough" if answer.known else "no feature known to the model"
            console.print(f"   {why}", style="dim")
            continue
        console.print(_table(answer))


def _table(answer: Answer) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(justify="right", no_wrap=True, min_width=5)
    table.add_column(no_wrap=True, min_width=_BAR_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
    best = max(answer.classes[0].score, 1e-9)
    for found in answer.classes:
        length = round(_BAR_WIDTH * min(max(found.score / best, 0.0), 1.0))
        name = "" if found.name == found.key else found.key
        figures = f"{found.score:.3f}" if found.probability is None else f"{found.score:.3f} {found.probability:4.0%}"
        table.add_row(figures, f"[cyan]{'━' * length}[/]", literal(found.name), literal(name))
    return table
