"""The training of one model in memory: what it learns by, what it reports, when it ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.data import Store
from owlmine.data.memory import MemoryDataset
from owlmine.dense import loop
from owlmine.dense.finite import NotFinite
from owlmine.dense.loop import DenseFit, HostStep, MemoryBest, Watch, choose_step
from owlmine.dense.retriever import Retriever
from owlmine.dense.step import RowSGD, TrainingStep
from owlmine.dense.validation import ValidationPart
from owlmine.dense.warm_start import warm_start
from owlmine.errors import OwlmineError

from .trainings import (
    CPU,
    Listener,
    MemoryWatch,
    outcome,
    shape_for,
    small_settings,
    stopped,
    trained,
    training,
    use_step,
    without_seconds,
)


@pytest.mark.parametrize("threads", [1, 2])
def test_same_seed_same_model(store: Store, threads: int) -> None:
    torch.set_num_threads(threads)
    settings = small_settings(dim=64, batch_size=128, pool=50, top=3)
    assert outcome(trained(store, settings)) == outcome(trained(store, settings))


def test_other_seed_other_model(store: Store) -> None:
    first, second = (trained(store, small_settings(epochs=0.2, seed=seed)).model.tensors() for seed in (0, 1))
    for name, tensor in first.items():
        assert not torch.equal(tensor, second[name])


def test_data_in_memory_give_the_same_model(store: Store) -> None:
    memory = MemoryDataset(
        {name: store[name] for name in store.splits},
        num_features=store.num_features,
        class_keys=list(store.class_keys),
        queries="sparse",
        weighting={"kind": "none", "why": "as in the store"},
    )
    assert outcome(trained(memory, small_settings())) == outcome(trained(store, small_settings()))


@pytest.mark.parametrize("warm", [True, False])
def test_the_warm_start_is_the_state_before_the_first_step(store: Store, warm: bool) -> None:
    settings = small_settings(warm_start=warm, epochs=0.1)
    expected = Retriever.new(shape_for(store, settings), seed=settings.seed)
    if warm:
        warm_start(expected, store["train"], ValidationPart(store, share=0.02).train_rows)
    starts: list[Tensor] = []

    class Watched(TrainingStep):
        def __call__(self, *given: Any, **named: Any) -> Tensor:
            starts.append(self.model.classes.weight.clone())
            return super().__call__(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        use_step(Watched, patch)
        trained(store, settings)
    assert torch.equal(starts[0], expected.classes.weight)


def test_the_loss_of_an_epoch_is_the_mean_over_its_steps(store: Store) -> None:
    losses: list[float] = []

    class Watched(TrainingStep):
        def __call__(self, *given: Any, **named: Any) -> Tensor:
            loss = super().__call__(*given, **named)
            losses.append(float(loss))
            return loss

    with pytest.MonkeyPatch.context() as patch:
        use_step(Watched, patch)
        history = trained(store, small_settings(epochs=1.5)).history
    expected = [sum(losses[:10]) / 10, sum(losses[10:]) / 5]
    assert [record["loss"] for record in history] == pytest.approx(expected)


def test_steps_have_numbers_and_know_how_far_the_training_is(store: Store) -> None:
    """Random draws go by the number, step sizes by the progress; both go on after a restart."""
    asked: list[tuple[int, float]] = []

    class Watched(TrainingStep):
        def __call__(self, batch: Any, *, number: int, progress: float) -> Tensor:
            asked.append((number, progress))
            return super().__call__(batch, number=number, progress=progress)

    with pytest.MonkeyPatch.context() as patch:
        use_step(Watched, patch)
        saved = stopped(store, small_settings(), at=7)
        training(store, small_settings(), MemoryWatch(saved=saved)).run()
    assert asked == [(number, number / 20) for number in range(20)]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_step_sizes_fall_by_the_schedule(store: Store, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    """Those that reach the tables: of the class and feature rates, the share that is due."""
    taken: list[float] = []
    step = RowSGD.step
    monkeypatch.setattr(RowSGD, "step", lambda self, rate: taken.append(rate) or step(self, rate))
    trained(store, small_settings(schedule=schedule))
    shares = {
        "linear": [1 - number / 20 for number in range(20)],
        "cosine": [(1 + math.cos(math.pi * number / 20)) / 2 for number in range(20)],
        "constant": [1.0] * 20,
    }
    assert taken[::2] == pytest.approx([0.05 * share for share in shares[schedule]])
    assert taken[1::2] == pytest.approx([1.0 * share for share in shares[schedule]])


def test_the_history_has_a_line_for_each_epoch(store: Store) -> None:
    watch = MemoryWatch()
    fit = training(store, small_settings(epochs=2.7), watch).run()
    assert [(record["step"], record["epoch"]) for record in fit.history] == [(10, 1.0), (20, 2.0), (27, 2.7)]
    assert all(0 <= record[f"P@{k}"] <= 100 for record in fit.history for k in (1, 3, 5))
    assert fit.best is fit.history[-1]
    assert watch.histories == [without_seconds(fit.history[:lines]) for lines in (1, 2, 3)]


def test_less_than_a_step_is_one(store: Store) -> None:
    assert [record["step"] for record in trained(store, small_settings(epochs=0.001)).history] == [1]


def test_progress_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few steps, and at the end of an epoch twice: before validation, and with its figures."""
    monkeypatch.setattr(loop, "_LOOK_EVERY", 4)
    listener = Listener()
    fit = trained(store, small_settings(), watch=Watch(listener))
    assert listener.steps == [4, 8, 10, 10, 12, 16, 20, 20]
    assert all(progress.num_steps == 20 for progress in listener.seen)
    assert all(progress.epoch == progress.step / 10 for progress in listener.seen)
    figures = [{name: record[name] for name in ("P@1", "P@3", "P@5")} for record in fit.history]
    shown = [progress.validation for progress in listener.seen]
    assert shown == [{}, {}, {}, figures[0], figures[0], figures[0], figures[0], figures[1]]
    at_epoch_ends = [progress.loss for progress in listener.seen if progress.step % 10 == 0]
    assert at_epoch_ends == [record["loss"] for record in fit.history for _ in range(2)]


