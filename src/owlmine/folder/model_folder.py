"""The model on disk: ``config.json``, safetensors files for weights, classes, features and judges, a card, and an index
where there is one.

``config.json`` is written last: a folder without it has no finished model. It has checksums of itself and of the other
files, and nothing is loaded before they are verified. There is no pickle in the folder: loading never runs code.
Tensors are memory-mapped.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from owlmine.data.store import PointWords, meta_checksum
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import DataError, OwlmineError
from owlmine.files import KnownChecksums, sha256_of, whole_file, write_text
from owlmine.folder.card import model_card
from owlmine.folder.tensor_files import write_tensors
from owlmine.folder.words import class_tensors, class_words, feature_tensors, feature_words, point_tensors, point_words
from owlmine.index import ApproximateIndex, ExactIndex, Index
from owlmine.index.approximate import check_version, faiss_module
from owlmine.mining.coded_rows import Table
from owlmine.rank.predictor import Predictor
from owlmine.rank.ranker import Ranker
from owlmine.rank.record import Record
from owlmine.version import __version__

FORMAT_NAME = "owlmine-model"
FORMAT_VERSION = 4
_FILES = ("weights", "classes", "features", "ranker")
# Only where something is known of the points that vote.
_POINTS = "points"
_INDEX = "index.faiss"
_FIELDS = {"format", "version", "written_by", "shape", "num_points", "weighting", "ranker", "index", "record"}
# Fields of a version and later ones; folders of version 3 and later can be loaded.
_OLDEST, _SINCE = 3, {4: {_POINTS}}


def save_model(folder: Path, predictor: Predictor, card: str | None = None) -> None:
    """Writes the model into an existing folder. Each file appears whole; ``config.json`` comes last.

    ``card``: the text of its README, if not the usual one.
    """
    parts = {
        "weights": predictor.dense.tensors(),
        "classes": class_tensors(predictor.classes),
        "features": feature_tensors(predictor.features),
        "ranker": predictor.ranker.tensors(),
    }
    if predictor.points:
        parts[_POINTS] = point_tensors(predictor.points)
    config = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "written_by": f"owlmine {__version__}",
        "shape": predictor.dense.shape.to_dict(),
        "num_points": predictor.classes.num_points,
        _POINTS: bool(predictor.points),
        "weighting": predictor.features.weighting,
        "ranker": predictor.ranker.to_dict(),
        "index": predictor.index.to_dict() if isinstance(predictor.index, ApproximateIndex) else None,
        "record": predictor.record.to_dict(),
    }
    try:
        writers = {name: partial(write_tensors, folder / f"{name}.safetensors", own) for name, own in parts.items()}
        if isinstance(predictor.index, ApproximateIndex):
            writers["index"] = partial(_write_index, folder, predictor.index)

        def write(name: str, file: str) -> str:
            writers[name]()
            return sha256_of(folder / file)

        files = _files_of(config)
        with ThreadPoolExecutor(len(files), thread_name_prefix="owlmine-writer") as pool:
            config["sha256"] = dict(zip(files, pool.map(write, files, files.values()), strict=True))
        write_text(folder / "README.md", model_card(predictor) if card is None else card)
        _write_config(folder, config)
    except OSError as error:
        raise OwlmineError(f"{folder}: the model cannot be written: {error}") from error


def save_index(path: Path, index: ApproximateIndex, figures: Mapping[str, float]) -> None:
    """Writes an index into a model folder, and replaces an earlier one. ``figures``: how good it is.

    A process killed between the two writes leaves a model that is refused for its index, and can be searched exactly.
    """
    config = _read_config(_config_file(path))
    config["index"] = index.to_dict() | {"figures": dict(figures)}
    try:
        _write_index(path, index)
        config["sha256"] = config["sha256"] | {"index": sha256_of(path / _INDEX)}
        _write_config(path, config)
    except OSError as error:
        raise OwlmineError(f"{path}: the index cannot be written: {error}") from error


def _write_index(folder: Path, index: ApproximateIndex) -> None:
    with whole_file(folder / _INDEX) as file:
        file.write(index.to_bytes().data)


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    config.pop("checksum", None)
    config["checksum"] = meta_checksum(config)
    write_text(folder / "config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n")


def _files_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The files that answers depend on, by the names of their checksums."""
    names = (*_FILES, _POINTS) if config.get(_POINTS) is True else _FILES
    files = {name: f"{name}.safetensors" for name in names}
    return files if config.get("index") is None else files | {"index": _INDEX}


