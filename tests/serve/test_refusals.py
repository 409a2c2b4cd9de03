"""What the service refuses: every limit, and every malformed request, with a status and a message without a path."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from owlmine.cli.serve import serve_command
from owlmine.errors import OwlmineError
from owlmine.serve.schemas import PredictRequest

from ..small_models import calibrated_model, text_model
from .running import Service, wait

PREDICT = "/v1/models/text/predict"
KEY, OTHER_KEY = "a-key-of-sixteen-or-more", "another-key-of-sixteen"


def refused(service: Service, body: Any, *, model: str = "text") -> str:
    """The message of a 422."""
    response = service.ask("POST", f"/v1/models/{model}/predict", body)
    assert response.status == 422, response.body
    assert response.json()["error"]["status"] == 422
    assert response.json()["error"]["request_id"] == response.headers["x-request-id"]
    return response.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "queries"),
        ({"queries": []}, "queries: List should have at least 1 item"),
        ({"queries": "text"}, "queries"),
        ({"queries": [5]}, "queries.0: wanted a text, a list of numbers, or an object"),
        ({"queries": [None]}, "queries.0"),
        ({"queries": [{}]}, "queries.0"),
        ({"queries": ["a", {"text": 5}]}, "queries.1.text object.text"),
        ({"queries": [{"text": "a", "more": 1}]}, "more"),
        ({"queries": ["a"], "more": 1}, "more"),
        ({"queries": ["a"], "k": 0}, "k: "),
        ({"queries": ["a"], "k": "5"}, "k: "),
        ({"queries": ["a"], "k": True}, "k: "),
        ({"queries": ["a"], "k": 2.5}, "k: "),
        ({"queries": ["a"], "k": 101}, "k: 101; wanted at most 100"),
        ({"queries": ["a"] * 41}, "queries: 41 queries in one request; wanted at most 40"),
        ({"queries": ["a" * 200_001]}, "queries.0: a text of 200,001 characters"),
        ({"queries": ["a"], "allowed": []}, "allowed"),
        ({"queries": ["a"], "allowed": ["c-unheard-of"]}, "allowed.0: the model has no such class"),
        ({"queries": ["b", {"text": "a", "forbidden": ["c-river", "c-x"]}]}, "queries.1.forbidden.1: the model has no"),
        ({"queries": ["a"], "allowed": [5]}, "allowed"),
        ({"queries": ["a"], "threshold": 0}, "threshold"),
        ({"queries": ["a"], "threshold": 1.5}, "threshold"),
        ({"queries": ["a"], "precision": 0.8, "threshold": 0.5}, "precision: given together with threshold"),
        ({"queries": ["a"], "precision": 1.0}, "precision: 1 was not reached"),
        ({"queries": ["a"], "tail": -0.1}, "tail"),
        ({"queries": ["a"], "reasons": "yes"}, "reasons"),
        ({"queries": ["a"] * 17, "reasons": True}, "reasons: wanted at most 16 queries"),
        ({"queries": [[1.0]]}, "queries.0: the model takes text; wanted text"),
        ({"queries": ["a", {"indices": [1]}]}, "queries.1: the model takes text"),
        ([], ""),
        (None, ""),
        (5, ""),
    ],
)
def test_wrong_fields(service: Service, body: Any, words: str) -> None:
    assert words in refused(service, body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"queries": ["a"]}, "queries.0: the model takes sparse vectors; wanted objects with indices and values"),
        ({"queries": [{"indices": [0, 0]}]}, "queries.0.indices: feature 0 twice"),
        ({"queries": [{"indices": [50]}]}, "queries.0.indices: feature 50; wanted 0 to 49"),
        ({"queries": [{"indices": [-1]}]}, "queries.0.sparse object.indices.0"),
        ({"queries": [{"indices": [2**40]}]}, "queries.0.sparse object.indices.0"),
        ({"queries": [{"indices": [0, 1], "values": [1]}]}, "queries.0.values: 1 values for 2 indices"),
        ({"queries": [{"indices": [0], "values": [1.5]}]}, "values that are not whole counts"),
        ({"queries": ["a"], "precision": 0.5}, "precision: the model has no probabilities"),
        ({"queries": [{"indices": [0]}], "threshold": 0.5}, "threshold: the model has no probabilities"),
        ({"queries": [{"indices": [0]}], "tail": 0.5}, "tail: the model has no probabilities"),
    ],
)
def test_wrong_sparse_vectors(service: Service, body: Any, words: str) -> None:
    assert words in refused(service, body, model="sparse")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"queries": [[1.0, 2.0]]}, "queries.0: a vector of 2 numbers; wanted 9"),
        ({"queries": [[]]}, "queries.0"),
        ({"queries": [["1"] * 9]}, "queries.0"),
        ({"queries": [{"vector": [None] * 9}]}, "queries.0"),
        ({"queries": [[1e39] * 9]}, "queries"),
    ],
)
def test_wrong_dense_vectors(service: Service, body: Any, words: str) -> None:
    assert words in refused(service, body, model="dense")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_lacks(service: Service, number: str) -> None:
    body = f'{{"queries": [[{", ".join([number] * 9)}]]}}'.encode()
    response = service.ask("POST", "/v1/models/dense/predict", body)
    assert response.status == 422, response.body
    assert "queries.0" in response.message
    body = f'{{"queries": ["a"], "tail": {number}}}'.encode()
    assert service.ask("POST", PREDICT, body).status == 422


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"\\ud800": 5}', b"[" * 100_000, b'{"queries": [' + b"9" * 5000 + b"]}"],
    ids=["nothing", "half", "bytes", "half a surrogate", "nested", "long number"],
)
def test_bodies_that_are_not_json(service: Service, body: bytes) -> None:
    response = service.ask("POST", PREDICT, body)
    assert response.status in (400, 422)
    assert response.json()["error"]["message"]


def test_another_content_type(service: Service) -> None:
    response = service.ask("POST", PREDICT, b'{"queries": ["a"]}', kind="text/plain")
    assert response.status == 422
    assert response.message


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/models/nobody", 404),
        ("POST", "/v1/models/nobody/predict", 404),
        ("GET", "/v1/models/text/class?key=nobody", 404),
        ("GET", "/v1/models/text/class", 422),
        ("GET", "/v1/models/text/pictures/config.json", 404),
        ("GET", "/v1/models/text/pictures/..%2fconfig.json", 404),
        ("GET", "/static/../service.py", 404),
        ("GET", "/static/%2e%2e/service.py", 404),
        ("GET", "/v1/projects/nobody", 404),
        ("POST", "/v1/projects/text/suggest", 422),
        ("DELETE", "/v1/models/text", 405),
        ("GET", "/v1/models/text/predict", 405),
    ],
)
def test_wrong_addresses(service: Service, method: str, path: str, status: int) -> None:
    body = {"queries": ["a"]} if path.endswith("predict") and method == "POST" else None
    response = service.ask(method, path, body)
    assert response.status == status, response.body
    assert response.message


def test_no_answer_names_a_path_of_the_machine(service: Service) -> None:
    """Of those above, and of a picture or a static file that is not there."""
    folder = str(calibrated_model().parent).encode()
    for method, path, body in (
        ("GET", "/v1/models", None),
        ("GET", "/v1/models/text", None),
        ("GET", "/static/none.js", None),
        ("GET", "/openapi.json", None),
        ("POST", PREDICT, {"queries": ["river"], "reasons": True}),
    ):
        response = service.ask(method, path, body)
        for word in (folder, b"/src/", b"site-packages", b"Traceback", b".py"):
            assert word not in response.body, (path, word)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Service]:
    """With limits that are quickly reached."""
    options = ("--max-body", 0.01, "--read-timeout", 1, "--keep-alive", 1, "--max-connections", 8)
    with Service(f"text={calibrated_model()}", options=options) as running:
        yield running


@pytest.mark.parametrize(
    "body",
    [
        {"queries": [0] * 1000},
        {"queries": [[[]] * 1000]},
        {"queries": [{"indices": [""] * 1000, "values": [""] * 1000}]},
        {"queries": ["a"], "allowed": [0] * 1000},
    ],
)
def test_a_list_is_refused_for_its_first_wrong_item(body: Any) -> None:
    """A description of each of a million wrong items would take a gigabyte."""
    with pytest.raises(ValidationError) as caught:
        PredictRequest.model_validate(body)
    assert caught.value.error_count() <= 2


def test_large_bodies(narrow: Service) -> None:
    service = narrow
    inside = {"queries": ["a" * 5_000]}
    assert service.ask("POST", PREDICT, inside).status == 200
    for size in (20_000, 3_000_000):
        response = service.ask("POST", PREDICT, {"queries": ["a" * size]})
        assert response.status == 413
        assert response.message == "a body of more than 0.01 MiB"
    # Without a length, piece by piece.
    with service.connect() as connection:
        connection.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(20):
            connection.sendall(b"400\r\n" + b"a" * 1024 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")
    # An announced size is enough for a refusal.
    with service.connect() as connection:
        connection.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {10**12}\r\n\r\n".encode())
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")
    assert service.ask("POST", PREDICT, inside).status == 200


def read_all(connection: socket.socket) -> bytes:
    """Until the service closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_slow_clients_are_cut_off(narrow: Service) -> None:
    """Half a head, a head by single bytes, half a body, and nothing at all; others are answered meanwhile."""
    service = narrow
    beginnings = {
        "nothing": b"",
        "half a head": f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n".encode(),
        "half a body": f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode(),
    }
    connections = {what: service.connect() for what in beginnings}
    for what, connection in connections.items():
        connection.sendall(beginnings[what])
    trickle = service.connect()
    began = time.monotonic()
    threading.Thread(target=drip, args=(trickle,), daemon=True).start()
    assert service.predict("text", "river")
    for what, connection in [*connections.items(), ("a trickle", trickle)]:
        assert read_all(connection).startswith(b"HTTP/1.1 408 "), what
        connection.close()
    assert time.monotonic() - began < 20
    # An idle connection is closed without a word.
    with service.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_clients_that_stop_reading_are_cut_off_and_slow_ones_are_not(narrow: Service) -> None:
    """Also those whose unread rest is small, and was written before the connection was closed."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    whole = len(narrow.ask("GET", "/openapi.json").body)
    stopped, slow = connection_with_small_window(narrow), narrow.connect()
    for connection in (stopped, slow):
        connection.sendall(request * 400)
    received, began = 0, time.monotonic()
    while received < 400 * whole and (part := slow.recv(1 << 16)):
        received += len(part)
        time.sleep(0.05)
    assert received >= 400 * whole
    assert time.monotonic() - began > 3  # three times as long as one may stop
    assert len(read_all(stopped)) < 400 * whole
    for connection in (stopped, slow):
        connection.close()


def connection_with_small_window(service: Service) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", service.port))
    return connection


def drip(connection: socket.socket) -> None:
    try:
        for letter in f"GET /health HTTP/1.1\r\nX-Long: {'a' * 1000}":
            connection.sendall(letter.encode())
            time.sleep(0.1)
    except OSError:
        pass


def test_too_many_connections(narrow: Service) -> None:
    service = narrow
    idle = [service.connect() for _ in range(8)]
    for connection in idle:  # so that they are accepted before the next one
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    with service.connect() as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 503 ")
    for connection in idle:
        connection.close()
    for _ in wait("closed connections that no longer count"):
        try:
            if service.ask("GET", "/health").status == 200:
                break
        except OSError:
            pass


def test_a_full_queue() -> None:
    """Clients that ask for more than the queue holds are told to come back; every request gets an answer."""
    options = ("--max-queue", 32, "--max-queries", 32, "--max-batch", 1)
    with Service(f"text={calibrated_model()}", options=options) as service:
        statuses: list[int] = []

        def client() -> None:
            for _ in range(6):
                response = service.ask("POST", PREDICT, {"queries": ["castle " * 2_000] * 20, "k": 10})
                statuses.append(response.status)
                if response.status == 429:
                    assert response.headers["retry-after"] == "1"

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200, 429}
        assert len(statuses) == 48
        assert service.predict("text", "river")


@pytest.mark.parametrize(
    "given",
    [None, "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Basic {KEY}", KEY, "Bearer \u00e9"],
)
def test_without_a_key(keyed: Service, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    # The description has examples of the models.
    paths = (("GET", "/v1/models"), ("POST", PREDICT), ("GET", "/v1/projects/text"), ("GET", "/openapi.json"))
    for method, path in paths:
        response = keyed.ask(method, path, {"queries": ["a"]} if method == "POST" else None, headers=headers)
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
    # Who sends much reads the refusal nevertheless, and so does a page of another origin.
    large = {"queries": ["a" * 1_000_000]}
    response = keyed.ask("POST", PREDICT, large, headers={**headers, "Origin": "https://example.org"})
    assert response.status == 401
    assert response.headers["access-control-allow-origin"] == "https://example.org"


@pytest.fixture(scope="module")
def keyed() -> Any:
    options = ("--cors-origin", "https://example.org")
    options += ("--host", "0.0.0.0")
    with Service(f"text={calibrated_model()}", keys=f"{KEY}, {OTHER_KEY}", options=options) as running:
        yield running


def test_with_a_key(keyed: Service) -> None:
    for key in (KEY, OTHER_KEY):
        headers = {"Authorization": f"Bearer {key}"}
        assert keyed.ask("POST", PREDICT, {"queries": ["river"]}, headers=headers).status == 200
    assert keyed.ask("GET", "/openapi.json", headers=headers).status == 200
    for path in ("/health", "/ready", "/metrics", "/"):
        assert keyed.ask("GET", path).status == 200
    assert KEY not in "".join(keyed.lines)
    assert "exposed" not in "".join(keyed.lines)


def test_cors_only_for_the_origins_that_were_named(keyed: Service, service: Service) -> None:
    headers = {"Origin": "https://example.org", "Authorization": f"Bearer {KEY}"}
    response = keyed.ask("GET", "/v1/models", headers=headers)
    assert response.headers["access-control-allow-origin"] == "https://example.org"
    preflight = {
        "Origin": "https://example.org",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    response = keyed.ask("OPTIONS", PREDICT, headers=preflight)
    assert response.status == 200
    assert "authorization" in response.headers["access-control-allow-headers"].lower()
    other = {"Origin": "https://example.com", "Authorization": f"Bearer {KEY}"}
    assert "access-control-allow-origin" not in keyed.ask("GET", "/v1/models", headers=other).headers
    assert "access-control-allow-origin" not in service.ask("GET", "/v1/models", headers=headers).headers


@pytest.mark.parametrize("path", ["/", "/v1/models", "/nowhere", "/metrics", "/static/index.html"])
def test_security_headers(service: Service, path: str) -> None:
    headers = service.ask("GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers
    assert re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", headers["x-request-id"])


def test_request_ids_and_logs(service: Service) -> None:
    """A client may name its request; a name with anything else than letters, digits and signs is replaced."""
    response = service.ask("GET", "/nowhere/%0a%1b[31m%7B", headers={"X-Request-Id": "my.request-1"})
    assert response.headers["x-request-id"] == "my.request-1"
    assert service.ask("GET", "/health", headers={"X-Request-Id": 'x"y'}).headers["x-request-id"] != 'x"y'
    for _ in wait("the line of the request"):
        if own := [line for line in service.events("request") if line["request_id"] == "my.request-1"]:
            break
    assert own[0]["status"] == 404
    assert own[0]["path"] == "/nowhere/\n\x1b[31m{"
    for line in service.lines:
        assert line.isascii()
        assert line.endswith("}\n")
        json.loads(line)


def test_invalid_http(service: Service) -> None:
    for head in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
        with service.connect() as connection:
            connection.sendall(head)
            assert read_all(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("options", "keys", "words"),
    [
        (("--port", "99999"), None, "--port is 99999; wanted 0 to 65535"),
        (("--max-k", "0"), None, "--max-k is 0; wanted 1 or more"),
        (("--read-timeout", "nan"), None, "--read-timeout is nan"),
        (("--max-queue", "10"), None, "--max-queue is 10; wanted at least --max-queries"),
        (("--cors-origin", "*"), None, "--cors-origin is '*'"),
        (("--host", "nowhere.invalid"), None, "cannot listen there"),
        ((), "short", "OWLMINE_API_KEYS: key 1 of 1 has 5 characters"),
        ((), f"{KEY},", "OWLMINE_API_KEYS: key 2 of 2"),
    ],
)
def test_wrong_options(options: tuple[str, ...], keys: str | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if keys is not None:
        monkeypatch.setenv("OWLMINE_API_KEYS", keys)
    assert words in not_started(str(text_model()), *options)


def test_wrong_models() -> None:
    assert "two models are called" in not_started(str(text_model()), str(text_model()))
    assert "wanted a name" in not_started("/")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = not_started(str(text_model()), "--port", str(other.getsockname()[1]))
    assert "cannot listen there: Address already in use" in words


def not_started(*arguments: str) -> str:
    """The error of a service that cannot start, in this process."""
    app = typer.Typer()
    app.command()(serve_command)
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, OwlmineError)
    return str(error)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    """The port answers while models are loaded; then the process ends with the usual status."""
    service = Service(str(tmp_path / "none"))
    assert service.process.wait(60) == 2
    service.finish()
    assert "no such folder" in service.show()
    assert "Traceback" not in service.show()
