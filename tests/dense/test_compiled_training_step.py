"""The compiled step against the plain one: the same classes are mined, the same rows move, up to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.data.rows import Int64, SparseRows, offsets_from_counts
from owlmine.data.store import SparseTable, Split
from owlmine.dense import compiled_step, pool_mining
from owlmine.dense.compiled_step import CompiledStep, compiled_module
from owlmine.dense.loop import HostStep, choose_step
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.mining import BatchPool

from .trainings import small_settings

extension = compiled_module()
needs_build = pytest.mark.skipif(
    extension is None or not extension.multiplies_bytes(),
    reason="the extension is not built (no C compiler at install time), or the CPU has no AVX-512 with VNNI",
)
NUM_CLASSES, NUM_FEATURES, NUM_POINTS, BATCH = 3000, 400, 300, 50
MINED: dict[str, Any] = {
    "loss": "mined-softmax",
    "dim": 48,
    "top": 16,
    "pool": 2500,
    "scale": 10.0,
    "class_rate": 0.03,
    "feature_rate": 1.0,
    "map_rate": 0.0003,
}


def points(*, most_labels: int = 5, with_values: bool = True) -> Split:
    random = np.random.default_rng(0)
    ids = [np.unique(random.integers(0, NUM_FEATURES, 12)) for _ in range(NUM_POINTS)]
    ids[7] = ids[7][:0]  # a point without features
    offsets = offsets_from_counts(np.array([len(row) for row in ids]))
    values = random.random(int(offsets[-1])).astype(np.float32) if with_values else None
    # Some classes are the label of several points of a batch.
    labels = [np.unique(random.integers(0, NUM_CLASSES, random.integers(1, most_labels + 1))) for _ in ids]
    labels = [np.unique(np.append(row, random.integers(0, 20))) for row in labels]
    label_offsets = offsets_from_counts(np.array([len(row) for row in labels]))
    return Split(
        "train",
        SparseTable(offsets, np.concatenate(ids).astype(np.int32), values),
        SparseTable(label_offsets, np.concatenate(labels).astype(np.int32), None),
        None,
    )


def new_model(dim: int = 48) -> Retriever:
    return Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=dim), seed=0)


def batch_rows(number: int) -> Int64:
    return np.random.default_rng(number).permutation(NUM_POINTS)[: BATCH - number % 3]


Kind = Callable[[Retriever, DenseSettings, Split], HostStep | CompiledStep]


def trained(kind: Kind, settings: DenseSettings, split: Split, steps: int = 4) -> tuple[dict[str, Tensor], list[float]]:
    model = new_model(settings.dim)
    step = kind(model, settings, split)
    losses = [float(step(batch_rows(number), number=number, progress=0.1)) for number in range(steps)]
    return model.tensors() | step.state_tensors(), losses


def exact_places(classes_KD: Tensor, queries_ND: Tensor, pool: BatchPool, labels: SparseRows, kept: int) -> Tensor:
    """Places of the highest products in float32."""
    scores_NW = queries_ND @ classes_KD[pool.shared_ids].T
    scores_NW[pool.mask()] = -math.inf
    for n in range(len(labels)):
        own = labels.indices[labels.offsets[n] : labels.offsets[n + 1]]
        scores_NW[n, torch.isin(pool.shared_ids, torch.from_numpy(own.astype(np.int64)))] = -math.inf
    found = scores_NW.topk(kept, dim=1)
    return torch.where(found.values == -math.inf, -1, found.indices)


@pytest.fixture
def exact_mining(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Both steps learn from what float32 finds, since bytes do not tell apart what is nearly equal. Returns the shares
    of that which bytes find too."""
    shares: list[float] = []
    mine = CompiledStep._mine

    def exact(self: CompiledStep, queries_ND: Tensor, pool: BatchPool, labels: SparseRows) -> Tensor:
        found_NT = mine(self, queries_ND, pool, labels)
        assert found_NT is not None
        if not self._settings.exclude_known:
            labels = SparseRows(np.zeros_like(labels.offsets), labels.indices[:0], None)
        places_NT = exact_places(self._classes_KD, queries_ND, pool, labels, self._settings.top)
        shares.append(float((places_NT[:, :, None] == found_NT[:, None, :]).any(dim=2).float().mean()))
        return places_NT

    monkeypatch.setattr(CompiledStep, "_mine", exact)
    monkeypatch.setattr(pool_mining.Int8Search, "suits", lambda *given, **options: False)
    return shares


@needs_build
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positives_in_pool": True},
        {"top": 3},
        {"dim": 16},
        {"dim": 160},
        {"exclude_known": False},
        {"momentum": 0.0},
        {"pool": 2999},
    ],
    ids=str,
)
def test_steps_are_those_of_the_plain_step(exact_mining: list[float], changes: dict[str, Any]) -> None:
    settings, split = small_settings(**(MINED | changes)), points()
    plain, plain_losses = trained(HostStep, settings, split)
    own, own_losses = trained(CompiledStep, settings, split)
    assert len(exact_mining) == 4
    assert min(exact_mining) > 0.8
    assert own_losses == pytest.approx(plain_losses, rel=1e-4)
    assert own.keys() == plain.keys()
    for name, tensor in own.items():
        torch.testing.assert_close(tensor, plain[name], rtol=5e-5, atol=5e-6)
    assert not torch.equal(own["classes"], new_model(settings.dim).tensors()["classes"])


