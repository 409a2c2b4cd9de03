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
from rich.padding import Padding
from rich.table import Table

from owlmine.cli.answer_progress import AnswerProgress
from owlmine.cli.model_options import DeviceOption, ExactOption, ModelArgument, ShareBar, TailOption, open_model
from owlmine.cli.options import with_options
from owlmine.cli.reasons import reasons_table
from owlmine.cli.terminal import Terminal, literal, visible, visible_json
from owlmine.errors import OwlmineError
from owlmine.exchange.choices import DEFAULT_K
from owlmine.exchange.queries import QueryOptions
from owlmine.files import check_new_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from owlmine.exchange.answer_file import AnswerTask
    from owlmine.exchange.answers import Answer
    from owlmine.exchange.part_folder import Tally
    from owlmine.model import Model, Prediction

_FORMATS = ("jsonl", "csv", "parquet", "table")
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
        int | None, typer.Option("--k", "-k", help="Number of classes per query.", show_default=str(DEFAULT_K))
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
            "--format",
            help="Answer format: jsonl, csv, parquet (a file only) or table.",
            show_default="by the name of FILE; table on a terminal, else jsonl",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write answers to this file, whole or not at all; must not exist. Its name may end in .jsonl, .csv or"
            " .parquet, and the first two in .gz, .xz or .zst in addition.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue where a killed command with the same arguments ended.")
    ] = False,
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
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Say why each class is in the answer: the parts of its score, words, voters."),
    ] = False,
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

    With --out, unfinished answers are kept in FILE.part. If the command is killed or the disk is full, the same command
    with --resume continues there.
    """
    from owlmine.exchange.answer_file import AnswerTask
    from owlmine.exchange.choices import chosen_classes, chosen_count, least_probability

    _check_output(out, format, source, resume=resume, explain=explain)
    if source == "-" and split is not None:
        raise OwlmineError(f"standard input has no splits; leave out --split {split}")
    predictor = open_model(model, device, exact=exact)
    only = chosen_classes(predictor, classes, allowed, forbidden)
    count = chosen_count(predictor, only, k, all_chosen=classes is not None)
    least, explanation = least_probability(predictor, at_least, precision)
    if explanation:
        typer.echo(explanation, err=True)
    if source == "-" and sys.stdin.isatty():
        name = "text" if options.input_format == "auto" else options.input_format
        typer.echo(f"One query per line ({name}); Ctrl-D ends.", err=True)
    place = sys.stdin.buffer if source == "-" else Path(source)
    task = AnswerTask(model, place, count, split, options, only, least, tail)
    if out is None or format == "table" or explain:
        format = format or ("table" if out is None and sys.stdout.isatty() else "jsonl")
        tally = _show(predictor, task, out, format, explain=explain)
    else:
        tally = _write(predictor, task, out, format, resume=resume)
    _report(tally, count, least)


def _check_output(out: Path | None, format: str | None, source: str, *, resume: bool, explain: bool) -> None:
    """Before the model is read, which can take a while."""
    from owlmine.exchange.answer_forms import AnswerForm, form_of
    from owlmine.exchange.part_folder import check_output

    if format is not None and format not in _FORMATS:
        raise OwlmineError(f"--format is {format!r}; wanted {', '.join(_FORMATS)}")
    if explain and format not in (None, "jsonl", "table"):
        raise OwlmineError(f"--explain has no place in {format}; wanted --format jsonl or table")
    if explain and out is not None and format != "table" and form_of(format, out) != AnswerForm("jsonl"):
        raise OwlmineError(f"{out}: --explain has no place in this form of file; wanted plain jsonl, or --format table")
    if resume and (out is None or format == "table" or source == "-" or explain):
        what = "standard input" if source == "-" else "a table" if format == "table" else "an answer without --out FILE"
        what = "an answer with --explain" if explain else what
        raise OwlmineError(f"--resume: {what} cannot be resumed; wanted files as INPUT and --out, and no table")
    if out is None:
        if format == "parquet":
            raise OwlmineError("--format parquet needs --out FILE")
    elif format == "table" or explain:
        check_new_file(out)
    else:
        form_of(format, out).check(out)
        check_output(out, resume=resume)


def _write(predictor: Model, task: AnswerTask, out: Path, format: str | None, *, resume: bool) -> Tally:
    """Into a file, with progress."""
    from owlmine.exchange.answer_file import answer_into_file
    from owlmine.exchange.answer_forms import form_of
    from owlmine.exchange.part_folder import num_unfinished

    try:
        with AnswerProgress() as progress:
            return answer_into_file(predictor, task, out, form_of(format, out), resume=resume, progress=progress)
    except BaseException:
        if answered := num_unfinished(out):
            typer.echo(f"{answered:,} queries have been answered; continue with --resume", err=True)
        raise


def _show(predictor: Model, task: AnswerTask, out: Path | None, format: str, *, explain: bool) -> Tally:
    """As they come, to the terminal or a pipe; or into a file that is not resumed: a table, or with reasons."""
    from owlmine.exchange.answer_file import with_answers
    from owlmine.exchange.answers import answer
    from owlmine.exchange.part_folder import Tally

    blocks = answer(
        predictor,
        task.queries(predictor),
        task.k,
        only=task.only,
        at_least=task.at_least,
        tail=task.tail,
        with_reasons=explain,
    )
    tally, probabilities = Tally(), predictor.record.calibration is not None
    with ShareBar("answering", shown=out is not None) as bar, _sink(out, format, probabilities=probabilities) as write:
        for block in blocks:
            write(block.answers)
            bar.update(block.progress)
            tally = with_answers(tally, block.answers)
    return tally


def _report(tally: Tally, count: int, least: float) -> None:
    num_queries, unknown = tally.queries, tally.unknown
    if unknown:
        typer.echo(
            f"{unknown:,} of {num_queries:,} queries have no feature that the model knows; their answers are empty",
            err=True,
        )
    if least and num_queries > unknown:
        share = tally.predictions / (count * (num_queries - unknown))
        typer.echo(
            f"kept {share:.1%} of the predictions; no class is probable enough for {tally.without_class:,} of"
            f" {num_queries:,} queries",
            err=True,
        )


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
        elif answer.reasons is None:
            console.print(_table(answer, answer.classes))
        else:
            for found, reasons in zip(answer.classes, answer.reasons, strict=True):
                console.print(_table(answer, [found]))
                console.print(Padding(reasons_table(reasons, answer.text), (0, 0, 1, 2)))


def _table(answer: Answer, classes: list[Prediction]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(justify="right", no_wrap=True, min_width=5)
    table.add_column(no_wrap=True, min_width=_BAR_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
    best = max(answer.classes[0].score, 1e-9)
    for found in classes:
        length = round(_BAR_WIDTH * min(max(found.score / best, 0.0), 1.0))
        name = "" if found.name == found.key else found.key
        figures = f"{found.score:.3f}" if found.probability is None else f"{found.score:.3f} {found.probability:4.0%}"
        table.add_row(figures, f"[cyan]{'━' * length}[/]", literal(found.name), literal(name))
    return table
