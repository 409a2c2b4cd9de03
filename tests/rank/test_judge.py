"""A new judge is one file: once registered it is fitted, weighed, saved, loaded and asked like the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.data import Store
from owlmine.data.rows import Float32, Int64
from owlmine.dense.retriever import ModelShape
from owlmine.folder.model_folder import load_model, save_model
from owlmine.rank import JUDGES, Candidates, Encoded, Ranker, Training, register
from owlmine.rank.judge import Variant, check_settings
from owlmine.rank.points import as_arrays, as_tensors
from owlmine.recipe.fit import fit
from owlmine.recipe.options import TrainOptions

from ..small_models import text_store

LENGTHS = (1, 3)


@dataclass(frozen=True, eq=False)
class ToyJudge:
    """Knows which class each feature is a topic of, from the training points: Σ_f x_f [f speaks for the class].

    Its forms differ in how many features speak for a class.
    """

    name: ClassVar[str] = "toy"
    prior: ClassVar[float] = 0.5
    must_help: ClassVar[bool] = True
    is_default: ClassVar[bool] = False
    title: ClassVar[str] = "words that a class often has"
    default_variant: ClassVar[Variant] = None

    features_KL: Int64
    """The L features of each class that its points have most of all."""

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        shape = training.model.shape
        sums = np.zeros((shape.num_classes, shape.num_features))
        queries, labels = training.queries, training.labels
        for row in range(len(queries)):
            own, of = slice(*queries.offsets[row : row + 2]), labels.indices[slice(*labels.offsets[row : row + 2])]
            assert queries.values is not None
            sums[np.ix_(of, queries.indices[own])] += queries.values[own]
        # Of a word that every class has, a class has no more than others.
        best = np.argsort(-(sums / (sums.sum(axis=0) + 1)), axis=1, kind="stable")
        lengths = {f"{length} words": length for length in LENGTHS}
        return {v: cls(best[:, :length].copy()) for v, length in lengths.items() if chosen in (None, v)}

    def scores(self, candidates: Candidates) -> Float32:
        queries = candidates.sparse_queries.to_scipy(int(self.features_KL.max()) + 1000)
        wanted_NSL = self.features_KL[candidates.lookup_ids]
        rows = np.arange(len(candidates.ids_NS))[:, None, None]
        return np.asarray(queries.toarray()[rows, wanted_NSL].sum(axis=2), np.float32)

    def with_classes(self, num_new: int) -> Self:
        raise NotImplementedError

    def on(self, device: torch.device) -> Self:
        return self

    def tensors(self) -> dict[str, Tensor]:
        return as_tensors({"features": self.features_KL.ravel()})

    def settings(self) -> dict[str, Any]:
        return {"words": self.features_KL.shape[1]}

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        check_settings(settings, {"words": int})
        return cls(as_arrays(tensors, {"features": torch.int64})["features"].reshape(-1, settings["words"]))


class SuggestingJudge(ToyJudge):
    """Puts the classes on the list, too, whose words a query has."""

    name: ClassVar[str] = "suggesting_toy"

    def suggest(self, encoded: Encoded, count: int) -> Int64:
        matches = encoded.sparse_queries.to_scipy(1000).toarray()[:, self.features_KL].sum(axis=2)
        best = np.argsort(-matches, axis=1, kind="stable")[:, :count]
        return np.where(np.take_along_axis(matches, best, axis=1) > 0, best, -1)


@pytest.fixture(params=[ToyJudge, SuggestingJudge])
def toy(request: pytest.FixtureRequest) -> Iterator[type[ToyJudge]]:
    yield register(request.param)
    del JUDGES[request.param.name]


def test_a_new_judge_needs_no_other_change(toy: type[ToyJudge], tmp_path: Path) -> None:
    store = Store.open(text_store())
    options = TrainOptions.of(heads=1, dim=4, epochs=1.0, shortlist=4, neighbours=0, names=False, device="cpu")
    model = fit(store, options)
    assert list(model.ranker.judges) == ["linear", "rarity", toy.name]
    assert isinstance(model.ranker.judges[toy.name], toy)
    assert model.ranker.mix.weights[toy.name] > 0, "topics say more than one epoch has taught"
    assert model.ranker.mix.variants[toy.name] in [f"{length} words" for length in LENGTHS]
    assert toy.name in repr(model)
    queries = store["test"].batch(np.arange(20)).queries
    answers = model.answer(queries, 3)
    if toy is SuggestingJudge:
        listed = model.ranker.candidates(model.dense, Encoded.of(model.dense, queries), 1, index=model.index)
        assert listed.ids_NS.shape[1] > listed.num_listed == 4
    # It has a say: without it answers are others.
    alone, _ = model.shortlist(queries, 3)
    assert not np.array_equal(alone, answers.scores_Nk)
    save_model(tmp_path, model)
    again = load_model(tmp_path).answer(queries, 3)
    np.testing.assert_array_equal(again.ids_Nk, answers.ids_Nk)
    np.testing.assert_allclose(again.scores_Nk, answers.scores_Nk, rtol=1e-6, atol=1e-6)


def test_a_model_of_a_judge_that_is_not_there_is_refused(toy: type[ToyJudge], monkeypatch: pytest.MonkeyPatch) -> None:
    options = TrainOptions.of(heads=1, dim=4, epochs=1.0, shortlist=4, neighbours=0, names=False, device="cpu")
    model = fit(Store.open(text_store()), options)
    record, tensors = model.ranker.to_dict(), model.ranker.tensors()
    monkeypatch.delitem(JUDGES, toy.name)
    with pytest.raises(ValueError, match=f"unknown judge '{toy.name}'; wanted some of {', '.join(JUDGES)}"):
        Ranker.load(record, tensors, model.dense)


@pytest.mark.parametrize("name", ["linear", "a judge", "judge.of", ""])
def test_names_of_judges_are_words_of_their_own(name: str) -> None:
    with pytest.raises(AssertionError):
        register(type("Other", (ToyJudge,), {"name": name}))
    assert list(JUDGES) == ["linear", "rarity", "neighbours", "vector_neighbours", "names"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "wanted count, power"),
        (None, "wanted count, power"),
        ({"count": 1, "power": 2.0, "more": 3}, "wanted count, power"),
        ({"count": 1.5, "power": 2.0}, "count of a judge is 1.5; wanted a whole number"),
        ({"count": True, "power": 2.0}, "count of a judge is True; wanted a whole number"),
        ({"count": 1, "power": "2"}, "power of a judge is '2'; wanted a number"),
    ],
)
def test_settings_of_a_file(settings: Any, message: str) -> None:
    check_settings({"count": 1, "power": 2}, {"count": int, "power": float})
    with pytest.raises(ValueError, match=message):
        check_settings(settings, {"count": int, "power": float})
