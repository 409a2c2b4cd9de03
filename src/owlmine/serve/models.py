"""The models that are served: loaded from their folders, and reloaded when a folder is replaced."""

from __future__ import annotations

import gc
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

from owlmine.errors import OwlmineError
from owlmine.folder.model_folder import FolderFacts, read_facts
from owlmine.model import Model, load
from owlmine.rank.queries import knows
from owlmine.serve.errors import ServiceError, unavailable
from owlmine.serve.figures import Figures
from owlmine.serve.logs import log

_LOOK_SECONDS = 0.25
_VERSION_DIGITS = 12
# Classes whose names may be examples of queries, and how many are.
_COMMON, _EXAMPLES = 50, 3
_PICTURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.(png|svg)")
# What a config.json is at a moment: changes when it, or its folder, is replaced.
_State = tuple[int, int, int, int, int]


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in memory. It stays usable while requests hold it, even after a newer one took its place."""

    name: str
    model: Model
    facts: FolderFacts
    path: Path
    card: str
    loaded_at: float = field(default_factory=time.time)

    @property
    def version(self) -> str:
        return self.facts.checksum[:_VERSION_DIGITS]

    @cached_property
    def examples(self) -> list[Any]:
        """A few queries that it can answer."""
        return _examples(self.model)

    @property
    def num_classes(self) -> int:
        return len(self.model.classes)

    def pictures(self) -> dict[str, Path]:
        """Pictures of evaluations, in the folder itself, by name."""
        with suppress(OSError):
            return {file.name: file for file in sorted(self.path.iterdir()) if _is_picture(file)}
        return {}

    def class_number(self, key: str) -> int:
        """The class with this key, or with this name if no other has it. Raises ServiceError for an unknown one."""
        # The finder's own error suggests spellings, which takes too long for a service.
        if not self.model.finder.knows(key):
            raise ServiceError(HTTPStatus.NOT_FOUND, "the model has no such class")
        try:
            return int(self.model.finder.find([key])[0])
        except OwlmineError as error:
            raise ServiceError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


class Served:
    """A folder under a name."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.loaded: Loaded | None = None
        self.problem: str | None = None
        """Why the newest folder was refused, for people: without paths."""
        self.state: _State | None = None
        """Of the folder that was loaded or refused last."""


