"""The plan: the sizes that a recipe stands for, given the data and the machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from owlmine.dense.retriever import ModelShape
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Facts, Plan, resolve

FACTS = Facts(num_points=10**6, num_classes=60, num_features=140, dense=False, has_dev=False, on_gpu=False)


def plan_of(options: dict[str, Any] | None = None, **facts: Any) -> Plan:
    return resolve(TrainOptions.of(**(options or {})), replace(FACTS, **facts))


@pytest.mark.parametrize(
    ("options", "on_gpu", "num_points", "expected"),
    [
        ({"recipe": "single"}, True, 10**6, (1, 0, 0)),
        ({"recipe": "best"}, True, 10**6, (2, 50, 30)),
        ({}, True, 10**6, (2, 50, 30)),
        ({}, True, 600_000, (3, 50, 30)),
        ({}, True, 100_000, (5, 50, 30)),
        ({}, True, 5_000, (8, 50, 30)),
        ({}, False, 10**6, (2, 50, 30)),
        ({}, False, 200_000, (2, 50, 30)),
        ({}, False, 20, (5, 50, 20)),
        ({}, False, 45_000, (3, 50, 30)),
        ({"heads": 2, "shortlist": 9, "neighbours": 4}, False, 10**6, (2, 9, 4)),
        ({"kind": "linear"}, True, 10**6, (1, 50, 30)),
        ({"recipe": "single", "shortlist": 500}, False, 10**6, (1, 60, 0)),
        ({"recipe": "single", "heads": 3}, False, 10**6, (3, 0, 0)),
        ({"recipe": "single", "shortlist": 9, "neighbours": 4}, False, 10**6, (1, 9, 4)),
        ({"shortlist": 0}, False, 10**6, (2, 0, 0)),
        ({"neighbours": 0}, False, 10**6, (2, 50, 0)),
    ],
)
def test_what_a_recipe_stands_for(
    options: dict[str, Any], on_gpu: bool, num_points: int, expected: tuple[int, int, int]
) -> None:
    plan = plan_of(options, on_gpu=on_gpu, num_points=num_points)
    assert (plan.heads, plan.judges.shortlist, plan.judges.neighbours) == expected
    by_vectors = on_gpu or bool(options.get("neighbours"))
    assert plan.judges.neighbour_kinds == (("sparse", "dense") if by_vectors else ("sparse",))


@pytest.mark.parametrize(
    ("options", "on_gpu", "num_points", "expected"),
    [
        ({}, True, 10**6, (512, 15.0)),
        ({}, False, 10**6, (128, 4.0)),
        ({}, False, 800_000, (128, 5.0)),
        ({}, False, 200_001, (128, 5.0)),
        ({}, False, 60_001, (128, 3.0)),
        ({}, False, 60_000, (128, 5.0)),
        ({}, False, 25_000, (128, 8.0)),
        ({"dim": 64, "epochs": 2.0}, False, 5, (64, 2.0)),
        ({"recipe": "single"}, True, 10**6, (512, 15.0)),
        ({"recipe": "single"}, False, 45_000, (512, 15.0)),
    ],
)
def test_dimension_and_epochs(
    options: dict[str, Any], on_gpu: bool, num_points: int, expected: tuple[int, float]
) -> None:
    plan = plan_of(options, on_gpu=on_gpu, num_points=num_points)
    assert (plan.model.dim, plan.model.epochs) == expected


@pytest.mark.parametrize(("options", "dense"), [({"kind": "linear"}, False), ({}, True)])
def test_no_small_model_where_no_judge_makes_up_for_it(options: dict[str, Any], dense: bool) -> None:
    plan = plan_of(options, dense=dense)
    assert (plan.model.dim, plan.model.epochs) == (512, 15.0)


@pytest.mark.parametrize(
    ("options", "num_points", "has_dev", "share"),
    [
        ({}, 4_880, False, 0.2),
        ({}, 20_000, False, 0.05),
        ({}, 24_999, False, 1_000 / 24_999),
        ({}, 25_000, False, 0.0),
        ({}, 4_880, True, 0.0),
        ({"validation": 0.0}, 4_880, False, 0.0),
        ({"validation": 0.2}, 4_880, False, 0.0),
        ({"validation": 0.3}, 1_000, False, 0.3),
        ({"patience": 2}, 4_880, False, 0.0),
        ({"validation_block": 50}, 40, False, 0.0),
        ({"validation_block": 8}, 40, False, 0.2),
        ({}, 4, False, 0.0),
        ({}, 5, False, 0.2),
        ({"recipe": "single"}, 4_880, False, 0.0),
        ({"recipe": "single", "shortlist": 5}, 4_880, False, 0.0),
        ({"shortlist": 0}, 4_880, False, 0.0),
    ],
)
def test_when_there_is_a_rehearsal(options: dict[str, Any], num_points: int, has_dev: bool, share: float) -> None:
    plan = plan_of(options, num_points=num_points, has_dev=has_dev)
    assert plan.rehearsal == pytest.approx(share)
    assert plan.validation == options.get("validation", 0.02)


def test_without_judges_only_small_tables_have_a_rehearsal() -> None:
    """Probabilities alone are not worth a second training, unless it takes a moment."""
    assert plan_of(dense=True, num_points=2_000).rehearsal == 0.2
    assert plan_of(dense=True, num_points=2_001).rehearsal == 0


def test_holding_points_out() -> None:
    """A rehearsal holds its share out, and the fit after it nothing; neither rehearses again."""
    plan = plan_of(num_points=1_000)
    for share in (plan.rehearsal, 0.0):
        assert plan.holding_out(share) == replace(plan, validation=share, rehearsal=0.0)


@pytest.mark.parametrize(
    ("num_points", "num_classes", "length"),
    [
        (20, 60, 60),
        (60_000, 10**6, 150),
        (60_001, 10**6, 100),
        (300_000, 10**6, 100),
        (10**6, 10**6, 30),
        (10**8, 500, 10),
    ],
)
def test_classifiers_learn_from_lists_that_fit_into_memory(num_points: int, num_classes: int, length: int) -> None:
    plan = plan_of(num_points=num_points, num_classes=num_classes)
    assert plan.judges.confusable == length
    assert plan_of(num_points=num_points, num_classes=num_classes, on_gpu=True).judges.confusable == min(length, 100)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, True),
        ({"names": False}, False),
        ({"kind": "linear"}, False),
        ({"recipe": "single"}, False),
        ({"recipe": "single", "shortlist": 5}, True),
        ({"recipe": "single", "shortlist": 5, "kind": "linear"}, False),
    ],
)
def test_when_names_may_count(options: dict[str, Any], names: bool) -> None:
    """Where there is a shortlist to which they can add."""
    for on_gpu in (False, True):
        assert plan_of(options, on_gpu=on_gpu).judges.names == names


def test_costs_to_choose_from() -> None:
    """Each takes a training of its own."""
    assert plan_of().judges.costs == plan_of(on_gpu=True).judges.costs == (1.0, 3.0)
    assert plan_of(num_points=60_000).judges.costs == (0.3, 1.0, 3.0)
    assert plan_of().judges.most_pairs_of_choice == 1_000_000
    assert plan_of(on_gpu=True).judges.most_pairs_of_choice == 10_000_000
    assert plan_of({"recipe": "single", "shortlist": 5}).judges.costs == (1.0,)


def test_dense_queries_have_no_judges() -> None:
    """All of them look at sparse features."""
    plan = plan_of(dense=True)
    assert (plan.judges.shortlist, plan.judges.neighbours, plan.judges.names) == (0, 0, False)
    assert plan_of({"shortlist": 0, "neighbours": 0}, dense=True) == plan
    for name in ("shortlist", "neighbours"):
        with pytest.raises(ValueError, match=f"{name} is 5; wanted 0 with dense queries"):
            plan_of({name: 5}, dense=True)


@pytest.mark.parametrize("options", [{"recipe": "single"}, {"shortlist": 0}])
def test_neighbours_need_a_shortlist(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="neighbours is 5; wanted 0 without a shortlist"):
        plan_of({"neighbours": 5, **options})


# Small tables: few points of dense columns.


@pytest.mark.parametrize(
    ("num_points", "num_classes", "expected"),
    [
        (100, 3, (64, 32, 75.0)),  # four batches: 300 steps are 75 epochs
        (1_000, 3, (64, 62, 18.0)),
        (2_000, 3, (64, 125, 19.0)),
        (2_000, 300, (64, 125, 19.0)),
        (2_000, 1_500, (128, 125, 19.0)),
        (2_000, 60_000, (512, 125, 19.0)),
        (2_001, 3, (512, 256, 15.0)),
    ],
)
def test_small_tables_have_small_batches_and_enough_steps(
    num_points: int, num_classes: int, expected: tuple[int, int, float]
) -> None:
    """And a dimension of about four times the root of the number of classes, as a power of two."""
    for on_gpu in (False, True):
        model = plan_of(dense=True, num_points=num_points, num_classes=num_classes, on_gpu=on_gpu).model
        assert (model.dim, model.batch_size, model.epochs) == expected


def test_sparse_points_have_no_use_for_that() -> None:
    model = plan_of(num_points=100, num_classes=3).model
    assert (model.dim, model.batch_size, model.epochs) == (128, 256, 8.0)


def test_rates_of_small_tables_are_those_of_one_point() -> None:
    """Gradients are sums over a batch, and every point of it moves the maps and all features."""
    usual, small = plan_of(dense=True).model, plan_of(dense=True, num_points=1_000).model
    assert small.class_rate == usual.class_rate
    assert small.feature_rate == pytest.approx(usual.feature_rate / 62)
    assert small.map_rate == pytest.approx(usual.map_rate * 256 / 62)
    fewer = plan_of(dense=True, num_points=20).model
    assert fewer.feature_rate == pytest.approx(usual.feature_rate / 20)


def test_sizes_that_are_given_stay_on_small_tables() -> None:
    options = {"dim": 8, "epochs": 2.0, "batch_size": 50, "feature_rate": 0.5, "map_rate": 0.25}
    model = plan_of(options, dense=True, num_points=100).model
    assert {name: getattr(model, name) for name in options} == options


# The plan itself.


@pytest.mark.parametrize(
    ("options", "is_single"),
    [
        ({"recipe": "single"}, True),
        ({"recipe": "single", "heads": 2}, False),
        ({"recipe": "single", "shortlist": 5}, False),
        ({}, False),
        ({"heads": 1, "shortlist": 0}, True),
    ],
)
def test_whether_one_model_is_all(options: dict[str, Any], is_single: bool) -> None:
    assert plan_of(options, num_points=1_000).is_single == is_single


def test_one_model_that_is_rehearsed_is_trained_twice() -> None:
    plan = plan_of(dense=True, num_points=1_000, on_gpu=False, has_dev=False)
    assert not replace(plan, heads=1).is_single
    assert replace(plan, heads=1, rehearsal=0.0).is_single


def test_no_two_models_have_the_same_seed() -> None:
    """Neither in an ensemble nor among runs of other seeds."""
    plans = [plan_of({"seed": seed, "heads": 3}) for seed in range(4)]
    assert [plan.member(number).seed for plan in plans for number in range(3)] == list(range(12))
    alone = plan_of({"seed": 7, "heads": 1})
    assert alone.member(0) == alone.model
    largest = plan_of({"seed": 2**32 - 1, "heads": 3})
    assert [largest.member(number).seed for number in range(3)] == [2**32 - 3, 2**32 - 2, 2**32 - 1]


def test_the_shape_of_a_member() -> None:
    plan = plan_of({"heads": 3, "dim": 8, "depth": 2})
    assert plan.shape(FACTS) == ModelShape(num_features=140, num_classes=60, dense=False, dim=8, depth=2)


def test_a_plan_as_json() -> None:
    """By which a run on another machine is told from this one."""
    plan = plan_of(on_gpu=True)
    record = plan.to_dict()
    assert json.loads(json.dumps(record)) == record
    assert record["judges"]["neighbour_kinds"] == ["sparse", "dense"]
    assert record["model"]["dim"] == 512
    assert record != plan_of().to_dict()


def test_the_pool_of_an_ensemble_on_a_cpu_has_the_positives_of_its_batch() -> None:
    """Half as many classes as without them; not for other losses, nor where they would be most of the pool."""
    facts = {"num_classes": 10**6}
    plan = plan_of(**facts)
    assert (plan.model.positives_in_pool, plan.model.pool) == (True, 2_047)
    for options, changes, pool in (
        ({}, {"on_gpu": True}, 32_767),
        ({"recipe": "single"}, {}, 4_096),
        ({"loss": "bowl"}, {}, 4_096),
        ({"pool": 1_023}, {}, 1_023),
        ({"pool_start": 600}, {}, 2_047),
        ({"shared_pool": False}, {}, 4_096),
    ):
        plan = plan_of(options, **(facts | changes))
        assert (plan.model.positives_in_pool, plan.model.pool) == (False, pool), options
    assert plan_of({"pool": 1_024}, **facts).model.positives_in_pool


@pytest.mark.parametrize("num_points", [45_000, 90_000, 10**6])
def test_models_of_many_classes_are_trained_side_by_side(num_points: int) -> None:
    assert plan_of(num_points=num_points, num_classes=20_000).side_by_side
