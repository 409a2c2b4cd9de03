"""The routes of the service."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, PlainTextResponse, Response

from owlmine.serve.annif import annif_routes
from owlmine.serve.answers import ClassDetail, Health, ModelDetail, ModelList, Predictions
from owlmine.serve.batching import Batcher
from owlmine.serve.describing import describe_class, describe_model, list_models
from owlmine.serve.errors import ServiceError, as_json, error_body, unavailable
from owlmine.serve.explaining import Explainer
from owlmine.serve.figures import CONTENT_TYPE, Figures
from owlmine.serve.guard import DESCRIPTION, FAILED, LONGEST_PATH, PREDICT
from owlmine.serve.models import ServedModels
from owlmine.serve.openapi import ERRORS, Description
from owlmine.serve.options import ServeOptions
from owlmine.serve.predicting import predict
from owlmine.serve.schemas import PredictRequest
from owlmine.version import __version__

PAGE = Path(__file__).parent / "page"
_PICTURE_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
# A drawing needs no scripts, and no rights where it is opened by itself.
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


class _Picture(Response):
    media_type = "image/*"


def make_app(
    models: ServedModels, batcher: Batcher, explainer: Explainer, figures: Figures, options: ServeOptions
) -> FastAPI:
    app = FastAPI(
        title="owlmine",
        version=__version__,
        description="Retrieves the most relevant of very many classes.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses={**ERRORS},
    )
    _add_errors(app)
    _add_health(app, models, figures)
    _add_models(app, models, batcher, explainer, options)
    app.include_router(annif_routes(models, batcher, options))
    _add_page(app)
    description = Description(app, models)

    @app.get(DESCRIPTION, include_in_schema=False)
    async def described() -> Response:
        return Response(await run_in_threadpool(description.json), media_type="application/json")

    return app


def _add_models(
    app: FastAPI, models: ServedModels, batcher: Batcher, explainer: Explainer, options: ServeOptions
) -> None:
    @app.get("/v1/models", response_model=ModelList)
    async def all_models() -> Response:
        """The models, and whether each is ready."""
        return _json(list_models(models))

    @app.get("/v1/models/{name}", response_model=ModelDetail)
    async def model(name: str) -> Response:
        """All about a model: its record, figures and card."""
        return _json(await run_in_threadpool(describe_model, models.get(name)))

    @app.post("/v1/models/{name}" + PREDICT, response_model=Predictions)
    async def predictions(name: str, body: PredictRequest, request: Request) -> Response:
        """The best classes for queries."""
        request.state.log.update(model=name[:LONGEST_PATH], queries=len(body.queries))
        return _json(await predict(models.get(name), body, batcher, explainer, options))

    @app.get("/v1/models/{name}/class", response_model=ClassDetail)
    async def one_class(name: str, key: Annotated[str, Query(min_length=1)]) -> Response:
        loaded = models.get(name)
        described = await run_in_threadpool(describe_class, loaded, key)
        described["similar"] = await explainer.similar(loaded, described["key"])
        return _json(described)

    @app.get("/v1/models/{name}/pictures/{file}", response_class=_Picture)
    async def picture(name: str, file: str) -> Response:
        """A picture of an evaluation."""
        pictures = await run_in_threadpool(models.get(name).pictures)
        if file not in pictures:
            raise ServiceError(HTTPStatus.NOT_FOUND, "the model has no such picture")
        path = pictures[file]
        content = await run_in_threadpool(path.read_bytes)
        headers = {"Content-Security-Policy": _PICTURE_POLICY}
        return Response(content, media_type=_PICTURE_TYPES[path.suffix], headers=headers)


def _add_health(app: FastAPI, models: ServedModels, figures: Figures) -> None:
    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Whether the process lives."""
        return _json({"status": "ok"})

    @app.get("/ready", response_model=Health)
    async def ready() -> Response:
        """Whether every model is loaded."""
        if not models.ready:
            raise unavailable("models are being loaded")
        return _json({"status": "ready"})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(figures.text(), media_type=CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    app.mount("/static", StaticFiles(directory=PAGE), name="static")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ServiceError)
    async def service_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return _error(request, error.status, error.message, error.headers)

    @app.exception_handler(Exception)
    async def failure(request: Request, error: Exception) -> Response:
        """``Front`` sees the exception as well, and logs it."""
        return _error(request, HTTPStatus.INTERNAL_SERVER_ERROR, FAILED, {})

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        messages = {404: "there is nothing at this address", 405: f"{request.method} is not possible here"}
        message = messages.get(error.status_code, str(error.detail))
        return _error(request, error.status_code, message, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        message = f"{place}: {first['msg']}" if place else str(first["msg"])
        return _error(request, HTTPStatus.UNPROCESSABLE_ENTITY, message, {})


def _error(request: Request, status: int, message: str, headers: dict[str, str]) -> Response:
    body = error_body(status, message, request.state.request_id)
    return Response(body, status, headers=headers, media_type="application/json")


def _json(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json")
