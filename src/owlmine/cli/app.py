"""The verbs put together, and what happens when one fails."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Annotated, NoReturn

import typer

import owlmine
from owlmine.cli.memory import told_of_memory
from owlmine.errors import OwlmineError

# Verb: module and function. A verb is imported when it is asked for, so that none waits for what only others need.
VERBS = {
    "data": "owlmine.cli.data:data_app",
    "train": "owlmine.cli.train:train_command",
    "evaluate": "owlmine.cli.evaluate:evaluate_command",
    "predict": "owlmine.cli.predict:predict_command",
    "add-classes": "owlmine.cli.add_classes:add_classes_command",
    "demo": "owlmine.cli.demo:demo_command",
    "compare": "owlmine.cli.compare:compare_command",
    "theory": "owlmine.cli.theory:theory_command",
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
    """Puts the verb that the arguments ask for into the app; all of them where they ask for none of them."""
    asked = [verb for verb in arguments[:1] if verb in VERBS]
    for verb in asked or VERBS:
        module, _, name = VERBS[verb].partition(":")
        command = getattr(import_module(module), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=verb)
        else:
            app.command(verb)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"owlmine {owlmine.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    del version


def main() -> None:
    """Runs the command line. What the user can mend ends with one clear line and exit status 2."""
    signal.signal(signal.SIGTERM, _terminated)
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
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except (MemoryError, RuntimeError) as error:
        if (told := told_of_memory(error, sys.argv[1:])) is None:
            raise
        _fail(told, 2)


def _fail(message: str, status: int) -> NoReturn:
    one_line = message.replace("\n", "\\n")  # names of files may hold anything
    print(f"owlmine: error: {one_line}", file=sys.stderr)
    sys.exit(status)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM as an exception, so that half-written output is removed on the way out."""
    del frame
    sys.exit(128 + number)
