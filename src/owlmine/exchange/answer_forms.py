"""Forms of files of answers: jsonl and csv, plain or compressed, and parquet.

Answers are encoded block by block, from arrays: ``answers.py`` has the same lines of jsonl and csv from an object for
each answer. Compressed text is a stream for each part, one after the other, so that a file can be appended to. A
parquet file cannot. While it is unfinished, its answers are Arrow streams of ids; names come in when it is written.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from owlmine.data.rows import Float32, offsets_from_counts
from owlmine.data.streams import COMPRESSION_SUFFIXES, plain_name
from owlmine.errors import OwlmineError, how_to_install
from owlmine.exchange.answers import ArrayBlock, csv_header
from owlmine.rank.predictor import Predictor

FORMS = ("jsonl", "csv", "parquet")
# Words of so many classes are remembered.
_MOST_WORDS = 1 << 16
# A group of rows of a parquet file has at least so many queries, or so many answers.
_GROUP_ROWS, _GROUP_ANSWERS = 1 << 14, 1 << 20
# The fastest level: others take longer than the answers do.
_XZ_PRESET = 0
_LARGEST_INT = 2**63
_LENGTH = "<q"


@dataclass(frozen=True)
class AnswerForm:
    """The form of one file: see ``form_of``."""

    name: str
    compression: str | None = None
    """``gz``, ``xz`` or ``zst``."""

    def check(self, out: Path) -> None:
        """Raises OwlmineError if it needs a package that is not installed."""
        if self.name == "parquet" or self.compression == "zst":
            _pyarrow(out)

    @property
    def is_converted(self) -> bool:
        """Whether unfinished answers have another form."""
        return self.name == "parquet"

    def encoder(self, predictor: Predictor) -> Callable[[ArrayBlock], bytes]:
        """Encodes the answers of a block."""
        if self.name == "parquet":
            return encoded_arrow
        if self.name == "csv":
            return _CsvLines(predictor)
        return _JsonLines(predictor)

    def head(self, predictor: Predictor) -> bytes:
        """The bytes before the first answer."""
        if self.name != "csv":
            return b""
        return csv_header(probabilities=predictor.record.calibration is not None).encode()

    def compressed(self, data: bytes) -> bytes:
        """A part of a file; equal parts become equal bytes."""
        if self.compression == "gz":
            return gzip.compress(data, compresslevel=6, mtime=0)
        if self.compression == "xz":
            return lzma.compress(data, preset=_XZ_PRESET)
        if self.compression == "zst":
            import pyarrow

            packed: bytes = pyarrow.Codec("zstd").compress(data, asbytes=True)
            return packed
        return data


def form_of(format: str | None, out: Path) -> AnswerForm:
    """``format``: None for the ending of the name, which also tells the compression."""
    suffix = out.suffix.lower()
    compression = suffix[1:] if suffix in COMPRESSION_SUFFIXES else None
    ending = plain_name(out).rpartition(".")[2].lower()
    name = format or (ending if ending in FORMS else "jsonl")
    if name == "parquet" and compression is not None:
        raise OwlmineError(f"{out}: ends in {suffix}; parquet is compressed inside the file, so wanted .parquet")
    return AnswerForm(name, compression)


def _pyarrow(out: Path) -> ModuleType:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        what = "parquet" if out.suffix.lower() != ".zst" else "zstd"
        raise OwlmineError(f"{out}: {what} needs pyarrow; {how_to_install('parquet')}") from error
    module: ModuleType = pyarrow
    return module


# ---- text ----


class _JsonLines:
    """An object per query, as ``answers.json_lines`` writes it."""

    def __init__(self, predictor: Predictor) -> None:
        keys, names = predictor.classes.keys, predictor.classes.names

        def start(number: int) -> str:
            key, name = (json.dumps(text, ensure_ascii=False) for text in (keys[number], names[number]))
            return f'{{"key": {key}, "name": {name}, "score": '

        self._start = lru_cache(_MOST_WORDS)(start)

    def __call__(self, block: ArrayBlock) -> bytes:
        classes = self._classes(block)
        parts = []
        for row, number in enumerate(range(block.first, block.first + len(block))):
            name = None if block.ids is None else block.ids[row]
            own = "" if name is None else f'"id": {json.dumps(name, ensure_ascii=False)}, '
            parts.append(f'{{"query": {number}, {own}"classes": [{classes[row]}]}}\n')
        return "".join(parts).encode()

    def _classes(self, block: ArrayBlock) -> list[str]:
        """The classes of each query, separated by commas."""
        filled_Nk, chances_Nk = block.found.ids_Nk >= 0, block.found.probabilities_Nk
        starts = map(self._start, block.found.ids_Nk[filled_Nk].tolist())
        scores = shown_numbers(block.found.scores_Nk[filled_Nk], 7)
        if chances_Nk is None:
            objects = [f"{start}{score}}}" for start, score in zip(starts, scores, strict=True)]
        else:
            chances = shown_numbers(chances_Nk[filled_Nk], 4)
            objects = [
                f'{start}{score}, "probability": {chance}}}'
                for start, score, chance in zip(starts, scores, chances, strict=True)
            ]
        ends = offsets_from_counts(filled_Nk.sum(axis=1)).tolist()
        return [", ".join(objects[start:end]) for start, end in pairwise(ends)]


class _CsvLines:
    """A line per query and class, as ``answers.csv_lines`` writes it, without the header."""

    def __init__(self, predictor: Predictor) -> None:
        keys, names = predictor.classes.keys, predictor.classes.names
        self._words = lru_cache(_MOST_WORDS)(lambda number: (keys[number], names[number]))

    def __call__(self, block: ArrayBlock) -> bytes:
        filled_Nk, chances_Nk = block.found.ids_Nk >= 0, block.found.probabilities_Nk
        rows_E, _ = np.nonzero(filled_Nk)
        ends = offsets_from_counts(filled_Nk.sum(axis=1))
        columns: list[Any] = [
            (rows_E + block.first).tolist(),
            [None] * len(rows_E) if block.ids is None else [block.ids[row] for row in rows_E.tolist()],
            (np.arange(len(rows_E)) - ends[rows_E] + 1).tolist(),
            *zip(*map(self._words, block.found.ids_Nk[filled_Nk].tolist()), strict=True),
            shown_numbers(block.found.scores_Nk[filled_Nk], 7),
        ]
        if not len(rows_E):
            return b""
        if chances_Nk is not None:
            columns.append(shown_numbers(chances_Nk[filled_Nk], 4))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
        return text.getvalue().encode()


def shown_numbers(numbers: Float32, digits: int) -> Sequence[str]:
    """Rounded to so many digits, as JSON spells them: ``repr(float(f"{number:.{digits}g}"))`` of each."""
    texts = (f"%.{digits}g " * len(numbers) % tuple(numbers.tolist())).split()
    # Where there is a point and no exponent, that is the shortest spelling already.
    return [text if "." in text and "e" not in text else repr(float(text)) for text in texts]


# ---- parquet ----


def id_kind(name: Any) -> str | None:
    """The kind of an id; None for no id."""
    if name is None or isinstance(name, bool | float | str):
        return None if name is None else type(name).__name__
    return "int" if -_LARGEST_INT <= name < _LARGEST_INT else "str"


def encoded_arrow(block: ArrayBlock) -> bytes:
    """The length of an Arrow stream, and the stream: number, id as JSON, and arrays of class ids, scores and
    probabilities of each query."""
    import pyarrow as pa

    filled_Nk, chances_Nk = block.found.ids_Nk >= 0, block.found.probabilities_Nk
    offsets = pa.array(offsets_from_counts(filled_Nk.sum(axis=1)).astype(np.int32))
    found = {"class": block.found.ids_Nk.astype(np.int32), "score": block.found.scores_Nk}
    found |= {} if chances_Nk is None else {"probability": chances_Nk}
    classes = pa.StructArray.from_arrays([pa.array(part[filled_Nk]) for part in found.values()], list(found))
    names = [
        None if name is None else json.dumps(name, ensure_ascii=False) for name in block.ids or [None] * len(block)
    ]
    batch = pa.record_batch(
        {
            "query": pa.array(np.arange(block.first, block.first + len(block))),
            "id": pa.array(names, pa.string()),
            "classes": pa.ListArray.from_arrays(offsets, classes),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return struct.pack(_LENGTH, len(encoded)) + encoded


def write_parquet(encoded: IO[bytes], file: IO[bytes], predictor: Predictor, id_kinds: Sequence[str]) -> None:
    """The streams of ``encoded_arrow`` as a parquet file: query, id, classes: list<struct<key, name, score,
    probability>>. Ids of one kind keep it; others become text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    id_type = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}.get("".join(id_kinds), pa.string())
    members = [("key", pa.string()), ("name", pa.string()), ("score", pa.float32())]
    members += [] if predictor.record.calibration is None else [("probability", pa.float32())]
    schema = pa.schema([("query", pa.int64()), ("id", id_type), ("classes", pa.list_(pa.struct(members)))])
    with pq.ParquetWriter(file, schema) as writer:
        for batch in _groups(encoded):
            writer.write_batch(_named(batch, schema, predictor), row_group_size=batch.num_rows)


