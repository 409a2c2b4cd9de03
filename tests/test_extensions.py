"""What is said of compiled parts that were not built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import owlmine
from owlmine.extensions import EXTENSIONS, missing_extensions

NOTE = "9 of 9 compiled parts are missing, so work on a CPU is up to 18 times slower. Install a C compiler"


@pytest.fixture(scope="module")
def without_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's Python files in a folder to import from."""
    folder = tmp_path_factory.mktemp("plain")
    ignore = shutil.ignore_patterns(*(f"*{suffix}" for suffix in EXTENSION_SUFFIXES), "__pycache__")
    shutil.copytree(Path(owlmine.__file__).parent, folder / "owlmine", ignore=ignore)
    return folder


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=True
    )


def test_the_version_names_the_parts_that_are_missing(without_parts: Path) -> None:
    version, parts, note = _run(without_parts, "-m", "owlmine", "--version").stdout.splitlines()
    assert version == f"owlmine {owlmine.__version__}"
    assert parts == f"compiled parts: none; missing: {', '.join(name.removeprefix('owlmine.') for name in EXTENSIONS)}"
    assert note.startswith(NOTE)


def test_a_command_says_once_that_parts_are_missing(without_parts: Path) -> None:
    done = _run(without_parts, "-m", "owlmine", "theory", "--classes", "100", "--pool", "10")
    assert done.stderr.count("compiled parts are missing") == 1
    assert done.stderr.startswith(f"owlmine: note: {NOTE}")
    assert "compiled" not in done.stdout
    assert _run(without_parts, "-m", "owlmine", "theory", "--help").stderr == ""


def test_python_is_warned_once(without_parts: Path) -> None:
    code = "from owlmine.extensions import *; [load_extension(name) for name in EXTENSIONS]"
    assert _run(without_parts, "-c", code).stderr.count(f"RuntimeWarning: {NOTE}") == 1


def test_parts_that_cannot_be_loaded_are_missing(tmp_path: Path) -> None:
    shutil.copytree(Path(owlmine.__file__).parent, tmp_path / "owlmine")
    for name in EXTENSIONS:
        stem = tmp_path.joinpath(*name.split("."))
        for suffix in EXTENSION_SUFFIXES:
            stem.with_name(stem.name + suffix).write_text("not a library")
    assert _run(tmp_path, "-m", "owlmine", "--version").stdout.splitlines()[1].startswith("compiled parts: none")


@pytest.mark.skipif(bool(missing_extensions()), reason="installed without a compiler")
def test_nothing_is_said_where_every_part_is_there() -> None:
    source = Path(owlmine.__file__).parent.parent
    parts = _run(source, "-m", "owlmine", "--version").stdout.splitlines()[1]
    assert "missing" not in parts
    assert parts.count("_") == len(EXTENSIONS) + 2  # _sparse_text and _coded_rows have two.
    assert _run(source, "-m", "owlmine", "theory", "--classes", "100", "--pool", "10").stderr == ""
