"""How far a training is, how fast it goes, and signs of life from long work."""

from __future__ import annotations

import math

import pytest

from owlmine.dense import progress
from owlmine.dense.progress import Clock, Heartbeat, RunSize


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(progress, "time", time)
    return time


def test_speed_and_time_left(time: Time) -> None:
    """Of the steps since the start or the restart; the seconds of earlier parts count in the sum alone."""
    clock = Clock(20, seconds_before=500.0)
    clock.validation = {"P@1": 12.0}
    assert math.isnan(clock.loss)
    time.now += 8.0
    seen = clock.look(1.5, step=24, size=RunSize(num_steps=40, steps_per_epoch=16, batch_size=32))
    assert (seen.step, seen.num_steps, seen.epoch, seen.loss) == (24, 40, 1.5, 1.5)
    assert seen.points_per_second == pytest.approx(0.5 * 32)
    assert seen.seconds_left == pytest.approx(16 / 0.5)
    assert seen.validation == {"P@1": 12.0}
    assert (clock.loss, clock.seconds()) == (1.5, 508.0)


def test_a_look_before_any_time_has_passed(time: Time) -> None:
    seen = Clock(0, seconds_before=0.0).look(1.0, step=0, size=RunSize(10, 5, 8))
    assert seen.points_per_second == 0
    assert math.isfinite(seen.seconds_left)


def test_a_heartbeat_every_fifteen_seconds_and_not_at_the_end(time: Time) -> None:
    shown: list[str] = []
    beat = Heartbeat(shown.append, "shortlists", 4_000)
    for done, seconds in ((1_000, 10.0), (2_000, 6.0), (2_500, 14.0), (3_000, 1.0), (4_000, 60.0)):
        time.now += seconds
        beat(done)
    assert shown == ["shortlists: 2,000 of 4,000", "shortlists: 3,000 of 4,000"]
