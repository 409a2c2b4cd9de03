"""A dataset in memory: plain arrays with the read interface of a store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from owlmine.data.arrays import StringTable
from owlmine.data.rows import Int64, SparseRows, check_rows
from owlmine.data.store import SparseTable, Split
from owlmine.errors import DataError, OwlmineError

_SPLIT_NAMES = ("train", "dev", "test")
_MAX_IDS = 2**31  # ids are int32


class MemoryDataset:
    """Splits that are in memory already. It satisfies ``Dataset``, as ``Store`` does.

    All arrays are checked once, here, so that compiled code may rely on every row. They take the types that a store
    has (64-bit offsets, 32-bit ids, float32 values) and are copied only where their type differs; do not change them
    afterwards.
    """

    def __init__(
        self,
        splits: Mapping[str, Split],
        *,
        num_features: int,
        class_keys: Sequence[str] | StringTable,
        class_names: Sequence[str] | StringTable | None = None,
        queries: Literal["sparse", "dense"],
        weighting: dict[str, Any],
        vocabulary: Sequence[str] | StringTable | None = None,
        frequencies: Int64 | None = None,
        population: Mapping[str, Any] | None = None,
    ) -> None:
        """``weighting`` is what ``meta.json`` would say, at least ``{"kind": "none", "why": "..."}``.

        Features made from text also have a ``vocabulary`` (unless they are hashed) and, like all TF-IDF features,
        ``frequencies``: the number of training points that hold each feature. ``population`` is what ``meta.json``
        would say of points and labels that were left out.
        """
        if queries not in ("sparse", "dense"):
            raise ValueError(f"queries is {queries!r}; wanted sparse or dense")
        self.num_features, self._queries, self._weighting = num_features, queries, dict(weighting)
        self._population = dict(population or {})
        self.class_keys = _as_table(class_keys)
        self.num_classes = len(self.class_keys)
        self.class_names = self.class_keys if class_names is None else _as_table(class_names)
        self.vocabulary = None if vocabulary is None else _as_table(vocabulary)
        self._frequencies = None if frequencies is None else np.asarray(frequencies, np.int64)
        self._check_sizes()
        if "train" not in splits or not set(splits) <= set(_SPLIT_NAMES):
            raise DataError("splits", found=", ".join(splits) or "none", wanted="train, and perhaps dev and test")
        self._splits = {name: self._checked_split(name, split) for name, split in splits.items()}

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self._splits)

    def __getitem__(self, split: str) -> Split:
        if split not in self._splits:
            raise OwlmineError(f"the dataset in memory has no split {split!r}; it has {', '.join(self.splits)}")
        return self._splits[split]

    @cached_property
    def class_counts(self) -> Int64:
        """Training points per class."""
        return np.bincount(self._splits["train"].labels.indices, minlength=self.num_classes)

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The fields of a store's ``meta.json`` that training reads. The checksum follows from the content alone."""
        description: dict[str, Any] = {
            "queries": self._queries,
            "features": self.num_features,
            "classes": self.num_classes,
            "weighting": self._weighting,
            "splits": {name: {"points": len(split)} for name, split in self._splits.items()},
        }
        digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
        for name, array in sorted(self._named_arrays()):
            digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
            if array.size:
                digest.update(np.ascontiguousarray(array).data.cast("B"))
        return description | self._population | {"checksum": digest.hexdigest()}

    def array(self, name: str) -> NDArray[Any] | None:
        """The array that a store would have under this name, or None."""
        return dict(self._named_arrays()).get(name)

    def _named_arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        for name, split in self._splits.items():
            yield from _table_arrays(f"{name}.labels", split.labels)
            if isinstance(split.queries, SparseTable):
                yield from _table_arrays(f"{name}.features", split.queries)
            else:
                yield f"{name}.queries", split.queries
            if split.filter_pairs is not None:
                yield f"{name}.filter", split.filter_pairs
        yield "classes.counts", self.class_counts
        strings = {"classes.keys": self.class_keys, "vocabulary": self.vocabulary}
        for name, split in self._splits.items():
            strings |= {f"{name}.ids": split.words.ids, f"{name}.texts": split.words.texts}
            if len(split.words.left_out):
                yield f"{name}.left_out", split.words.left_out
        if self.class_names is not self.class_keys:
            strings["classes.names"] = self.class_names
        for name, table in strings.items():
            if table is not None:
                text, offsets = table.arrays()
                yield f"{name}.bytes", text
                yield f"{name}.offsets", offsets
        if self._frequencies is not None:
            yield "weighting.frequencies", self._frequencies

    def _check_sizes(self) -> None:
        if not self.num_classes:
            raise DataError("class_keys", found="no classes", wanted="at least one")
        if not 0 <= self.num_features <= _MAX_IDS:
            raise DataError("num_features", found=f"{self.num_features:,}", wanted=f"0 to {_MAX_IDS:,}")
        kind, text = self._weighting.get("kind"), self._weighting.get("text")
        if kind not in ("none", "tfidf"):
            raise DataError("weighting", found=f"the kind {kind!r}", wanted="none or tfidf")
        sizes = {
            "class_names": (len(self.class_names), self.num_classes),
            "vocabulary": (len(self.vocabulary or ()), self.num_features if text and not text["hash_bits"] else 0),
            "frequencies": (
                0 if self._frequencies is None else len(self._frequencies),
                self.num_features if text or kind == "tfidf" else 0,
            ),
        }
        for name, (size, expected) in sizes.items():
            if size != expected:
                raise DataError(name, found=f"{size:,} entries", wanted=f"{expected:,}")

    def _checked_split(self, name: str, split: Split) -> Split:
        labels = _checked_table(split.labels, num_columns=self.num_classes, what=f"labels of {name}")
        if isinstance(split.queries, SparseTable) != (self._queries == "sparse"):
            raise DataError(f"queries of {name}", found=type(split.queries).__name__, wanted=f"{self._queries} queries")
        if isinstance(split.queries, SparseTable):
            features = _checked_table(split.queries, num_columns=self.num_features, what=f"queries of {name}")
            checked = Split(name, features, labels, self._checked_pairs(name, split), words=split.words)
        else:
            vectors = self._checked_vectors(name, split.queries)
            checked = Split(name, vectors, labels, self._checked_pairs(name, split), words=split.words)
        if len(checked.queries) != len(labels):
            raise DataError(f"labels of {name}", found=f"{len(labels):,} rows", wanted=f"{len(checked.queries):,}")
        for what, table in (("ids", split.words.ids), ("texts", split.words.texts)):
            if table is not None and len(table) != len(labels):
                raise DataError(f"{what} of {name}", found=f"{len(table):,} entries", wanted=f"{len(labels):,}")
        if name == "train" and not len(labels):
            raise DataError("labels of train", found="no rows", wanted="at least one")
        return checked

    def _checked_vectors(self, name: str, vectors: NDArray[Any]) -> NDArray[np.float32]:
        if vectors.ndim != 2 or vectors.dtype.kind not in "biuf" or vectors.shape[1] != self.num_features:
            found = f"shape {vectors.shape} and type {vectors.dtype}"
            raise DataError(f"queries of {name}", found=found, wanted=f"numbers, points x {self.num_features}")
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(vectors, np.float32)
        if not (finite := np.isfinite(vectors).all(axis=1)).all():
            row = int(np.argmin(finite))
            raise DataError(f"queries of {name}", found=f"no finite vector in row {row}", wanted="finite values")
        return vectors

    def _checked_pairs(self, name: str, split: Split) -> Int64 | None:
        pairs, bounds = split.filter_pairs, (len(split), self.num_classes)
        if pairs is None:
            return None
        if pairs.ndim != 2 or pairs.shape[1] != 2 or ((pairs < 0) | (pairs >= bounds)).any():
            wanted = f"points below {bounds[0]:,} and classes below {bounds[1]:,}"
            raise DataError(f"filter pairs of {name}", found="other numbers", wanted=wanted)
        return np.asarray(pairs, np.int64)


def _as_table(strings: Sequence[str] | StringTable) -> StringTable:
    return strings if isinstance(strings, StringTable) else StringTable.of(strings)


def _table_arrays(name: str, table: SparseTable) -> Iterator[tuple[str, NDArray[Any]]]:
    yield f"{name}.offsets", table.offsets
    yield f"{name}.indices", table.indices
    if table.values is not None:
        yield f"{name}.values", table.values


def _checked_table(table: SparseTable, *, num_columns: int, what: str) -> SparseTable:
    """The same rows with the types that a store has. Checked before and after: a value may overflow float32."""
    check_rows(SparseRows(table.offsets, table.indices, table.values), num_columns=num_columns, what=what)
    with np.errstate(over="ignore"):
        values = None if table.values is None else np.asarray(table.values, np.float32)
    typed = SparseTable(np.asarray(table.offsets, np.int64), np.asarray(table.indices, np.int32), values)
    if values is not None and values is not table.values:
        check_rows(SparseRows(typed.offsets, typed.indices, values), num_columns=num_columns, what=what)
    return typed