RATES = {"class": 0.05, "feature": 1.0, "map": 0.001}


@pytest.mark.parametrize(
    ("changes", "learned"),
    [
        ({}, ("class", "feature", "map")),
        ({"depth": 0}, ("class", "feature")),
        ({"kind": "linear"}, ("class",)),
        ({"kind": "linear", "learn_scale": True}, ("class", "map")),
        ({"depth": 0, "loss": "softmax", "learn_scale": True}, ("class", "feature", "map")),
    ],
    ids=str,
)
def test_curves_have_losses_rates_and_validation(
    store: Store, changes: dict[str, Any], learned: tuple[str, ...]
) -> None:
    """Rates are those of the step before the look, of what is learned."""
    watch = MemoryWatch()
    fit = training(store, small_settings(**changes), watch).run()
    assert [step for step, _ in watch.points] == [10, 10, 20, 20]
    for number, record in enumerate(fit.history):
        looked, validated = watch.points[2 * number][1], watch.points[2 * number + 1][1]
        assert looked.pop("loss") == record["loss"]
        assert looked.pop("points_per_second") > 0
        share = 1 - (record["step"] - 1) / 20
        assert looked == pytest.approx({f"rate/{name}": RATES[name] * share for name in learned})
        assert validated == {f"validation/P@{k}": record[f"P@{k}"] for k in (1, 3, 5)}


# Patience.


def measured_as(figures: list[float], patch: pytest.MonkeyPatch) -> list[dict[str, bytes]]:
    """Validation finds these; what is returned fills with the weights of each epoch."""
    weights: list[dict[str, bytes]] = []

    def measure(self: ValidationPart, model: Retriever, *, briefly: bool) -> dict[str, float]:
        weights.append(bits(model))
        return {"P@1": figures[len(weights) - 1], "P@3": 0.0, "P@5": 0.0}

    patch.setattr(ValidationPart, "measure", measure)
    return weights


