"""The ``meta.json`` of a store, validated before it is used: each field, and the layout of each array."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from owlmine.errors import DataError, OwlmineError, excerpt

FORMAT_NAME = "owlmine-store"
FORMAT_VERSION = 1
_MAX_COUNT = 2**62
_MAX_SHOWN = 60
_SPLIT_COUNTS = (
    "points",
    "points_read",
    "labels",
    "feature_entries",
    "emptied_of_labels",
    "emptied_of_features",
    "without_label",
    "unseen_labels_dropped",
)
_OPTIONAL_TABLES = {"classes.names": ("offsets", "bytes"), "classes.features": ("offsets", "indices", "values")}

Layout = tuple[str, str, tuple[int | None, ...]]
"""Name, dtype and shape of an array; None for a length that only the array itself knows."""


def read_meta(path: Path) -> dict[str, Any]:
    """``meta.json``, checked for format, version, its own checksum, and the meaning of its fields."""
    file = path / "meta.json"
    if not file.is_file():
        raise DataError(path, found="no meta.json", wanted="a store (make one with: owlmine data convert)")
    try:
        meta = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise OwlmineError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(file, found=f"text that is not JSON ({error})", wanted="the store's description") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT_NAME:
        raise DataError(file, found="another kind of file", wanted=f'"format": "{FORMAT_NAME}"')
    if meta.get("version") != FORMAT_VERSION:
        raise DataError(
            file,
            found=f"store version {_shown(meta.get('version'))}",
            wanted=f"version {FORMAT_VERSION} (convert the data again with this release)",
        )
    if meta.get("checksum") != meta_checksum(meta):
        raise DataError(file, found="a checksum that does not match the content", wanted="an unchanged meta.json")
    _Meta(file).check(meta)
    return meta


def meta_checksum(meta: dict[str, Any]) -> str:
    """SHA-256 of the description without its own checksum, in a canonical spelling."""
    content = {key: value for key, value in meta.items() if key != "checksum"}
    # A lone surrogate, which JSON can encode and UTF-8 cannot; no store of ours has one.
    text = json.dumps(content, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()


def damaged(file: Path, *, found: str, wanted: str) -> DataError:
    """The error for a damaged file of a store."""
    return DataError(file, found=found, wanted=f"{wanted}: the store is damaged; run owlmine data verify {file.parent}")


class _Meta:
    """Checks of one description; errors name the file and the field."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def check(self, meta: dict[str, Any]) -> None:
        self._field(meta, "queries", meta.get("queries") in ("sparse", "dense"), "sparse or dense")
        self._count(meta, "features", least=0)
        self._count(meta, "classes", least=1)
        self._field(meta, "keep_empty", isinstance(meta.get("keep_empty"), bool), "true or false")
        splits = self._object(meta, "splits")
        for name, split in splits.items():
            self._field(splits, name, name in ("train", "dev", "test") and isinstance(split, dict), "a known split")
            for what in _SPLIT_COUNTS:
                self._count(split, what, least=int(name == "train" and what == "points"))
            accepted = self._object(split, "accepted")
            for what in accepted:
                self._count(accepted, what, least=0)
        self._weighting(meta)
        arrays = self._object(meta, "arrays")
        for name, entry in arrays.items():
            plain = "/" not in name and "\\" not in name and "\0" not in name
            self._field(arrays, name, plain and isinstance(entry, dict), "an array of the store")
            shape = entry.get("shape")
            self._field(entry, "shape", isinstance(shape, list) and all(map(_is_count, shape)), "a list of lengths")
            self._field(entry, "dtype", isinstance(entry.get("dtype"), str), "the type of an array")
            self._field(entry, "sha256", isinstance(entry.get("sha256"), str), "a checksum")
            self._count(entry, "bytes", least=0)
        self._layouts(meta, arrays)

    def _weighting(self, meta: dict[str, Any]) -> None:
        weighting = self._object(meta, "weighting")
        self._field(weighting, "kind", weighting.get("kind") in ("none", "tfidf"), "none or tfidf")
        self._field(weighting, "why", isinstance(weighting.get("why"), str), "text")
        if weighting["kind"] == "tfidf":
            self._count(weighting, "documents", least=1)
            self._count(weighting, "df_offset", least=0, most=1)
        if "first_feature" in weighting:
            self._count(weighting, "first_feature", least=0, most=1)
        if "text" in weighting:
            text = self._object(weighting, "text")
            self._count(text, "ngrams", least=1, most=5)
            self._count(text, "hash_bits", least=0, most=27)
            bits = text["hash_bits"]
            self._field(text, "hash_bits", not bits or meta["features"] == 2**bits, "the logarithm of features")

    def _layouts(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        required = {layout[0] for layout in _required(meta)}
        strings = {f"{split}.{what}": ("offsets", "bytes") for split in meta["splits"] for what in ("ids", "texts")}
        for table, parts in (_OPTIONAL_TABLES | strings).items():
            if any(f"{table}.{part}" in arrays for part in parts):
                required |= {f"{table}.{part}" for part in parts}
        if missing := sorted(required - arrays.keys()):
            raise DataError(self._file, found=f"no array {missing[0]}", wanted="one, as the description implies")
        for name, dtype, shape in (*_required(meta), *_optional(meta)):
            if (entry := arrays.get(name)) is None:
                continue
            found = entry["shape"]
            fits = len(found) == len(shape) and all(w in (None, f) for w, f in zip(shape, found, strict=True))
            if entry["dtype"] != dtype or not fits:
                sizes = " x ".join("any" if length is None else f"{length:,}" for length in shape)
                raise DataError(
                    self._file,
                    found=f"{name} of dtype {_shown(entry['dtype'])} and shape {_shown(found)}",
                    wanted=f"dtype {dtype!r} and shape {sizes}, according to the rest of the description",
                )

    def _object(self, owner: dict[str, Any], name: str) -> dict[str, Any]:
        self._field(owner, name, isinstance(owner.get(name), dict), "an object")
        inner: dict[str, Any] = owner[name]
        return inner

    def _count(self, owner: dict[str, Any], name: str, *, least: int, most: int = _MAX_COUNT) -> None:
        value: Any = owner.get(name)
        wanted = f"a whole number of {least} or more" if most == _MAX_COUNT else f"{least} to {most}"
        self._field(owner, name, _is_count(value) and least <= value <= most, wanted)

    def _field(self, owner: dict[str, Any], name: str, good: bool, wanted: str) -> None:
        if not good:
            found = f"{_shown(owner[name])} as {excerpt(name)}" if name in owner else f"no {excerpt(name)}"
            raise DataError(self._file, found=found, wanted=wanted)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT


def _required(meta: dict[str, Any]) -> Iterator[Layout]:
    num_features, num_classes, weighting = meta["features"], meta["classes"], meta["weighting"]
    yield "classes.counts", "<i8", (num_classes,)
    yield from _strings("classes.keys", num_classes)
    for name, split in meta["splits"].items():
        num_points, num_labels, num_entries = split["points"], split["labels"], split["feature_entries"]
        yield f"{name}.labels.offsets", "<i8", (num_points + 1,)
        yield f"{name}.labels.indices", "<i4", (num_labels,)
        if meta["queries"] == "dense":
            yield f"{name}.queries", "<f4", (num_points, num_features)
        else:
            yield f"{name}.features.offsets", "<i8", (num_points + 1,)
            yield f"{name}.features.indices", "<i4", (num_entries,)
            yield f"{name}.features.values", "<f4", (num_entries,)
    if weighting["kind"] == "tfidf" or "text" in weighting:
        yield "weighting.frequencies", "<i8", (num_features,)
    if "text" in weighting and not weighting["text"]["hash_bits"]:
        yield from _strings("vocabulary", num_features)


def _optional(meta: dict[str, Any]) -> Iterator[Layout]:
    num_classes = meta["classes"]
    yield from _strings("classes.names", num_classes)
    yield "classes.features.offsets", "<i8", (num_classes + 1,)
    yield "classes.features.indices", "<i4", (None,)
    entries = meta["arrays"].get("classes.features.indices", {"shape": [None]})["shape"][:1]
    yield "classes.features.values", "<f4", tuple(entries)
    for name, split in meta["splits"].items():
        yield f"{name}.labels.values", "<f4", (split["labels"],)
        yield f"{name}.filter", "<i8", (None, 2)
        yield f"{name}.topics", "<i4", (split["points"],)
        for what in ("ids", "texts"):
            yield from _strings(f"{name}.{what}", split["points"])
        yield f"{name}.left_out", "<i8", (None,)
    yield "truth.topic_classes", "<i4", (None, None)
    yield "truth.probabilities", "<f8", (None,)


def _strings(name: str, count: int) -> Iterator[Layout]:
    yield f"{name}.offsets", "<i8", (count + 1,)
    yield f"{name}.bytes", "|u1", (None,)