def load_model(path: str | Path, *, device: str | torch.device = "cpu", exact: bool = False) -> Predictor:
    """Opens a model folder. Loading never runs code from it.

    Files are read once against their checksums; the outcome is remembered for as long as they stay untouched.
    ``exact``: do not read the index.
    """
    path = Path(path)
    config = _read_config(_config_file(path))
    for damage in _damage(path, config, KnownChecksums().of, exact=exact):
        raise damage
    return _assembled(path, config, torch.device(device), exact=exact)


def verify_model(path: str | Path) -> list[DataError]:
    """The damaged files: every file is read, even if its checksum is remembered. Raises DataError if there is no
    model."""
    path = Path(path)
    file = _config_file(path)
    try:
        config = _read_config(file)
        found = list(_damage(path, config, sha256_of))
        if not found:
            points = _assembled(path, config, torch.device("cpu"), exact=False).points
            for table in (points.ids, points.texts):
                for _ in table or ():
                    pass
    except DataError as error:
        return [error]
    return found


@dataclass(frozen=True)
class FolderFacts:
    """What ``config.json`` says besides the model itself."""

    checksum: str
    """Of the description, which has those of all files: it names this version of the model."""
    index: Mapping[str, Any] | None
    """How good the index is; None without one."""


def read_facts(path: str | Path) -> FolderFacts:
    """Reads ``config.json`` alone."""
    file = _config_file(Path(path))
    config = _read_config(file)
    if not _checksum_fits(config):
        raise DataError(file, found="a checksum that does not match the content", wanted="the folder as it was saved")
    index = config.get("index")
    figures = index.get("figures") if isinstance(index, dict) else None
    return FolderFacts(config["checksum"], None if index is None else {"kind": index.get("kind"), **(figures or {})})


def files_of_model(path: str | Path) -> list[Path]:
    """The files that answers depend on."""
    file = _config_file(Path(path))
    return [file, *(file.with_name(name) for name in _files_of(_read_config(file)).values())]


def model_checksum(path: str | Path) -> str:
    """Of the model's description, which has the checksums of the files that answers depend on."""
    checksum: str = _read_config(_config_file(Path(path)))["checksum"]
    return checksum


def _assembled(path: Path, config: dict[str, Any], device: torch.device, *, exact: bool) -> Predictor:
    """Loads the model from files with matching checksums. Their content may still be anything: checksums can be
    forged."""
    config_file = path / "config.json"
    files = {name: path / file for name, file in _files_of(config).items() if name != "index"}
    tensors = {name: _read_tensors(file) for name, file in files.items()}
    with _blaming(config_file):
        if not isinstance(config.get(_POINTS, False), bool):
            raise ValueError(f"points are {config[_POINTS]!r}; wanted true or false")
        shape = ModelShape(**config["shape"])
        record = Record.from_dict(config["record"])
        if record.calibration is not None and record.calibration.depth > shape.num_classes:
            depth = record.calibration.depth
            raise ValueError(f"a calibration on the {depth} best classes; there are {shape.num_classes}")
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
    points = PointWords()
    if _POINTS in files:
        with _blaming(files[_POINTS]):
            points = point_words(tensors[_POINTS], ranker.num_voters, files[_POINTS])
    index: Index | None = None
    if config["index"] is not None and not exact and device.type == "cpu":
        index = _load_index(path / _INDEX, config["index"], dense.rows)
    return Predictor(dense, ranker, classes, features, record, index or ExactIndex(dense.rows), points)


