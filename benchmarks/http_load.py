"""Clients that keep an HTTP service busy, in a process of their own; used by serving.py.

    python benchmarks/http_load.py URL BODIES CLIENTS SECONDS

BODIES: a file with one JSON body per line. Each client has a connection, and sends its next request when it has the
answer to the last one. Prints a JSON object: requests, errors, throughput, and percentiles of the milliseconds from
request to answer. Written on bare sockets: the clients must take little of the cores that they share with the service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

_WARM_UP_SECONDS = 1.0


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._received = b""
        self._began = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._load.open.add(self)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        status = int(head.split(b" ", 2)[1])
        self._load.count(status, self._began)
        self._received = rest[length:]
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._load.open.discard(self)
        if not self._load.is_over:
            self._load.lost += 1
        self._load.check()

    def _send(self) -> None:
        if self._load.is_over:
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(next(self._load.requests))


class Load:
    """All clients of a run."""

    def __init__(self, url: str, bodies: list[bytes], seconds: float) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "localhost", parts.port or 80
        self.requests = self._endless(parts.path, bodies)
        self.open: set[Client] = set()
        self.lost = 0
        self.statuses: dict[int, int] = {}
        self.times: list[float] = []
        self._starts = time.perf_counter() + _WARM_UP_SECONDS
        self._ends = self._starts + seconds
        self.done = asyncio.get_running_loop().create_future()

    def _endless(self, path: str, bodies: list[bytes]) -> Iterator[bytes]:
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\nContent-Length: "
        whole = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
        while True:
            yield from whole

    @property
    def is_over(self) -> bool:
        return time.perf_counter() >= self._ends

    def count(self, status: int, began: float) -> None:
        now = time.perf_counter()
        if self._starts <= now < self._ends:
            self.times.append(now - began)
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def end(self) -> None:
        """Before its time."""
        self._ends = min(self._ends, time.perf_counter())

    @property
    def seconds(self) -> float:
        return self._ends - self._starts

    def check(self) -> None:
        if not self.open and not self.done.done():
            self.done.set_result(None)


async def run(url: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    load, loop = Load(url, bodies, seconds), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, load.end)
    for _ in range(clients):
        await loop.create_connection(lambda: Client(load), load.host, load.port)
    await asyncio.wait_for(load.done, seconds + 60)
    times = np.array(load.times) * 1000
    if not len(times):
        raise SystemExit("no request was answered")
    return {
        "clients": clients,
        "seconds": round(load.seconds, 1),
        "requests": len(times),
        "errors": sum(count for status, count in load.statuses.items() if status != 200) + load.lost,
        "per_second": round(len(times) / load.seconds, 1),
        **{f"p{part}_ms": round(float(np.percentile(times, part)), 3) for part in (50, 95, 99)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("bodies", type=Path)
    parser.add_argument("clients", type=int)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    lines = given.bodies.read_bytes().splitlines()
    print(json.dumps(asyncio.run(run(given.url, lines, given.clients, given.seconds))))


if __name__ == "__main__":
    main()
