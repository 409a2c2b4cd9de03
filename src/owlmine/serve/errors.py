"""Errors of the service: a status and a message that a client may read. Never a path or a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any


class ServiceError(Exception):
    """Becomes an answer with this status."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.message, self.headers = status, message, dict(headers or {})
        super().__init__(message)


def overloaded(message: str) -> ServiceError:
    """Too much at the moment; the client may try again in a second."""
    return ServiceError(HTTPStatus.TOO_MANY_REQUESTS, message, headers={"Retry-After": "1"})


def unavailable(message: str) -> ServiceError:
    """The service does not answer at the moment."""
    return ServiceError(HTTPStatus.SERVICE_UNAVAILABLE, message, headers={"Retry-After": "1"})


def late(message: str) -> ServiceError:
    """The answer took too long. Without a time to try again: it would take as long."""
    return ServiceError(HTTPStatus.SERVICE_UNAVAILABLE, message)


def error_body(status: int, message: str, request_id: str) -> bytes:
    return as_json({"error": {"status": status, "message": message, "request_id": request_id}})


def as_json(value: Any) -> bytes:
    """JSON in UTF-8; control characters are escaped. Numbers that JSON lacks, such as NaN, are an error."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, in an id or a name of a client
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
