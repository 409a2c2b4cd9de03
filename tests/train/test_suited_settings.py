"""What is left open becomes what suits the loss; what is given stays."""

from __future__ import annotations

import re
from dataclasses import asdict, astuple, replace
from pathlib import Path

import pytest

from owlmine.estimator.suited_options import DataSize, suited_options
from owlmine.recipe.options import TRAINABLE
from owlmine.recipe.suited_settings import SUITED, suited_setting
from owlmine.train import TrainOptions
from owlmine.train.run_folder import recipe

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")


@pytest.mark.parametrize("loss", TRAINABLE)
def test_every_loss_has_a_setting(loss: str) -> None:
    options = TrainOptions(loss=loss)
    own = asdict(suited_setting(loss))
    assert {name: getattr(options, name) for name in own} == own
    assert all(value > 0 for value in own.values())
    # What is written down of a run are the numbers.
    assert {name: recipe(options)[name] for name in own} == own


def test_only_losses_that_can_be_trained_are_named() -> None:
    assert set(SUITED) <= set(TRAINABLE)


def test_what_is_given_stays() -> None:
    options = TrainOptions(loss="softmax", scale=7.0, class_rate=0.5, top=3)
    assert (options.scale, options.class_rate, options.top) == (7.0, 0.5, 3)
    assert options.feature_rate == SUITED["softmax"].feature_rate
    assert replace(options, seed=5) == TrainOptions(loss="softmax", scale=7.0, class_rate=0.5, top=3, seed=5)


@pytest.mark.parametrize("name", ["top", "scale", "class_rate", "feature_rate", "map_rate"])
def test_below_zero_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1; wanted .*, or 0"):
        TrainOptions(**{name: -1})


def test_an_unknown_loss_is_named_first() -> None:
    with pytest.raises(ValueError, match="loss is 'hinges'; wanted one of bowl"):
        TrainOptions(loss="hinges")


def test_the_estimator_takes_the_same() -> None:
    size = DataSize(num_points=100_000, num_classes=5_000, features_per_point=0.0)
    options = suited_options({"loss": "mined-softmax"}, size, seed=0)
    assert (options.top, options.scale, options.class_rate) == (16, 10.0, 0.03)
    assert options.feature_rate == 3.0


def test_the_page_has_the_table() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    told = {name: (int(top), *map(float, rest)) for name, top, *rest in rows}
    assert told == {name: astuple(suited_setting(name)) for name in ["bowl", *SUITED]}
