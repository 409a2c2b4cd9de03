"""Logs: one JSON object per line, in ASCII, so that no text of a client can forge a line or control a terminal."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from typing import Any, TextIO

LOGGER = logging.getLogger("owlmine.serve")
_WRITE_SECONDS = 0.1
# While nobody reads the log, so many lines are kept; and the end does not wait for a reader for long.
_MOST_LINES, _LAST_SECONDS = 10_000, 2.0
_UVICORN = logging.getLogger("uvicorn.error")


class JsonLines(logging.Formatter):
    """``extra={"fields": {...}}`` of a log call becomes fields of the object."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log(event: str, *, level: int = logging.INFO, trace: bool = False, **fields: Any) -> None:
    """Writes a line."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields}, exc_info=trace)


class Buffered(logging.Handler):
    """Writes lines a few times per second, many at once: a write for each would let go of the interpreter's lock.

    If nobody reads them, the oldest are dropped, and their number is written down.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._num_dropped = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        self._num_dropped += len(self._lines) == _MOST_LINES
        self._lines.append(self.format(record) + "\n")

    def close(self) -> None:
        """Writes the last lines."""
        self._stopping.set()
        self._thread.join(_LAST_SECONDS)
        super().close()

    def _run(self) -> None:
        while not self._stopping.wait(_WRITE_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        num_dropped, self._num_dropped = self._num_dropped, 0
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if num_dropped:
            record = LOGGER.makeRecord(
                LOGGER.name,
                logging.WARNING,
                "",
                0,
                "log lines dropped",
                (),
                None,
                extra={"fields": {"lines": num_dropped}},
            )
            lines.insert(0, self.format(record) + "\n")
        with suppress(OSError, ValueError):  # nobody reads the log any more
            _write_all(self._stream, "".join(lines))


def _write_all(stream: TextIO, text: str) -> None:
    """Past the stream's own buffer, where it has a file: at the end, Python would wait for the lock of that buffer."""
    try:
        handle = stream.fileno()
    except UnsupportedOperation:
        stream.write(text)
        stream.flush()
        return
    rest = text.encode("ascii")
    while rest:
        rest = rest[os.write(handle, rest) :]


@contextmanager
def logging_to(stream: TextIO) -> Iterator[None]:
    """Our lines, and warnings of the HTTP server, while the context is open."""
    handler = Buffered(stream)
    handler.setFormatter(JsonLines())
    for logger, level in ((LOGGER, logging.INFO), (_UVICORN, logging.WARNING)):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger in (LOGGER, _UVICORN):
            logger.handlers = []
        handler.close()