def bits(model: Retriever) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.tensors().items()}


@pytest.mark.parametrize("queries", ["sparse", "dense"])
def test_the_weights_of_the_best_epoch_come_back(
    store: Store, dense_store: Store, monkeypatch: pytest.MonkeyPatch, queries: str
) -> None:
    """Better, better, worse, equal: two epochs that were not better end the training."""
    weights = measured_as([10.0, 20.0, 15.0, 20.0, 99.0], monkeypatch)
    fit = trained(store if queries == "sparse" else dense_store, small_settings(epochs=9.0, patience=2))
    assert len(weights) == len(fit.history) == 4
    assert bits(fit.model) == weights[1]
    assert bits(fit.model) != weights[3]
    assert fit.best == fit.history[1]


def test_without_patience_the_last_epoch_counts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = measured_as([20.0, 10.0, 5.0], monkeypatch)
    fit = trained(store, small_settings(epochs=3.0))
    assert bits(fit.model) == weights[2]
    assert fit.best is fit.history[2]


def test_patience_without_validation_points_trains_to_the_end(store: Store) -> None:
    fit = trained(store, small_settings(epochs=3.0, patience=1), validation=0.0)
    assert [record["epoch"] for record in fit.history] == [1.0, 2.0, 3.0]
    assert fit.best is fit.history[2]


