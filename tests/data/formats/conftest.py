"""What the tests of the formats share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from owlmine.data import ConvertOptions, Store, convert

Convert = Callable[..., Store]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut is not what these tests are about."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def converted(tmp_path: Path) -> Convert:
    """Converts files given by name (or splits in memory) without weighting, every token kept."""

    def run(given: dict[str, Any], **options: Any) -> Store:
        chosen = ConvertOptions(**{"weighting": "none", "min_df": 1, "max_df": 1.0, **options})
        number = len(list(tmp_path.iterdir()))
        if not all(isinstance(content, str | bytes) for content in given.values()):
            return convert(given, tmp_path / f"out{number}", chosen)
        folder = tmp_path / f"in{number}"
        folder.mkdir()
        for name, content in given.items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return convert(folder, tmp_path / f"out{number}", chosen)

    return run
