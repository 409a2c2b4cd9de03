"""The study's scripts, which import each other by name as scripts do, and a small dataset for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from owlmine.data import Store, convert

PAPER = Path(__file__).parents[2] / "benchmarks" / "paper"
sys.path.insert(0, str(PAPER))


@pytest.fixture
def small_store(small_folder: Path, tmp_path: Path) -> Store:
    return convert(small_folder, tmp_path / "store")
