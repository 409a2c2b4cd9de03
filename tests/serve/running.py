"""A service in a process of its own, and requests to it over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_SECONDS = 60


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of an error."""
        return str(self.json()["error"]["message"])


class Service:
    """``owlmine serve`` with some models. A context manager."""

    def __init__(self, *models: str | Path, options: tuple[object, ...] = (), keys: str | None = None) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "OWLMINE_API_KEYS"}
        environment |= {"PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"}
        if keys is not None:
            environment["OWLMINE_API_KEYS"] = keys
        given = [str(option) for option in options]
        port = [] if "--port" in given else ["--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "owlmine", "serve", *map(str, models), *port, "--threads", "1", *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.lines: list[str] = []
        self._may_read = threading.Event()
        self._may_read.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Service:
        try:
            self.port = self.logged("listening")["port"]
            self.logged("ready")
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.finish()

    def finish(self) -> None:
        """Waits for its end, and for the last line."""
        self.go_on_reading()
        self.process.wait(_SECONDS)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            self._may_read.wait()

    def pause_reading(self) -> None:
        """Leaves the log in its pipe."""
        self._may_read.clear()

    def go_on_reading(self) -> None:
        self._may_read.set()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Lines of the log with this event."""
        return [line for line in map(json.loads, list(self.lines)) if line["event"] == name]

    def logged(self, name: str, count: int = 1) -> dict[str, Any]:
        """The line of the log with this event, or the ``count``-th of them; waits for it."""
        for _ in wait(f"{name!r} in the log", self.show):
            if len(found := self.events(name)) >= count:
                return found[count - 1]
            if self.process.poll() is not None and not self._reader.is_alive():
                raise AssertionError(f"the service has ended without {name!r}: {self.show()}")
        raise AssertionError

    def show(self) -> str:
        return "".join(self.lines[-20:])

    def connect(self, seconds: float = _SECONDS) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        kind: str = "application/json",
    ) -> Response:
        """A request on a connection of its own. ``body``: bytes, or what becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        own = {} if body is None else {"Content-Type": kind}
        try:
            connection.request(method, path, content, own | (headers or {}))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, names, answer.read())
        finally:
            connection.close()

    def predict(self, model: str, *queries: Any, **fields: Any) -> Any:
        """The predictions for some queries."""
        response = self.ask("POST", f"/v1/models/{model}/predict", {"queries": list(queries), **fields})
        assert response.status == 200, response.body
        return response.json()["predictions"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        status = self.process.wait(_SECONDS)
        self._reader.join()
        return status


def wait(what: str, show: Any = str) -> Any:
    """Yields until the time is up."""
    ends = time.monotonic() + _SECONDS
    while time.monotonic() < ends:
        yield
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}: {show()}")
