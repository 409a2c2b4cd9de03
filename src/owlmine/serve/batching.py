"""Queries of many requests answered together, by one thread.

A batch is what waits when the thread is free: queries of one model whose answers do not depend on each other. A lone
request is answered at once. While there are others inside the service, the thread waits for them, for 2 ms at most: the
event loop reads and writes faster when nobody competes for the interpreter.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import torch

from owlmine.data.rows import Int64, SparseRows, concatenate
from owlmine.index import Filter
from owlmine.rank.queries import knows
from owlmine.serve.errors import late, overloaded, unavailable
from owlmine.serve.figures import Figures
from owlmine.serve.models import Loaded

Queries = list[str] | SparseRows | list[list[float]]

_WINDOW_SECONDS = 0.002
# Ids that the filters of one batch may list: some 100 MiB with all that is made of them.
_BATCH_IDS = 1 << 20


@dataclass(frozen=True, eq=False)
class Rule:
    """Classes that are allowed, or forbidden, for each query of a request; None: no limit."""

    is_allowed: bool
    ids_of_queries: Sequence[Int64 | None]

    @property
    def num_ids(self) -> int:
        distinct = {id(ids): ids for ids in self.ids_of_queries}
        return sum(len(ids) for ids in distinct.values() if ids is not None)


@dataclass(frozen=True, slots=True)
class Found:
    """A class for a query."""

    number: int
    score: float
    probability: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The best classes of a query; none if the model knows none of its features."""

    is_known: bool
    classes: list[Found]


@dataclass(eq=False)
class Job:
    """The queries of one request."""

    loaded: Loaded
    queries: Queries
    k: int
    tail: float
    rules: tuple[Rule, ...]
    answered: asyncio.Future[list[Answer]]
    queued_at: float = field(default_factory=time.perf_counter)

    @property
    def num_queries(self) -> int:
        return len(self.queries)

    @cached_property
    def group(self) -> tuple[Any, ...]:
        """Jobs of one group may be answered together, and get the answers that they would get alone."""
        shared = self.loaded.model.shared_k(tail=self.tail, filtered=bool(self.rules))
        kinds = tuple(rule.is_allowed for rule in self.rules)
        return id(self.loaded), self.tail, kinds, self.k if self.k > shared else 0

    @cached_property
    def num_ids(self) -> int:
        return sum(rule.num_ids for rule in self.rules)


