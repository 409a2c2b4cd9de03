"""Memory follows what a file holds: blank lines cost nothing, and a number costs the same however large it is."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from owlmine.data import ConvertOptions, Store, convert
from owlmine.data import class_keys as number_counts
from owlmine.data.class_keys import NumberCounts
from owlmine.data.formats.block import RowRuns

MIB = 1 << 20
NUM_BLANK = 16 * MIB
POINTS = {
    "train.svm": b"1 1:1\n\n2 2:2\n",
    "train.txt": b"2 4 3\n0 0:1\n\n1 1:2\n",
}
EVERY_TOKEN = ConvertOptions(min_df=1, max_df=1.0, weighting="none")


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", POINTS)
def test_blank_lines_cost_nothing(name: str, tmp_path: Path) -> None:
    convert(_written(tmp_path / "small", name, POINTS[name]), tmp_path / "first", EVERY_TOKEN)  # pays for imports
    folder = _written(tmp_path / "in", name, POINTS[name] + b"\n" * NUM_BLANK)
    # Blocks of 8 MiB are read, and some tens of bytes made of each of the 256 Ki lines of a part; a number for each
    # blank line would take 128 MiB, and the arrays of a whole block 200.
    assert peak_bytes(lambda: convert(folder, tmp_path / "out", EVERY_TOKEN)) < 80 * MIB
    split = Store.open(tmp_path / "out").meta["splits"]["train"]
    assert split["points"] == split["points_read"] == 2
    assert split["accepted"]["blank_lines"] == NUM_BLANK + 1


@pytest.mark.parametrize(
    ("name", "content", "keys"),
    [
        ("train.txt", "2 4 2147483648\n2147483647 0:1\n5 1:1.5\n", ["5", "2147483647"]),
        ("train.txt", "2 4 134217728\n134217727,0 0:1\n5 1:1.5\n", ["0", "5", "134217727"]),
        ("train.svm", "7 134217727:1\n9 1:1.5\n", ["7", "9"]),
    ],
)
def test_large_numbers_cost_what_small_ones_do(name: str, content: str, keys: list[str], tmp_path: Path) -> None:
    convert(_written(tmp_path / "small", "train.svm", POINTS["train.svm"]), tmp_path / "first", EVERY_TOKEN)
    folder = _written(tmp_path / "in", name, content.encode())
    # Small numbers have a table of 32 MiB; one by the largest number here would take a hundred or more.
    assert peak_bytes(lambda: convert(folder, tmp_path / "out", EVERY_TOKEN)) < 80 * MIB
    assert list(Store.open(tmp_path / "out").class_keys) == keys


def _written(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir()
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("table_size", [1, 64, 10**6])
def test_counts_are_those_of_a_counter(table_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_counts, "_TABLE_SIZE", table_size)
    monkeypatch.setattr(number_counts, "_PENDING", 5)
    random = np.random.default_rng(0)
    for largest in (3, 100, 10**5, 2**31):
        counts, wanted = NumberCounts(), Counter[int]()
        for size in (0, 1, 9, 200, 3, 0, 50):
            numbers = random.integers(largest, size=size)
            counts.add(numbers)
            wanted.update(numbers.tolist())
            ordered = sorted(wanted)
            assert counts.numbers.tolist() == ordered
            assert counts.counts.tolist() == [wanted[number] for number in ordered]
            asked = np.concatenate([counts.numbers, random.integers(largest, size=20)])
            places = {number: place for place, number in enumerate(ordered)}
            assert counts.ranks(asked).tolist() == [places.get(number, -1) for number in asked.tolist()]


def test_runs_are_the_rows_that_were_added() -> None:
    random = np.random.default_rng(0)
    for share in (0.02, 0.5, 0.98, 1.0):
        chosen = np.flatnonzero(random.random(300) < share)
        runs = RowRuns()
        for part in np.array_split(chosen, 7):
            runs.add(part)
        assert len(runs) == len(chosen)
        for start, stop in random.integers(310, size=(50, 2)):
            inside = chosen[(chosen >= start) & (chosen < stop)]
            assert runs.within(int(start), max(int(start), int(stop))).tolist() == (inside - start).tolist()
