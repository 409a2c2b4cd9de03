"""Numbers that are left open become those that suit the loss; numbers that are given stay."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from owlmine.dense.settings import DenseSettings
from owlmine.recipe.options import TRAINABLE, TrainOptions
from owlmine.recipe.plan import LOSS_NUMBERS, Facts, resolve

NAMES = ("top", "scale", "class_rate", "feature_rate", "map_rate")


def settings_for(*, num_classes: int = 60, on_gpu: bool = False, **given: Any) -> DenseSettings:
    facts = Facts(num_points=400, num_classes=num_classes, num_features=140, dense=False, has_dev=False, on_gpu=on_gpu)
    return resolve(TrainOptions.of(**given), facts).model


@pytest.mark.parametrize("loss", TRAINABLE)
def test_every_loss_has_its_numbers(loss: str) -> None:
    settings = settings_for(loss=loss)
    own = asdict(LOSS_NUMBERS.get(loss, LOSS_NUMBERS["bowl"]))
    assert set(own) == set(NAMES)
    assert {name: getattr(settings, name) for name in own} == own
    assert all(value > 0 for value in own.values())


def test_only_losses_that_can_be_trained_have_numbers() -> None:
    assert set(LOSS_NUMBERS) <= set(TRAINABLE)


def test_what_is_given_stays() -> None:
    settings = settings_for(loss="softmax", scale=7.0, class_rate=0.5, top=3)
    assert (settings.scale, settings.class_rate, settings.top) == (7.0, 0.5, 3)
    assert settings.feature_rate == LOSS_NUMBERS["softmax"].feature_rate


def test_a_new_loss_brings_its_own_numbers() -> None:
    """Options remember what was given, not what was chosen for it."""
    bowl = TrainOptions.of(loss="bowl", scale=7.0)
    assert bowl.with_(loss="softmax") == TrainOptions.of(loss="softmax", scale=7.0)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", NAMES)
def test_zero_and_less_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; wanted (above 0|1 or more)"):
        TrainOptions.of(**{name: value})


def test_an_unknown_loss_is_named_first() -> None:
    with pytest.raises(ValueError, match="loss is 'hinges'; wanted one of bowl"):
        TrainOptions.of(loss="hinges", top=-1)


@pytest.mark.parametrize(
    ("num_classes", "given", "expected"),
    [
        (60, {}, 59),
        (300, {}, 256),
        (8_000, {}, 1_000),
        (8_000, {"top": 1_500}, 1_500),
        (1_000_000, {}, 2_047),
        (1_000_000, {"loss": "bowl"}, 4_096),
        (1_000_000, {"on_gpu": True}, 32_767),
        (8_000, {"pool": 77}, 77),
    ],
)
def test_the_pool_where_none_is_given(num_classes: int, given: dict[str, Any], expected: int) -> None:
    """An eighth of the classes, within what the device can do."""
    assert settings_for(num_classes=num_classes, **given).pool == expected


def test_the_top_of_a_loss_gives_way_to_a_small_pool_and_a_given_one_does_not() -> None:
    assert settings_for(pool=5).top == 5
    assert settings_for(num_classes=4).top == 3
    with pytest.raises(ValueError, match="top is 6; wanted at most the pool of 5"):
        settings_for(pool=5, top=6)


def test_a_pool_may_not_grow_from_fewer_than_count() -> None:
    with pytest.raises(ValueError, match="pool_start is 4; wanted at least 2, and no fewer than the 16 that count"):
        settings_for(pool_start=4)
    assert settings_for(pool_start=16).pool_start == 16


@pytest.mark.parametrize("loss", TRAINABLE)
def test_two_classes_have_a_plan_and_one_has_none(loss: str) -> None:
    assert settings_for(loss=loss, num_classes=2).pool == 1
    with pytest.raises(ValueError, match="num_classes is 1; wanted 2 or more"):
        settings_for(loss=loss, num_classes=1)
