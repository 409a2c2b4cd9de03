"""Readers that take whole files with other people's parsers and ask no questions: what the library accepts, they
must read alike. They may accept more than the library does, never less."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq
from scipy import sparse

Rows = list[tuple[dict[str, float], Any]]
"""Weights by label, and the query: a text, values by feature, or a vector."""


def plain_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    elif data.startswith(b"\xfd7zXZ\0"):
        data = lzma.decompress(data)
    elif data.startswith(b"\x28\xb5\x2f\xfd"):
        data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    return data.removeprefix(b"\xef\xbb\xbf")


def lines_of(path: Path, encoding: str = "utf-8") -> list[str]:
    lines = plain_bytes(path).decode(encoding).split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if not lines[-1] else lines)]


def single(value: Any) -> float:
    return float(np.float32(value))


def pairs_of(tokens: list[str]) -> dict[int, float]:
    cut = [token.split(":") for token in tokens]
    return {int(index): single(value) for index, value in cut}


def sparse_line(line: str) -> tuple[dict[str, float], dict[int, float]]:
    tokens = line.split()
    labels: list[str] = []
    if tokens and ":" not in tokens[0] and not line[0].isspace():
        labels = [str(int(float(piece))) for piece in tokens.pop(0).split(",")]
    if tokens and tokens[0].startswith("qid:"):
        tokens.pop(0)
    return dict.fromkeys(labels, 1.0), pairs_of(tokens)


def old(folder: Path, split: str) -> Rows:
    (file,) = folder.glob(f"Small_{split}.txt*")
    header, *lines = lines_of(file)
    num_points = int(header.split()[0])
    rows = [sparse_line(line) for line in lines]
    return rows if len(rows) == num_points else [row for row in rows if row != ({}, {})]


def svmlight(folder: Path, split: str) -> Rows:
    rows = [sparse_line(line.split("#")[0]) for line in lines_of(folder / f"{split}.svm", "latin-1")]
    return [row for row in rows if row != ({}, {})]


def matrix(path: Path) -> list[dict[int, float]]:
    header, *lines = lines_of(path)
    return [pairs_of(line.split()) for line in lines][: int(header.split()[0])]


def labels_of(row: dict[int, float]) -> dict[str, float]:
    return {str(column): weight for column, weight in row.items() if weight != 0}


def new(folder: Path, split: str) -> Rows:
    word = {"train": "trn", "test": "tst"}[split]
    x, y = matrix(folder / f"{word}_X_Xf.txt"), matrix(folder / f"{word}_X_Y.txt")
    return list(zip(map(labels_of, y), x, strict=True))


def npz_rows(path: Path) -> list[dict[int, float]]:
    found = sparse.load_npz(path)
    assert found.format == "csr"
    bounds = zip(found.indptr[:-1].tolist(), found.indptr[1:].tolist(), strict=True)
    columns, values = found.indices.tolist(), found.data.astype(np.float32).tolist()
    return [dict(zip(columns[low:high], values[low:high], strict=True)) for low, high in bounds]


def pecos(folder: Path, split: str) -> Rows:
    word = {"train": "trn", "test": "tst"}[split]
    x, y = npz_rows(folder / f"X.{word}.npz"), npz_rows(folder / f"Y.{word}.npz")
    return list(zip(map(labels_of, y), x, strict=True))


def pecos_text(folder: Path, split: str) -> Rows:
    word = {"train": "trn", "test": "tst"}[split]
    texts, y = lines_of(folder / f"X.{word}.txt"), npz_rows(folder / f"Y.{word}.npz")
    while len(texts) > len(y) and not texts[-1]:
        texts.pop()
    return list(zip(map(labels_of, y), texts, strict=True))


def dense(folder: Path, split: str) -> Rows:
    vectors = np.load(folder / f"{split}.npy").astype(np.float32).tolist()
    return list(zip(map(labels_of, npz_rows(folder / f"{split}.labels.npz")), vectors, strict=True))


def dense_lines(folder: Path, split: str) -> Rows:
    vectors = np.load(folder / f"X.{split}.npy").astype(np.float32).tolist()
    labels = [
        {str(int(n)): 1.0 for n in line.replace(",", " ").split()} for line in lines_of(folder / f"Y.{split}.txt")
    ]
    while len(labels) > len(vectors) and not labels[-1]:
        labels.pop()
    return list(zip(labels, vectors, strict=True))


def cell_labels(cell: Any) -> dict[str, float]:
    if isinstance(cell, str) and cell.strip().startswith("["):
        cell = json.loads(cell)
    if isinstance(cell, str):
        cell = [piece.strip() for piece in cell.split(";") if piece.strip()]
    if isinstance(cell, dict):
        return {str(label): single(weight) for label, weight in cell.items()}
    if isinstance(cell, int):
        cell = [cell]
    return {str(label): 1.0 for label in cell or []}


def table_rows(table: list[dict[str, Any]]) -> Rows:
    """The first row decides which columns count."""
    label = next(name for name in ("labels", "label", "target_ind", "classes", "class", "tags") if name in table[0])
    texts = [name for name in ("text", "title", "query") if name in table[0]][:1]
    if texts == ["title"] and "content" in table[0]:
        texts.append("content")
    return [(weighted_labels(cells, label), " ".join(cells[name] or "" for name in texts)) for cells in table]


def weighted_labels(cells: dict[str, Any], label: str) -> dict[str, float]:
    weights = cells.get("target_rel") if label == "target_ind" and isinstance(cells[label], list) else None
    if weights is None:
        return cell_labels(cells[label])
    weighted: dict[str, float] = {}
    for key, weight in zip(cells[label], weights, strict=True):
        weighted.setdefault(str(key), single(weight))
    return weighted


def jsonl(folder: Path, split: str) -> Rows:
    objects = [json.loads(line) for line in lines_of(folder / f"{split}.jsonl") if line.strip()]
    return table_rows(objects)


def raw_json(folder: Path, split: str) -> Rows:
    word = {"train": "trn", "test": "tst"}[split]
    return table_rows([json.loads(line) for line in lines_of(folder / f"{word}.json") if line.strip()])


def delimited(path: Path, delimiter: str) -> Rows:
    text = "\n".join(lines_of(path))
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    return table_rows([dict(zip(rows[0], row, strict=True)) for row in rows[1:]])


def parquet(folder: Path, split: str) -> Rows:
    table = pq.read_table(folder / f"{split}.parquet")
    return table_rows(table.select([n for n in table.column_names if n != "when"]).to_pylist(maps_as_pydicts="lossy"))


SLOW_READERS: dict[str, Callable[[Path, str], Rows]] = {
    "old": old,
    "new": new,
    "svmlight": svmlight,
    "pecos": pecos,
    "pecos-text": pecos_text,
    "dense": dense,
    "dense-lines": dense_lines,
    "jsonl": jsonl,
    "raw-json": raw_json,
    "csv": lambda folder, split: delimited(folder / f"{split}.csv", ","),
    "tsv": lambda folder, split: delimited(folder / f"{split}.tsv", "\t"),
    "parquet": parquet,
}
