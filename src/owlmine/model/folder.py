"""The model on disk: ``config.json``, three safetensors files, a fourth for a re-ranker, and a card; no pickle at all.

``config.json`` is written last: a folder without it holds no finished model. Tensors are memory-mapped when loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

import owlmine
from owlmine.data.arrays import StringTable
from owlmine.data.store import meta_checksum
from owlmine.data.text import TextVectoriser, TfIdf, TokenOptions
from owlmine.errors import DataError, OwlmineError
from owlmine.files import sha256_of
from owlmine.model.calibration import Calibration
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.model.retriever import ModelShape, Retriever
from owlmine.model.whole_files import write_tensors, write_text
from owlmine.rerank import DensePoints, Neighbours, Reranker

FORMAT_NAME = "owlmine-model"
FORMAT_VERSION = 1
_FILES = ("weights", "classes", "features")
_RERANKER = "reranker"


def save_model(folder: Path, predictor: Predictor, card: str) -> None:
    """Writes the model into an existing folder. Each file appears whole; ``config.json`` comes last."""
    parts = {
        "weights": predictor.retriever.tensors(),
        "classes": _class_tensors(predictor.classes),
        "features": _feature_tensors(predictor.features),
    }
    if predictor.reranker is not None:
        parts[_RERANKER] = predictor.reranker.tensors()
    config = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "written_by": f"owlmine {owlmine.__version__}",
        "shape": predictor.retriever.shape.to_dict(),
        "num_points": predictor.classes.num_points,
        "weighting": predictor.features.weighting,
        **predictor.config,
    }
    if predictor.reranker is not None:
        config[_RERANKER] = predictor.reranker.to_dict()
    try:
        for name, tensors in parts.items():
            write_tensors(folder / f"{name}.safetensors", tensors)
        config["sha256"] = {name: sha256_of(folder / f"{name}.safetensors") for name in parts}
        config["checksum"] = meta_checksum(config)
        write_text(folder / "README.md", card)
        write_text(folder / "config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise OwlmineError(f"{folder}: the model cannot be written: {error}") from error


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Predictor:
    """Opens a model folder. Loading never runs code from it."""
    path = Path(path)
    config = _read_config(path)
    try:
        shape = ModelShape(**config["shape"])
        tensors = {name: load_file(path / f"{name}.safetensors") for name in _files_of(config)}
        weights = {name: tensor.to(device) for name, tensor in tensors["weights"].items()}
        classes = _classes(tensors["classes"], config["num_points"])
        _check_sizes(shape, weights, classes)
        features = _features(tensors["features"], config["weighting"])
        _check_calibration(config, shape)
        reranker = _reranker(config, tensors, shape)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        found = f"a model that cannot be read ({type(error).__name__}: {error})"
        raise DataError(path, found=found, wanted="an unharmed model folder") from error
    retriever = Retriever.from_tensors(shape, weights)
    if reranker is not None:
        reranker = reranker.on(retriever.device)
    return Predictor(retriever, classes, features, config, reranker=reranker)


def verify_model(path: str | Path) -> list[str]:
    """Files that are missing or whose checksum differs."""
    path = Path(path)
    config = _read_config(path)
    sums = config.get("sha256", {})
    files = {name: path / f"{name}.safetensors" for name in _files_of(config)}
    damaged = [f.name for name, f in files.items() if not f.is_file() or sha256_of(f) != sums.get(name)]
    return damaged if config.get("checksum") == meta_checksum(config) else [*damaged, "config.json"]


def _files_of(config: dict[str, Any]) -> tuple[str, ...]:
    return (*_FILES, _RERANKER) if _RERANKER in config else _FILES


def _reranker(config: dict[str, Any], tensors: dict[str, dict[str, Tensor]], shape: ModelShape) -> Reranker | None:
    if _RERANKER not in config:
        return None
    reranker = Reranker.from_parts(config[_RERANKER], tensors[_RERANKER])
    sizes = reranker.ranker.shape
    if sizes != (shape.num_classes, shape.num_features) or shape.dense:
        raise ValueError(f"a re-ranker of {sizes[0]} classes and {sizes[1]} features; config.json tells of {shape}")
    _check_neighbours(reranker.neighbours, shape)
    return reranker


def _check_neighbours(neighbours: Neighbours | None, shape: ModelShape) -> None:
    if neighbours is None:
        return
    points, num_classes = neighbours.points, neighbours.num_classes
    if isinstance(points, DensePoints):
        found, wanted = points.vectors_PW.shape[1] * shape.heads, shape.dim
    else:
        found, wanted = points.num_features, shape.num_features
    if found != wanted or num_classes > shape.num_classes:
        raise ValueError(f"neighbours of {num_classes} classes and width {found}; config.json tells of {shape}")


def _read_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        wanted = "a model folder (made by: owlmine train)"
        if not path.exists():
            raise DataError(path, found="no such folder", wanted=wanted)
        if (path / "run.json").is_file():
            raise DataError(
                path, found="an unfinished run", wanted="a finished model (go on with: owlmine train --resume)"
            )
        raise DataError(path, found="no config.json", wanted=wanted)
    try:
        config = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise OwlmineError(f"{file}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(file, found=f"text that is not JSON ({error})", wanted="the model's description") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT_NAME:
        raise DataError(file, found="another kind of file", wanted=f'"format": "{FORMAT_NAME}"')
    if config.get("version") != FORMAT_VERSION:
        raise DataError(file, found=f"model version {config.get('version')!r}", wanted=f"version {FORMAT_VERSION}")
    return config


def _check_sizes(shape: ModelShape, weights: dict[str, Tensor], classes: ClassWords) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if found != shape.tensor_shapes:
        raise ValueError(f"tensors {found}; config.json tells of {shape.tensor_shapes}")
    lengths = {len(classes.keys), len(classes.names), len(classes.counts)}
    if lengths != {shape.num_classes}:
        raise ValueError(f"words of {lengths} classes; config.json tells of {shape.num_classes}")


def _check_calibration(config: dict[str, Any], shape: ModelShape) -> None:
    told = config.get("calibration")
    if told is not None and (depth := Calibration.from_dict(told).depth) > shape.num_classes:
        raise ValueError(f"a calibration by the {depth} best classes; config.json tells of {shape.num_classes}")


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
