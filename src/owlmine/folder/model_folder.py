"""The model on disk: ``config.json``, safetensors files for weights, classes, features and judges, and a card.

``config.json`` is written last: a folder without it holds no finished model. It has checksums of itself and of the
other files, and nothing is loaded before they fit. There is no pickle in it: loading never runs code. Tensors are
memory-mapped.
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

from owlmine.data.store import meta_checksum
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import DataError, OwlmineError
from owlmine.files import KnownChecksums, sha256_of, write_text
from owlmine.folder.card import model_card
from owlmine.folder.tensor_files import write_tensors
from owlmine.folder.words import class_tensors, class_words, feature_tensors, feature_words
from owlmine.rank.predictor import Predictor
from owlmine.rank.ranker import Ranker
from owlmine.rank.record import Record
from owlmine.version import __version__

FORMAT_NAME = "owlmine-model"
FORMAT_VERSION = 2
_FILES = ("weights", "classes", "features", "ranker")
_FIELDS = {"format", "version", "written_by", "shape", "num_points", "weighting", "ranker", "record"}


def save_model(folder: Path, predictor: Predictor, card: str | None = None) -> None:
    """Writes the model into an existing folder. Each file appears whole; ``config.json`` comes last.

    ``card``: the text of its README, where that is not the usual one.
    """
    parts = {
        "weights": predictor.dense.tensors(),
        "classes": class_tensors(predictor.classes),
        "features": feature_tensors(predictor.features),
        "ranker": predictor.ranker.tensors(),
    }
    config = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "written_by": f"owlmine {__version__}",
        "shape": predictor.dense.shape.to_dict(),
        "num_points": predictor.classes.num_points,
        "weighting": predictor.features.weighting,
        "ranker": predictor.ranker.to_dict(),
        "record": predictor.record.to_dict(),
    }
    try:
        for name, tensors in parts.items():
            write_tensors(folder / f"{name}.safetensors", tensors)
        config["sha256"] = {name: sha256_of(folder / f"{name}.safetensors") for name in parts}
        config["checksum"] = meta_checksum(config)
        write_text(folder / "README.md", model_card(predictor) if card is None else card)
        write_text(folder / "config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise OwlmineError(f"{folder}: the model cannot be written: {error}") from error


def load_model(path: str | Path, *, device: str | torch.device = "cpu") -> Predictor:
    """Opens a model folder. Loading never runs code from it.

    Files are read once against their checksums; the outcome is remembered for as long as they stay untouched.
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
    return [_config_file(path), *(path / f"{name}.safetensors" for name in _FILES)]


def _assembled(path: Path, config: dict[str, Any], device: torch.device) -> Predictor:
    """The model out of files whose checksums fit. They may still hold anything: checksums can be made anew."""
    config_file, files = path / "config.json", {name: path / f"{name}.safetensors" for name in _FILES}
    tensors = {name: _read_tensors(file) for name, file in files.items()}
    with _blaming(config_file):
        shape = ModelShape(**config["shape"])
        record = Record.from_dict(config["record"])
        if record.calibration is not None and record.calibration.depth > shape.num_classes:
            depth = record.calibration.depth
            raise ValueError(f"a calibration by the {depth} best classes; there are {shape.num_classes}")
    with _blaming(files["weights"]):
        weights = {name: tensor.to(device) for name, tensor in tensors["weights"].items()}
        _check_weights(shape, weights)
        dense = Retriever.from_tensors(shape, weights)
    with _blaming(files["classes"]):
        classes = class_words(tensors["classes"], shape.num_classes, config["num_points"])
    with _blaming(files["features"]):
        features = feature_words(tensors["features"], config["weighting"], shape)
    with _blaming(files["ranker"]):
        ranker = Ranker.load(config["ranker"], tensors["ranker"], dense)
    return Predictor(dense, ranker.on(device), classes, features, record)


@contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Names the file whose content makes no sense."""
    try:
        yield
    except (OSError, SafetensorError, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        found = f"content that cannot be read ({type(error).__name__}: {error})"
        raise DataError(file, found=found, wanted="an unharmed model folder") from error


def _damage(path: Path, config: dict[str, Any], checksum_of: Callable[[Path], str]) -> Iterator[DataError]:
    """Files that are missing, or not what they were when the model was saved."""
    config_file, as_saved = path / "config.json", "the model folder as it was saved; copy it again"
    checksums = config.get("sha256")
    if not _checksum_fits(config):
        yield DataError(config_file, found="a checksum that does not fit the content", wanted=as_saved)
    if not isinstance(checksums, dict) or set(checksums) != set(_FILES):
        found = f"checksums of {', '.join(checksums or ()) or 'no file'}"
        yield DataError(config_file, found=found, wanted=f"one each of {', '.join(_FILES)}")
        return
    if changed := sorted(set(config) ^ {*_FIELDS, "sha256", "checksum"}):
        found = f"content that cannot be read (fields missing or unknown: {', '.join(changed)})"
        yield DataError(config_file, found=found, wanted="an unharmed model folder")
        return
    for name in _FILES:
        file = path / f"{name}.safetensors"
        if not file.is_file():
            yield DataError(file, found="no such file", wanted=as_saved)
            continue
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


def _read_tensors(file: Path) -> dict[str, Tensor]:
    with _blaming(file):
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
        raise ValueError(f"tensors {found}; by config.json they are {shape.tensor_shapes}")
    for name, tensor in weights.items():
        if tensor.dtype != torch.float32:
            raise ValueError(f"{name} is {tensor.dtype}; wanted float32")


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
    if (version := config.get("version")) != FORMAT_VERSION:
        by = f", written by {config['written_by']}" if isinstance(config.get("written_by"), str) else ""
        wanted = f"version {FORMAT_VERSION}; train the model again with owlmine train"
        if isinstance(version, int) and version > FORMAT_VERSION:
            wanted = f"version {FORMAT_VERSION}; load the model with a newer owlmine"
        raise DataError(file, found=f"model version {version!r}{by}", wanted=wanted)
    return config
