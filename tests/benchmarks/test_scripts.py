"""Every benchmark can be imported, and says what it is for. What they measure is not measured here."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Workers of other tools run in environments of their own, where those are installed.
FILES = sorted(file for file in BENCHMARKS.rglob("*.py") if not file.name.startswith("peer_"))
SCRIPTS = [file for file in FILES if '__name__ == "__main__"' in file.read_text("utf-8")]
NEEDS_TRITON = {"gpu", "gpu_checks", "gpu_gather", "gpu_steps", "gpu_table", "gpu_accuracy"}


@pytest.fixture(autouse=True)
def found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import each other by name; those of the study are on the path already."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def name_of(file: Path) -> str:
    return file.relative_to(BENCHMARKS).as_posix()


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports(file: Path) -> None:
    if file.stem in NEEDS_TRITON:
        pytest.importorskip("triton")
    assert Path(str(importlib.import_module(file.stem).__file__)) == file


@pytest.mark.parametrize("file", SCRIPTS, ids=name_of)
def test_help(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if file.stem in NEEDS_TRITON:
        pytest.importorskip("triton")
    monkeypatch.setattr(sys, "argv", [str(file), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file), run_name="__main__")
    assert ended.value.code == 0
    # Its own description, as far as argparse shows it.
    assert f"python benchmarks/{name_of(file)}" in capsys.readouterr().out


def test_scripts_are_found() -> None:
    assert {"accuracy", "gpu", "study", "write_docs"} <= {file.stem for file in SCRIPTS}
