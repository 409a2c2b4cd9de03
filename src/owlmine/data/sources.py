"""From a path to readers for its splits: recognises each file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from owlmine.data.formats import tables
from owlmine.data.formats.array_files import NpzMatrix, dense_queries, number_labels
from owlmine.data.formats.block import LabelFile, PairReader, PointReader, QueryFile
from owlmine.data.formats.memory import MemoryReader
from owlmine.data.formats.sparse_files import IndexedReader, LabelledReader, MatrixFile, SvmlightReader
from owlmine.data.formats.tables import line_labels, line_texts
from owlmine.data.streams import ByteSource, plain_name
from owlmine.errors import DataError, OwlmineError

_SPLIT_WORDS = {
    "train": "train", "trn": "train", "test": "test", "tst": "test",
    "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
}  # fmt: skip
_WORD = "|".join(_SPLIT_WORDS)

_FILTER_FILE = re.compile(rf"filter_labels_({_WORD})\.txt", re.IGNORECASE)

_SUFFIX_FORMATS = {
    "txt": "xmc", "svm": "svmlight", "svmlight": "svmlight", "libsvm": "svmlight",
    "jsonl": "jsonl", "json": "jsonl", "ndjson": "jsonl", "csv": "csv", "tsv": "tsv", "parquet": "parquet",
}  # fmt: skip

POINT_FORMATS: dict[str, Callable[[Path, tables.Columns], PointReader]] = {
    "xmc": lambda path, columns: LabelledReader(path),
    "svmlight": lambda path, columns: SvmlightReader(path),
    "jsonl": tables.json_lines,
    "csv": lambda path, columns: tables.delimited(path, columns, ","),
    "tsv": lambda path, columns: tables.delimited(path, columns, "\t"),
    "parquet": tables.parquet,
}
FORMATS = ("auto", *POINT_FORMATS, "pairs", "split-index")


@dataclass
class Source:
    """The readers and files of a dataset."""

    format: str
    splits: dict[str, PointReader] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    class_names: Path | Mapping[str, str] | None = None
    """A file, or names by key."""
    class_features: Path | None = None
    filters: dict[str, Path] = field(default_factory=dict)


def find_source(path: Path, *, format: str, columns: tables.Columns, split_column: int) -> Source:
    """Recognises the files at ``path``: one file is a train split, a folder holds several."""
    try:
        if not path.exists():
            raise DataError(path, found="no such file or folder", wanted="a dataset")
        if not path.is_dir():
            return _single_file(path, format, columns)
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    except OSError as error:
        raise OwlmineError(f"{path}: cannot be read: {error.strerror}") from error
    source = _pairs(files, format) or _split_index(files, format, split_column) or _points(files, format, columns)
    if source is None or "train" not in source.splits:
        raise DataError(
            path,
            found=f"files {', '.join(file.name for file in files[:8]) or 'none'}",
            wanted="train.* (and test.*, dev.*) in a known format, or pairs such as trn_X_Xf.txt with trn_X_Y.txt",
        )
    _companions(source, files)
    return source


def _single_file(path: Path, format: str, columns: tables.Columns) -> Source:
    name = _SUFFIX_FORMATS.get(_suffix(path), "") if format == "auto" else format
    if name not in POINT_FORMATS:
        found = f"a file ending in .{_suffix(path)}" if format == "auto" else f"one file for the format {format}"
        raise DataError(path, found=found, wanted=f"a folder, or --format {'|'.join(POINT_FORMATS)}")
    return Source(name, {"train": POINT_FORMATS[name](path, columns)}, [path])


def memory_source(splits: Mapping[str, Any], columns: tables.Columns) -> Source:
    """Splits given in Python: ``{"train": (queries, labels)}`` or ``{"train": data frame}``."""
    source = Source("memory")
    for name, given in splits.items():
        if name not in ("train", "test", "dev"):
            raise DataError("splits", found=f"a split called {name!r}", wanted="train, test or dev")
        if isinstance(given, tuple) and len(given) == 2:
            source.splits[name] = MemoryReader(*given, source=name)
        elif hasattr(given, "itertuples"):
            source.splits[name] = tables.data_frame(given, columns, name)
        else:
            raise DataError(name, found=type(given).__name__, wanted="a pair (queries, labels) or a data frame")
    if "train" not in source.splits:
        raise DataError("splits", found=", ".join(source.splits) or "none", wanted="at least train")
    source.splits = {split: source.splits[split] for split in _in_order(source.splits)}
    return source


def _suffix(path: Path) -> str:
    return plain_name(path).rpartition(".")[2].lower()


def _in_order(splits: Iterable[str]) -> list[str]:
    """Train comes first: it determines the classes and tokens."""
    return sorted(splits, key=["train", "dev", "test"].index)


def _by_split(files: list[Path], pattern: str) -> dict[str, Path]:
    """Files whose plain name fits the pattern, by split; ``WORD`` in it is the split's word."""
    found: dict[str, Path] = {}
    for file in files:
        if _FILTER_FILE.fullmatch(plain_name(file)):
            continue
        match = re.fullmatch(pattern.replace("WORD", f"(?P<word>{_WORD})"), plain_name(file), re.IGNORECASE)
        if match:
            split = _SPLIT_WORDS[match["word"].lower()]
            if split in found:
                raise DataError(file, found=f"a second {split} file next to {found[split].name}", wanted="one")
            found[split] = file
    return found


