"""What it takes to say hello: the version and the list of verbs, without the libraries that do the work."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from inspect import getdoc

import pytest
import typer

from owlmine.cli.app import VERBS

from ..conftest import Command

_MODULES = """
import sys
from owlmine.cli import main
sys.argv = ["owlmine", *sys.argv[1:]]
try:
    main()
finally:
    print(*(name for name in ("torch", "scipy", "numpy", "matplotlib") if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        ("--version", ""),
        ("--help", ""),
        ("", ""),
        ("theory --help", ""),
        ("data --help", "scipy numpy"),
    ],
)
def test_what_needs_no_model_does_not_load_torch(arguments: str, loaded: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MODULES, *arguments.split()], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr.split("\n")[-2] == loaded


def test_importing_the_package_loads_no_library() -> None:
    code = "import sys, owlmine; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


def test_the_list_says_of_a_verb_what_its_own_help_says() -> None:
    for module, name, summary in VERBS.values():
        command = getattr(import_module(module), name)
        own = command.info.help if isinstance(command, typer.Typer) else getdoc(command)
        assert " ".join(own.split("\n\n")[0].split()) == summary


def test_options_before_a_verb(owlmine_command: Command) -> None:
    """``--help`` in front is the list; an option that there is not is an error whatever follows."""
    listed = owlmine_command("--help", "train")
    assert listed.returncode == 0
    assert all(verb in listed.stdout for verb in VERBS)
    assert owlmine_command("--nonsense", "train").returncode == 2
    assert owlmine_command("nonsense").returncode == 2
