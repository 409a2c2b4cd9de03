"""HTTP connections that cannot be held open by slow clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from owlmine.serve.errors import error_body
from owlmine.serve.guard import SECURITY_HEADERS


class _OneWrite:
    """A transport that sends what is written in one turn of the event loop, head and body of an answer, by one call of
    the system: each call lets go of the interpreter's lock, and getting it back takes longer than the call."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, unsent: Callable[[], None]
    ) -> None:
        """unsent: called when the system has not taken all that was written."""
        self._transport, self._loop, self._unsent = transport, loop, unsent
        self._parts: list[bytes] = []
        self._num_written = 0

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._num_written += len(data)
            self._transport.write(data)
            if self.num_unsent:
                self._unsent()

    @property
    def num_unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def num_sent(self) -> int:
        return self._num_written - self.num_unsent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(H11Protocol):
    """Limits the number of connections, the time in which the head of a request must arrive, and the time for which a
    client may stop reading its answer. One that reads slowly is waited for."""

    max_connections: int
    head_seconds: float

    _timer: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _writer: _OneWrite

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._writer = _OneWrite(transport, self.loop, self._watch_sending)
        super().connection_made(cast("asyncio.Transport", self._writer))
        if len(self.connections) > self.max_connections:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many open connections")
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._sending):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "invalid HTTP")

    def _watch_head(self) -> None:
        """Starts the timer when a head begins, and ends it when the head is there."""
        if self.conn.their_state is not h11.IDLE:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time")

    def _watch_sending(self) -> None:
        """Until all is sent, also where the connection has been closed on our side."""
        if self._sending is None:
            self._sending = self.loop.call_later(self.head_seconds, self._look_at_sending, self._writer.num_sent)

    def _look_at_sending(self, before: int) -> None:
        self._sending = None
        if not self._writer.num_unsent:
            return
        if self._writer.num_sent == before:
            self.transport.abort()
        else:
            self._watch_sending()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answers before any request was read, and closes the connection."""
        body = error_body(status, message, "none")
        headers: dict[str, Any] = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Connection": "close",
            **({"Retry-After": 1} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}),
            **SECURITY_HEADERS,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 {status.value} {status.phrase}\r\n{head}\r\n".encode("latin-1") + body)
        self.transport.close()
