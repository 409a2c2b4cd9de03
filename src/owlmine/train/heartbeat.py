"""Signs of life from work that has no steps to show: how much of it is done, now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 15.0


class Heartbeat:
    """Tells ``tell`` how much of ``total`` is done, not more often than every 15 seconds and not at the end."""

    def __init__(self, tell: Callable[[str], None], what: str, total: int) -> None:
        self._tell, self._what, self._total = tell, what, total
        self._last = time.monotonic()

    def __call__(self, done: int) -> None:
        if done < self._total and time.monotonic() - self._last >= _SECONDS:
            self._last = time.monotonic()
            self._tell(f"{self._what}: {done:,} of {self._total:,}")
