"""The OpenAPI description: its examples work, and nothing that fits it, or just not, makes the service fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from .running import Service

_CASES = 15


def examples(described: dict[str, Any]) -> Iterator[tuple[str, str, str, bytes | None, str]]:
    """The name of the model, method, path with its query, body and its type, of each example."""
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parameters = {one["name"]: one for one in operation.get("parameters", ())}
            body = operation.get("requestBody", {}).get("content", {})
            names = set.intersection(*(set(one["examples"]) for one in (*parameters.values(), *body.values())), MODELS)
            for name in sorted(names):
                own = {key: str(one["examples"][name]["value"]) for key, one in parameters.items()}
                places = {key: quote(value, safe="") for key, value in own.items() if parameters[key]["in"] == "path"}
                query = {key: value for key, value in own.items() if parameters[key]["in"] == "query"}
                address = path.format(**places) + ("?" + urlencode(query) if query else "")
                [(kind, content)] = body.items() or [("", None)]
                value = None if content is None else content["examples"][name]["value"]
                yield name, method.upper(), address, value, kind


MODELS = {"text", "sparse", "dense", "nasty"}


def test_every_example_works(service: Service) -> None:
    described = service.ask("GET", "/openapi.json").json()
    seen = set()
    for name, method, path, value, kind in examples(described):
        form = urlencode(value).encode() if kind.endswith("urlencoded") else value
        response = service.ask(method, path, form, kind=kind or "application/json")
        assert response.status == 200, (method, path, value, response.body)
        seen.add((name, method, path.partition("?")[0].replace(f"/{name}", "/*")))
        if path.endswith("/predict"):
            assert all(one["classes"] for one in response.json()["predictions"])
        if path.endswith("/suggest"):
            assert response.json()["results"]
    of_all = {("GET", "/v1/models/*"), ("POST", "/v1/models/*/predict"), ("GET", "/v1/models/*/class")}
    assert {(method, path) for name, method, path in seen if name == "dense"} >= of_all
    assert {path for name, _, path in seen if name == "text"} >= {"/v1/projects/*", "/v1/projects/*/suggest"}


def test_errors_are_described_as_they_are(service: Service) -> None:
    described = service.ask("GET", "/openapi.json").json()
    assert "HTTPValidationError" not in str(described)
    for operations in described["paths"].values():
        for operation in operations.values():
            error = operation["responses"]["422"]["content"]["application/json"]["schema"]["$ref"]
            assert error == "#/components/schemas/Error"


@pytest.mark.parametrize("generation", ["fits", "does not fit"])
def test_whatever_comes(service: Service, generation: str) -> None:
    """A short part of benchmarks/serving_fuzz.py, the same cases each time."""
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json")
    mode = schemathesis.GenerationMode.POSITIVE if generation == "fits" else schemathesis.GenerationMode.NEGATIVE
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode.is_negative and not (operation.body or operation.query or operation.path_parameters):
            continue

        @settings(
            max_examples=_CASES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            nonlocal count
            response = case.call()
            assert response.status_code < 500, (case.as_curl_command(), response.content)
            if response.status_code >= 400:
                assert response.json()["error"]["status"] == response.status_code
            count += 1

        with suppress(Unsatisfiable):  # any text is a name: nothing does not fit
            ask()
    assert count > 50
