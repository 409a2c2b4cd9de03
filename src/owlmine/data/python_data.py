"""A dataset from Python data, without files: what ``owlmine data convert`` would store, in memory.

Both use ``convert.write_dataset``, so tokens, weights, class numbers and the points that count are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import DTypeLike

from owlmine.data.arrays import MemoryArray, StringTable
from owlmine.data.convert import write_dataset
from owlmine.data.formats.block import BadCellError, label_of, shown
from owlmine.data.formats.memory import MemoryReader
from owlmine.data.memory import MemoryDataset
from owlmine.data.options import ConvertOptions
from owlmine.data.sources import Source
from owlmine.data.store import PointWords, SparseTable, Split
from owlmine.data.store_writer import DatasetWriter
from owlmine.errors import DataError


def dataset_from(
    X: Any,
    Y: Any,
    *,
    class_names: Mapping[Any, str] | Sequence[str] | None = None,
    validation: tuple[Any, Any] | None = None,
    options: ConvertOptions | None = None,
) -> MemoryDataset:
    """The dataset that ``convert`` would make of these points.

    X: texts in a list, an array or a pandas column; a SciPy matrix; a 2-d array or a data frame of numbers.
    Y: for each point a label, or a list or set of labels; or an indicator matrix, sparse or dense, whose columns are
        the classes. Values other than 0 and 1 are weights of labels.
    class_names: names by class, or a name for each column of an indicator matrix; by default, a data frame's columns.
    validation: (X, Y) in the same forms, which become the split ``dev``.

    ``conversion_notes`` lists the points and labels that were left out.
    """
    train = _reader(X, Y, "X", "Y")
    source = Source("memory", {"train": train})
    if validation is not None:
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise DataError("validation", found=shown(validation), wanted="a pair (X, Y)")
        source.splits["dev"] = _reader(*validation, "X of validation", "Y of validation")
    if class_names is None:
        class_names = _column_names(Y)
    if class_names is not None:
        source.class_names = _names_by_key(class_names, train.num_classes)
    if not train.num_labels:
        raise DataError("Y", found="no labels", wanted="at least one labelled point")
    writer = MemoryWriter()
    return writer.finish(write_dataset(source, writer, options or ConvertOptions()))


def _reader(X: Any, Y: Any, name_of_x: str, name_of_y: str) -> MemoryReader:
    reader = MemoryReader(X, Y, name_of_x, labels_source=name_of_y)
    if not len(reader):
        raise DataError(name_of_x, found="no points", wanted="at least one")
    return reader


def _column_names(Y: Any) -> list[str] | None:
    """The columns of an indicator matrix that is a data frame with named columns."""
    if getattr(Y, "ndim", 0) != 2 or not hasattr(Y, "iloc") or Y.shape[1] < 2:
        return None
    names = list(Y.columns)
    return names if all(isinstance(name, str) for name in names) else None


def _names_by_key(names: Mapping[Any, str] | Sequence[str], num_columns: int | None) -> dict[str, str]:
    what = "class_names"
    if not isinstance(names, Mapping):
        if num_columns is None or isinstance(names, str) or len(names) != num_columns:
            columns = "" if num_columns is None else f", or {num_columns:,} names, one for each column of Y"
            found = shown(names) if isinstance(names, str) else f"{len(names):,} names in order"
            raise DataError(what, found=found, wanted=f"a mapping from label to name{columns}")
        names = dict(enumerate(names))
    by_key: dict[str, str] = {}
    for label, name in names.items():
        if not isinstance(name, str):
            raise DataError(what, found=f"{shown(name)} for the class {shown(label)}", wanted="text")
        try:
            by_key[label_of(label)] = name
        except BadCellError as error:
            raise DataError(what, found=error.found, wanted=error.wanted) from None
    return by_key


class MemoryWriter(DatasetWriter):
    """Collects the arrays of a dataset, and builds the dataset."""

    def __init__(self) -> None:
        self._arrays: dict[str, MemoryArray] = {}

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> MemoryArray:
        self._arrays[name] = MemoryArray(dtype, row_shape)
        return self._arrays[name]

    def scratch_array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> MemoryArray:
        return MemoryArray(dtype, row_shape)

    def finish(self, meta: Mapping[str, Any]) -> MemoryDataset:
        """``meta``: as in ``meta.json`` of a store."""
        keys = self._strings("classes.keys")
        assert keys is not None
        frequencies = self._arrays.get("weighting.frequencies")
        return MemoryDataset(
            {name: self.split(name) for name in meta["splits"]},
            num_features=meta["features"],
            class_keys=keys,
            class_names=self._strings("classes.names"),
            queries=meta["queries"],
            weighting=meta["weighting"],
            vocabulary=self._strings("vocabulary"),
            frequencies=None if frequencies is None else frequencies.whole(),
            population={name: meta[name] for name in ("keep_empty", "splits")},
        )

    def split(self, name: str) -> Split:
        vectors = self._arrays.get(f"{name}.queries")
        queries = self._table(f"{name}.features") if vectors is None else vectors.whole()
        left_out = self._arrays.get(f"{name}.left_out")
        words = PointWords(
            self._strings(f"{name}.ids"),
            self._strings(f"{name}.texts"),
            *(() if left_out is None else (left_out.whole(),)),
        )
        return Split(name, queries, self._table(f"{name}.labels"), None, words=words)

    def _table(self, name: str) -> SparseTable:
        values = self._arrays.get(f"{name}.values")
        offsets, indices = (self._arrays[f"{name}.{part}"].whole() for part in ("offsets", "indices"))
        return SparseTable(offsets, indices, None if values is None else values.whole())

    def _strings(self, name: str) -> StringTable | None:
        if f"{name}.bytes" not in self._arrays:
            return None
        return StringTable(self._arrays[f"{name}.bytes"].whole(), self._arrays[f"{name}.offsets"].whole())
