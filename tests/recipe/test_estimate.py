"""Estimates of what a plan takes, and what they choose. How true they are, ``benchmarks/estimates.py`` measures."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data import Store
from owlmine.data.store import Dataset
from owlmine.recipe import estimate as module
from owlmine.recipe import fit as recipe
from owlmine.recipe import probe
from owlmine.recipe.effort import ladder
from owlmine.recipe.estimate import Estimate, Estimator, announcement, fits, in_gb, in_gib, in_time, plan_in_words
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Facts, Plan, resolve

CPU = torch.device("cpu")
GIB = 1 << 30


def estimator(data: Dataset) -> Estimator:
    return Estimator(data, Facts.of(data, CPU), CPU, checkpoint_seconds=300)


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which every unit takes a round time."""
    monkeypatch.setattr(probe, "seconds_per_step", lambda train, rows, shape, settings, device: shape.dim / 128)
    for name, seconds in (("list", 1e-6), ("product", 1e-12), ("pair", 1e-6), ("neighbours", 1e-6), ("number", 1e-9)):
        monkeypatch.setattr(probe, f"seconds_per_{name}", lambda *given, seconds=seconds, **named: seconds)


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"heads": 2}, {"heads": 3}),
        ({"epochs": 2.0}, {"epochs": 4.0}),
        ({"dim": 64}, {"dim": 128}),
        ({"shortlist": 0}, {}),
        ({"validation": 0.0}, {}),
    ],
    ids=str,
)
def test_more_work_takes_longer(store: Store, less: dict[str, Any], more: dict[str, Any]) -> None:
    """The last: without a rehearsal, everything is trained once."""
    facts, estimates = Facts.of(store, CPU), estimator(store)
    smaller, larger = (estimates(resolve(TrainOptions.of(**options), facts)) for options in (less, more))
    assert smaller.seconds < larger.seconds


@pytest.mark.usefixtures("units")
def test_steps_are_counted(store_with_dev: Store) -> None:
    """400 points are two batches: ten epochs of two models are 40 steps, and a warm start is a fifth of an epoch."""
    plan = resolve(TrainOptions.of(heads=2, dim=128, epochs=10.0), Facts.of(store_with_dev, CPU))
    assert estimator(store_with_dev).seconds(plan) == pytest.approx(40.8 + 0.5, abs=0.5)
    longer = replace(plan, model=replace(plan.model, epochs=20.0))
    assert estimator(store_with_dev).seconds(longer) - estimator(store_with_dev).seconds(plan) == pytest.approx(40)


@pytest.mark.usefixtures("units")
def test_disk_holds_checkpoints_and_the_model(store: Store) -> None:
    """Two more models of a rehearsal are two more checkpoints; a run long enough keeps two of each."""
    facts, options = Facts.of(store, CPU), TrainOptions.of(heads=2, dim=128, shortlist=0)
    plan, estimates = resolve(options, facts), estimator(store)
    member = 4 * (facts.num_classes + facts.num_features + 128) * 128
    once = estimates.disk(plan)
    assert 2.5 * member < once < 3 * member + 10_000
    rehearsed = replace(plan, rehearsal=0.2)
    assert estimates.disk(rehearsed) - once == pytest.approx(2 * member)
    longer = replace(plan, model=replace(plan.model, epochs=1_000.0))
    assert estimates.disk(longer) - once == pytest.approx(2 * member)


@pytest.mark.usefixtures("units")
def test_memory_holds_the_members_and_the_joined_model(store: Store) -> None:
    facts, estimates = Facts.of(store, CPU), estimator(store)
    one, two, four = (
        estimates.memory(resolve(TrainOptions.of(heads=heads, dim=4_096, shortlist=0), facts)) for heads in (1, 2, 4)
    )
    member = 4 * (facts.num_classes + facts.num_features + 4_096) * 4_096
    assert (two - one, four - two) == (pytest.approx(1.25 * member), pytest.approx(2.5 * member))


# What is chosen.


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize("minutes", [1e-3, 0.6, 3.0, 6.0, 1e4])
def test_the_last_plan_that_fits_into_the_time(store: Store, minutes: float) -> None:
    """The fastest, if none does."""
    options, estimates = TrainOptions.of(minutes=minutes, device="cpu"), estimator(store)
    plans = ladder(options, Facts.of(store, CPU))
    plan, estimate = recipe.choose_plan(store, options, plans)
    assert plan == recipe.plan_for(store, options, name="points")
    assert estimate.seconds == pytest.approx(estimates.seconds(plan))
    in_time = [estimates.seconds(one) <= 0.9 * 60 * minutes for one in plans]
    assert plan == plans[max(sum(in_time) - 1, 0)]
    assert in_time == sorted(in_time, reverse=True)


@pytest.mark.usefixtures("units")
def test_the_choices_of_the_other_tests_differ(store: Store) -> None:
    chosen = {
        plan_in_words(recipe.plan_for(store, TrainOptions.of(minutes=minutes, device="cpu"), name="points"))
        for minutes in (1e-3, 0.6, 3.0, 6.0, 1e4)
    }
    assert len(chosen) >= 4


