"""Answers over HTTP are those of ``Model.predict``, alone and in batches with others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import owlmine
from owlmine.data.store import Store
from owlmine.model import Model

from ..small_models import calibrated_model, dense_model, dense_store, sparse_model, text_point
from .conftest import NASTY_NAMES
from .running import Service

# Answers are rounded to 7 digits, and products of other shapes add in another order.
SCORES = {"rel": 2e-6, "abs": 2e-6}
# Probabilities are rounded to 4 digits.
CHANCES = {"rel": 1e-3, "abs": 1e-6}

TEXTS = [str(text_point(number)["text"]) for number in range(1000, 1030)]


def assert_same(found: list[dict[str, Any]], model: Model, queries: Any, k: int, **options: Any) -> None:
    """The predictions of a response, and those of the model."""
    wanted = model.predict(queries, k, **options)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert [c["score"] for c in one["classes"]] == pytest.approx([p.score for p in other], **SCORES)
        chances = [c["probability"] for c in one["classes"]]
        if model.record.calibration is None:
            assert chances == [None] * len(other)
        else:
            assert chances == pytest.approx([p.probability for p in other], **CHANCES)
        keys, same = [p.key for p in other], [c["key"] for c in one["classes"]]
        # Classes with nearly the same score may change places.
        for place, (key, own) in enumerate(zip(keys, same, strict=True)):
            if key != own:
                near = [p.score for p in other if p.key == own] or [other[-1].score]
                assert near[0] == pytest.approx(other[place].score, **SCORES)


@pytest.fixture(scope="module")
def text_model() -> Model:
    return owlmine.load(calibrated_model())


def test_texts(service: Service, text_model: Model) -> None:
    assert_same(service.predict("text", *TEXTS, k=4), text_model, TEXTS, 4)
    [answer] = service.predict("text", {"text": TEXTS[0], "id": "mine"})
    assert answer["id"] == "mine"
    assert answer["known"]
    counts = dict(zip(text_model.classes.keys, text_model.classes.counts.tolist(), strict=True))
    names = dict(zip(text_model.classes.keys, text_model.classes.names, strict=True))
    for found in answer["classes"]:
        assert found["examples"] == counts[found["key"]]
        assert found["name"] == names[found["key"]]


def test_sparse_vectors(service: Service) -> None:
    model = owlmine.load(sparse_model())
    raw = csr_array(np.array([[0, 2, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]))
    raw.resize(3, model.dense.shape.num_features)
    # In any order; without values every feature counts 1.
    queries = [{"indices": [3, 1], "values": [1, 2]}, {"indices": [0]}, {"indices": [], "values": []}]
    found = service.predict("sparse", *queries, k=3)
    assert [answer["known"] for answer in found] == [True, True, False]
    assert_same(found, model, raw, 3)


def test_dense_vectors(service: Service) -> None:
    vectors = np.asarray(Store.open(dense_store())["test"].batch(np.arange(6)).queries)
    queries = [vector.tolist() for vector in vectors[:3]] + [{"vector": vector.tolist()} for vector in vectors[3:]]
    assert_same(service.predict("dense", *queries, k=3), owlmine.load(dense_model()), vectors, 3)


def test_filters_of_the_request_and_of_queries(service: Service, text_model: Model) -> None:
    keys = list(text_model.classes.keys)
    found = service.predict(
        "text", TEXTS[0], {"text": TEXTS[1], "allowed": keys[:6]}, {"text": TEXTS[2], "forbidden": keys[:3]},
        k=5, allowed=keys[:8], forbidden=[keys[0]],
    )  # fmt: skip
    wanted = [set(keys[1:8]), set(keys[1:6]), set(keys[3:8])]
    for answer, choice, text in zip(found, wanted, TEXTS, strict=False):
        assert_same([answer], text_model, [text], 5, allowed=sorted(choice))
        assert len(answer["classes"]) == 5


def test_filters_that_leave_no_class(service: Service, text_model: Model) -> None:
    keys = list(text_model.classes.keys)
    [answer] = service.predict("text", TEXTS[0], allowed=[keys[0]], forbidden=[keys[0]])
    assert answer["classes"] == []
    [answer] = service.predict("text", TEXTS[0], forbidden=keys)
    assert answer["classes"] == []


def test_threshold_and_precision(service: Service, text_model: Model) -> None:
    whole = service.predict("text", *TEXTS, k=10)
    calibration = text_model.record.calibration
    assert calibration is not None
    least = calibration.thresholds[0]
    for fields, bound in (({"threshold": 0.3}, 0.3), ({"precision": least.precision}, least.threshold)):
        found = service.predict("text", *TEXTS, k=10, **fields)
        kept = 0
        for one, other in zip(found, whole, strict=True):
            kept += len(one["classes"])
            assert {c["key"] for c in one["classes"]} >= {
                c["key"] for c in other["classes"] if c["probability"] > bound + 1e-3
            }
            assert all(c["probability"] >= bound - 1e-3 for c in one["classes"])
        assert 0 < kept < 10 * len(TEXTS)


def test_rare_classes_are_lifted(service: Service, text_model: Model) -> None:
    assert_same(service.predict("text", *TEXTS, k=5, tail=1.0), text_model, TEXTS, 5, tail=1.0)


def test_unknown_words_get_no_classes(service: Service) -> None:
    for text in ("", "?", "zzzz"):
        [answer] = service.predict("text", text)
        assert answer == {"id": None, "known": False, "classes": []}


@pytest.mark.parametrize(
    "text",
    ["castle " * 10_000, "🏰 castle 🎻", "קסטל castle", "\x00\x1b[31m castle \u202e", "castle\r\n\r\nHTTP/1.1 200 OK"],
    ids=["10,000 words", "emoji", "right to left", "controls", "line breaks"],
)
def test_unusual_texts(service: Service, text_model: Model, text: str) -> None:
    assert_same(service.predict("text", text), text_model, [text], 5)


def test_ids_come_back(service: Service) -> None:
    ids = ["", "a/b", 5, -(10**18), "\x1b", "\u2028"]
    found = service.predict("text", *({"text": "river", "id": one} for one in ids), k=1)
    assert [answer["id"] for answer in found] == ids


def test_names_are_text_and_nothing_else(service: Service) -> None:
    response = service.ask("POST", "/v1/models/nasty/predict", {"queries": ["river castle violin falcon"], "k": 12})
    names = {found["key"]: found["name"] for found in response.json()["predictions"][0]["classes"]}
    assert {key: names[key] for key in NASTY_NAMES} == NASTY_NAMES
    assert response.headers["content-type"] == "application/json"
    assert not any(byte < 0x20 for byte in response.body)


def at_once(works: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_answers_do_not_depend_on_the_batch(service: Service, text_model: Model) -> None:
    """Clients with other k, filters and options, all at once; and models of other kinds between them."""
    keys = list(text_model.classes.keys)
    before = figure(service, "owlmine_batch_size_count"), figure(service, "owlmine_batch_size_sum")

    def client(number: int) -> Callable[[], None]:
        text, k = TEXTS[number % len(TEXTS)], 1 + number % 12

        def work() -> None:
            for _ in range(8):
                assert_same(service.predict("text", text, k=k), text_model, [text], k)
                own = keys[number % 5 : 7]
                found = service.predict("text", {"text": text, "allowed": own}, k=k)
                assert_same(found, text_model, [text], k, allowed=own)
                assert_same(service.predict("text", text, k=k, tail=0.5), text_model, [text], k, tail=0.5)

        return work

    at_once([client(number) for number in range(16)])
    num_batches = figure(service, "owlmine_batch_size_count") - before[0]
    num_queries = figure(service, "owlmine_batch_size_sum") - before[1]
    assert num_queries == 16 * 8 * 3
    assert num_batches < num_queries, "nothing was answered together"


def figure(service: Service, name: str) -> float:
    lines = service.ask("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split()[0].partition("{")[0] == name)


def test_one_bad_query_does_not_harm_the_batch(service: Service) -> None:
    """A value that overflows inside the model is refused with its own request only."""
    model = owlmine.load(dense_model())
    good = np.asarray(Store.open(dense_store())["test"].batch(np.arange(1)).queries)
    bad = [3e38] * model.dense.shape.num_features

    def fine() -> None:
        for _ in range(10):
            assert_same(service.predict("dense", good[0].tolist()), model, good, 5)

    def refused() -> None:
        for _ in range(10):
            response = service.ask("POST", "/v1/models/dense/predict", {"queries": [bad]})
            assert response.status == 422
            assert "queries" in response.message

    at_once([fine, refused] * 4)
