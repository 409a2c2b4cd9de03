"""The model on disk: ``config.json``, three safetensors files, a fourth for a re-ranker, and a card; no pickle at all.

``config.json`` is written last: a folder without it holds no finished model. It has checksums of itself and of the
other files, and nothing is loaded before they fit. Tensors are memory-mapped when loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

import owlmine
from owlmine.data.store import meta_checksum
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import DataError, OwlmineError
from owlmine.files import KnownChecksums, sha256_of, write_text
from owlmine.model.folder_words import class_tensors, class_words, feature_tensors, feature_words
from owlmine.model.predictor import Predictor
from owlmine.model.whole_files import write_tensors
from owlmine.rank import DensePoints, Neighbours, Reranker
from owlmine.rank.probabilities import Calibration

FORMAT_NAME = "owlmine-model"
FORMAT_VERSION = 1
_FILES = ("weights", "classes", "features")
_RERANKER = "reranker"


def save_model(folder: Path, predictor: Predictor, card: str) -> None:
    """Writes the model into an existing folder. Each file appears whole; ``config.json`` comes last."""
    parts = {
        "weights": predictor.retriever.tensors(),
        "classes": class_tensors(predictor.classes),
        "features": feature_tensors(predictor.features),
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
    """Opens a model folder. Loading never runs code from it.

    Files are read once against their checksums; what was found is remembered for as long as they stay untouched.
    """
    path = Path(path)
    config = _read_config(_config_file(path))
    for damage in _damage(path, config, KnownChecksums().of):
        raise damage
    return _assembled(path, config, torch.device(device))


def verify_model(path: str | Path) -> list[DataError]:
    """What is damaged: every file is read, whatever is remembered of it. Raises DataError where there is no model."""
    path = Path(path)
    file = _config_file(path)
    try:
        config = _read_config(file)
        found = list(_damage(path, config, sha256_of))
        if not found:
            _assembled(path, config, torch.device("cpu"))
    except DataError as error:
        return [error]
    return found


def files_of_model(path: str | Path) -> list[Path]:
    """The files that answers depend on."""
    path = Path(path)
    file = _config_file(path)
    return [file, *(path / f"{name}.safetensors" for name in _parts_of(_read_config(file)))]


def _assembled(path: Path, config: dict[str, Any], device: torch.device) -> Predictor:
    """The model out of files whose checksums fit. They may still hold anything: checksums can be made anew."""
    config_file, files = path / "config.json", {name: path / f"{name}.safetensors" for name in _parts_of(config)}
    tensors = {name: _read_tensors(file) for name, file in files.items()}
    with _told_of(config_file):
        shape = ModelShape(**config["shape"])
        _check_record(config, shape)
    with _told_of(files["weights"]):
        weights = {name: tensor.to(device) for name, tensor in tensors["weights"].items()}
        _check_weights(shape, weights)
    with _told_of(files["classes"]):
        classes = class_words(tensors["classes"], shape.num_classes, config["num_points"])
    with _told_of(files["features"]):
        features = feature_words(tensors["features"], config["weighting"], shape)
    reranker = None
    if _RERANKER in config:
        with _told_of(files[_RERANKER]):
            reranker = _reranker(config, tensors[_RERANKER], shape).on(device)
    return Predictor(Retriever.from_tensors(shape, weights), classes, features, config, reranker=reranker)


@contextmanager
def _told_of(file: Path) -> Iterator[None]:
    """Names the file whose content makes no sense."""
    try:
        yield
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        found = f"content that cannot be read ({type(error).__name__}: {error})"
        raise DataError(file, found=found, wanted="an unharmed model folder") from error


def _damage(path: Path, config: dict[str, Any], checksum_of: Callable[[Path], str]) -> Iterator[DataError]:
    """Files that are missing, too many, or not what they were when the model was saved."""
    config_file, as_saved = path / "config.json", "the model folder as it was saved; copy it again"
    checksums = config.get("sha256")
    if not _checksum_fits(config):
        yield DataError(config_file, found="a checksum that does not fit the content", wanted=as_saved)
    if not isinstance(checksums, dict) or set(checksums) != set(_parts_of(config)):
        wanted = f"one of {', '.join(_parts_of(config))} each"
        yield DataError(config_file, found=f"checksums of {', '.join(checksums or ()) or 'no file'}", wanted=wanted)
        return
    for name in (*_FILES, _RERANKER):
        file = path / f"{name}.safetensors"
        if name not in checksums:
            if file.exists():
                yield DataError(file, found="a file that config.json does not mention", wanted=as_saved)
        elif not file.is_file():
            yield DataError(file, found="no such file", wanted=as_saved)
        else:
            try:
                checksum = checksum_of(file)
            except OSError as error:
                raise OwlmineError(f"{file}: cannot be read: {error.strerror}") from error
            if checksum != checksums[name]:
                yield DataError(file, found="a checksum that is not the one in config.json", wanted=as_saved)


def _checksum_fits(config: dict[str, Any]) -> bool:
    try:
        return config.get("checksum") == meta_checksum(config)
    except ValueError:  # half of a surrogate pair, which JSON can spell and UTF-8 cannot
        return False


def _parts_of(config: dict[str, Any]) -> tuple[str, ...]:
    return (*_FILES, _RERANKER) if _RERANKER in config else _FILES


def _read_tensors(file: Path) -> dict[str, Tensor]:
    with _told_of(file):
        tensors = load_file(file)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel() and not _all_finite(tensor):
            wanted = "finite numbers only; copy the model folder again"
            raise DataError(file, found=f"numbers in {name} that are not finite", wanted=wanted)
    return tensors


def _all_finite(tensor: Tensor) -> bool:
    # NaN is the lowest and the highest of whatever it is among; nothing is copied.
    return all(bool(bound.isfinite()) for bound in torch.aminmax(tensor))


def _check_weights(shape: ModelShape, weights: dict[str, Tensor]) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if found != shape.tensor_shapes:
        raise ValueError(f"tensors {found}; config.json tells of {shape.tensor_shapes}")
    for name, tensor in weights.items():
        if tensor.dtype != torch.float32:
            raise ValueError(f"{name} is {tensor.dtype}; wanted float32")


def _check_record(config: dict[str, Any], shape: ModelShape) -> None:
    """What answers or other verbs take from the record without a second look."""
    about = config.get("calibration")
    if about is not None and (depth := Calibration.from_dict(about).depth) > shape.num_classes:
        raise ValueError(f"a calibration by the {depth} best classes; there are {shape.num_classes}")
    for name, kind in (("data", dict), ("added", list), (_RERANKER, dict)):
        if name in config and not isinstance(config[name], kind):
            raise ValueError(f"{name} is {config[name]!r}; wanted a {kind.__name__}")
    source = config.get("data", {}).get("name")
    if not isinstance(source, str | None):
        raise ValueError(f"the name of the data is {source!r}; wanted a string")


def _reranker(config: dict[str, Any], tensors: dict[str, Tensor], shape: ModelShape) -> Reranker:
    reranker = Reranker.from_parts(config[_RERANKER], tensors)
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


def _config_file(path: Path) -> Path:
    """``config.json``, where there is a finished model."""
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
    return file


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise OwlmineError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(file, found=f"text that is not JSON ({error})", wanted="the model's description") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT_NAME:
        raise DataError(file, found="another kind of file", wanted=f'"format": "{FORMAT_NAME}"')
    if config.get("version") != FORMAT_VERSION:
        raise DataError(file, found=f"model version {config.get('version')!r}", wanted=f"version {FORMAT_VERSION}")
    return config
