"""Puts the commands together, and reports their errors."""

from __future__ import annotations

import errno
import inspect
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Annotated, NamedTuple, NoReturn

import typer
from rich.markup import escape

from owlmine.cli.memory import memory_message
from owlmine.cli.terminal import visible
from owlmine.errors import OwlmineError
from owlmine.extensions import announce_missing, describe_extensions
from owlmine.version import __version__


class Verb(NamedTuple):
    """The module of a command, and its line in the list of commands: the first paragraph of its own help."""

    module: str
    name: str
    summary: str


# A verb is imported on demand, so that no command loads what only others need.
VERBS = {
    "data": Verb("owlmine.cli.data", "data_app", "Convert, describe, verify and synthesize datasets."),
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
    "index": Verb(
        "owlmine.cli.index",
        "index_command",
        "Build an approximate index of a model's classes, and measure its recall and speed.",
    ),
    "serve": Verb("owlmine.cli.serve", "serve_command", "Serve models over HTTP, with a page for people."),
    "models": Verb("owlmine.cli.models", "models_app", "Verify model folders."),
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
        "Compare the weights theta of Top-k' mining and negative sampling, before any training.",
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
    """Adds every verb to the app: the requested one in full, the others by name and summary."""
    # No option before a verb takes a value.
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    if asked in VERBS and "--help" not in arguments:
        announce_missing()
    for verb, (module, name, summary) in VERBS.items():
        command = getattr(import_module(module), name) if verb == asked else _not_asked
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=verb)
        else:
            app.command(verb, help=_help_of(command) if verb == asked else summary)(command)


def _help_of(command: Callable[..., None]) -> str:
    """Its docstring, with a line per paragraph; square brackets are not markup."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return escape("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))


def _not_asked() -> None:
    raise AssertionError("a command ran that was not imported")


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
            help="Show the version and the compiled parts.",
        ),
    ] = False,
) -> None:
    del version


class _Interrupted(SystemExit):
    """Ended by a signal."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(128 + number)


def main() -> None:
    """Runs the command line. Errors that the user can fix end with one clear line and exit status 2."""
    signal.signal(signal.SIGTERM, _interrupted)
    # If the shell made a background command ignore SIGINT, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    # File names need not be UTF-8; they are printed as raw bytes.
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    try:
        _run_verb()
    except BrokenPipeError:
        _exit_on_broken_pipe()
    except SystemExit as end:
        # typer and rich turn a broken pipe into status 1.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _exit_on_broken_pipe()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _discard_output()
        _fail(f"output cannot be written: {error.strerror}", 2)


def _exit_on_broken_pipe() -> NoReturn:
    """Exits as if by SIGPIPE, which Python ignores: the reader of our output is gone (`| head`)."""
    _discard_output()
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _discard_output() -> None:
    """Discards buffered output, which would fail again when the interpreter exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_verb() -> None:
    try:
        add_verbs(sys.argv[1:])
        app()
    except OwlmineError as error:
        # A run that was stopped by a signal exits with the status of that signal.
        _fail(str(error), 128 + error.signal if error.signal else 2)
    except _Interrupted as end:
        _fail("interrupted", 128 + end.number)
    except (MemoryError, RuntimeError) as error:
        if (message := memory_message(error, sys.argv[1:])) is None:
            raise
        _fail(message, 2)


def _fail(message: str, status: int) -> NoReturn:
    one_line = visible(message).replace("\n", "\\n")  # file names may contain anything
    print(f"owlmine: error: {one_line}", file=sys.stderr)
    sys.exit(status)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """Turns a signal into an exception, so that half-written output is removed on the way out. Not KeyboardInterrupt,
    on which typer exits without a message."""
    del frame
    raise _Interrupted(number)
