"""The OpenAPI description, with examples that work: of the models that are being served."""

from __future__ import annotations

from threading import Lock
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from owlmine.serve.answers import Error
from owlmine.serve.errors import as_json
from owlmine.serve.models import Loaded, ServedModels

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Error, "description": "The request cannot be answered, or not now (429)."},
    "5XX": {"model": Error, "description": "The service cannot answer now."},
    422: {"model": Error, "description": "A field that is wrong."},
}


class Description:
    """The description as JSON, made again when it has changed. Threads may share it."""

    def __init__(self, app: FastAPI, models: ServedModels) -> None:
        self._app, self._models = app, models
        self._making = Lock()
        self._made_for: list[Any] | None = None
        self._json = b""

    def json(self) -> bytes:
        loaded = [served.loaded for served in self._models if served.loaded is not None]
        wanted_for = [(one.name, one.version, list(one.pictures())) for one in loaded]
        with self._making:
            if wanted_for != self._made_for:
                self._json, self._made_for = as_json(_described(self._app, loaded)), wanted_for
            return self._json


def _described(app: FastAPI, loaded: list[Loaded]) -> dict[str, Any]:
    """With an example for each model: those of one name belong together."""
    described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for path, operations in described["paths"].items():
        for operation in operations.values():
            # Errors are JSON whatever the answer is.
            for status, answer in operation["responses"].items():
                if status in map(str, ERRORS):
                    answer["content"] = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
            own = [one for one in loaded if not path.startswith("/v1/projects") or one.model.takes == "text"]
            _add_examples(operation, path, own)
    # FastAPI's own form of errors, which is not ours.
    for name in ("HTTPValidationError", "ValidationError"):
        described["components"]["schemas"].pop(name, None)
    return described


def _add_examples(operation: dict[str, Any], path: str, models: list[Loaded]) -> None:
    for parameter in operation.get("parameters", ()):
        values = {one.name: _parameter(one, parameter["name"]) for one in models}
        if parameter["name"] == "name" and models:
            parameter["schema"]["enum"] = [one.name for one in models]
        parameter["examples"] = {name: {"value": value} for name, value in values.items() if value is not None}
    if "requestBody" in operation:
        [content] = operation["requestBody"]["content"].values()
        suggest = path.endswith("/suggest")
        content["examples"] = {one.name: {"value": _suggest(one) if suggest else _predict(one)} for one in models}


def _parameter(loaded: Loaded, name: str) -> str | None:
    if name == "file":
        return next(iter(loaded.pictures()), None)
    return loaded.name if name == "name" else loaded.model.classes.keys[0]


def _predict(loaded: Loaded) -> dict[str, Any]:
    return {"queries": loaded.examples[:1], "k": 3}


def _suggest(loaded: Loaded) -> dict[str, Any]:
    return {"text": loaded.examples[0], "limit": 3}
