"""What every request passes: an id, a log line, headers, API keys, limits on its body and on its time.

``Front`` is the outermost layer: it answers whatever fails behind it. ``Door`` lets a request in, with its whole body.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import re
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlmine.serve.batching import Batcher
from owlmine.serve.errors import ServiceError, error_body, unavailable
from owlmine.serve.figures import Figures
from owlmine.serve.logs import log
from owlmine.serve.options import ServeOptions
from owlmine.serve.state import State

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LONGEST_PATH = 200
PREDICT = "/predict"
"""How the paths of predictions end."""
DESCRIPTION = "/openapi.json"
FAILED = "the service failed; its log has the reason"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
# A refused body is read to its end up to this size, so that the client reads the refusal before the connection ends.
_DISCARDED_BYTES = 16 << 20


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class Front:
    """Gives each request an id, each answer its headers, and each pair of them a log line and a count."""

    def __init__(self, app: ASGIApp, figures: Figures) -> None:
        self._app, self._figures = app, figures
        # Random for each start, then counted: asking for random bytes each time lets go of the interpreter's lock.
        self._prefix, self._numbers = secrets.token_hex(8), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"
        fields: dict[str, Any] = {}
        scope["state"] = {**scope.get("state", {}), "request_id": request_id, "log": fields}
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ClientGoneError:
            status = status or 499
        except ServiceError as error:
            await send_error(error, scope, send_with_headers)
        except Exception:
            log("failed", level=logging.ERROR, trace=True, request_id=request_id)
            if not status:
                await send_error(ServiceError(500, FAILED), scope, send_with_headers)
        finally:
            seconds = time.perf_counter() - began
            self._figures.requests.labels(str(status or 499)).inc()
            self._figures.request_seconds.observe(seconds)
            log(
                "request",
                request_id=request_id,
                method=scope["method"],
                path=scope["path"][:LONGEST_PATH],
                status=status or 499,
                ms=round(1000 * seconds, 3),
                client=(scope.get("client") or ("unknown",))[0],
                **fields,
            )


class Door:
    """Checks the key, reads the body within its limits, and passes both on."""

    def __init__(
        self, app: ASGIApp, batcher: Batcher, options: ServeOptions, keys: tuple[str, ...], state: State
    ) -> None:
        self._app, self._batcher, self._options, self._state = app, batcher, options, state
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["path"], headers)
        try:
            # Of a refused request too: a client that is still sending would not read why.
            body = await self._body(headers, receive)
        except ServiceError as error:
            refusal = refusal or error
        if refusal is not None:
            await send_error(refusal, scope, send)
            return
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        if scope["path"].endswith(PREDICT):
            with self._batcher.request():
                await self._app(scope, replay, send)
        else:
            await self._app(scope, replay, send)

    def _refusal(self, path: str, headers: Mapping[str, str]) -> ServiceError | None:
        if self._state.draining and path != "/health":
            error = unavailable("the service is shutting down")
            error.headers["Connection"] = "close"
            return error
        # The description has examples of the models.
        if self._keys and (path.startswith("/v1") or path == DESCRIPTION) and not self._has_key(headers):
            return ServiceError(
                HTTPStatus.UNAUTHORIZED,
                "wanted an API key: Authorization: Bearer KEY",
                headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
            )
        return None

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip().encode("utf-8", "replace")
        # Every key is compared, in constant time.
        same = [hmac.compare_digest(given, known) for known in self._keys]
        return any(same) and scheme.lower() == "bearer"

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        most = self._options.max_body_bytes
        length = headers.get("content-length", "0")
        parts, size = [], 0
        announced = int(length) if length.isdigit() else 0
        try:
            async with asyncio.timeout(self._options.read_timeout):
                while size <= max(most, _DISCARDED_BYTES):
                    if announced > _DISCARDED_BYTES + most:
                        size = announced
                        break
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    size += len(message.get("body", b""))
                    if size <= most:
                        parts.append(message.get("body", b""))
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise ServiceError(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the request did not arrive within {self._options.read_timeout:g} seconds",
                headers={"Connection": "close"},
            ) from None
        if size > most:
            raise ServiceError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a body of more than {self._options.max_body:g} MiB",
                headers={"Connection": "close"},
            )
        return b"".join(parts)


async def send_error(error: ServiceError, scope: Scope, send: Send) -> None:
    body = error_body(error.status, error.message, scope["state"]["request_id"])
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