@pytest.mark.usefixtures("units")
def test_no_plan_larger_than_the_memory_is_chosen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: 0)
    options = TrainOptions.of(minutes=1e4, device="cpu")
    plans = ladder(options, Facts.of(store, CPU))
    assert recipe.choose_plan(store, options, plans)[0] == plans[0]


def test_what_fits() -> None:
    estimate = Estimate(54.0, 1.0, 0.0, 1.0)
    assert fits(estimate, minutes=1.0)
    assert fits(estimate, minutes=None)
    assert not fits(estimate, minutes=0.99)
    assert not fits(replace(estimate, memory_bytes=1e18), minutes=None)


# What is said.


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (25.4, "25 s"), (99, "99 s"), (100, "1.7 min"), (1_500, "25 min"), (9_000, "2.5 h")],
)
def test_times(seconds: float, text: str) -> None:
    assert in_time(seconds) == text


def test_sizes() -> None:
    assert [in_gib(size * GIB) for size in (0.04, 0.84, 12.3)] == ["0.0 GiB", "0.8 GiB", "12 GiB"]
    assert [in_gb(size) for size in (1e4, 23.4e6, 1.2e8, 2.56e9)] == ["1 MB", "23 MB", "0.1 GB", "2.6 GB"]


def plan_of(**options: Any) -> Plan:
    facts = Facts(10_000, 100, 1_000, dense=False, has_dev=False, on_gpu=False)
    return resolve(TrainOptions.of(**options), facts)


def test_a_plan_in_words() -> None:
    assert plan_in_words(plan_of(validation=0.2)) == "5 models of 128 dimensions, 8 epochs"
    assert plan_in_words(plan_of(heads=1, epochs=2.5)) == (
        "1 model of 128 dimensions, 2.5 epochs, trained twice, first as a rehearsal"
    )
    assert plan_in_words(plan_of(kind="linear", validation=0.2)) == "1 model, 15 epochs"
    by_vectors = plan_in_words(plan_of(neighbours=5, validation=0.2))
    assert by_vectors.endswith("8 epochs, neighbours by features and vectors")


def test_the_announcement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, estimate = plan_of(validation=0.2), Estimate(25, 0.8 * GIB, 0.0, 1.2e8)
    said = "plan: 5 models of 128 dimensions, 8 epochs: about 25 s, 0.8 GiB of memory, 0.1 GB on disk"
    out = tmp_path / "not" / "there"
    assert announcement(plan, estimate, out, minutes=None) == [said]
    assert announcement(plan, estimate, out, minutes=0.5) == [said]
    late = announcement(plan, estimate, out, minutes=0.25)
    assert late == [said, "this is the fastest plan; it does not fit into --minutes 0.25"]
    on_gpu = announcement(plan, replace(estimate, gpu_bytes=3 * GIB), out, minutes=None)
    assert on_gpu == [said.replace("of memory", "of memory, 3.0 GiB on the GPU")]
    monkeypatch.setattr(module, "free_memory", lambda: GIB // 2)
    monkeypatch.setattr(module, "memory_in_use", lambda: GIB // 4)
    _, memory, disk = announcement(plan, replace(estimate, disk_bytes=1e18), out, minutes=None)
    assert memory.startswith("warning: only 0.8 GiB of memory are free; --effort fast")
    assert disk.startswith("warning: only ")
    assert f"free on the disk of {out}; --effort fast" in disk


# Measuring.


@pytest.mark.parametrize("options", [{}, {"kind": "linear"}, {"dim": 40, "depth": 0}, {"neighbours": 5}], ids=str)
def test_measuring_changes_nothing(store: Store, options: dict[str, Any]) -> None:
    """Neither the data nor random numbers that others may draw."""
    before = [np.array(array) for array in (store["train"].queries.indices, store["train"].labels.indices)]
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    estimate = estimator(store)(resolve(TrainOptions.of(**options), Facts.of(store, CPU)))
    assert min(estimate.seconds, estimate.memory_bytes, estimate.disk_bytes) > 0
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state
    after = (store["train"].queries.indices, store["train"].labels.indices)
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_dense_queries_are_measured(dense_store: Store) -> None:
    estimate = estimator(dense_store)(resolve(TrainOptions(), Facts.of(dense_store, CPU)))
    assert min(estimate.seconds, estimate.memory_bytes, estimate.disk_bytes) > 0


def test_large_tables_are_measured_at_a_smaller_dimension(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, dims = Facts.of(store, CPU), []

    def step(train: Any, rows: Any, shape: Any, settings: Any, device: Any) -> float:
        assert shape.dim == settings.dim
        dims.append(shape.dim)
        return 1.0

    monkeypatch.setattr(probe, "seconds_per_step", step)
    plan = resolve(TrainOptions.of(dim=512, shortlist=0), facts)
    whole = estimator(store).seconds(plan)
    monkeypatch.setattr(module, "_MOST_PROBED_BYTES", 4 * 128 * (facts.num_classes + facts.num_features + 128))
    assert estimator(store).seconds(plan) == pytest.approx(4 * whole, rel=0.1)
    assert dims == [512, 128]