def test_a_training_out_of_patience_stays_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was killed after the last step: the training must not go on."""
    settings = small_settings(epochs=9.0, patience=1)
    weights = measured_as([10.0, 10.0], monkeypatch)
    watch = MemoryWatch()
    expected = training(store, settings, watch).run()
    assert watch.events == ["save 20"]
    listener = Listener()
    fit = training(store, settings, MemoryWatch(saved=watch.saved, reporter=listener)).run()
    assert listener.steps == []
    assert outcome(fit) == outcome(expected)
    assert bits(fit.model) == weights[0]


class FullDisk(MemoryBest):
    """Only the first weights find room."""

    def offer(self, record: loop.Record, tensors: dict[str, Tensor]) -> None:
        if self.record is not None:
            raise OwlmineError("disk: full")
        super().offer(record, tensors)


class Lost(MemoryBest):
    def restore(self, tensors: dict[str, Tensor]) -> None:
        raise OwlmineError("disk: missing")


@pytest.mark.parametrize(
    ("best", "message", "epoch"),
    [
        (FullDisk(), "disk: full; training continues", 1),
        (Lost(), "disk: missing; the model keeps the last epoch's weights instead of the best", 2),
    ],
    ids=["full", "lost"],
)
def test_best_weights_that_cannot_be_had(
    store: Store, monkeypatch: pytest.MonkeyPatch, best: MemoryBest, message: str, epoch: int
) -> None:
    weights = measured_as([10.0, 20.0] if epoch == 1 else [20.0, 10.0], monkeypatch)
    listener = Listener()
    watch = Watch(listener)
    watch.best = best
    fit = trained(store, small_settings(patience=5), watch=watch)
    assert listener.messages == [message]
    assert bits(fit.model) == weights[epoch - 1]
    assert fit.best["epoch"] == epoch


# Numbers that are not finite.

LOWER = r"; lower the rates \(--class-rate, --feature-rate, --map-rate\) and look for huge feature values"


def test_a_loss_that_is_not_finite_names_its_step(store: Store) -> None:
    """Rates beyond all measure: the exponential surrogate overflows in a known step."""
    losses: list[Tensor] = []

    class Watched(TrainingStep):
        def __call__(self, *given: Any, **named: Any) -> Tensor:
            losses.append(super().__call__(*given, **named))
            return losses[-1]

    settings = small_settings(kind="linear", surrogate="exponential", class_rate=3.0, schedule="constant", epochs=4.0)
    watch = MemoryWatch()
    with pytest.MonkeyPatch.context() as patch:
        use_step(Watched, patch)
        with pytest.raises(NotFinite) as raised:
            training(store, settings, watch).run()
    first = [bool(torch.isfinite(loss)) for loss in losses].index(False) + 1
    assert len(losses) > first, "each look at the loss waits for the device"
    assert str(raised.value) == (
        f"the loss of step {first} is not a finite number; lower the rates (--class-rate, --feature-rate, --map-rate)"
        " and look for huge feature values, then train into a new folder; ask an owl"
    )
    assert watch.events == []


def poisoned(where: str, value: float, *, after: int) -> type[TrainingStep]:
    """A step whose update spoils the weights, while its own loss is fine."""

    class Poisoned(TrainingStep):
        def __call__(self, *given: Any, number: int, progress: float) -> Tensor:
            loss = super().__call__(*given, number=number, progress=progress)
            if number == after - 1:
                self.model.tensors()[where][3, 2] = value
            return loss

    return Poisoned


def test_harmed_weights_are_not_saved(store: Store) -> None:
    watch = MemoryWatch(save_always=True)
    with pytest.MonkeyPatch.context() as patch:
        use_step(poisoned("classes", math.nan, after=8), patch)
        with pytest.raises(NotFinite, match=f"^after step 8 classes has numbers that are not finite{LOWER}"):
            training(store, small_settings(), watch).run()
    assert watch.events[-1] == "save 7"
    fit = training(store, small_settings(), MemoryWatch(saved=watch.saved)).run()
    assert outcome(fit) == outcome(trained(store, small_settings()))


def test_harmed_weights_are_no_model(store: Store) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use_step(poisoned("table", math.inf, after=10), patch)
        with pytest.raises(NotFinite, match=f"^after step 10 table has numbers that are not finite{LOWER}"):
            trained(store, small_settings(epochs=1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_rate": 1e30}, r"^by step 10 \d+ class vectors have become 0: their lengths overflow"),
        ({"feature_rate": 1e30}, "^after step 10 the vectors of queries are 0: their lengths overflow"),
        ({"map_rate": 1e30}, "^after step 10 the vectors of queries are 0: their lengths overflow"),
    ],
    ids=str,
)
@pytest.mark.parametrize("loss", ["bowl", "mined-softmax", "softmax", "negative-sampling-bowl"])
def test_rates_that_leave_no_scores(store: Store, changes: dict[str, Any], message: str, loss: str) -> None:
    """Numbers that are finite all the time, and a loss that never changes: the first epoch shows it."""
    with pytest.raises(NotFinite, match=message + LOWER):
        trained(store, small_settings(loss=loss, **changes))


def test_class_vectors_that_were_0_from_the_start_are_fine(store: Store) -> None:
    """After a restart too: what counts is how many have become 0."""
    start = Retriever.new

    def with_zeros(*given: Any, **named: Any) -> Retriever:
        model = start(*given, **named)
        model.classes.weight[50:] = 0
        return model

    # No warm start and a pool of few: some classes are never touched.
    settings = small_settings(warm_start=False, pool=2, epochs=0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Retriever, "new", with_zeros)
        fit = trained(store, settings)
        assert not fit.model.classes.weight.any(dim=1).all(), "else nothing was tested"
        saved = stopped(store, settings, at=2)
        again: DenseFit = training(store, settings, MemoryWatch(saved=saved)).run()
    assert outcome(again) == outcome(fit)


def test_a_cpu_takes_the_plain_step(store: Store) -> None:
    settings, messages = small_settings(kernels=True), list[str]()
    model = Retriever.new(shape_for(store, settings), seed=0, device=CPU)
    step = choose_step(model, settings, store["train"], messages.append)
    assert isinstance(step, HostStep)
    assert messages == []


def test_a_plain_step_learns_the_rows_it_is_given(store: Store) -> None:
    settings, rows = small_settings(), np.array([5, 3, 8])
    host, plain = (Retriever.new(shape_for(store, settings), seed=0) for _ in range(2))
    loss = HostStep(host, replace(settings, pool_start=4), store["train"])
    loss.grow(settings.pool)
    expected = TrainingStep(plain, settings)(store["train"].batch(rows), number=2, progress=0.5)
    assert torch.equal(loss(rows, number=2, progress=0.5), expected)
    assert bits(host) == bits(plain)
