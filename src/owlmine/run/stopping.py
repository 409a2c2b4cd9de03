"""Runs that are asked to end: by a signal, which is remembered until they can be left and resumed."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from owlmine.errors import OwlmineError


class Stopped(OwlmineError):  # noqa: N818
    """The run was asked to stop and can be resumed."""

    def __init__(self, number: int, text: str) -> None:
        self.signal: int | None = number
        super().__init__(text)


class StopSignal:
    """``number`` is that of the SIGINT or SIGTERM that came while this context was open, None before one did.

    One is open for a whole run, so that no signal falls between two of its parts. Where signals cannot be listened to
    (outside the main thread) nothing changes.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._came) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def check(self, where: str) -> None:
        """Raises Stopped if a signal has come. For places from which the run can be resumed."""
        if self.number is not None:
            raise Stopped(self.number, f"stopped {where}; go on with --resume")

    def _came(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.number = number
