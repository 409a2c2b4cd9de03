"""Runs whose models are trained at the same time: the same bits as one after the other, also after signals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from owlmine.data import Store
from owlmine.dense import loop
from owlmine.dense.finite import NotFinite
from owlmine.dense.retriever import join_models
from owlmine.recipe import plan
from owlmine.run import Stopped, train
from owlmine.run.surroundings import FolderWatch
from tests.run.runs import Listener, contents, ensemble_options, signal_once, signals_to_nobody


@pytest.fixture(autouse=True)
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With two threads, and however short a step is."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(plan, "SIDE_BY_SIDE_FROM", 0)
    yield
    torch.set_num_threads(before)


def test_models_are_those_of_one_after_the_other(store: Store, tmp_path: Path) -> None:
    options, listener = ensemble_options(), Listener()
    trained = train(store, tmp_path / "both", options, reporter=listener)
    assert listener.messages[0] == "2 models, side by side"
    assert listener.steps[-1] == 16
    torch.set_num_threads(1)
    alone = [
        train(store, tmp_path / str(seed), options.with_(seed=seed, heads=None, shortlist=None)).dense
        for seed in (6, 7)
    ]
    for name, tensor in join_models(alone).tensors().items():
        assert torch.equal(trained.dense.tensors()[name], tensor), name
    # The plan is the same, so the run may go on with another number of threads.
    train(store, tmp_path / "one thread", options)
    assert contents(tmp_path / "one thread") == contents(tmp_path / "both")


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_stops_all_and_the_run_resumes(store: Store, tmp_path: Path, times: int) -> None:
    out, options = tmp_path / "out", ensemble_options(epochs=50.0)
    for attempt in range(times):
        with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
            signal_once(patch, loop.DenseTraining, "_look_at_weights")
            with pytest.raises(Stopped, match="at step"):
                train(store, out, options, resume=attempt > 0)
        assert not (out / "config.json").exists()
    train(store, out, options, resume=True)
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_model_that_fails_ends_the_run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loop.DenseTraining._look_at_weights

    def broken(self: loop.DenseTraining) -> None:
        if self.settings.seed % 2:
            raise self._broken("the second model is nonsense")
        real(self)

    saved: list[int] = []
    save = FolderWatch.save

    def counted(self: FolderWatch, *given: Any, **options: Any) -> None:
        saved.append(1)
        save(self, *given, **options)

    monkeypatch.setattr(loop.DenseTraining, "_look_at_weights", broken)
    monkeypatch.setattr(FolderWatch, "save", counted)
    with pytest.raises(NotFinite, match="the second model is nonsense"):
        train(store, tmp_path / "out", ensemble_options(epochs=500.0))
    assert not saved  # the first was cancelled long before its end