def _points(files: list[Path], format: str, columns: tables.Columns) -> Source | None:
    """A file per split, each with queries and labels."""
    if format != "auto" and format not in POINT_FORMATS:
        return None
    suffixes = "|".join(_SUFFIX_FORMATS) if format == "auto" else r"[^.]+"
    found = _by_split(files, rf"(?:.*[._-])?WORD(?:\.raw)?\.(?:{suffixes})")
    if "train" not in found:
        return None
    name = format if format in POINT_FORMATS else _SUFFIX_FORMATS[_suffix(found["train"])]
    readers = {}
    for split in _in_order(found):
        own = format if format in POINT_FORMATS else _SUFFIX_FORMATS[_suffix(found[split])]
        readers[split] = POINT_FORMATS[own](found[split], columns)
    return Source(name, readers, list(found.values()))


def _pairs(files: list[Path], format: str) -> Source | None:
    """Queries in one file and labels in another: the repository's new format, PECOS, vectors with labels."""
    if format not in ("auto", "pairs"):
        return None
    queries = (
        _by_split(files, r"(?:.*_)?WORD_X_Xf\.(?:txt|npz)")
        or _by_split(files, r"X\.WORD\.(?:npz|npy|txt)")
        or _by_split(files, r"WORD\.X\.(?:npz|npy)")
        or _by_split(files, r"WORD\.npy")
    )
    labels = (
        _by_split(files, r"(?:.*_)?WORD_X_Y\.(?:txt|npz)")
        or _by_split(files, r"Y\.WORD\.(?:npz|npy|txt)")
        or _by_split(files, r"WORD\.(?:Y|labels)\.(?:npz|npy|txt)")
    )
    if "train" not in queries:
        return None
    readers: dict[str, PointReader] = {}
    for split in _in_order(queries):
        file = queries[split]
        if split not in labels:
            raise DataError(
                file,
                found="no labels next to it",
                wanted=f"a file such as {split}.labels.npz or Y.{split}.npz",
            )
        readers[split] = PairReader(_query_file(file), _label_file(labels[split]))
    return Source("pairs", readers, [*queries.values(), *labels.values()])


def _query_file(path: Path) -> QueryFile:
    if _suffix(path) == "npz":
        return NpzMatrix(path).as_queries()
    if _suffix(path) == "npy":
        return dense_queries(path)
    if "_x_xf" in path.name.lower():
        return MatrixFile.open(path).as_queries()
    return line_texts(path)


def _label_file(path: Path) -> LabelFile:
    if _suffix(path) == "npz":
        return NpzMatrix(path).as_labels()
    if _suffix(path) == "npy":
        return number_labels(path)
    if "_x_y" in path.name.lower():
        return MatrixFile.open(path).as_labels()
    return line_labels(path)


def _split_index(files: list[Path], format: str, column: int) -> Source | None:
    """One file with all points, and files that list the points of each split."""
    if format not in ("auto", "split-index"):
        return None
    found: dict[str, Path] = {}
    for part, word in (("data", "data"), ("train", "trSplit"), ("test", "tstSplit")):
        fitting = [file for file in files if re.fullmatch(rf"(?:.*_)?{word}\.txt", plain_name(file), re.IGNORECASE)]
        if not fitting:
            return None
        if len(fitting) > 1:
            raise DataError(fitting[1], found=f"a second {word} file next to {fitting[0].name}", wanted="one")
        found[part] = fitting[0]
    whole = LabelledReader(found["data"])
    readers: dict[str, PointReader] = {split: IndexedReader(whole, found[split], column) for split in ("train", "test")}
    return Source("split-index", readers, list(found.values()))


def _companions(source: Source, files: list[Path]) -> None:
    """Files that accompany the splits: names of classes, features of classes, pairs to leave out."""
    for file in files:
        name = plain_name(file).lower()
        if name in ("labels.tsv", "lbl.json", "lbl.jsonl"):
            source.class_names = file
        elif name in ("lbl_x_xf.txt", "y_yf.txt", "lbl_x_xf.npz") or (name == "yf.txt" and _has_header(file)):
            source.class_features = file
        elif name in ("yf.txt", "y.txt") and source.class_names is None:
            source.class_names = file
        elif match := _FILTER_FILE.fullmatch(name):
            source.filters[_SPLIT_WORDS[match[1]]] = file
        else:
            continue
        source.files.append(file)


def _has_header(path: Path) -> bool:
    """Whether a file starts like a matrix, with two numbers, rather than with names."""
    with ByteSource(path) as file:
        return re.match(rb"\d+[ \t]+\d+[ \t]*\r?\n", file.read(100)) is not None
