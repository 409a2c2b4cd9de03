"""Options: which ones make no sense, and how single ones go into their groups and come back."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest

from owlmine.recipe.options import TRAINABLE, TrainOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recipe": "worst"}, "recipe is 'worst'; wanted one of best, single"),
        ({"kind": "square"}, "kind is 'square'; wanted embedding or linear"),
        ({"dim": 0}, "dim is 0; wanted 1 or more"),
        ({"dim": -1}, "dim is -1; wanted 1 or more"),
        ({"depth": -1}, "depth is -1; wanted 0 to 8"),
        ({"depth": 9}, "depth is 9; wanted 0 to 8"),
        ({"heads": 0}, "heads is 0; wanted 1 or more"),
        ({"heads": -1}, "heads is -1; wanted 1 or more"),
        ({"heads": 2, "kind": "linear"}, "heads is 2; wanted 1 with a linear model"),
        ({"shortlist": -1}, "shortlist is -1; wanted 0 or more"),
        ({"neighbours": -1}, "neighbours is -1; wanted 0 or more"),
        ({"loss": "hinge"}, "loss is 'hinge'; wanted one of bowl"),
        ({"loss": "weighted-logistic"}, "loss is 'weighted-logistic'; wanted one of bowl"),
        ({"top": 0}, "top is 0; wanted 1 or more"),
        ({"top": -1}, "top is -1; wanted 1 or more"),
        ({"pool": 0}, "pool is 0; wanted 1 or more"),
        ({"pool": -1}, "pool is -1; wanted 1 or more"),
        ({"pool_start": 1}, "pool_start is 1; wanted at least 2, and no fewer than --top"),
        ({"pool_start": 4, "top": 5}, "pool_start is 4; wanted at least 2, and no fewer than --top"),
        ({"pool_start": 4, "shared_pool": False}, "pool_start is 4; wanted a shared pool"),
        ({"surrogate": "cubic"}, "surrogate is 'cubic'; wanted one of hinge"),
        ({"scale": 0.0}, "scale is 0.0; wanted above 0"),
        ({"power": -0.5}, "power is -0.5; wanted 0 or more"),
        ({"least_weight": -0.5}, "least_weight is -0.5; wanted 0 or more"),
        ({"epochs": 0.0}, "epochs is 0.0; wanted above 0"),
        ({"epochs": -1.0}, "epochs is -1.0; wanted above 0"),
        ({"batch_size": 0}, "batch_size is 0; wanted 1 or more"),
        ({"class_rate": -0.1}, "class_rate is -0.1; wanted above 0"),
        ({"class_rate": float("nan")}, "class_rate is nan; wanted above 0"),
        ({"feature_rate": 0.0}, "feature_rate is 0.0; wanted above 0"),
        ({"map_rate": -1.0}, "map_rate is -1.0; wanted above 0"),
        ({"momentum": 1.0}, "momentum is 1.0; wanted 0 to below 1"),
        ({"momentum": -0.1}, "momentum is -0.1; wanted 0 to below 1"),
        ({"optimiser": "adam"}, "optimiser is 'adam'; wanted one of sgd, adaptive"),
        ({"schedule": "square"}, "schedule is 'square'; wanted one of linear, cosine, constant"),
        ({"validation": 1.0}, "validation is 1.0; wanted 0 to below 1"),
        ({"validation": -0.1}, "validation is -0.1; wanted 0 to below 1"),
        ({"validation_block": 0}, "validation_block is 0; wanted 1 or more"),
        ({"patience": -1}, "patience is -1; wanted 0 or more"),
        ({"seed": -1}, r"seed is -1; wanted 0 to 2\^32 - 1"),
        ({"seed": 2**32}, r"seed is 4294967296; wanted 0 to 2\^32 - 1"),
        ({"device": "tpu"}, "device is 'tpu'; wanted auto, cpu or cuda"),
        ({"checkpoint_minutes": 0.0}, "checkpoint_minutes is 0.0; wanted above 0"),
    ],
    ids=str,
)
def test_options_that_make_no_sense(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainOptions.of(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": "3"}, "epochs is '3'; wanted a number or None"),
        ({"dim": 64.0}, "dim is 64.0; wanted a whole number or None"),
        ({"seed": True}, "seed is True; wanted a whole number"),
        ({"depth": None}, "depth is None; wanted a whole number"),
        ({"names": 1}, "names is 1; wanted True or False"),
        ({"device": 0}, "device is 0; wanted text"),
    ],
    ids=str,
)
def test_values_of_another_type(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        TrainOptions.of(**given)


def test_a_whole_number_may_stand_for_any_number() -> None:
    assert TrainOptions.of(epochs=3).steps.epochs == 3
    assert TrainOptions.of(validation=0) == TrainOptions.of(validation=0.0)


def test_numbers_of_numpy_are_numbers() -> None:
    """A grid search hands them out."""
    options = TrainOptions.of(dim=np.int64(64), class_rate=np.float32(0.5), names=np.bool_(False))
    assert options == TrainOptions.of(dim=64, class_rate=0.5, names=False)
    assert json.loads(json.dumps(options.to_dict()))["dim"] == 64


@pytest.mark.parametrize(
    ("name", "hint"), [("epoch", "; did you mean epochs?"), ("xyzzy", "; wanted some of recipe, kind, dim")]
)
def test_an_unknown_option_has_a_hint(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as raised:
        TrainOptions.of(dim=8, **{name: 1})
    assert str(raised.value).startswith(f"there is no option {name}{hint}")


def test_each_name_belongs_to_one_group() -> None:
    groups = [list(vars(getattr(TrainOptions(), group.name))) for group in fields(TrainOptions)]
    names = [name for group in groups for name in group]
    assert len(set(names)) == len(names)
    assert list(TrainOptions().to_dict()) == names


def test_there_and_back() -> None:
    options = TrainOptions.of(recipe="single", loss="bowl", epochs=2.5, seed=7)
    assert (options.model.recipe, options.loss.loss, options.steps.epochs, options.run.seed) == (
        "single",
        "bowl",
        2.5,
        7,
    )
    assert TrainOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert TrainOptions.of() == TrainOptions()


def test_the_same_but_for_some_options() -> None:
    options = TrainOptions.of(seed=7, dim=8)
    assert options.with_(dim=16) == TrainOptions.of(seed=7, dim=16)
    assert options.with_(dim=None) == TrainOptions.of(seed=7)
    with pytest.raises(ValueError, match="dim is 0; wanted 1 or more"):
        options.with_(dim=0)
    assert options.model.dim == 8


def test_options_cannot_be_changed() -> None:
    options = TrainOptions()
    for group in fields(TrainOptions):
        with pytest.raises(FrozenInstanceError):
            setattr(options, group.name, None)
        for name in vars(getattr(options, group.name)):
            with pytest.raises(FrozenInstanceError):
                setattr(getattr(options, group.name), name, None)


@pytest.mark.parametrize("loss", TRAINABLE)
def test_every_loss_that_training_can_feed_may_be_chosen(loss: str) -> None:
    assert TrainOptions.of(loss=loss).loss.loss == loss
