"""The options of the service: where it listens, and the limits that protect it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from owlmine.errors import OwlmineError
from owlmine.options import option

KEYS_VARIABLE = "OWLMINE_API_KEYS"
_SHORTEST_KEY = 16
_LIMITS = "Limits"
_TIMES = "Timeouts, in seconds"


@dataclass(frozen=True)
class ServeOptions:
    """Where the service listens, and its limits. A request beyond a limit is refused; nothing is cut off silently."""

    host: str = option("127.0.0.1", "The address to listen on. 0.0.0.0 or :: exposes the service to the network.")
    port: int = option(8080, "The port to listen on; 0 takes a free one, which the log names.")
    cors_origin: str | None = option(
        None, "Web origins whose pages may call the service, such as https://example.org, separated by commas."
    )
    threads: int | None = option(None, "Threads for predictions (default: one per core, at most 8).")
    max_batch: int = option(64, "Queries answered together in a batch.", group=_LIMITS)
    max_queue: int = option(1024, "Queries that may wait; further requests get 429.", group=_LIMITS)
    max_queries: int = option(256, "Queries in one request.", group=_LIMITS)
    max_k: int = option(1000, "Classes per query.", group=_LIMITS)
    max_text: int = option(100_000, "Characters of a text.", group=_LIMITS)
    max_body: float = option(2.0, "Size of a request body, in MiB.", group=_LIMITS)
    max_connections: int = option(512, "Open connections; further ones get 503.", group=_LIMITS)
    read_timeout: float = option(10.0, "A request must arrive within this time.", group=_TIMES)
    answer_timeout: float = option(30.0, "A request that could not be answered by then gets 503.", group=_TIMES)
    keep_alive: float = option(30.0, "Idle connections are closed after this time.", group=_TIMES)
    drain_timeout: float = option(30.0, "Time for accepted requests after SIGTERM.", group=_TIMES)

    def __post_init__(self) -> None:
        counts = ("max_batch", "max_queue", "max_queries", "max_k", "max_text", "max_connections")
        checks = [(name, getattr(self, name) >= 1, "1 or more") for name in counts]
        times = ("max_body", "read_timeout", "answer_timeout", "keep_alive", "drain_timeout")
        checks += [(name, 0 < getattr(self, name) < float("inf"), "a number above 0") for name in times]
        checks += [
            ("port", 0 <= self.port <= 65535, "0 to 65535"),
            ("threads", self.threads is None or self.threads >= 1, "1 or more"),
            ("max_queue", self.max_queue >= self.max_queries, f"at least --max-queries, {self.max_queries}"),
        ]
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")
        for origin in self.origins:
            if not origin.startswith(("http://", "https://")) or origin.count("/") != 2:
                raise ValueError(f"cors_origin is {origin!r}; wanted a web origin, such as https://example.org")

    @property
    def origins(self) -> list[str]:
        return [] if self.cors_origin is None else [origin.strip() for origin in self.cors_origin.split(",")]

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body * 2**20)


def keys_from_environment() -> tuple[str, ...]:
    """The API keys of ``OWLMINE_API_KEYS``, which are separated by commas; none if it is not set."""
    given = os.environ.get(KEYS_VARIABLE)
    if given is None:
        return ()
    keys = tuple(key.strip() for key in given.split(","))
    for number, key in enumerate(keys, 1):
        # The message must not show a key.
        if len(key) < _SHORTEST_KEY or not (key.isascii() and key.isprintable()) or " " in key:
            raise OwlmineError(
                f"{KEYS_VARIABLE}: key {number} of {len(keys)} has {len(key)} characters or unusual ones; wanted keys"
                f" of {_SHORTEST_KEY} or more ASCII letters, digits and signs, separated by commas"
            )
    return keys
