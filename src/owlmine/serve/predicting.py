"""From a request to the queries of a job, and from its answers to the response."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool

from owlmine.data.rows import Int64, SparseRows, offsets_from_counts
from owlmine.errors import OwlmineError
from owlmine.exchange.answers import shown_probability, shown_score
from owlmine.rank.class_index import ClassFinder
from owlmine.serve.batching import Answer, Batcher, Found, Queries, Rule
from owlmine.serve.errors import ServiceError
from owlmine.serve.explaining import MOST_CLASSES, MOST_QUERIES, Explainer
from owlmine.serve.models import Loaded
from owlmine.serve.options import ServeOptions
from owlmine.serve.schemas import DenseQuery, PredictRequest, SparseQuery, TextQuery

_KINDS = {"text": "text", "sparse vectors": "objects with indices and values", "dense vectors": "lists of numbers"}
# Answers of one response: some 8 MiB.
_MOST_ANSWERS = 1 << 16


async def predict(
    loaded: Loaded, request: PredictRequest, batcher: Batcher, explainer: Explainer, options: ServeOptions
) -> dict[str, Any]:
    """The response. Raises ServiceError for a request that cannot be answered."""
    began = time.monotonic()
    _check_limits(request, options)
    least = _least_probability(loaded, request)
    if request.tail and loaded.model.record.calibration is None:
        raise _invalid("tail", "the model has no probabilities, so rare classes cannot be lifted")
    queries = queries_of(loaded, request, options)
    rules: tuple[Rule, ...] = ()
    if _has_limits(request):
        # Elsewhere: the first lookup in a model may take a second.
        rules = await run_in_threadpool(_rules, loaded.model.finder, request)
    try:
        answers = await batcher.answers(
            loaded, queries, request.k, tail=request.tail, rules=rules, timeout=options.answer_timeout
        )
    except OwlmineError as error:
        raise ServiceError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    if least:
        answers = [_probable(answer, least) for answer in answers]
    predictions: list[dict[str, Any]] = [
        {
            "id": None if isinstance(query, str | list) else query.id,
            "known": answer.is_known,
            "classes": [shown_class(loaded, found) for found in answer.classes],
        }
        for query, answer in zip(request.queries, answers, strict=True)
    ]
    if request.reasons:
        left = max(began + options.answer_timeout - time.monotonic(), 0)
        reasons = await explainer.reasons(loaded, queries, answers, rules, request.k, tail=request.tail, timeout=left)
        for prediction, own in zip(predictions, reasons, strict=True):
            for shown, why in zip(prediction["classes"], own, strict=True):
                shown["reasons"] = why
    return {"model": loaded.name, "version": loaded.version, "predictions": predictions}


def _probable(answer: Answer, least: float) -> Answer:
    kept = [found for found in answer.classes if found.probability is not None and found.probability >= least]
    return Answer(answer.is_known, kept)


def shown_class(loaded: Loaded, found: Found) -> dict[str, Any]:
    words = loaded.model.classes
    return {
        "key": words.keys[found.number],
        "name": words.names[found.number],
        "score": shown_score(found.score),
        "probability": None if found.probability is None else shown_probability(found.probability),
        "examples": int(words.counts[found.number]),
    }


def _check_limits(request: PredictRequest, options: ServeOptions) -> None:
    num_queries = len(request.queries)
    if num_queries > options.max_queries:
        raise _invalid("queries", f"{num_queries:,} queries in one request; wanted at most {options.max_queries:,}")
    if request.k > options.max_k:
        raise _invalid("k", f"{request.k:,}; wanted at most {options.max_k:,}")
    if num_queries * request.k > _MOST_ANSWERS:
        raise _invalid("k", f"{request.k:,} for {num_queries:,} queries; wanted at most {_MOST_ANSWERS:,} in all")
    if request.reasons and (num_queries > MOST_QUERIES or request.k > MOST_CLASSES):
        raise _invalid("reasons", f"wanted at most {MOST_QUERIES} queries, and at most {MOST_CLASSES} classes of each")
    if request.threshold is not None and request.precision is not None:
        raise _invalid("precision", "given together with threshold; wanted one of them")


def _least_probability(loaded: Loaded, request: PredictRequest) -> float:
    if request.threshold is None and request.precision is None:
        return 0.0
    calibration = loaded.model.record.calibration
    name = "threshold" if request.precision is None else "precision"
    if calibration is None:
        raise _invalid(name, "the model has no probabilities")
    if request.precision is None:
        return request.threshold or 0.0
    found = calibration.threshold_for(request.precision)
    if found is None:
        highest = max((entry.precision for entry in calibration.thresholds), default=None)
        reached = "none was reached" if highest is None else f"the highest was {highest:g}"
        raise _invalid(name, f"{request.precision:g} was not reached on validation points; {reached}")
    return found.threshold


def queries_of(loaded: Loaded, request: PredictRequest, options: ServeOptions) -> Queries:
    """The queries in the form that the model takes."""
    takes, num_features = loaded.model.takes, loaded.model.dense.shape.num_features
    if takes == "text":
        return [_text(query, number, options) for number, query in enumerate(request.queries)]
    if takes == "sparse vectors":
        return _sparse(request, num_features)
    return [_vector(query, number, num_features) for number, query in enumerate(request.queries)]


def _text(query: Any, number: int, options: ServeOptions) -> str:
    text = query if isinstance(query, str) else query.text if isinstance(query, TextQuery) else None
    if text is None:
        raise _other_kind(number, "text")
    if len(text) > options.max_text:
        raise _invalid(f"queries.{number}", f"a text of {len(text):,} characters; wanted at most {options.max_text:,}")
    return text


def _sparse(request: PredictRequest, num_features: int) -> SparseRows:
    indices, values, counts = [], [], []
    for number, query in enumerate(request.queries):
        if not isinstance(query, SparseQuery):
            raise _other_kind(number, "sparse vectors")
        own = np.array(query.indices, np.int64)
        weights = np.ones(len(own)) if query.values is None else np.array(query.values, np.float64)
        if len(own) != len(weights):
            raise _invalid(f"queries.{number}.values", f"{len(weights):,} values for {len(own):,} indices")
        order = np.argsort(own, kind="stable")
        own = own[order]
        if len(own) and own[-1] >= num_features:
            raise _invalid(
                f"queries.{number}.indices", f"feature {own[-1]}; wanted 0 to {num_features - 1}, as in training"
            )
        if len(twice := np.flatnonzero(own[1:] == own[:-1])):
            raise _invalid(f"queries.{number}.indices", f"feature {own[twice[0]]} twice; wanted each once")
        indices.append(own)
        values.append(weights[order])
        counts.append(len(own))
    # Values beyond float32 are infinite here, which the model refuses.
    with np.errstate(over="ignore"):
        floats = np.concatenate(values).astype(np.float32)
    return SparseRows(offsets_from_counts(np.array(counts)), np.concatenate(indices), floats)


def _vector(query: Any, number: int, num_features: int) -> list[float]:
    vector = query if isinstance(query, list) else query.vector if isinstance(query, DenseQuery) else None
    if vector is None:
        raise _other_kind(number, "dense vectors")
    if len(vector) != num_features:
        raise _invalid(f"queries.{number}", f"a vector of {len(vector):,} numbers; wanted {num_features:,}")
    return vector


def _has_limits(request: PredictRequest) -> bool:
    own = (query for query in request.queries if not isinstance(query, str | list))
    return any(one.allowed or one.forbidden for one in (request, *own))


def _rules(finder: ClassFinder, request: PredictRequest) -> tuple[Rule, ...]:
    """Up to four: allowed and forbidden, for the request and for each query."""
    rules: list[Rule] = []
    for name in ("allowed", "forbidden"):
        whole = _ids(finder, getattr(request, name), name)
        own = [
            None if isinstance(query, str | list) else _ids(finder, getattr(query, name), f"queries.{number}.{name}")
            for number, query in enumerate(request.queries)
        ]
        both = ([whole] * len(own), own)
        rules += [Rule(name == "allowed", ids) for ids in both if any(one is not None for one in ids)]
    return tuple(rules)


def _ids(finder: ClassFinder, keys: list[str] | None, place: str) -> Int64 | None:
    if keys is None:
        return None
    for number, key in enumerate(keys):
        # The finder's own error suggests spellings, which takes too long for a service.
        if not finder.knows(key):
            raise _invalid(f"{place}.{number}", "the model has no such class")
    try:
        return finder.find(keys)
    except OwlmineError as error:
        raise _invalid(place, str(error)) from error


def _other_kind(number: int, takes: str) -> ServiceError:
    return _invalid(f"queries.{number}", f"the model takes {takes}; wanted {_KINDS[takes]}")


def _invalid(place: str, message: str) -> ServiceError:
    return ServiceError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{place}: {message}")
