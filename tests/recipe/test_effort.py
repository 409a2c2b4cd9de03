"""The ladder of sizes: what each effort stands for, and that options win."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from owlmine.recipe.effort import ladder, plan_of_effort, rungs
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Facts, Plan, default_sizes, resolve

FACTS = Facts(num_points=45_000, num_classes=20_000, num_features=30_000, dense=False, has_dev=False, on_gpu=False)
SIZES = (5_000, 45_000, 90_000, 10**6)


def plan_of(effort: str, options: dict[str, Any] | None = None, **facts: Any) -> Plan:
    return plan_of_effort(TrainOptions.of(effort=effort, **(options or {})), replace(FACTS, **facts))


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("num_points", SIZES)
def test_the_default_effort_changes_nothing(num_points: int, on_gpu: bool) -> None:
    facts = replace(FACTS, num_points=num_points, on_gpu=on_gpu)
    assert plan_of_effort(TrainOptions(), facts) == resolve(TrainOptions(), facts)
    assert resolve(TrainOptions(), facts) in ladder(TrainOptions(), facts)


@pytest.mark.parametrize("num_points", SIZES)
def test_a_fast_run(num_points: int) -> None:
    usual, fast = plan_of("default", num_points=num_points), plan_of("fast", num_points=num_points)
    assert (fast.heads, fast.model.dim, fast.judges.costs) == (1, 128, (1.0,))
    assert 0.5 * usual.model.epochs < fast.model.epochs <= 0.75 * usual.model.epochs
    assert fast.judges.confusable <= usual.judges.confusable
    on_gpu = plan_of("fast", num_points=num_points, on_gpu=True)
    assert on_gpu == replace(plan_of("default", num_points=num_points, on_gpu=True), heads=1, side_by_side=False)


@pytest.mark.parametrize("num_points", SIZES)
def test_the_most_on_a_cpu_is_what_a_gpu_does(num_points: int) -> None:
    """But for pools, which are smaller where classes are very many, for batches, which need not be large, and for the
    lists that classifiers learn from, which are longer where points are few."""
    for num_classes, pool in ((20_000, 2_500), (10**6, 8_192)):
        facts = {"num_points": num_points, "num_classes": num_classes}
        most, on_gpu = plan_of("most", **facts), plan_of("default", **facts, on_gpu=True)
        assert most.model.pool == pool
        own = replace(most.model, pool=on_gpu.model.pool, batch_size=on_gpu.model.batch_size)
        judges = replace(most.judges, confusable=on_gpu.judges.confusable)
        assert most.judges.confusable == (150 if num_points <= 60_000 else on_gpu.judges.confusable)
        assert replace(most, model=own, judges=judges, index=False) == on_gpu


def test_the_most_on_a_gpu_is_more_models() -> None:
    for num_points, heads in ((45_000, 12), (90_000, 8), (10**6, 3)):
        usual = plan_of("default", num_points=num_points, on_gpu=True)
        assert plan_of("most", num_points=num_points, on_gpu=True) == replace(usual, heads=heads)


@pytest.mark.parametrize("options", [{}, {"recipe": "single"}, {"kind": "linear"}, {"shortlist": 0}], ids=str)
@pytest.mark.parametrize(("dense", "on_gpu"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("num_points", [1_000, *SIZES])
def test_rungs_ascend(num_points: int, dense: bool, on_gpu: bool, options: dict[str, Any]) -> None:
    """Numbers in training, times visits: no rung is smaller than the one before it. All of them are different."""
    chosen = TrainOptions.of(**options)
    facts = replace(FACTS, num_points=num_points, dense=dense, on_gpu=on_gpu)
    sizes = rungs(chosen, facts)
    assert sizes[0].heads == 1
    assert default_sizes(chosen, facts) in sizes
    work = [one.heads * one.dim * one.epochs for one in sizes]
    assert work == sorted(work)
    plans = ladder(chosen, facts)
    assert all(one != other for one, other in itertools.combinations(plans, 2))
    assert plans[0] == plan_of_effort(chosen.with_(effort="fast"), facts)
    assert plans[-1] == plan_of_effort(chosen.with_(effort="most"), facts)


def test_options_win() -> None:
    given = {"heads": 4, "dim": 48, "epochs": 2.5, "pool": 300, "neighbours": 7}
    for plan in (plan_of("fast", given), plan_of("most", given), *ladder(TrainOptions.of(**given), FACTS)):
        assert (plan.heads, plan.model.dim, plan.model.epochs, plan.model.pool) == (4, 48, 2.5, 300)
        assert plan.judges.neighbours == 7
    assert {plan.heads for plan in ladder(TrainOptions.of(dim=48), FACTS)} == {1, 2, 3, 5, 8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": "best"}, "effort is 'best'; wanted one of fast, default, most"),
        ({"minutes": 0.0}, "minutes is 0.0; wanted above 0, and finite"),
        ({"minutes": float("inf")}, "minutes is inf; wanted above 0, and finite"),
        ({"minutes": "5"}, "minutes is '5'; wanted a number or None"),
        ({"minutes": 5, "effort": "fast"}, "minutes is 5; wanted none with --effort fast"),
    ],
    ids=str,
)
def test_bad_efforts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        TrainOptions.of(**options)