def _groups(encoded: IO[bytes]) -> Iterator[Any]:
    """Record batches of enough rows for a group."""
    import pyarrow as pa

    pending: list[Any] = []
    while length := encoded.read(struct.calcsize(_LENGTH)):
        (num_bytes,) = struct.unpack(_LENGTH, length)
        pending.append(pa.ipc.open_stream(encoded.read(num_bytes)).read_next_batch())
        num_answers = sum(len(batch["classes"].values) for batch in pending)
        if sum(batch.num_rows for batch in pending) >= _GROUP_ROWS or num_answers >= _GROUP_ANSWERS:
            yield pa.concat_batches(pending)
            pending = []
    if pending:
        yield pa.concat_batches(pending)


def _named(batch: Any, schema: Any, predictor: Predictor) -> Any:
    """With keys and names for the ids of classes, and ids of queries in the type of the schema."""
    import pyarrow as pa

    lists, id_type = batch["classes"], schema.field("id").type
    found = lists.flatten()
    numbers, places = np.unique(found.field("class").to_numpy(), return_inverse=True)
    parts = [
        pa.array([table[number] for number in numbers.tolist()], pa.string()).take(pa.array(places))
        for table in (predictor.classes.keys, predictor.classes.names)
    ]
    parts += [found.field(place) for place in range(1, found.type.num_fields)]
    names = [field.name for field in schema.field("classes").type.value_type]
    ids = [None if text is None else json.loads(text) for text in batch["id"].to_pylist()]
    if id_type == pa.string():
        ids = [name if name is None or isinstance(name, str) else json.dumps(name) for name in ids]
    classes = pa.ListArray.from_arrays(lists.offsets, pa.StructArray.from_arrays(parts, names))
    columns = [batch["query"], pa.array(ids, id_type), classes]
    return pa.record_batch(columns, schema=schema)
