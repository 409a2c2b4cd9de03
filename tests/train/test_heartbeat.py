"""Long work tells how far it is."""

from __future__ import annotations

import pytest

from owlmine.train import heartbeat
from owlmine.train.heartbeat import Heartbeat


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_every_fifteen_seconds_and_not_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = Clock(), list[str]()
    monkeypatch.setattr(heartbeat, "time", clock)
    beat = Heartbeat(told.append, "shortlists", 4_000)
    for done, seconds in ((1_000, 10.0), (2_000, 6.0), (2_500, 14.0), (3_000, 1.0), (4_000, 60.0)):
        clock.now += seconds
        beat(done)
    assert told == ["shortlists: 2,000 of 4,000", "shortlists: 3,000 of 4,000"]
