"""Curves for TensorBoard, read back with TensorBoard's own reader."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from owlmine.data import Store
from owlmine.dense import loop
from owlmine.dense.step import DenseSGD, RowSGD, TrainingStep
from owlmine.errors import OwlmineError
from owlmine.run import train
from owlmine.run.curves import EventFile

from .runs import (
    STEPS_PER_EPOCH,
    Listener,
    best_options,
    contents,
    curves_of,
    ensemble_options,
    file_size_limit,
    interrupted,
    killed_in,
    small_options,
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look every four steps."""
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(loop, "_LOOK_EVERY", 4)


def killed_at(step: int, store: Store, out: Path, **how: Any) -> None:
    """A run that ends as it begins the step of this number of its own, without a checkpoint."""
    with killed_in(TrainingStep, "__call__", call=step):
        train(store, out, small_options(tensorboard=True), **how)


@pytest.mark.usefixtures("looks")
def test_every_look_and_every_epoch(store: Store, tmp_path: Path) -> None:
    train(store, tmp_path / "out", small_options(tensorboard=True, epochs=1.5))
    curves = curves_of(tmp_path / "out" / "tensorboard")
    rates = ("rate/class", "rate/feature", "rate/map")
    precision = ("validation/P@1", "validation/P@3", "validation/P@5")
    assert sorted(curves) == ["loss", "points_per_second", *rates, *precision]
    for name in ("loss", "points_per_second", *rates):
        assert list(curves[name]) == [4, 8, 10, 12, 15], name
    assert min(curves["points_per_second"].values()) > 0
    records = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 15]
    for name in precision:
        figures = {record["step"]: record[name.removeprefix("validation/")] for record in records}
        assert curves[name] == pytest.approx(figures)
    assert [curves["loss"][step] for step in (10, 15)] == pytest.approx([record["loss"] for record in records])


