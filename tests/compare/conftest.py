"""A small dataset, a budget that takes a second, and one comparison that the tests of files and pages share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from owlmine.compare.comparison import Request, run_comparison
from owlmine.compare.options import CompareOptions
from owlmine.data import Store, convert
from owlmine.dense.progress import SilentReporter
from tests.conftest import write_points

OPTIONS = CompareOptions(
    methods="top-1,negative-sampling,sampled-softmax",
    epochs=2.0,
    dim=8,
    batch_size=32,
    pool=10,
    validation=0.2,
    device="cpu",
    search_runs=3,
    search_share=0.5,
    seeds=2,
)


class Heard:
    """Remembers what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.ended: list[str] = []

    @contextmanager
    def running(self, title: str) -> Iterator[SilentReporter]:
        del title
        yield SilentReporter()

    def done(self, text: str) -> None:
        self.ended.append(text)

    def message(self, text: str) -> None:
        self.messages.append(text)


def compare(store: Store, out: Path, options: CompareOptions = OPTIONS) -> tuple[dict[str, Any], Heard]:
    heard = Heard()
    return run_comparison(store, Request("my-data", out), options, heard), heard


def records(out: Path) -> dict[str, dict[str, Any]]:
    """What lies in the folder of runs."""
    return {file.name: json.loads(file.read_text("utf-8")) for file in sorted((out / "runs").iterdir())}


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("compare") / "files"
    folder.mkdir()
    write_points(folder / "train.txt", 200)
    write_points(folder / "test.txt", 60)
    return convert(folder, folder.parent / "store")


@pytest.fixture(scope="session")
def compared(small_store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Heard]:
    """A finished comparison: its folder, its results, what was said."""
    out = tmp_path_factory.mktemp("compared") / "out"
    return out, *compare(small_store, out)
