"""Start, reload and end of the service: no request that it has accepted is lost."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..small_models import calibrated_model, text_model
from .running import Service, wait

PREDICT = "/v1/models/text/predict"
_RELOADS = 10


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def replace(target: Path, source: Path) -> None:
    """Puts a copy of ``source`` into the place of ``target`` by renaming, as a careful person would."""
    new, old = target.with_name("new"), target.with_name("old")
    shutil.copytree(source, new)
    target.rename(old)
    new.rename(target)
    shutil.rmtree(old)


@contextmanager
def clients(service: Service, count: int) -> Iterator[tuple[list[str], list[str]]]:
    """Ask all the time; yields the versions that answered, and what went wrong."""
    versions: list[str] = []
    failures: list[str] = []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            try:
                response = service.ask("POST", PREDICT, {"queries": ["the river and the castle"], "k": 3})
                answer = response.json()
                if response.status == 200 and len(answer["predictions"][0]["classes"]) == 3:
                    versions.append(answer["version"])
                else:
                    failures.append(str(answer))
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=client) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield versions, failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_models_are_reloaded_without_a_lost_request(tmp_path: Path) -> None:
    """Folders are replaced by renaming; the answers change to the new model, and none is lost."""
    model = copied(calibrated_model(), tmp_path / "text")
    sources = (text_model(), calibrated_model())
    with Service(model) as service:
        with clients(service, 2) as (versions, failures):
            seen = {service.ask("GET", "/v1/models/text").json()["version"]}
            for number in range(_RELOADS):
                replace(model, sources[number % 2])
                line = service.logged("model reloaded", number + 1)
                seen.add(line["version"])
                assert service.ask("GET", "/v1/models/text").json()["version"] == line["version"]
            for _ in wait("answers of both versions"):
                if set(versions) == seen:
                    break
        assert failures == []
        assert len(seen) == 2
        # A new config.json alone is a new model as well.
        shutil.copy(model / "config.json", tmp_path / "config.json")
        (tmp_path / "config.json").rename(model / "config.json")
        service.logged("model reloaded", _RELOADS + 1)
        refuse_broken_folders(service, model)


def refuse_broken_folders(service: Service, model: Path) -> None:
    """The old model goes on, the reason is visible, and a good folder mends it."""
    before = service.ask("GET", "/v1/models/text").json()["version"]
    with clients(service, 1) as (versions, failures):
        for number, damage in enumerate(("config", "weights", "another kind of file", "no config")):
            broken = copied(text_model(), model.parent / "broken")
            break_folder(broken, damage)
            replace(model, broken)
            shutil.rmtree(broken)
            if damage == "no config":
                time.sleep(1)  # nothing to see, and so nothing is refused
                continue
            service.logged("model refused", number + 1)
            [entry] = service.ask("GET", "/v1/models").json()["models"]
            assert entry["ready"]
            assert entry["problem"]
            assert str(model.parent) not in entry["problem"]
    assert failures == []
    assert set(versions) == {before}
    reloads = len(service.events("model reloaded"))
    replace(model, text_model())
    after = service.logged("model reloaded", reloads + 1)["version"]
    [entry] = service.ask("GET", "/v1/models").json()["models"]
    assert entry["version"] == after != before
    assert entry["problem"] is None


def break_folder(folder: Path, damage: str) -> None:
    config = folder / "config.json"
    if damage == "no config":
        config.unlink()
    elif damage == "config":
        config.write_text(config.read_text().replace('"num_points": ', '"num_points": 1'))
    elif damage == "weights":
        content = bytearray((folder / "weights.safetensors").read_bytes())
        content[-1] ^= 1
        (folder / "weights.safetensors").write_bytes(content)
    else:
        config.write_bytes(b"\x00\xff")


def test_the_end_answers_what_was_accepted() -> None:
    """Requests in the queue and one whose body is still arriving are answered; new ones are refused."""
    options = ("--max-batch", 1)
    with Service(f"text={calibrated_model()}", options=options) as service:
        statuses: list[int] = []
        body = {"queries": ["castle violin river " * 2_000] * 20, "k": 10}

        def client() -> None:
            statuses.append(service.ask("POST", PREDICT, body).status)

        threads = [threading.Thread(target=client) for _ in range(12)]
        for thread in threads:
            thread.start()
        half, rest = connection_with_half_a_request(service)
        for _ in wait("a queue", service.show):
            if len(service.events("request")) or queued(service) >= 100:
                break
        service.process.send_signal(signal.SIGTERM)
        service.logged("draining")
        for _ in wait("a refusal"):
            try:
                with service.connect(5) as connection:
                    connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
                    if not connection.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                        break
            except OSError:
                break
        half.sendall(rest)
        assert half.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        half.close()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 12
        assert service.process.wait(60) == 0
        service.logged("stopped")


def queued(service: Service) -> float:
    lines = service.ask("GET", "/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("owlmine_queue_size "))


def connection_with_half_a_request(service: Service) -> tuple[socket.socket, bytes]:
    """A connection that has sent a head and half a body, and the other half."""
    content = json.dumps({"queries": ["river"]}).encode()
    connection = service.connect()
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[:5])
    return connection, content[5:]


def test_requests_that_wait_too_long_and_clients_that_never_finish() -> None:
    # A request that takes a hundred times as long as the service may, wherever this runs.
    limits = ("--max-queries", 5000, "--max-queue", 5000, "--max-body", 64)
    options = ("--answer-timeout", 0.05, "--drain-timeout", 1, *limits)
    with Service(f"text={calibrated_model()}", options=options) as service:
        response = service.ask("POST", PREDICT, {"queries": ["castle violin " * 400] * 5000, "k": 12})
        assert response.status == 503
        assert "0.05 seconds" in response.message
        # Once the abandoned queries are done, others are answered.
        for _ in wait("an answer"):
            if service.ask("POST", PREDICT, {"queries": ["river"]}).status == 200:
                break
        # A client that never sends its body is dropped after the time for draining.
        connection, _ = connection_with_half_a_request(service)
        time.sleep(0.2)
        began = time.monotonic()
        assert service.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < 8
        connection.close()


def test_a_log_that_nobody_reads() -> None:
    """Requests are answered, lines are dropped, and the end does not wait for a reader."""
    with Service(f"text={calibrated_model()}") as service:
        service.pause_reading()
        for _ in range(300):  # more than a pipe holds
            assert service.ask("GET", f"/{'x' * 500}").status == 404
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(30) == 0
        service.go_on_reading()


def test_killed_and_started_again() -> None:
    """On the same port, which the dead process leaves free."""
    with Service(f"text={calibrated_model()}") as service:
        port = service.port
        wanted = service.predict("text", "the river")
        assert service.stop(signal.SIGKILL) == -signal.SIGKILL
    again = ("--port", port, "--host", "0.0.0.0")
    with Service(f"text={calibrated_model()}", options=again) as service:
        assert service.predict("text", "the river") == wanted
        assert service.events("exposed without API keys; set OWLMINE_API_KEYS")[0]["level"] == "warning"


def test_health_and_readiness(service: Service) -> None:
    assert service.ask("GET", "/health").json() == {"status": "ok"}
    assert service.ask("GET", "/ready").json() == {"status": "ready"}
    text = service.ask("GET", "/metrics").body.decode()
    for name in (
        "owlmine_requests_total{status=",
        "owlmine_request_duration_seconds_bucket{le=",
        "owlmine_queue_duration_seconds_bucket{le=",
        "owlmine_batch_size_bucket{le=",
        "owlmine_queue_size ",
    ):
        assert f"\n{name}" in text
