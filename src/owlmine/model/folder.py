"""The model on disk: ``config.json``, three safetensors files and a card; no pickle anywhere.

``config.json`` is written last: a folder without it holds no finished model. Tensors are memory-mapped when loaded.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import owlmine
from owlmine.data.arrays import StringTable, sha256_of
from owlmine.data.store_writer import current_umask
from owlmine.data.text import TextVectoriser, TfIdf, TokenOptions
from owlmine.errors import DataError, OwlmineError
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.model.retriever import ModelShape, Retriever

FORMAT_NAME = "owlmine-model"
FORMAT_VERSION = 1
_FILES = ("weights", "classes", "features")


def save_model(folder: Path, predictor: Predictor, card: str) -> None:
    """Writes the model into an existing folder. Each file appears whole; ``config.json`` comes last."""
    parts = {
        "weights": predictor.retriever.tensors(),
        "classes": _class_tensors(predictor.classes),
        "features": _feature_tensors(predictor.features),
    }
    config = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "written_by": f"owlmine {owlmine.__version__}",
        "shape": predictor.retriever.shape.to_dict(),
        "num_points": predictor.classes.num_points,
        "weighting": predictor.features.weighting,
        **predictor.config,
    }
    try:
        for name in _FILES:
            write_tensors(folder / f"{name}.safetensors", parts[name])
        config["sha256"] = {name: sha256_of(folder / f"{name}.safetensors") for name in _FILES}
        write_text(folder / "README.md", card)
        write_text(folder / "config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    except (OSError, SafetensorError) as error:
        raise OwlmineError(f"{folder}: the model cannot be written: {error}") from error


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Predictor:
    """Opens a model folder. Loading never runs code from it."""
    path = Path(path)
    config = _read_config(path)
    shape = ModelShape(**config["shape"])
    try:
        tensors = {name: load_file(path / f"{name}.safetensors") for name in _FILES}
        weights = {name: tensor.to(device) for name, tensor in tensors["weights"].items()}
        retriever = Retriever.from_tensors(shape, weights)
        classes = _classes(tensors["classes"], config["num_points"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        found = f"a model that cannot be read ({error})"
        raise DataError(path, found=found, wanted="an unharmed model folder") from error
    if retriever.classes.weight.shape[0] != shape.num_classes or len(classes.keys) != shape.num_classes:
        raise DataError(path, found="tables of other sizes than config.json says", wanted="an unharmed model folder")
    return Predictor(retriever, classes, _features(tensors["features"], config["weighting"]), config)


def verify_model(path: Path) -> list[str]:
    """Files whose checksum differs."""
    sums = _read_config(path)["sha256"]
    return [f"{name}.safetensors" for name in _FILES if sha256_of(path / f"{name}.safetensors") != sums[name]]


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """A safetensors file that appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, temporary)
        temporary.chmod(0o666 & ~current_umask())  # safetensors makes files that only their owner can read
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """A text file that appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        temporary.write_text(text, "utf-8")
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        raise DataError(path, found="no config.json", wanted="a model folder (made by: owlmine train)")
    try:
        config = json.loads(file.read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(file, found=f"text that is not JSON ({error})", wanted="the model's description") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT_NAME:
        raise DataError(file, found="another kind of file", wanted=f'"format": "{FORMAT_NAME}"')
    if config.get("version") != FORMAT_VERSION:
        raise DataError(file, found=f"model version {config.get('version')!r}", wanted=f"version {FORMAT_VERSION}")
    return config


def _string_tensors(name: str, table: StringTable) -> dict[str, Tensor]:
    data, offsets = table.arrays()
    return {f"{name}.bytes": torch.from_numpy(np.array(data)), f"{name}.offsets": torch.from_numpy(np.array(offsets))}


def _string_table(name: str, tensors: dict[str, Tensor]) -> StringTable:
    return StringTable(tensors[f"{name}.bytes"].numpy(), tensors[f"{name}.offsets"].numpy())


def _class_tensors(classes: ClassWords) -> dict[str, Tensor]:
    return {
        **_string_tensors("keys", classes.keys),
        **_string_tensors("names", classes.names),
        "counts": torch.from_numpy(np.array(classes.counts)),
    }


def _classes(tensors: dict[str, Tensor], num_points: int) -> ClassWords:
    keys, names = _string_table("keys", tensors), _string_table("names", tensors)
    return ClassWords(keys, names, tensors["counts"].numpy(), num_points)


def _feature_tensors(features: FeatureWords) -> dict[str, Tensor]:
    tensors = {} if features.vocabulary is None else _string_tensors("vocabulary", features.vocabulary)
    if features.frequencies is not None:
        tensors["frequencies"] = torch.from_numpy(np.array(features.frequencies))
    return tensors


def _features(tensors: dict[str, Tensor], weighting: dict[str, Any]) -> FeatureWords:
    frequencies = tensors["frequencies"].numpy() if "frequencies" in tensors else None
    vocabulary = _string_table("vocabulary", tensors) if "vocabulary.bytes" in tensors else None
    tfidf = vectoriser = None
    if frequencies is not None and weighting["kind"] == "tfidf":
        tfidf = TfIdf(frequencies, weighting["documents"], weighting["df_offset"])
    if (told := weighting.get("text")) is not None:
        assert frequencies is not None
        tokens = None if vocabulary is None else list(vocabulary)
        vectoriser = TextVectoriser(TokenOptions(told["ngrams"], told["hash_bits"]), tokens, tfidf, frequencies > 0)
    return FeatureWords(weighting, vocabulary, frequencies, vectoriser, tfidf)
