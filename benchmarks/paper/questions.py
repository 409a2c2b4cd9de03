"""Questions that the paper leaves open, each as a comparison of a few variants on one dataset.

All variants start from the defaults of ``owlmine train`` (warm start, known labels left out of pools) and differ in
what is asked. A short search adapts the rates to the change; then several seeds run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comparing import compare, store_results
from dataset import DATASETS
from results import PAPER
from step_times import add_step_times

from owlmine.compare.methods import Method, Setting
from owlmine.compare.options import CompareOptions
from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.losses.surrogates import surrogate_names

_CLASS, _CLASS_AND_SCALE = ("class_rate",), ("class_rate", "scale")
_START = Setting(class_rate=0.1, feature_rate=10.0, map_rate=0.001)
_SOFTMAX_STARTS = (Setting(0.1, 10.0, 0.001, 10.0), Setting(0.03, 3.0, 0.0003, 20.0))


@dataclass(frozen=True)
class Place:
    """What a question may need to know about its dataset."""

    name: str
    num_classes: int
    pool: int


@dataclass(frozen=True)
class Question:
    name: str
    title: str
    axis: str
    """What differs, as the label of a picture's axis."""
    variants: Callable[[Place], list[Method]]


def _variant(name: str, *, top: int = 1, loss: str = "bowl", scaled: bool = False, **own: Any) -> Method:
    knobs = _CLASS_AND_SCALE if scaled else _CLASS
    return Method(0, name, name, loss, top, knobs, (_START,), tuple(own.items()))


def _pools(place: Place) -> list[Method]:
    sizes = [256 * 4**i for i in range(7)]
    inner = [size for size in sizes if 2 * size <= place.num_classes]
    return [_variant(f"{size}", pool=size) for size in [*inner, place.num_classes - 1]]


def _kept(place: Place) -> list[Method]:
    return [_variant(f"{top}", top=top) for top in (1, 2, 4, 8, 16, 64, 256) if top <= place.pool]


def _powers(place: Place) -> list[Method]:
    return [_variant(f"{power:g}", top=64, power=power) for power in (0.0, 0.5, 1.0, 2.0, 3.0)]


def _tails(place: Place) -> list[Method]:
    """Total weight of all classes outside the top, relative to 1 for the hardest."""
    return [_variant(f"{total:g}", least_weight=total / place.pool) for total in (0.0, 0.01, 0.1, 1.0)]


def _kinds(place: Place) -> list[Method]:
    tops = [top for top in (1, 16, 64) if top <= place.pool]
    bowl = [_variant(f"BOWL, top {top}", top=top) for top in tops]
    return bowl + [_variant(f"POWL, top {top}", top=top, loss="powl", scaled=True) for top in tops]


def _surrogates(place: Place) -> list[Method]:
    return [_variant(name, surrogate=name, scaled=True) for name in surrogate_names()]


def _owners(place: Place) -> list[Method]:
    """Small pools: a pool per point is gathered separately."""
    sizes = [size for size in (64, 256, 1024) if size < place.num_classes]
    return [
        _variant(f"{'batch' if shared else 'point'}, {size}", pool=size, shared_pool=shared)
        for size in sizes
        for shared in (True, False)
    ]


def _known(place: Place) -> list[Method]:
    return [
        _variant(
            f"{'warm' if warm else 'cold'}, {'left out' if out else 'left in'}", warm_start=warm, exclude_known=out
        )
        for warm in (False, True)
        for out in (False, True)
    ]


def _growth(place: Place) -> list[Method]:
    most = min(16 * place.pool, place.num_classes - 1)
    fixed = [size for size in (place.pool // 4, place.pool, 4 * place.pool) if size < most]
    grown = _variant(f"256 to {most}", pool=most, pool_start=256)
    return [*(_variant(f"{size}", pool=size) for size in [*fixed, most]), grown]


def _softmaxes(place: Place) -> list[Method]:
    def softmax(name: str, loss: str, top: int = 1) -> Method:
        return Method(0, name, name, loss, top, ("scale", "class_rate", "feature_rate"), _SOFTMAX_STARTS)

    return [
        _variant("top 1"),
        softmax("sampled", "sampled-softmax"),
        softmax("mined, 16", "mined-softmax", 16),
        softmax("mined, 64", "mined-softmax", 64),
        softmax("full", "softmax"),
    ]


def _at_equal_cost(place: Place) -> list[Method]:
    """The softmaxes, each with its chosen setting and as many epochs as fit into the time of the first mined one, by
    the stored step times."""
    answers = [method for method in _answer("softmax", place.name)["methods"] if method["loss"] != "bowl"]
    if any(method.get("seconds_per_step_alone") is None for method in answers):
        raise OwlmineError(f"{place.name}: the steps of the question 'softmax' have no times; wanted them (--time)")
    methods = {method.name: method for method in _softmaxes(place)}
    standard = next(method for method in answers if method["loss"] == "mined-softmax")["seconds_per_step_alone"]
    shares = [standard / method["seconds_per_step_alone"] for method in answers]
    return [
        replace(
            methods[method["name"]],
            title=f"{method['title']}: {share:.2f}",
            knobs=(),
            starts=(Setting(**method["setting"]),),
            epochs_share=share,
        )
        for method, share in zip(answers, shares, strict=True)
    ]


QUESTIONS = {
    question.name: question
    for question in (
        Question("pool", "How large a pool?", "pool size B", _pools),
        Question("kept", "How many to keep?", "kept negatives k", _kept),
        Question("power", "Weights that fall by rank?", "power p of rank^-p, top 64", _powers),
        Question("tail", "A tail for all others?", "total weight of the tail", _tails),
        Question("kind", "POWL or BOWL?", "loss", _kinds),
        Question("surrogate", "Which surrogate?", "surrogate", _surrogates),
        Question("owner", "A pool per point?", "pool per, size", _owners),
        Question("known", "Other labels of a point: negatives?", "start, known labels", _known),
        Question("growth", "A pool that grows?", "pool size B", _growth),
        Question("softmax", "Mined, sampled or full softmax?", "loss", _softmaxes),
        Question("cost", "At equal cost?", "loss: share of the epochs", _at_equal_cost),
    )
}


def ask(store: Store, name: str, question: Question, options: dict[str, Any], *, work: Path) -> Path:
    from owlmine.compare.comparison import settled

    asked = CompareOptions(**({"warm_start": True, "exclude_known": True} | options))
    place = Place(name, store.num_classes, settled(store, asked).pool)
    methods: Sequence[Method] = question.variants(place)
    results = compare(store, name, methods, asked, work=work)
    return store_results(results | {"question": question.name}, "questions", f"{name}-{question.name}")


def stored(question: Question) -> dict[str, dict[str, Any]]:
    """Results by dataset, smaller datasets first."""
    files = {name: PAPER / "questions" / f"{name}-{question.name}.json" for name in DATASETS}
    return {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.exists()}


def _answer(question: str, name: str) -> dict[str, Any]:
    if (results := stored(QUESTIONS[question]).get(name)) is None:
        raise OwlmineError(f"{name}: no stored results of the question {question!r}; run it first")
    return results


def time_steps(store: Store, name: str, question: Question) -> Path:
    """Adds seconds per step of each variant, measured alone, to the stored results."""
    results = _answer(question.name, name)
    place = Place(name, store.num_classes, CompareOptions(**results["options"]).pool)
    add_step_times(store, name, results, {method.name: method for method in question.variants(place)})
    return store_results(results, "questions", f"{name}-{question.name}")
