"""A writer for every format, made without the library under test. What has a writer here is in the contract."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet as pq
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from .points import Dataset, Point

SHORT = {"train": "trn", "test": "tst", "dev": "dev"}


@dataclass(frozen=True)
class Format:
    """How a dataset is written: into a folder, or as a mapping for Python."""

    write: Callable[[Dataset, Path], Mapping[str, Any] | None]
    kind: str
    point_format: str | None = None
    """The name in the library's table of formats, where it has one."""
    named: bool = False
    weighted: bool = False
    compressible: bool = False
    blank_is_stray: bool = False
    splits: tuple[str, ...] = ("train", "dev", "test")


def csr(rows: list[dict[int, float]], num_columns: int) -> sparse.csr_matrix:
    columns = [column for row in rows for column in row]
    values = [value for row in rows for value in row.values()]
    offsets = np.cumsum([0, *map(len, rows)])
    return sparse.csr_matrix((np.array(values, np.float32), columns, offsets), shape=(len(rows), num_columns))


def features(points: list[Point], data: Dataset) -> sparse.csr_matrix:
    return csr([point.features for point in points], data.num_features)


def labels(points: list[Point], data: Dataset) -> sparse.csr_matrix:
    return csr([{int(key): weight for key, weight in point.labels.items()} for point in points], data.num_classes)


def pairs(row: Mapping[Any, float]) -> str:
    return " ".join(f"{key}:{value!r}" for key, value in row.items())


def old_text(points: list[Point], data: Dataset) -> str:
    lines = [f"{len(points)} {data.num_features} {data.num_classes}"]
    lines += [f"{','.join(point.labels)} {pairs(point.features)}".rstrip() for point in points]
    return "\n".join(lines) + "\n"


def matrix_text(rows: list[Mapping[Any, float]], num_columns: int) -> str:
    return "\n".join([f"{len(rows)} {num_columns}", *map(pairs, rows)]) + "\n"