@needs_build
def test_labels_are_never_mined() -> None:
    """A pool of all classes, and points that have most of them."""
    split = points(most_labels=NUM_CLASSES)
    settings = small_settings(**(MINED | {"pool": NUM_CLASSES - 1}))
    step = CompiledStep(new_model(), settings, split)
    labels = split.labels.rows(np.arange(NUM_POINTS))
    ids_K, dropped_N = torch.arange(NUM_CLASSES), torch.zeros(NUM_POINTS, dtype=torch.int64)
    pool = BatchPool(ids_K, dropped_N, torch.zeros((), dtype=torch.int64))
    queries_ND = torch.nn.functional.normalize(torch.randn(NUM_POINTS, 48, generator=torch.Generator().manual_seed(1)))
    found = step._mine(queries_ND, pool, labels)
    assert found is not None
    for n, row in enumerate(found.tolist()):
        own = set(labels.indices[labels.offsets[n] : labels.offsets[n + 1]].tolist())
        assert not {0, *own} & set(row)
        assert len(set(row)) == 16


@needs_build
def test_places_stay_empty_where_too_few_classes_are_left() -> None:
    split = points()
    step = CompiledStep(new_model(), small_settings(**MINED), split)
    ids = torch.arange(1030)
    labels = SparseRows(np.array([0, 1025, 1026]), np.append(np.arange(1025), 3).astype(np.int32), None)
    pool = BatchPool(ids, torch.tensor([1026, 1]), torch.zeros((), dtype=torch.int64))
    found = step._mine(torch.eye(48)[:2].contiguous(), pool, labels)
    assert found is not None
    assert sorted(found[0].tolist()) == [-1] * 12 + [1025, 1027, 1028, 1029]
    assert (found[1] >= 0).all()
    # Such places have no share in the loss.
    losses, gradient = step._learn(torch.eye(48)[:2].contiguous(), torch.tensor([0, 3]), pool, found, 0.0)
    classes = step._classes_KD
    scores = 10 * classes[[0, *(i for i in found[0].tolist() if i >= 0)], 0]
    assert float(losses[0]) == pytest.approx(float(scores.logsumexp(0) - scores[0]), rel=1e-4)
    assert torch.isfinite(gradient).all()


@needs_build
def test_features_without_values_count_as_one(exact_mining: list[float]) -> None:
    settings = small_settings(**MINED)
    own, _ = trained(CompiledStep, settings, points(with_values=False), 2)
    plain, _ = trained(HostStep, settings, points(with_values=False), 2)
    torch.testing.assert_close(own["table"], plain["table"], rtol=5e-5, atol=5e-6)
    assert exact_mining


@needs_build
def test_the_number_of_threads_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, outcomes = small_settings(**MINED), []
    for threads in (1, 2, 3):
        monkeypatch.setattr(compiled_step.torch, "get_num_threads", lambda threads=threads: threads)
        outcomes.append(trained(CompiledStep, settings, points()))
    for tensors, losses in outcomes[1:]:
        assert losses == outcomes[0][1]
        for name, tensor in tensors.items():
            assert torch.equal(tensor, outcomes[0][0][name]), name


@needs_build
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_not_numbers_show_in_the_loss(bad: float) -> None:
    model, settings = new_model(), small_settings(**(MINED | {"pool": NUM_CLASSES - 1}))
    model.tensors()["classes"][417] = bad
    step = CompiledStep(model, settings, points())
    assert not math.isfinite(float(step(batch_rows(0), number=0, progress=0.0)))


@needs_build
@pytest.mark.parametrize("part", ["offsets", "ids", "values"])
def test_points_that_are_not_sound_are_not_read(part: str) -> None:
    split = points()
    step = CompiledStep(new_model(), small_settings(**MINED), split)
    table = split.queries
    assert isinstance(table, SparseTable)
    assert table.values is not None
    if part == "offsets":
        table.offsets[5] = table.offsets[-1] + 1
    elif part == "ids":
        table.indices[table.offsets[5]] = NUM_FEATURES
    else:
        table.values[table.offsets[5]] = math.nan
    with pytest.raises((AssertionError, ValueError)):
        step(np.array([5]), number=0, progress=0.0)


@needs_build
def test_only_what_suits_is_compiled() -> None:
    split = points()

    def kind(**changes: Any) -> type:
        settings = small_settings(**(MINED | changes))
        return type(choose_step(new_model(settings.dim), settings, split, print))

    assert kind() is CompiledStep
    for changes in (
        {"loss": "bowl"},
        {"dim": 40},
        {"top": 17},
        {"pool": 900},
        {"optimiser": "adaptive"},
        {"learn_scale": True},
        {"shared_pool": False},
    ):
        assert kind(**changes) is HostStep, changes
