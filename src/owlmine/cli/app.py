"""The verbs put together, and what happens when one fails."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Annotated, NamedTuple, NoReturn

import typer

from owlmine.cli.memory import memory_message
from owlmine.cli.terminal import visible
from owlmine.errors import OwlmineError
from owlmine.extensions import announce_missing, describe_extensions
from owlmine.version import __version__


class Verb(NamedTuple):
    """Where a command is, and its line in the list of commands: the first paragraph of its own help."""

    module: str
    name: str
    summary: str


# A verb is imported when it is asked for, so that none waits for what only others need.
VERBS = {
    "data": Verb("owlmine.cli.data", "data_app", "Bring data in, look at it, check it."),
    "train": Verb("owlmine.cli.train", "train_command", "Train a model, and save it in a folder."),
    "evaluate": Verb(
        "owlmine.cli.evaluate",
        "evaluate_command",
        "Evaluate a model on a split: precision, recall, nDCG, propensity-scored figures, coverage.",
    ),
    "predict": Verb(
        "owlmine.cli.predict",
        "predict_command",
        "Retrieve the best classes for queries: texts or vectors in, one line of JSON per query out.",
    ),
    "models": Verb("owlmine.cli.models", "models_app", "Look after model folders."),
    "add-classes": Verb(
        "owlmine.cli.add_classes",
        "add_classes_command",
        "Add classes to a model from a few examples of each, or from their names, without training.",
    ),
    "demo": Verb(
        "owlmine.cli.demo",
        "demo_command",
        "Train on the embedded sample, compare with the paper's models, and write a report.",
    ),
    "compare": Verb(
        "owlmine.cli.compare",
        "compare_command",
        "Compare training methods on a dataset, each at its own best settings, and write a report.",
    ),
    "theory": Verb(
        "owlmine.cli.theory",
        "theory_command",
        "Compare Top-k' mining with negative sampling: the weights theta of the losses that they estimate.",
    ),
}

app = typer.Typer(
    name="owlmine",
    help="Learn to retrieve the most relevant of very many classes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def add_verbs(arguments: list[str]) -> None:
    """Puts every verb into the app: whole the one that the arguments ask for, the others by name and summary."""
    # No option that stands before a verb takes a value.
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    if asked in VERBS and "--help" not in arguments:
        announce_missing()
    for verb, (module, name, summary) in VERBS.items():
        command = getattr(import_module(module), name) if verb == asked else _not_asked
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=verb)
        else:
            app.command(verb, help=summary if verb != asked else None)(command)


def _not_asked() -> None:
    raise AssertionError("a verb runs that was not imported")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"owlmine {__version__}\n{describe_extensions()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and which compiled parts are there.",
        ),
    ] = False,
) -> None:
    del version


class _Interrupted(SystemExit):
    """By a signal."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(128 + number)


def main() -> None:
    """Runs the command line. What the user can fix ends with one clear line and exit status 2."""
    signal.signal(signal.SIGTERM, _interrupted)
    # Where a shell lets a command in the background ignore SIGINT, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    # Names of files may be no UTF-8; they are printed as the bytes that they are.
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    try:
        _run_verb()
    except BrokenPipeError:
        _nobody_reads()
    except SystemExit as end:
        # typer and rich make status 1 of a reader that went away.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _nobody_reads()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _discard_output()
        _fail(f"output cannot be written: {error.strerror}", 2)


def _nobody_reads() -> NoReturn:
    """The reader of our output went away (`| head`): ends as SIGPIPE would have, which Python ignores."""
    _discard_output()
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _discard_output() -> None:
    """What is still buffered goes nowhere, instead of failing once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_verb() -> None:
    try:
        add_verbs(sys.argv[1:])
        app()
    except OwlmineError as error:
        # A run that was stopped by a signal ends as the signal would have ended it.
        _fail(str(error), 128 + error.signal if error.signal else 2)
    except _Interrupted as end:
        _fail("interrupted", 128 + end.number)
    except (MemoryError, RuntimeError) as error:
        if (message := memory_message(error, sys.argv[1:])) is None:
            raise
        _fail(message, 2)


def _fail(message: str, status: int) -> NoReturn:
    one_line = visible(message).replace("\n", "\\n")  # names of files may hold anything
    print(f"owlmine: error: {one_line}", file=sys.stderr)
    sys.exit(status)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """A signal as an exception, so that half-written output is removed on the way out. Not KeyboardInterrupt, of which
    typer makes an end without a word."""
    del frame
    raise _Interrupted(number)
