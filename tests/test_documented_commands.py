"""What the README and the docs tell people to run, run. Blocks under ``<!-- run -->`` are meant.

A block that follows under ``<!-- prints -->`` is what the code prints at its end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import write_points

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(
    r"<!-- run -->\n```(python|bash|)\n(.*?)```\n(?:\n<!-- prints -->\n```(?:text)?\n(.*?)```)?", re.DOTALL
)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCKS = [
    pytest.param(kind, code, printed, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (kind, code, printed) in enumerate(_BLOCK.findall(page.read_text()), 1)
]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """An empty folder with a dataset called ``my-data``, and ``owlmine`` on the path."""
    data = tmp_path / "my-data"
    data.mkdir()
    write_points(data / "train.txt", 200)
    write_points(data / "test.txt", 60)
    command = tmp_path / "bin" / "owlmine"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m owlmine "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("kind", "code", "printed"), BLOCKS)
def test_block_runs(kind: str, code: str, printed: str, workplace: Path) -> None:
    command = [sys.executable, "-c", code] if kind == "python" else ["bash", "-euc", code]
    environment = os.environ | {"PATH": f"{workplace / 'bin'}:{os.environ['PATH']}", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        command, cwd=workplace, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.endswith(printed), f"{code}\nprinted\n{done.stdout}\nnot\n{printed}"


def test_every_page_is_found() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
