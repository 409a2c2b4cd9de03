"""The interface of Annif, a tool of libraries: its ``http`` backend, and its clients, can ask a model for subjects.

A model is a project. Its answers are as Annif's are: the key of a class, its name, and a score from 0 to 1.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form
from starlette.responses import Response

from owlmine.errors import OwlmineError
from owlmine.exchange.answers import shown_probability
from owlmine.serve.answers import Project, Suggestions
from owlmine.serve.batching import Answer, Batcher
from owlmine.serve.errors import ServiceError, as_json
from owlmine.serve.models import Loaded, ServedModels
from owlmine.serve.options import ServeOptions

_DEFAULT_LIMIT = 10


def annif_routes(models: ServedModels, batcher: Batcher, options: ServeOptions) -> APIRouter:
    router = APIRouter(prefix="/v1/projects", tags=["Annif"])

    @router.get("/{name}", response_model=Project)
    async def project(name: str) -> Response:
        """A model as a project of Annif."""
        return _json(_project(models.get(name)))

    @router.post("/{name}/suggest", response_model=Suggestions)
    async def suggest(
        name: str,
        text: Annotated[str, Form()],
        limit: Annotated[int, Form(ge=1)] = _DEFAULT_LIMIT,
        threshold: Annotated[float, Form(ge=0, le=1, allow_inf_nan=False)] = 0.0,
    ) -> Response:
        """The best classes of a text, as Annif suggests subjects."""
        loaded = models.get(name)
        _check(loaded, text, limit, options)
        try:
            [answer] = await batcher.answers(loaded, [text], limit, tail=0.0, rules=(), timeout=options.answer_timeout)
        except OwlmineError as error:
            raise ServiceError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        return _json({"results": _results(loaded, answer, threshold)})

    return router


def _project(loaded: Loaded) -> dict[str, Any]:
    loaded_at = datetime.fromtimestamp(loaded.loaded_at, UTC)
    return {
        "project_id": loaded.name,
        "name": loaded.name,
        "language": "en",
        "backend": {"backend_id": "owlmine"},
        "is_trained": True,
        "modification_time": loaded_at.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00"),
    }


def _check(loaded: Loaded, text: str, limit: int, options: ServeOptions) -> None:
    problem = None
    if loaded.model.takes != "text":
        problem = f"the model takes {loaded.model.takes}; Annif sends texts"
    elif len(text) > options.max_text:
        problem = f"text: {len(text):,} characters; wanted at most {options.max_text:,}"
    elif limit > options.max_k:
        problem = f"limit: {limit:,}; wanted at most {options.max_k:,}"
    if problem is not None:
        raise ServiceError(HTTPStatus.UNPROCESSABLE_ENTITY, problem)


def _results(loaded: Loaded, answer: Answer, threshold: float) -> list[dict[str, Any]]:
    """Annif leaves out scores of 0 or less, and cuts those above 1: probabilities are what it wants. A model without
    them gives its scores."""
    words = loaded.model.classes
    scores = [found.score if found.probability is None else found.probability for found in answer.classes]
    return [
        {"uri": words.keys[found.number], "label": words.names[found.number], "score": shown_probability(score)}
        for found, score in zip(answer.classes, scores, strict=True)
        if score >= threshold
    ]


def _json(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json")