@pytest.mark.usefixtures("looks")
def test_rates_are_those_that_steps_took(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    step = RowSGD.step
    monkeypatch.setattr(RowSGD, "step", lambda self, rate: taken.append(rate) or step(self, rate))
    train(store, tmp_path / "out", small_options(tensorboard=True, schedule="cosine"))
    curves = curves_of(tmp_path / "out" / "tensorboard")
    # Each step moves the rows of classes, then those of features.
    classes, features = taken[::2], taken[1::2]
    assert curves["rate/class"] == pytest.approx({s: classes[s - 1] for s in (4, 8, 10, 12, 16, 20)})
    assert curves["rate/feature"] == pytest.approx({s: features[s - 1] for s in (4, 8, 10, 12, 16, 20)})


@pytest.mark.usefixtures("looks")
def test_rates_of_dense_queries(dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their feature table is no table of rows, but has its rate all the same."""
    taken: list[float] = []
    step = DenseSGD.step
    monkeypatch.setattr(DenseSGD, "step", lambda self, rate: taken.append(rate) or step(self, rate))
    train(dense_store, tmp_path / "out", small_options(tensorboard=True, epochs=0.8))
    curves = curves_of(tmp_path / "out" / "tensorboard")
    for number in (4, 8):
        shown = [curves[name][number] for name in ("rate/feature", "rate/map")]
        # Two in every step: the feature table, then the maps.
        assert taken[2 * number - 2 : 2 * number] == pytest.approx(shown)


@pytest.mark.usefixtures("looks")
def test_watching_changes_nothing(store: Store, tmp_path: Path) -> None:
    train(store, tmp_path / "alone", small_options())
    train(store, tmp_path / "watched", small_options(tensorboard=True))
    alone, watched = contents(tmp_path / "alone"), contents(tmp_path / "watched")
    assert set(watched.pop("files")) - set(alone.pop("files")) == {"tensorboard"}
    assert watched == alone
    records = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("alone", "watched")]
    assert records[0] | {"costs": None} == records[1] | {"costs": None}


@pytest.mark.usefixtures("looks")
def test_killed_and_resumed_shows_each_step_once(store: Store, tmp_path: Path) -> None:
    """Stopped after 6, killed in 18, resumed from 6: what was shown of 7 to 17 comes again."""
    out, options = tmp_path / "out", small_options(tensorboard=True)
    train(store, tmp_path / "whole", options)
    interrupted(store, out, options, at=6)
    killed_at(12, store, out, resume=True)
    assert list(curves_of(out / "tensorboard")["loss"]) == [4, 6, 8, 10, 12, 16]
    train(store, out, options, resume=True)
    whole, parts = (curves_of(folder / "tensorboard") for folder in (tmp_path / "whole", out))
    assert list(parts["loss"]) == [4, 6, 8, 10, 12, 16, 20]
    assert list(parts["validation/P@1"]) == [STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH]
    for name in set(whole) - {"points_per_second"}:
        assert {step: value for step, value in parts[name].items() if step != 6} == whole[name], name
    assert len(list((out / "tensorboard").iterdir())) == 3


@pytest.mark.usefixtures("looks")
def test_killed_before_any_checkpoint(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed_at(14, store, out)
    assert list(curves_of(out / "tensorboard")["loss"]) == [4, 8, 10, 12]
    train(store, out, small_options(tensorboard=True), resume=True)
    assert list(curves_of(out / "tensorboard")["loss"]) == [4, 8, 10, 12, 16, 20]


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize("first", [True, False])
def test_watched_in_one_part_only(store: Store, tmp_path: Path, first: bool) -> None:
    """The run is the same, so it can be resumed either way."""
    out = tmp_path / "out"
    interrupted(store, out, small_options(tensorboard=first), at=9)
    train(store, out, small_options(tensorboard=not first), resume=True)
    shown = [4, 8, 9] if first else [10, 12, 16, 20]
    assert list(curves_of(out / "tensorboard")["loss"]) == shown


@pytest.mark.usefixtures("looks")
def test_curves_of_each_model_of_an_ensemble(store: Store, tmp_path: Path) -> None:
    train(store, tmp_path / "model", ensemble_options(tensorboard=True))
    folder = tmp_path / "model" / "tensorboard"
    assert sorted(place.name for place in folder.iterdir()) == ["model-1", "model-2"]
    for place in folder.iterdir():
        assert list(curves_of(place)["loss"]) == [4, 8, 12, 16]


@pytest.mark.usefixtures("looks")
def test_curves_of_a_rehearsal_stay(store: Store, tmp_path: Path) -> None:
    """Though the process was killed in it, and after it."""
    out, options = tmp_path / "model", best_options(tensorboard=True)
    with killed_in(TrainingStep, "__call__", call=27):
        train(store, out, options)
    with killed_in(TrainingStep, "__call__", call=16 + 5):
        train(store, out, options, resume=True)
    train(store, out, options, resume=True)
    for number in (1, 2):
        rehearsal = curves_of(out / "tensorboard" / "rehearsal" / f"model-{number}")
        assert list(rehearsal["loss"]) == [4, 8, 12, 16]
        assert list(rehearsal["validation/P@1"]) == [8, 16]
        # The model itself has learned from all points.
        own = curves_of(out / "tensorboard" / f"model-{number}")
        assert list(own["loss"]) == [4, 8, 10, 12, 16, 20]
        assert "validation/P@1" not in own


def test_later_figures_of_earlier_files_are_hidden(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    complaints: list[str] = []
    for number, (after, steps) in enumerate([(0, range(1, 13)), (5, range(6, 9)), (8, range(9, 11))]):
        with closing(EventFile(tmp_path / "curves", after_step=after, complain=complaints.append)) as events:
            for step in steps:
                events.write(step, {"figure": 100.0 * number + step})
    assert complaints == []
    expected = {s: float(s) for s in range(1, 6)} | {s: 100.0 + s for s in (6, 7, 8)} | {9: 209.0, 10: 210.0}
    assert curves_of(tmp_path / "curves") == {"figure": expected}


def test_a_full_disk_is_complained_of_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    complaints: list[str] = []
    with (
        closing(EventFile(tmp_path / "curves", after_step=0, complain=complaints.append)) as events,
        file_size_limit(500),
    ):
        for step in range(1, 100):
            events.write(step, {"figure": 1.0})
    assert complaints == [f"{tmp_path / 'curves'}: not written: File too large; training continues"]
    steps = list(curves_of(tmp_path / "curves")["figure"])
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.usefixtures("looks")
def test_a_folder_that_cannot_be_made_ends_no_training(store: Store, tmp_path: Path) -> None:
    out, options = tmp_path / "out", small_options(tensorboard=True)
    interrupted(store, out, small_options(), at=3)
    (out / "tensorboard").write_text("mine")
    listener = Listener()
    train(store, out, options, resume=True, reporter=listener)
    assert listener.messages[1:] == [f"{out / 'tensorboard'}: not written: File exists; training continues"]
    assert (out / "config.json").exists()
    assert (out / "tensorboard").read_text() == "mine"


def test_without_the_package_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before the data are looked at, which are not there either."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(OwlmineError, match=r"pip install '\.\[tensorboard\]'"):
        train(tmp_path / "nowhere", tmp_path / "out", small_options(tensorboard=True))
    assert list(tmp_path.iterdir()) == []
