"""Readers on thousands of damaged files: an error of ours, or rows that an independent reader sees too."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import pytest

from owlmine.data import ConvertOptions, SparseRows, convert
from owlmine.data.formats.block import Notes, PointReader
from owlmine.data.formats.tables import Columns
from owlmine.data.sources import find_source
from owlmine.errors import OwlmineError

from .formats.mutations import damaged, damaged_archive
from .formats.points import Dataset, Point
from .formats.slow_readers import SLOW_READERS, Rows
from .formats.writers import FORMATS, compress

CASES = int(os.environ.get("OWLMINE_FUZZ_CASES", "250"))
# Far above what a small file may need, far below what a number in it may claim.
MAX_GROWTH_KIB = 300 << 10
# Not a measure of speed: without it a reader that never ends would never be told.
HANG_S = 120
SPLITS = {
    "train": [
        Point({"0": 1.0, "2": 0.5}, {0: 1.0, 3: 0.25}, [1.0, 2.0, 3.0, 4.0], "a snowy owl, ähem"),
        Point({"2": 1.0}, {1: -2.5, 2: 1e-3}, [0.0, 0.5, 0.0, -1.0], 'the "barn" owl'),
        Point({}, {2: 4.0}, [1.0, 1.0, 1.0, 1.0], "no owl\nmine"),
        Point({"1": 2.0}, {}, [0.0, 0.0, 0.0, 0.0], ""),
    ],
    "test": [Point({"2": 1.0, "1": 1.0}, {3: 8.0}, [9.0, 0.0, 0.0, 0.0], "Owl; owl!")],
}


@pytest.fixture(autouse=True)
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No hang and no large allocation goes unnoticed."""

    def hung(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("a reader does not come to an end")

    monkeypatch.setattr(os, "fsync", lambda handle: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGALRM, hung)
    signal.alarm(HANG_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB


def read_rows(reader: PointReader) -> Rows:
    notes = Notes()
    rows: Rows = []
    for block in reader.blocks(notes):
        labels = block.labels
        keys = [
            str(key) for key in (labels.classes.tolist() if isinstance(labels.classes, np.ndarray) else labels.classes)
        ]
        weights = [1.0] * len(keys) if labels.weights is None else labels.weights.tolist()
        for row, (low, high) in enumerate(zip(labels.offsets[:-1].tolist(), labels.offsets[1:].tolist(), strict=True)):
            rows.append((dict(zip(keys[low:high], weights[low:high], strict=True)), query_of(block.queries, row)))
    stray = set(notes.stray_rows.within(0, len(rows)).tolist())
    return [row for place, row in enumerate(rows) if place not in stray]


def query_of(queries: Any, row: int) -> Any:
    if isinstance(queries, SparseRows):
        one = queries[row : row + 1]
        assert one.values is not None
        return dict(zip(one.indices.tolist(), one.values.tolist(), strict=True))
    return queries[row] if isinstance(queries, list) else queries[row].tolist()


def read_all(folder: Path) -> dict[str, Rows]:
    source = find_source(folder, format="auto", columns=Columns(), split_column=0)
    return {split: read_rows(reader) for split, reader in source.splits.items()}


def written(name: str, folder: Path) -> list[Path]:
    folder.mkdir()
    FORMATS[name].write(
        Dataset(FORMATS[name].kind, {split: list(rows) for split, rows in SPLITS.items()}, 4, 3), folder
    )
    return sorted(folder.iterdir())


def fuzz(name: str, folder: Path, files: list[Path], seed: int, num_cases: int) -> int:
    """Returns how many damaged files were read all the same."""
    good = {file: file.read_bytes() for file in files}
    whole, accepted = read_all(folder), 0
    for case in range(num_cases):
        random = Random(seed * 1_000_003 + case)
        victim = random.choice(files)
        inside = victim.suffix == ".npz" and random.random() < 0.7
        victim.write_bytes((damaged_archive if inside else damaged)(good[victim], random))
        try:
            found = read_all(folder)
        except OwlmineError as error:
            told = str(error)
            assert told.startswith(str(folder)), f"case {case}: {told}"
            assert "\n" not in told, f"case {case}: {told}"
        else:
            accepted += 1
            if found != whole:
                slow = {split: SLOW_READERS[name](folder, split) for split in found}
                assert found == slow, f"case {case}, {victim.name}: {victim.read_bytes()!r}"
        victim.write_bytes(good[victim])
    return accepted


@pytest.mark.parametrize("name", SLOW_READERS)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    files = written(name, tmp_path / "in")
    assert read_all(tmp_path / "in") == {split: SLOW_READERS[name](tmp_path / "in", split) for split in SPLITS}
    accepted = fuzz(name, tmp_path / "in", files, 1, CASES)
    assert 0 < accepted < CASES


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_damaged_compression(suffix: str, tmp_path: Path) -> None:
    files = []
    for file in written("old", tmp_path / "in"):
        files.append(file.with_name(file.name + suffix))
        files[-1].write_bytes(compress(file.read_bytes(), suffix))
        file.unlink()
    assert fuzz("old", tmp_path / "in", files, 2, CASES) < CASES


@pytest.mark.parametrize("beside", ["labels.tsv", "lbl.json", "Yf.txt", "filter_labels_test.txt", "Small_trSplit.txt"])
def test_damage_beside_the_splits(beside: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    written("split-index" if "Split" in beside else "old", folder)
    content = {
        "labels.tsv": b"0\tone owl\n2\ttwo owls\n",
        "lbl.json": b'{"uid": "a", "title": "one owl"}\n{"title": "\\u00e4"}\n{"title": ""}\n',
        "Yf.txt": b"3 4\n0:1 2:2\n\n3:1.5\n",
        "filter_labels_test.txt": b"0 2\n0 1\n",
    }.get(beside)
    if content is not None:
        (folder / beside).write_bytes(content)
    check_conversions(folder, [folder / beside], tmp_path, 3, CASES // 10)


@pytest.mark.parametrize("name", SLOW_READERS)
def test_damage_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    files = written(name, tmp_path / "in")
    check_conversions(tmp_path / "in", files, tmp_path, 4, CASES // 25)


def check_conversions(folder: Path, files: list[Path], tmp_path: Path, seed: int, num_cases: int) -> None:
    options = ConvertOptions(min_df=1, max_df=1.0, weighting="auto")
    for case in range(num_cases):
        random = Random(seed * 1_000_003 + case)
        victim = random.choice(files)
        good = victim.read_bytes()
        victim.write_bytes(damaged(good, random))
        out = tmp_path / f"out{case}"
        try:
            store = convert(folder, out, options)
        except OwlmineError as error:
            told = str(error)
            assert "\n" not in told, f"case {case}: {told}"
            assert not out.exists()
        else:
            assert store.verify() == []
            for split in store.splits:
                queries = store[split].batch(np.arange(len(store[split]))).queries
                values = queries.values if isinstance(queries, SparseRows) else queries
                assert values is not None
                assert np.isfinite(values).all(), f"case {case}"
        assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]
        victim.write_bytes(good)