class Batcher:
    """Answers jobs in the order of their arrival, together with those that fit to them."""

    def __init__(self, figures: Figures, *, max_batch: int, max_queue: int, threads: int) -> None:
        self._figures, self._max_batch, self._max_queue, self._threads = figures, max_batch, max_queue, threads
        self._jobs: deque[Job] = deque()
        self._num_queries = 0
        self._inside = 0
        self._is_waiting = False
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="predictions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread once the queue is empty."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def request(self) -> Iterator[None]:
        """While a request is inside the service, from its arrival to its answer."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if self._is_waiting:
                with self._changed:
                    self._changed.notify()

    async def answers(
        self, loaded: Loaded, queries: Queries, k: int, *, tail: float, rules: tuple[Rule, ...], timeout: float
    ) -> list[Answer]:
        """Waits for the answers. Raises ServiceError if the queue is full or the time is up, OwlmineError for queries
        that the model cannot answer."""
        job = Job(loaded, queries, k, tail, rules, asyncio.get_running_loop().create_future())
        self._put(job)
        try:
            async with asyncio.timeout(timeout):
                return await job.answered
        except TimeoutError:
            raise late(f"no answer within {timeout:g} seconds") from None

    def _put(self, job: Job) -> None:
        with self._changed:
            if self._stopping:
                raise unavailable("the service is shutting down")
            if self._num_queries + job.num_queries > self._max_queue:
                raise overloaded(f"{self._num_queries} queries are waiting; try again soon")
            self._jobs.append(job)
            self._num_queries += job.num_queries
            self._changed.notify()
        self._figures.queue_size.set(self._num_queries)

    def _run(self) -> None:
        torch.set_num_threads(self._threads)  # of this thread
        while jobs := self._next():
            now = time.perf_counter()
            for job in jobs:
                self._figures.queue_seconds.observe(now - job.queued_at)
            self._figures.batch_size.observe(sum(job.num_queries for job in jobs))
            _deliver(jobs, _outcomes(jobs))
            self._figures.batch_seconds.observe(time.perf_counter() - now)
            del jobs  # or the model would live until the next batch

    def _next(self) -> list[Job]:
        """The next batch; waits for one. Empty at the end."""
        with self._changed:
            while True:
                while not self._jobs:
                    if self._stopping:
                        return []
                    self._changed.wait()
                self._wait_for_others()
                if jobs := self._taken():
                    return jobs

    def _wait_for_others(self) -> None:
        """For requests inside the service that are not in the queue: they are being read; or their answers are being
        sent, and their clients may ask again."""
        deadline = time.perf_counter() + _WINDOW_SECONDS
        self._is_waiting = True  # before the count is read: who leaves after that says so
        while self._inside > len(self._jobs) and self._num_queries < self._max_batch and not self._stopping:
            if (left := deadline - time.perf_counter()) <= 0:
                break
            self._changed.wait(left)
        self._is_waiting = False

    def _taken(self) -> list[Job]:
        """The oldest job, and those of its group while there is room. Jobs that nobody waits for are dropped."""
        taken: list[Job] = []
        others: deque[Job] = deque()
        num_queries = num_ids = 0
        for job in self._jobs:
            if job.answered.done():
                continue
            fits = not taken or (
                job.group == taken[0].group
                and num_queries + job.num_queries <= self._max_batch
                and num_ids + job.num_ids <= _BATCH_IDS
            )
            if fits:
                taken.append(job)
                num_queries, num_ids = num_queries + job.num_queries, num_ids + job.num_ids
            else:
                others.append(job)
        self._jobs = others
        self._num_queries = sum(job.num_queries for job in others)
        self._figures.queue_size.set(self._num_queries)
        return taken


Outcome = list[Answer] | Exception


def _outcomes(jobs: list[Job]) -> list[Outcome]:
    """The answers to each job. Where one cannot be answered, the others are answered without it."""
    try:
        return list(_answers(jobs))
    except Exception as error:
        return [error] if len(jobs) == 1 else [outcome for job in jobs for outcome in _outcomes([job])]


def _answers(jobs: list[Job]) -> Iterator[list[Answer]]:
    model = jobs[0].loaded.model
    features = model.prepare(_joined([job.queries for job in jobs]))
    predictions = model.answer(
        features, max(job.k for job in jobs), only=_filter(jobs, len(model.classes)), tail=jobs[0].tail
    )
    ids_Nk, scores_Nk = predictions.ids_Nk.tolist(), predictions.scores_Nk.tolist()
    chances = predictions.probabilities_Nk
    chances_Nk = [[None] * len(ids_k) for ids_k in ids_Nk] if chances is None else chances.tolist()
    is_known = knows(features).tolist()
    row = 0
    for job in jobs:
        own = range(row, row + job.num_queries)
        row = own.stop
        yield [
            Answer(
                is_known[number],
                [
                    Found(*one)
                    for one in zip(
                        ids_Nk[number][: job.k], scores_Nk[number][: job.k], chances_Nk[number][: job.k], strict=True
                    )
                    if one[0] >= 0 and is_known[number]
                ],
            )
            for number in own
        ]


def _joined(parts: list[Any]) -> Any:
    """One batch of queries of the same kind."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], SparseRows):
        return concatenate(parts)
    return list(chain.from_iterable(parts))


def _filter(jobs: list[Job], num_classes: int) -> Filter | None:
    only: Filter | None = None
    for rules in zip(*(job.rules for job in jobs), strict=True):
        ids_of_queries = [ids for rule in rules for ids in rule.ids_of_queries]
        own = Filter.per_query(ids_of_queries, num_classes, allowed=rules[0].is_allowed)
        only = own if only is None else only & own
    return only


def _deliver(jobs: list[Job], outcomes: list[Outcome]) -> None:
    """Hands the outcomes to the event loop, all at once: waking it costs more than an answer."""
    loop = jobs[0].answered.get_loop()
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(_set_outcomes, list(zip(jobs, outcomes, strict=True)))


def _set_outcomes(pairs: list[tuple[Job, Outcome]]) -> None:
    for job, outcome in pairs:
        if job.answered.done():  # its time was up
            continue
        if isinstance(outcome, Exception):
            job.answered.set_exception(outcome)
        else:
            job.answered.set_result(outcome)
