"""Trainings at the same time: threads, failures, interrupts, and one line of progress for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from owlmine.dense.progress import Progress
from owlmine.dense.side_by_side import Cancelled, SideBySide, run_side_by_side

CPU = torch.device("cpu")


@contextmanager
def threads_of_torch(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def nothing() -> None:
    raise AssertionError("cancelled without a failure")


@pytest.mark.parametrize(("threads", "trainings", "share"), [(4, 2, 2), (2, 3, 1), (5, 2, 2), (1, 2, 1)])
def test_each_has_its_share_of_the_threads(threads: int, trainings: int, share: int) -> None:
    all_there = threading.Barrier(trainings)

    def training(number: int) -> Callable[[], tuple[int, int]]:
        def run() -> tuple[int, int]:
            all_there.wait(timeout=20)
            return number, torch.get_num_threads()

        return run

    with threads_of_torch(threads):
        found = run_side_by_side([training(number) for number in range(trainings)], nothing, device=CPU)
        assert found == [(number, share) for number in range(trainings)]
        assert torch.get_num_threads() == threads


def test_a_failure_ends_the_others_and_is_the_one_that_is_told() -> None:
    cancelled, ended = threading.Event(), []

    def lasting() -> None:
        assert cancelled.wait(timeout=20)
        ended.append(True)
        raise Cancelled

    def failing() -> None:
        raise ValueError("this one")

    with threads_of_torch(2):
        with pytest.raises(ValueError, match="this one"):
            run_side_by_side([lasting, failing, lasting], cancelled.set, device=CPU)
        assert torch.get_num_threads() == 2
    assert len(ended) == 2


def test_an_interrupt_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from owlmine.dense import side_by_side

    cancelled, real, calls = threading.Event(), side_by_side.wait, []

    def interrupted(*given: Any, **options: Any) -> object:
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(*given, **options)

    def lasting() -> None:
        assert cancelled.wait(timeout=20)
        raise Cancelled

    monkeypatch.setattr(side_by_side, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_side_by_side([lasting, lasting], cancelled.set, device=CPU)


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[int, float]] = []
        self.messages: list[str] = []

    def progress(self, progress: Progress) -> None:
        self.heard.append((progress.step, progress.points_per_second))

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_progress_is_that_of_the_last_with_the_speed_of_all() -> None:
    listener = Listener()
    joined = SideBySide(listener)
    first, second = joined.reporter_of(0), joined.reporter_of(1)

    def at(step: int, speed: float) -> Progress:
        return Progress(step, 10, step / 5, 0.5, speed, 1.0, {})

    first.progress(at(3, 100.0))
    second.progress(at(2, 80.0))
    first.progress(at(6, 100.0))  # ahead: not told
    second.progress(at(7, 90.0))  # ahead as well, by now
    first.progress(at(10, 100.0))  # has ended, and no longer counts
    second.progress(at(8, 70.0))
    second.progress(at(10, 70.0))
    assert listener.heard == [(3, 100.0), (2, 180.0), (8, 70.0), (10, 70.0)]
    second.message("a word")
    assert listener.messages == ["model 2: a word"]