def write_old(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        (folder / f"Small_{split}.txt").write_text(old_text(points, data))


def write_split_index(data: Dataset, folder: Path) -> None:
    """Points of both splits alternate in one file; the second column lists the split, the first is a decoy."""
    tagged = [(split, point) for split, points in data.splits.items() for point in points]
    tagged = tagged[::2] + tagged[1::2]
    (folder / "Small_data.txt").write_text(old_text([point for _, point in tagged], data))
    for split, word in (("train", "tr"), ("test", "tst")):
        numbers = [place for place, (of, _) in enumerate(tagged, 1) if of == split]
        (folder / f"Small_{word}Split.txt").write_text("".join(f"1 {number}\n" for number in numbers))
    for split in data.splits:
        data.splits[split][:] = [point for of, point in tagged if of == split]


def write_new(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        x, y = [point.features for point in points], [point.labels for point in points]
        (folder / f"{SHORT[split]}_X_Xf.txt").write_text(matrix_text(x, data.num_features))
        (folder / f"{SHORT[split]}_X_Y.txt").write_text(matrix_text(y, data.num_classes))


def write_svmlight(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        y = labels(points, data)
        y.data[:] = 1
        dump_svmlight_file(features(points, data), y, str(folder / f"{split}.svm"), zero_based=False, multilabel=True)


def write_pecos(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        sparse.save_npz(folder / f"X.{SHORT[split]}.npz", features(points, data))
        sparse.save_npz(folder / f"Y.{SHORT[split]}.npz", labels(points, data), compressed=False)


def write_pecos_text(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        lines = "".join(point.text.replace("\n", " ") + "\n" for point in points)
        (folder / f"X.{SHORT[split]}.txt").write_text(lines, encoding="utf-8")
        sparse.save_npz(folder / f"Y.{SHORT[split]}.npz", labels(points, data))


def write_dense(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        np.save(folder / f"{split}.npy", np.array([point.vector for point in points], np.float64, order="F"))
        sparse.save_npz(folder / f"{split}.labels.npz", labels(points, data))


def write_dense_lines(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        np.save(folder / f"X.{split}.npy", np.array([point.vector for point in points], ">f4"))
        (folder / f"Y.{split}.txt").write_text("".join(" ".join(point.labels) + "\n" for point in points))


def given_labels(point: Point) -> list[str] | dict[str, float]:
    return list(point.labels) if set(point.labels.values()) <= {1.0} else point.labels


def write_jsonl(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        lines = [json.dumps({"text": p.text, "labels": given_labels(p)}) for p in points]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")


def write_raw_json(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        with (folder / f"{SHORT[split]}.json").open("w", encoding="utf-8") as file:
            for point in points:
                half = len(point.text) // 2
                while 0 < half < len(point.text) and point.text[half] != " ":
                    half += 1
                cells = {
                    "uid": "0",
                    "title": point.text[:half],
                    "content": point.text[half:],
                    "target_ind": [int(key) for key in point.labels],
                    "target_rel": list(point.labels.values()),
                }
                file.write(json.dumps(cells, ensure_ascii=False) + "\n")


def write_delimited(data: Dataset, folder: Path, *, suffix: str, delimiter: str) -> None:
    for split, points in data.splits.items():
        with (folder / f"{split}.{suffix}").open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            table.writerow(["id", "labels", "text"])
            for number, point in enumerate(points):
                table.writerow([number, json.dumps(list(point.labels)), point.text])


def write_csv(data: Dataset, folder: Path) -> None:
    write_delimited(data, folder, suffix="csv", delimiter=",")


def write_tsv(data: Dataset, folder: Path) -> None:
    write_delimited(data, folder, suffix="tsv", delimiter="\t")


def write_parquet(data: Dataset, folder: Path) -> None:
    for split, points in data.splits.items():
        table = pa.table(
            {
                "when": pa.array([0] * len(points), pa.timestamp("ns")),
                "text": pa.array([point.text for point in points], pa.large_string()),
                "labels": pa.array([list(p.labels.items()) for p in points], pa.map_(pa.string(), pa.float32())),
            }
        )
        pq.write_table(table, folder / f"{split}.parquet", row_group_size=2)


def as_scipy(data: Dataset, folder: Path) -> Mapping[str, Any]:
    del folder
    given = {split: (features(points, data), labels(points, data)) for split, points in data.splits.items()}
    return dict(reversed(given.items()))


def as_frame(data: Dataset, folder: Path) -> Mapping[str, Any]:
    del folder
    return {
        split: pd.DataFrame({"text": [p.text for p in points], "labels": [list(p.labels) for p in points]})
        for split, points in data.splits.items()
    }


def as_vectors(data: Dataset, folder: Path) -> Mapping[str, Any]:
    del folder
    return {
        split: (np.array([p.vector for p in points], np.float32), [list(p.labels) for p in points])
        for split, points in data.splits.items()
    }


FORMATS: dict[str, Format] = {
    "old": Format(write_old, "sparse", "xmc", compressible=True),
    "split-index": Format(write_split_index, "sparse", compressible=True, splits=("train", "test")),
    "new": Format(write_new, "sparse", weighted=True, compressible=True),
    "svmlight": Format(write_svmlight, "sparse", "svmlight", compressible=True, blank_is_stray=True),
    "pecos": Format(write_pecos, "sparse", weighted=True),
    "pecos-text": Format(write_pecos_text, "text", weighted=True),
    "dense": Format(write_dense, "dense", weighted=True),
    "dense-lines": Format(write_dense_lines, "dense"),
    "jsonl": Format(write_jsonl, "text", "jsonl", named=True, weighted=True, compressible=True),
    "raw-json": Format(write_raw_json, "text", weighted=True, compressible=True),
    "csv": Format(write_csv, "text", "csv", named=True, compressible=True),
    "tsv": Format(write_tsv, "text", "tsv", named=True, compressible=True),
    "parquet": Format(write_parquet, "text", "parquet", named=True, weighted=True),
    "scipy": Format(as_scipy, "sparse", weighted=True),
    "pandas": Format(as_frame, "text", named=True),
    "vectors": Format(as_vectors, "dense"),
}


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        buffer = io.BytesIO()
        # Two members, as `cat a.gz b.gz` makes them.
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
                file.write(half)
        return buffer.getvalue()
    if suffix == ".xz":
        return lzma.compress(data)
    if suffix == ".zst":
        packed: bytes = pa.compress(data, "zstd", asbytes=True)
        return packed
    return data


def compress_folder(folder: Path, suffix: str) -> None:
    """Every text file of the folder, compressed under the usual name."""
    for file in list(folder.iterdir()):
        if file.suffix not in (".npz", ".npy", ".parquet"):
            file.with_name(file.name + suffix).write_bytes(compress(file.read_bytes(), suffix))
            file.unlink()
