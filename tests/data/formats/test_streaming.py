"""A file three times as long needs no more memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from scipy import sparse

from owlmine import files
from owlmine.data import ConvertOptions, convert, ingest, streams
from owlmine.data.formats import array_files, block, tables

NUM_POINTS = 1500
ANY_TOKEN = ConvertOptions(min_df=1, max_df=1.0)
# Few tokens of many letters: it is the bytes that could pile up.
WORDS = " ".join(letter * 100 for letter in "abcdef")


def write_old(folder: Path, num_points: int) -> None:
    line = "3,5 " + " ".join(f"{index}:0.25" for index in range(80)) + "\n"
    (folder / "train.txt").write_text(f"{num_points} 80 6\n" + line * num_points)


def write_svmlight(folder: Path, num_points: int) -> None:
    line = "3,5 " + " ".join(f"{index}:0.25" for index in range(80)) + "\n"
    (folder / "train.svm").write_text(line * num_points)


def write_jsonl(folder: Path, num_points: int) -> None:
    line = json.dumps({"text": WORDS, "labels": ["x", "y"]}) + "\n"
    (folder / "train.jsonl").write_text(line * num_points)


def write_csv(folder: Path, num_points: int) -> None:
    (folder / "train.csv").write_text("text,labels\n" + f"{WORDS},x;y\n" * num_points)


def write_parquet(folder: Path, num_points: int) -> None:
    columns = {"text": [WORDS] * num_points, "labels": [["x", "y"]] * num_points}
    pq.write_table(pa.table(columns), folder / "train.parquet", row_group_size=200, use_dictionary=False)


def write_npz(folder: Path, num_points: int) -> None:
    sparse.save_npz(folder / "X.trn.npz", sparse.csr_matrix(np.ones((num_points, 80), np.float32)))
    sparse.save_npz(folder / "Y.trn.npz", sparse.csr_matrix(np.ones((num_points, 2), np.float32)))


def write_npy(folder: Path, num_points: int) -> None:
    np.save(folder / "train.npy", np.ones((num_points, 100), np.float32))
    np.save(folder / "train.labels.npy", np.zeros(num_points, np.int64))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in proportion to the files of this test, so that it need not write gigabytes."""
    monkeypatch.setattr(streams, "BLOCK_BYTES", 1 << 14)
    for module in (array_files, block):
        monkeypatch.setattr(module, "BLOCK_ROWS", 50)
    monkeypatch.setattr(tables, "_BLOCK_ROWS", 50)
    monkeypatch.setattr(ingest, "_PIECE_ROWS", 50)
    monkeypatch.setattr(files, "_READ_BYTES", 1 << 14)


def peak_bytes(source: Path, out: Path) -> int:
    tracemalloc.start()
    try:
        convert(source, out, ANY_TOKEN)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "write", [write_old, write_svmlight, write_jsonl, write_csv, write_parquet, write_npz, write_npy]
)
def test_memory_does_not_grow_with_the_file(write: Callable[[Path, int], None], tmp_path: Path) -> None:
    peaks = []
    for place, num_points in enumerate((1, NUM_POINTS, 3 * NUM_POINTS)):
        folder = tmp_path / f"in{place}"
        folder.mkdir()
        write(folder, num_points)
        if num_points == 1:  # pays for imports
            convert(folder, tmp_path / "first", ANY_TOKEN)
        else:
            peaks.append(peak_bytes(folder, tmp_path / f"out{place}"))
    # Each point may leave a few bytes behind (which rows were kept), where its features take hundreds.
    assert peaks[1] - peaks[0] < 2 * NUM_POINTS * 40
