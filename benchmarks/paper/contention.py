"""How much of the machine other processes used while something ran: without this, times on a shared machine mean
little."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

# Cores that other processes may use on average before a time is marked: daemons and our own file writing stay below.
BUSY_CORES = 0.15


class Contention:
    """A context manager; ``record`` is for result files once it has been left.

    ``other_cores`` is how many cores were at work for other processes on average: what the whole machine worked, by
    /proc/stat, less the CPU time of this process and of its children that have ended.
    """

    record: dict[str, Any]

    def __enter__(self) -> Contention:
        self._load, self._wall = os.getloadavg(), time.perf_counter()
        self._own, self._whole = _own_cpu_seconds(), whole_cpu_seconds(_stat())
        return self

    def __exit__(self, *exception: object) -> None:
        wall = time.perf_counter() - self._wall
        own, whole = _own_cpu_seconds() - self._own, whole_cpu_seconds(_stat()) - self._whole
        other_cores = max(whole - own, 0.0) / wall
        self.record = {
            "load_before": list(self._load),
            "load_after": list(os.getloadavg()),
            "other_cores": round(other_cores, 3),
            "niceness": os.nice(0),
            "busy": other_cores > BUSY_CORES,
        }


def whole_cpu_seconds(stat: str) -> float:
    """CPU time of the whole machine that was not idle, including time stolen by other virtual machines."""
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, stat.splitlines()[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _stat() -> str:
    return Path("/proc/stat").read_text()


def _own_cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
