"""Reasons and similar classes: work that takes as long as many predictions, done beside them by one thread.

Its queue is short. A request beyond it is refused, so that predictions never wait for more than one of these.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeVar

import numpy as np
import torch

from owlmine.errors import OwlmineError
from owlmine.index import Filter
from owlmine.rank.explain import explain
from owlmine.serve.batching import Answer, Queries, Rule
from owlmine.serve.errors import ServiceError, late, overloaded
from owlmine.serve.models import Loaded

MOST_QUERIES = 16
MOST_CLASSES = 50
"""Of each query."""
MOST_WORDS = 20
"""Of each class."""
_MOST_WAITING = 8
_SIMILAR = 10

Result = TypeVar("Result")


class Explainer:
    """One thread, with a short queue."""

    def __init__(self, timeout: float) -> None:
        self._timeout, self._waiting = timeout, 0
        # One thread for its products too: the cores belong to predictions.
        self._pool = ThreadPoolExecutor(1, "reasons", initializer=torch.set_num_threads, initargs=(1,))

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def reasons(
        self,
        loaded: Loaded,
        queries: Queries,
        answers: list[Answer],
        rules: tuple[Rule, ...],
        k: int,
        *,
        tail: float,
        timeout: float,
    ) -> list[list[dict[str, Any]]]:
        """For each class of each answer."""
        ends = time.monotonic() + timeout

        def work() -> list[list[dict[str, Any]]]:
            found = []
            for row, answer in enumerate(answers):
                if time.monotonic() > ends:  # nobody waits any more
                    break
                only = _filter(rules, row, loaded.num_classes)
                found.append(_reasons(loaded, queries[row : row + 1], answer, only, k, tail))
            return found

        return await self._run(work, timeout)

    async def similar(self, loaded: Loaded, key: str) -> list[dict[str, Any]]:
        """The classes most similar to one."""
        similar = loaded.model.similar_classes
        return await self._run(lambda: [one.to_dict() for one in similar(key, _SIMILAR)], self._timeout)

    async def _run(self, work: Callable[[], Result], timeout: float) -> Result:
        if self._waiting >= _MOST_WAITING:
            raise overloaded("too many requests wait for reasons; try again soon")
        self._waiting += 1
        loop = asyncio.get_running_loop()
        job = self._pool.submit(work)
        # Counted until it has ended, even if nobody waits for it any more.
        job.add_done_callback(lambda _: _call(loop, self._ended))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(job)
        except TimeoutError:
            raise late("no reasons in time") from None
        except OwlmineError as error:
            raise ServiceError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error

    def _ended(self) -> None:
        self._waiting -= 1


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(work)


def _reasons(
    loaded: Loaded, query: Any, answer: Answer, only: Filter | None, k: int, tail: float
) -> list[dict[str, Any]]:
    """In the order of the answer."""
    if not answer.classes:
        return []
    model, ids = loaded.model, [found.number for found in answer.classes]
    found = explain(
        model,
        model.prepare(query),
        k,
        text=query[0] if isinstance(query, list) and isinstance(query[0], str) else None,
        classes=np.array(ids, np.int64),
        only=only,
        tail=tail,
        most_words=MOST_WORDS,
    )
    by_key = {reasons.key: reasons.to_dict() for reasons in found}
    return [by_key[model.classes.keys[number]] for number in ids]


def _filter(rules: tuple[Rule, ...], row: int, num_classes: int) -> Filter | None:
    only: Filter | None = None
    for rule in rules:
        own = Filter.per_query([rule.ids_of_queries[row]], num_classes, allowed=rule.is_allowed)
        only = own if only is None else only & own
    return only