class ServedModels:
    """All models of the service, by name. ``start`` loads them, then looks for replaced folders."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        figures: Figures,
        *,
        warm_up: Callable[[Loaded], None],
        failed: Callable[[OwlmineError], None],
    ) -> None:
        """warm_up: called with a model before it takes over. failed: called if the first load of one fails."""
        self._served = {name: Served(name, path) for name, path in folders.items()}
        self._figures, self._warm_up, self._failed = figures, warm_up, failed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def __iter__(self) -> Any:
        return iter(self._served.values())

    @property
    def ready(self) -> bool:
        """Whether every model has been loaded."""
        return all(served.loaded is not None for served in self._served.values())

    def get(self, name: str) -> Loaded:
        """The current model of that name. Raises ServiceError if there is none."""
        served = self._served.get(name)
        if served is None:
            raise ServiceError(HTTPStatus.NOT_FOUND, "there is no model of that name; GET /v1/models lists all")
        if served.loaded is None:
            raise unavailable("the model is being loaded")
        return served.loaded

    def _run(self) -> None:
        for served in self._served.values():
            try:
                self._load(served)
            except Exception as error:
                expected = isinstance(error, OwlmineError)
                log("model cannot be loaded", level=logging.ERROR, trace=not expected, model=served.name)
                self._failed(error if isinstance(error, OwlmineError) else OwlmineError(f"{served.path}: {error!r}"))
                return
        _spare_the_collector()
        log("ready", models=list(self._served))
        for served in self._served.values():
            assert served.loaded is not None
            _prepare_lookups(served.loaded)
        while not self._stopping.wait(_LOOK_SECONDS):
            for served in self._served.values():
                self._look(served)

    def _look(self, served: Served) -> None:
        """Reloads a model whose folder was replaced. If the new one cannot be loaded, the old one goes on."""
        state = _state_of(served.path)
        if state is None or state == served.state:
            return  # without a folder at this moment: it may be about to be renamed into place
        try:
            self._load(served)
            assert served.loaded is not None
            _prepare_lookups(served.loaded)
            _spare_the_collector()
        except Exception as error:
            # The folder may have changed again while it was being read; then the next look decides.
            if _state_of(served.path) == state:
                served.state, served.problem = state, _without_paths(error, served.path)
                self._figures.loads.labels(served.name, "refused").inc()
                log(
                    "model refused",
                    level=logging.ERROR,
                    trace=not isinstance(error, OwlmineError),
                    model=served.name,
                    error=str(error),
                )

    def _load(self, served: Served) -> None:
        began, state = time.perf_counter(), _state_of(served.path)
        facts, model = read_facts(served.path), load(served.path)
        loaded = Loaded(served.name, model, facts, served.path, _card(served.path))
        self._warm_up(loaded)
        if _state_of(served.path) != state:
            raise OwlmineError(f"{served.path}: changed while it was being loaded")
        before, served.loaded, served.state, served.problem = served.loaded, loaded, state, None
        outcome = "loaded" if before is None else "reloaded"
        self._figures.loads.labels(served.name, outcome).inc()
        log(
            f"model {outcome}",
            model=served.name,
            version=loaded.version,
            classes=loaded.num_classes,
            seconds=round(time.perf_counter() - began, 3),
        )


def _spare_the_collector() -> None:
    """Exempts what is in memory now, a million objects that stay, from garbage collection. Looking through them takes
    150 ms, during which nobody is answered, and would happen every second under load."""
    gc.freeze()
    gc.enable()


def _examples(model: Model) -> list[Any]:
    """A few queries of the kind that the model takes. For texts: names of common classes that hold known words."""
    if model.takes == "text":
        common = np.argsort(-model.classes.counts, kind="stable")[:_COMMON].tolist()
        names = list(dict.fromkeys(model.classes.names[number] for number in common))
        known = knows(model.prepare(names)).tolist()
        return [name for name, is_known in zip(names, known, strict=True) if is_known][:_EXAMPLES] or names[:1]
    num_features = model.dense.shape.num_features
    if model.takes == "sparse vectors":
        return [{"indices": [number], "values": [1.0]} for number in range(min(_EXAMPLES, num_features))]
    return [[1.0] + [0.0] * (num_features - 1)]


def _prepare_lookups(loaded: Loaded) -> None:
    """Makes the tables from keys and names to classes, which take seconds for very many classes, before they are
    needed."""
    loaded.model.finder.knows("")


def _state_of(path: Path) -> _State | None:
    with suppress(OSError):
        stat = (path / "config.json").stat()
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
    return None


def _card(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return (path / "README.md").read_text("utf-8")
    return ""


def _is_picture(file: Path) -> bool:
    return _PICTURE.fullmatch(file.name) is not None and file.is_file() and not file.is_symlink()


def _without_paths(error: Exception, path: Path) -> str:
    if not isinstance(error, OwlmineError):
        return "the folder cannot be read"
    message, whole = str(error), str(path.absolute())
    # A short relative name may be part of any word, so it counts at the beginning only.
    for start, instead in ((f"{path}/", ""), (f"{path}:", "the folder:")):
        if message.startswith(start):
            message = instead + message.removeprefix(start)
            break
    return message.replace(f"{whole}/", "").replace(whole, "the folder")


def named_folders(models: list[str]) -> dict[str, Path]:
    """Folders by name. MODEL is a folder, which is its own name, or NAME=FOLDER."""
    folders: dict[str, Path] = {}
    for given in models:
        name, sign, folder = given.partition("=")
        path = Path(folder) if sign and not Path(given).exists() else Path(given)
        if path == Path(given):
            name = path.absolute().name
        if not name or "/" in name or not name.isprintable():
            raise OwlmineError(f"{given!r}: its name is {name!r}; wanted a name without slashes, as in NAME=FOLDER")
        if name in folders:
            raise OwlmineError(f"two models are called {name!r}; give one another name: NAME=FOLDER")
        folders[name] = path
    return folders
