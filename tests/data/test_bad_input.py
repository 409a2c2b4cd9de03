"""Whatever is wrong with a file, the user gets one line that names it, and nothing is left on the disk."""

from __future__ import annotations

import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from owlmine.data import ConvertOptions, convert
from owlmine.errors import DataError, OwlmineError

from ..conftest import Command
from .formats.bad_files import CASES, GOOD, Files, lying_npy, npz, old, pecos, raw_npz

ANY_TOKEN = ConvertOptions(min_df=1, max_df=1.0)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def long_line(path: Path, head: bytes, piece: bytes) -> None:
    """A hundred million bytes without a newline, a hundred thousand on the disk."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head)
        for _ in range(100):
            file.write(piece * (1_000_000 // len(piece)))


LONG: dict[str, Callable[[Path], None]] = {
    "a line of 100 MB": lambda folder: long_line(folder / "train.txt.gz", b"1 4 3\n0", b" 0:1"),
    "a text of 100 MB": lambda folder: long_line(folder / "train.jsonl.gz", b'{"text": "', b"owl "),
}


def lay_out(name: str, folder: Path) -> None:
    folder.mkdir()
    for file, content in CASES[name][0].items():
        (folder / file).write_bytes(content)
    if name in LONG:
        LONG[name](folder)


@pytest.mark.parametrize("name", CASES)
def test_bad_files_are_told_and_leave_nothing(name: str, tmp_path: Path) -> None:
    lay_out(name, tmp_path / "in")
    _, blamed, line, told = CASES[name]
    with pytest.raises(DataError) as caught:
        convert(tmp_path / "in", tmp_path / "out", ANY_TOKEN)
    place = f"{tmp_path / 'in' / blamed}" + (f", line {line}" if line is not None else "")
    message = str(caught.value)
    assert message.startswith(f"{place}: found "), message
    assert told in message
    assert "\n" not in message
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


COMMAND_CASES = ["class too large", "gz cut", "npz cut", "parquet cut", "deep JSON", "a line of 100 MB"]


@pytest.mark.parametrize("name", COMMAND_CASES)
def test_the_command_ends_with_one_line(name: str, tmp_path: Path, owlmine_command: Command) -> None:
    lay_out(name, tmp_path / "in")
    done = owlmine_command("data", "convert", "in", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("owlmine: error: in/")
    assert CASES[name][3] in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.mkdir(), "found files none; wanted train"),
        (lambda path: None, "found no such file or folder"),
        (os.mkfifo, "wanted a folder, or --format"),
        (lambda path: path.symlink_to(path), "no such file|cannot be read"),
        (lambda path: (path / "train.txt").mkdir(parents=True), "found files none"),
        (lambda path: path.write_bytes(b"MZ"), "found a file ending in .in; wanted a folder, or --format"),
    ],
    ids=["empty folder", "nothing", "pipe", "symlink to itself", "folder called train.txt", "unknown ending"],
)
def test_sources_that_are_no_dataset(make: Callable[[Path], object], told: str, tmp_path: Path) -> None:
    make(tmp_path / "in")
    with pytest.raises(OwlmineError, match=told):
        convert(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_files(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_bytes(GOOD)
    file.chmod(0)
    with pytest.raises(OwlmineError, match=r"train\.txt: cannot be read: Permission denied"):
        convert(file, tmp_path / "out")


@pytest.mark.parametrize("form", ["pairs", "split-index"])
def test_a_format_that_the_files_do_not_have(form: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "train.owl").write_bytes(GOOD)
    for source in (tmp_path / "in", tmp_path / "in" / "train.owl"):
        with pytest.raises(DataError, match="wanted"):
            convert(source, tmp_path / "out", ConvertOptions(format=form))


@pytest.mark.parametrize(
    ("files", "options", "told"),
    [
        (old("1 2147483648 2147483648\n2147483647 2147483647:1.5\n"), ConvertOptions(), None),
        (old("1 2147483648 3\n0 2147483647:1\n"), ConvertOptions(), "at most 134,217,728 for TF-IDF"),
        (old("1 2147483648 3\n0 2147483647:1\n"), ConvertOptions(weighting="none"), None),
        ({"train.svm": b"2147483647 2147483647:1\n"}, ConvertOptions(weighting="none"), None),
        ({"train.svm": b"2147483647 2147483647:1\n"}, ConvertOptions(), "found 2,147,483,647 features"),
        (
            pecos(npz(shape=np.array([2, 2**31])), npz(shape=np.array([2, 2**31]))),
            ConvertOptions(weighting="none"),
            None,
        ),
        (
            {"a_data.txt": b"1000000000000 4 3\n0 0:1\n", "a_trSplit.txt": b"999999999999\n", "a_tstSplit.txt": b"1\n"},
            ConvertOptions(),
            "found 1 points; wanted the 1,000,000,000,000",
        ),
    ],
    ids=["classes", "counts", "values", "svmlight", "svmlight counts", "npz", "points"],
)
def test_large_claims_cost_no_memory(files: Files, options: ConvertOptions, told: str | None, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, content in files.items():
        (tmp_path / "in" / name).write_bytes(content)
    tracemalloc.start()
    try:
        if told is None:
            assert len(convert(tmp_path / "in", tmp_path / "out", options)["train"]) > 0
        else:
            with pytest.raises(DataError, match=told):
                convert(tmp_path / "in", tmp_path / "out", options)
        # The table of document frequencies may reach a gigabyte of addresses, of which only a page is touched.
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20


CSR = sparse.csr_matrix(np.eye(3))
LISTS = [["x"], ["y"], []]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "wanted at least train"),
        ({"valid": (CSR, LISTS)}, "a split called 'valid'"),
        ({"train": CSR}, "wanted a pair"),
        ({"train": (CSR, LISTS[:2])}, "found 2 rows of labels; wanted 3"),
        ({"train": ("owl", ["x", "y", "z"])}, "found a single string, .* wanted texts"),
        ({"train": (["owl", None, "owl"], LISTS)}, "found 'None' as query 1"),
        ({"train": (np.zeros(3), LISTS)}, "as query 0"),
        ({"train": (np.zeros((3, 0)), LISTS)}, r"shape \(3, 0\)"),
        ({"train": (CSR * 1j, LISTS)}, "queries of dtype complex128"),
        ({"train": (sparse.coo_array(np.ones(3)), LISTS)}, "shape"),
        ({"train": (sparse.csr_matrix((3, 2**31 + 1)), LISTS)}, "at most 2,147,483,648"),
        ({"train": (CSR * 1e39, LISTS)}, "the value inf in row 0"),
        ({"train": (np.full((3, 2), np.nan), LISTS)}, "found nan in row 0, column 0"),
        ({"train": (CSR, np.array([["x"], ["y"], ["z"]]))}, "labels of dtype <U1"),
        ({"train": (CSR, np.array([0.0, 1.0, 2.0]))}, "found the label .* in row 0"),
        ({"train": (CSR, [["x"], None, ["y"]])}, "found the label 'None' in row 1"),
        ({"train": (CSR, [["x"], [True], ["y"]])}, "found the label 'True' in row 1"),
        ({"train": (CSR, [["x"], ["\ud800"], ["y"]])}, "in row 1"),
        ({"train": (CSR, [["x"], [10**5000], ["y"]])}, "in row 1"),
        ({"train": (CSR, [["x"], {"y": 2.0}, ["y"]])}, "in row 1"),
        ({"train": (CSR, -CSR)}, "the label weight -1.0"),
        ({"train": (CSR, "xyz")}, "labels of type str"),
        ({"train": (CSR, sparse.csr_matrix(([1.0, 1.0], [0, 0], [0, 2, 2, 2]), (3, 2)))}, "column 0 twice in row 0"),
        ({"train": (CSR, LISTS), "test": (["owl"], [["x"]])}, "test: found text queries; wanted sparse queries"),
    ],
)
def test_bad_splits_in_memory(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=told):
        convert(given, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_json_cases_are_what_they_seem() -> None:
    """Guards the table: a case whose file is broken in another way than its name says would prove nothing."""
    assert json.loads(r'["\ud800"]') == ["\ud800"]
    assert np.load(io.BytesIO(lying_npy("(2, 2)"))).shape == (2, 2)
    assert sparse.load_npz(io.BytesIO(npz())).shape == sparse.load_npz(io.BytesIO(raw_npz())).shape == (2, 3)