def _load_index(file: Path, record: Mapping[str, Any], table_KD: Table) -> ApproximateIndex | None:
    """None, with a warning, if faiss is not installed."""
    if faiss_module() is None:
        warnings.warn(f"{file}: faiss is not installed, so exact search is used", RuntimeWarning, stacklevel=2)
        return None
    try:
        check_version(record)
        index = ApproximateIndex.from_bytes(np.fromfile(file, np.uint8), table_KD)
    except (OSError, AttributeError, ValueError) as error:
        wanted = f"an index of this model; build it again with: owlmine index {file.parent}, or search with --exact"
        raise DataError(file, found=f"an index that cannot be used: {error}", wanted=wanted) from error
    return index


@contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Names the file with invalid content."""
    try:
        yield
    except (OSError, SafetensorError, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        found = f"content that cannot be read ({type(error).__name__}: {error})"
        raise DataError(file, found=found, wanted="an intact model folder") from error


def _damage(
    path: Path, config: dict[str, Any], checksum_of: Callable[[Path], str], *, exact: bool = False
) -> Iterator[DataError]:
    """Files that are missing or have changed since the model was saved."""
    config_file, as_saved = path / "config.json", "the model folder as it was saved; copy it again"
    checksums = config.get("sha256")
    if not _checksum_fits(config):
        yield DataError(config_file, found="a checksum that does not match the content", wanted=as_saved)
    files = _files_of(config)
    if not isinstance(checksums, dict) or set(checksums) != set(files):
        found = f"checksums of {', '.join(checksums or ()) or 'no file'}"
        yield DataError(config_file, found=found, wanted=f"one each of {', '.join(files)}")
        return
    wanted = _FIELDS.union(
        {"sha256", "checksum"}, *(new for since, new in _SINCE.items() if config["version"] >= since)
    )
    if changed := sorted(set(config) ^ wanted):
        found = f"content that cannot be read (fields missing or unknown: {', '.join(changed)})"
        yield DataError(config_file, found=found, wanted="an intact model folder")
        return
    for name, file_name in files.items():
        file = path / file_name
        if name == "index":
            if exact:
                continue
            as_saved = f"the index of this model; build it again with: owlmine index {path}, or search with --exact"
        if not file.is_file():
            yield DataError(file, found="no such file", wanted=as_saved)
            continue
        try:
            checksum = checksum_of(file)
        except OSError as error:
            raise OwlmineError(f"{file}: cannot be read: {error.strerror}") from error
        if checksum != checksums[name]:
            yield DataError(file, found="a checksum that differs from the one in config.json", wanted=as_saved)


def _checksum_fits(config: dict[str, Any]) -> bool:
    try:
        return config.get("checksum") == meta_checksum(config)
    except ValueError:  # half of a surrogate pair, which JSON can encode and UTF-8 cannot
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
    # NaN propagates to the minimum and the maximum; nothing is copied.
    return all(bool(bound.isfinite()) for bound in torch.aminmax(tensor))


def _check_weights(shape: ModelShape, weights: dict[str, Tensor]) -> None:
    found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in weights.items()}
    if found != shape.tensor_shapes:
        raise ValueError(f"tensors {found}; according to config.json they are {shape.tensor_shapes}")


def _config_file(path: Path) -> Path:
    """``config.json`` of a finished model."""
    file = path / "config.json"
    if not file.is_file():
        wanted = "a model folder (made by: owlmine train)"
        if not path.exists():
            raise DataError(path, found="no such folder", wanted=wanted)
        if (path / "run.json").is_file():
            raise DataError(
                path, found="an unfinished run", wanted="a finished model (continue with: owlmine train --resume)"
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
    version = config.get("version")
    if type(version) is not int or not _OLDEST <= version <= FORMAT_VERSION:
        by = f", written by {config['written_by']}" if isinstance(config.get("written_by"), str) else ""
        versions = " or ".join(map(str, range(_OLDEST, FORMAT_VERSION + 1)))
        wanted = f"version {versions}; train the model again with owlmine train"
        if isinstance(version, int) and version > FORMAT_VERSION:
            wanted = f"version {versions}; load the model with a newer owlmine"
        raise DataError(file, found=f"model version {version!r}{by}", wanted=wanted)
    return config
