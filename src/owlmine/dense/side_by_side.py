"""Several trainings at the same time: on a CPU each with its share of the threads, on a GPU each with a stream.

A step has many short parts. On a CPU most of them gain little from a second thread, so two trainings use two cores
nearly fully; on a GPU most of them are too small to fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from threading import Lock
from typing import TypeVar

import torch

from owlmine.dense.progress import Progress, Reporter

Result = TypeVar("Result")

_NAP_SECONDS = 0.2


class Cancelled(Exception):  # noqa: N818
    """Another training has failed, so that the result of this one is no longer wanted."""


def run_side_by_side(
    trainings: Sequence[Callable[[], Result]], cancel: Callable[[], None], *, device: torch.device
) -> list[Result]:
    """Their results, in order. If one fails, ``cancel`` asks the others to end with ``Cancelled``, and its exception is
    raised once all have ended."""
    num_threads = torch.get_num_threads()
    share = max(num_threads // len(trainings), 1)
    # Memory passes between streams here and at the end.
    _wait_for(device)

    def run(training: Callable[[], Result]) -> Result:
        torch.set_num_threads(share)  # of this thread
        with _own_stream(device):
            return training()

    with ThreadPoolExecutor(len(trainings), thread_name_prefix="owlmine-training") as pool:
        futures = [pool.submit(run, training) for training in trainings]
        try:
            running, failed = set(futures), False
            while running and not failed:
                # Python handles signals in the main thread, once it wakes up.
                ended, running = wait(running, timeout=_NAP_SECONDS, return_when=FIRST_EXCEPTION)
                failed = any(future.exception() for future in ended)
            if failed:
                cancel()
        except BaseException:  # an interrupt from the keyboard
            cancel()
            raise
        finally:
            wait(futures)
            _wait_for(device)
            # Parts of PyTorch share one setting among all threads.
            torch.set_num_threads(num_threads)
    errors = [error for future in futures if (error := future.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Cancelled)):
        raise error
    return [future.result() for future in futures]


def _own_stream(device: torch.device) -> AbstractContextManager[object]:
    """What this thread computes on a GPU does not wait for the other threads."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class SideBySide:
    """Joins the progress of several trainings into one: that of the last, with the speed of all."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter, self._lock = reporter, Lock()
        self._latest: dict[int, Progress] = {}

    def reporter_of(self, number: int) -> Reporter:
        """The reporter for this training."""
        return _Member(self, number)

    def progress(self, number: int, progress: Progress) -> None:
        with self._lock:
            self._latest[number] = progress
            running = [other for other in self._latest.values() if other.step < other.num_steps] or [progress]
            if progress.step == min(other.step for other in running):
                speed = sum(other.points_per_second for other in running)
                self._reporter.progress(replace(progress, points_per_second=speed))

    def message(self, text: str) -> None:
        with self._lock:
            self._reporter.message(text)


class _Member:
    """The reporter of one training."""

    def __init__(self, joined: SideBySide, number: int) -> None:
        self._joined, self._number = joined, number

    def progress(self, progress: Progress) -> None:
        self._joined.progress(self._number, progress)

    def message(self, text: str) -> None:
        self._joined.message(f"model {self._number + 1}: {text}")
