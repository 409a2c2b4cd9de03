"""What is answered together, and what never waits."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import owlmine
from owlmine.errors import OwlmineError
from owlmine.folder.model_folder import read_facts
from owlmine.serve import batching
from owlmine.serve.batching import Answer, Batcher, Rule
from owlmine.serve.errors import ServiceError
from owlmine.serve.explaining import Explainer
from owlmine.serve.figures import Figures
from owlmine.serve.guard import Door
from owlmine.serve.models import Loaded, ServedModels, _without_paths
from owlmine.serve.options import ServeOptions
from owlmine.serve.state import State

from ..small_models import calibrated_model
from .running import wait

TEXT = "the river and the castle"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    path = calibrated_model()
    return Loaded("text", owlmine.load(path), read_facts(path), Path(path), "")


class Watched:
    """A batcher, and the sizes of its batches."""

    def __init__(self, *, max_batch: int = 8, max_queue: int = 16) -> None:
        self.figures = Figures()
        self.batcher = Batcher(self.figures, max_batch=max_batch, max_queue=max_queue, threads=1)

    @property
    def num_batches(self) -> int:
        text = self.figures.text().decode().splitlines()
        return int(float(next(line.split()[1] for line in text if line.startswith("owlmine_batch_size_count"))))

    async def ask(self, loaded: Loaded, count: int = 1, k: int = 3, tail: float = 0.0) -> list[Answer]:
        with self.batcher.request():
            return await self.batcher.answers(loaded, [TEXT] * count, k, tail=tail, rules=(), timeout=60)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """With a window that no test outlives: whoever waits for it in vain is noticed."""
    monkeypatch.setattr(batching, "_WINDOW_SECONDS", 3600)
    one = Watched()
    yield one
    one.batcher.stop()


def test_a_lone_request_never_waits(watched: Watched, loaded: Loaded) -> None:
    watched.batcher.start()
    for _ in range(3):
        [answer] = asyncio.run(watched.ask(loaded))
        assert [found.number for found in answer.classes] == best(loaded, 3)
    assert watched.num_batches == 3


def best(loaded: Loaded, k: int) -> list[int]:
    return loaded.model.finder.find(found.key for found in loaded.model.predict([TEXT], k)[0]).tolist()


def test_a_batch_waits_for_a_request_that_is_arriving(watched: Watched, loaded: Loaded) -> None:
    watched.batcher.start()

    async def two() -> None:
        with watched.batcher.request():
            first = asyncio.create_task(watched.ask(loaded))
            await asyncio.sleep(0.1)
            assert not first.done()
            answers = watched.batcher.answers(loaded, [TEXT], 2, tail=0.0, rules=(), timeout=60)
            [second] = await answers
        [answer] = await first
        assert [found.number for found in answer.classes] == best(loaded, 3)
        assert [found.number for found in second.classes] == best(loaded, 2)

    asyncio.run(two())
    assert watched.num_batches == 1


def test_a_full_batch_waits_for_nobody(watched: Watched, loaded: Loaded) -> None:
    watched.batcher.start()

    async def full() -> None:
        with watched.batcher.request():  # which never comes
            assert len(await watched.ask(loaded, count=8)) == 8

    asyncio.run(full())


def test_groups(watched: Watched, loaded: Loaded) -> None:
    """Requests with other numbers of classes share a batch, up to the length of the lists; other options do not."""
    shared = loaded.model.shared_k(tail=0.0, filtered=False)
    calls = [(1, 0.0), (shared, 0.0), (shared + 1, 0.0), (2, 0.5), (3, 0.5)]

    async def all_at_once() -> None:
        tasks = [asyncio.create_task(watched.ask(loaded, k=k, tail=tail)) for k, tail in calls]
        await asyncio.sleep(0.1)
        watched.batcher.start()
        for (k, _), task in zip(calls, tasks, strict=True):
            [answer] = await task
            assert len(answer.classes) == min(k, loaded.num_classes)

    asyncio.run(all_at_once())
    assert watched.num_batches == 3


def test_a_full_queue_refuses_and_the_end_does_too(watched: Watched, loaded: Loaded) -> None:
    async def overflow() -> None:
        tasks = [asyncio.create_task(watched.ask(loaded, count=8)) for _ in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(ServiceError) as refused:
            await watched.ask(loaded)
        assert refused.value.status == HTTPStatus.TOO_MANY_REQUESTS
        assert refused.value.headers == {"Retry-After": "1"}
        watched.batcher.start()
        await asyncio.gather(*tasks)
        await asyncio.to_thread(watched.batcher.stop)
        with pytest.raises(ServiceError) as refused:
            await watched.ask(loaded)
        assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE

    asyncio.run(overflow())


def test_requests_that_nobody_waits_for_are_dropped(watched: Watched, loaded: Loaded) -> None:
    async def late() -> None:
        with pytest.raises(ServiceError) as refused:
            await watched.batcher.answers(loaded, [TEXT], 3, tail=0.0, rules=(), timeout=0.01)
        assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
        watched.batcher.start()
        await watched.ask(loaded)

    asyncio.run(late())
    assert watched.num_batches == 1


def test_reasons_have_a_short_queue() -> None:
    explainer, blocked = Explainer(60), threading.Event()

    async def crowd() -> None:
        tasks = [asyncio.create_task(explainer._run(blocked.wait, 60)) for _ in range(8)]
        await asyncio.sleep(0.1)
        with pytest.raises(ServiceError) as refused:
            await explainer._run(blocked.wait, 60)
        assert refused.value.status == HTTPStatus.TOO_MANY_REQUESTS
        blocked.set()
        assert await asyncio.gather(*tasks) == [True] * 8
        assert await explainer._run(lambda: 5, 60) == 5

    asyncio.run(crowd())
    explainer.stop()


def test_reasons_that_come_too_late_count_until_they_end() -> None:
    """Or a client that asks again and again would fill the queue with work that nobody waits for."""
    explainer, blocked = Explainer(60), threading.Event()

    async def impatient() -> None:
        for _ in range(8):
            with pytest.raises(ServiceError) as refused:
                await explainer._run(blocked.wait, 0.05)
            assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
            assert "Retry-After" not in refused.value.headers
            # Work that has not begun is dropped, so only the first one is left.
            await settled(1)
        blocked.set()
        await settled(0)

    async def settled(num_waiting: int) -> None:
        for _ in range(500):
            if explainer._waiting == num_waiting:
                return
            await asyncio.sleep(0.01)
        blocked.set()
        raise AssertionError(explainer._waiting)

    asyncio.run(impatient())
    explainer.stop()


def test_a_refused_folder_is_named_without_its_path() -> None:
    """Whatever it is called."""
    here = Path.cwd()
    for path in (Path("m"), Path("model"), here / "m"):
        error = OwlmineError(f"{path}/weights.safetensors: no such model in memory")
        assert _without_paths(error, path) == "weights.safetensors: no such model in memory"
        assert _without_paths(OwlmineError(f"{path}: is empty"), path) == "the folder: is empty"
        assert _without_paths(OwlmineError(f"cannot read {here / path}"), path) == "cannot read the folder"


def test_allowed_and_forbidden_classes_do_not_mix(watched: Watched, loaded: Loaded) -> None:
    """Two requests with one rule each, of different kinds."""
    ids = np.arange(4)

    async def two() -> None:
        calls = [
            asyncio.create_task(
                watched.batcher.answers(loaded, [TEXT], 12, tail=0.0, rules=(Rule(allowed, [ids]),), timeout=60)
            )
            for allowed in (True, False)
        ]
        await asyncio.sleep(0.1)
        watched.batcher.start()
        [allowed], [forbidden] = await asyncio.gather(*calls)
        assert {found.number for found in allowed.classes} == set(ids.tolist())
        assert {found.number for found in forbidden.classes} == set(range(4, loaded.num_classes))

    asyncio.run(two())


def test_the_door_is_shut_while_the_service_drains(watched: Watched) -> None:
    passed: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["path"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def knock() -> None:
        state = State()
        door = Door(app, watched.batcher, ServeOptions(), (), state)
        headers: list[tuple[bytes, bytes]] = []
        scope = {
            "type": "http",
            "path": "/v1/models",
            "method": "GET",
            "headers": headers,
            "state": {"request_id": "1"},
        }
        await door(scope, receive, send)
        assert not sent
        state.draining = True
        await door(scope, receive, send)
        assert sent[0]["status"] == HTTPStatus.SERVICE_UNAVAILABLE
        # Or the client would ask again on a connection that is about to be closed.
        assert (b"connection", b"close") in sent[0]["headers"]

    asyncio.run(knock())
    assert passed == ["/v1/models"]


def test_a_folder_that_changes_while_it_is_read_is_not_taken(tmp_path: Path) -> None:
    """Its parts could be of two models."""
    folder = tmp_path / "model"
    shutil.copytree(calibrated_model(), folder)
    failures: list[str] = []

    def rewrite(loaded: Loaded) -> None:
        shutil.copy(folder / "config.json", tmp_path / "config.json")
        (tmp_path / "config.json").rename(folder / "config.json")

    models = ServedModels(
        {"model": folder}, Figures(), warm_up=rewrite, failed=lambda error: failures.append(str(error))
    )
    models.start()
    for _ in wait("a failure"):
        if failures:
            break
    assert "changed while it was being loaded" in failures[0]
    assert not models.ready
    models.stop()
