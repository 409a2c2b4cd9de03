"""Converts the words of a model, of classes and features, to the tensors in its folder and back.

Tensors from a file may have any content: invalid ones raise ValueError, TypeError or KeyError.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.arrays import StringTable
from owlmine.data.store import PointWords
from owlmine.data.text import TfIdf, TokenOptions
from owlmine.dense.retriever import ModelShape
from owlmine.errors import DataError
from owlmine.rank.words import ClassWords, FeatureWords

_STRINGS = ("bytes", "offsets")


def class_tensors(classes: ClassWords) -> dict[str, Tensor]:
    return {
        **_string_tensors("keys", classes.keys),
        **_string_tensors("names", classes.names),
        "counts": torch.from_numpy(np.array(classes.counts)),
    }


def class_words(tensors: Mapping[str, Tensor], num_classes: int, num_points: int) -> ClassWords:
    _check_names(tensors, {*_parts("keys"), *_parts("names"), "counts"})
    keys, names = (_string_table(name, tensors, num_classes) for name in ("keys", "names"))
    return ClassWords(
        keys, names, _counts("counts", tensors, num_classes), _whole("num_points", num_points, 0, 2**63 - 1)
    )


def feature_tensors(features: FeatureWords) -> dict[str, Tensor]:
    tensors = {} if features.vocabulary is None else _string_tensors("vocabulary", features.vocabulary)
    if features.frequencies is not None:
        tensors["frequencies"] = torch.from_numpy(np.array(features.frequencies))
    return tensors


def feature_words(tensors: Mapping[str, Tensor], weighting: dict[str, Any], shape: ModelShape) -> FeatureWords:
    kind, text = weighting["kind"], weighting.get("text")
    if kind not in ("tfidf", "none"):
        raise ValueError(f"the weighting is {kind!r}; wanted tfidf or none")
    options = (
        None
        if text is None
        else TokenOptions(_whole("ngrams", text["ngrams"], 1, 2**31 - 1), _whole("hash_bits", text["hash_bits"], 0, 30))
    )
    has_words = options is not None and not options.hash_bits
    wanted = {"frequencies"} if kind == "tfidf" or text is not None else set()
    _check_names(tensors, wanted | set(_parts("vocabulary")) if has_words else wanted)
    if wanted and shape.dense:
        raise ValueError("features of texts or counts, but config.json says dense vectors")
    frequencies = _counts("frequencies", tensors, shape.num_features) if wanted else None
    vocabulary = _string_table("vocabulary", tensors, shape.num_features) if has_words else None
    tfidf = None
    if frequencies is not None and kind == "tfidf":
        documents = _whole("documents", weighting["documents"], max(int(frequencies.max()), 1), 2**63 - 1)
        tfidf = TfIdf(frequencies, documents, _whole("df_offset", weighting["df_offset"], 0, 1))
    if options is not None:
        if vocabulary is not None and len(set(vocabulary)) < len(vocabulary):
            raise ValueError("a word is in the vocabulary twice")
        if vocabulary is None and shape.num_features != 2**options.hash_bits:
            raise ValueError(f"{options.hash_bits} hash bits, but config.json says {shape}")
    return FeatureWords(weighting, vocabulary, frequencies, tfidf)


def point_tensors(points: PointWords) -> dict[str, Tensor]:
    tables = {"ids": points.ids, "texts": points.texts}
    tensors = {"left_out": torch.from_numpy(np.array(points.left_out))}
    for name, table in tables.items():
        if table is not None:
            tensors |= _string_tensors(name, table)
    return tensors


def point_words(tensors: Mapping[str, Tensor], num_points: int, file: Path) -> PointWords:
    """Of so many points. Strings stay in the file, and are checked when they are read."""
    tables = {
        name: _mapped_strings(name, tensors, num_points, file) for name in ("ids", "texts") if _has(name, tensors)
    }
    _check_names(tensors, {"left_out", *(part for name in tables for part in _parts(name))})
    left_out = _vector("left_out", tensors, torch.int64)
    if left_out.min(initial=0) < 0 or (np.diff(left_out) <= 0).any():
        raise ValueError("rows that were left out do not ascend from 0")
    if not num_points:
        raise ValueError("words of training points, but no training points vote")
    return PointWords(tables.get("ids"), tables.get("texts"), left_out)


def _has(name: str, tensors: Mapping[str, Tensor]) -> bool:
    return any(part in tensors for part in _parts(name))


def _damaged(file: Path, *, found: str, wanted: str) -> DataError:
    return DataError(file, found=found, wanted=f"{wanted}: the model is damaged; copy its folder again")


def _parts(name: str) -> list[str]:
    return [f"{name}.{part}" for part in _STRINGS]


def _string_tensors(name: str, table: StringTable) -> dict[str, Tensor]:
    """They share the memory of the table, which may be a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nor is it written to
        return {part: torch.from_numpy(array) for part, array in zip(_parts(name), table.arrays(), strict=True)}


def _mapped_strings(name: str, tensors: Mapping[str, Tensor], length: int, file: Path) -> StringTable:
    return StringTable(*_string_arrays(name, tensors, length), file=file, error=_damaged)


def _string_table(name: str, tensors: Mapping[str, Tensor], length: int) -> StringTable:
    """``length`` strings in valid UTF-8."""
    data, offsets = _string_arrays(name, tensors, length)
    data.tobytes().decode("utf-8")
    inner = offsets[(offsets > 0) & (offsets < len(data))]
    if (data[inner] & 0xC0 == 0x80).any():
        raise ValueError(f"offsets of {name} point into the middle of a character")
    return StringTable(data, offsets)


def _string_arrays(
    name: str, tensors: Mapping[str, Tensor], length: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of ``length`` strings, and their offsets."""
    data, offsets = (
        _vector(part, tensors, dtype) for part, dtype in zip(_parts(name), (torch.uint8, torch.int64), strict=True)
    )
    if len(offsets) != length + 1:
        raise ValueError(f"{len(offsets) - 1} {name}, but config.json says {length}")
    if offsets[0] != 0 or offsets[-1] != len(data) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets of {name} do not ascend from 0 to the number of bytes, {len(data)}")
    return data, offsets


def _counts(name: str, tensors: Mapping[str, Tensor], length: int) -> NDArray[np.int64]:
    counts = _vector(name, tensors, torch.int64)
    if len(counts) != length:
        raise ValueError(f"{len(counts)} {name}, but config.json says {length}")
    if counts.min() < 0:
        raise ValueError(f"{name} are as low as {counts.min()}; wanted 0 or more")
    return counts


def _vector(name: str, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> NDArray[Any]:
    tensor = tensors[name]
    if tensor.dtype != dtype or tensor.dim() != 1:
        raise ValueError(f"{name} is {tensor.dtype} of shape {list(tensor.shape)}; wanted a vector of {dtype}")
    return np.asarray(tensor.numpy())


def _check_names(tensors: Mapping[str, Tensor], wanted: set[str]) -> None:
    if set(tensors) != wanted:
        raise ValueError(f"tensors are {sorted(tensors)}; wanted {sorted(wanted)}")


def _whole(name: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}; wanted a whole number from {least} to {most}")
    return value
