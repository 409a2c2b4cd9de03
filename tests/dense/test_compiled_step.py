"""Steps with the extensions against steps without: the same classes are mined, the same rows move."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.data.store import Batch
from owlmine.dense import compiled_rows, pool_mining, row_table
from owlmine.dense.pool_mining import PoolMiner
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.row_table import RowTable
from owlmine.dense.settings import DenseSettings
from owlmine.dense.step import TrainingStep
from owlmine.mining import draw_batch_pool, int8

from .trainings import small_settings

needs_build = pytest.mark.skipif(
    int8.compiled_module() is None or compiled_rows.compiled_module() is None or not int8.cpu_multiplies_int8(),
    reason="the extensions are not built (no C compiler at install time), or the CPU has no VNNI",
)
NUM_CLASSES, NUM_FEATURES, DIM, NUM_POINTS = 3000, 400, 40, 48
# The default loss, with its numbers.
MINED = {
    "loss": "mined-softmax",
    "top": 16,
    "pool": 2500,
    "scale": 10.0,
    "class_rate": 0.03,
    "feature_rate": 3.0,
    "map_rate": 0.0003,
}


def random_batch(number: int) -> Batch:
    random = np.random.default_rng(number)
    ids = [np.unique(random.integers(0, NUM_FEATURES, 12)) for _ in range(NUM_POINTS)]
    offsets = offsets_from_counts(np.array([len(row) for row in ids]))
    values = random.random(int(offsets[-1])).astype(np.float32)
    labels = random.integers(0, NUM_CLASSES, 3 * NUM_POINTS)
    label_offsets = 3 * np.arange(NUM_POINTS + 1, dtype=np.int64)
    return Batch(SparseRows(offsets, np.concatenate(ids), values), SparseRows(label_offsets, labels, None))


def trained(settings: DenseSettings, steps: range, start: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None):  # type: ignore[no-untyped-def]
    """Tensors of the model and of the step after these steps, from the tensors given or from the beginning."""
    model = Retriever.new(ModelShape(NUM_FEATURES, NUM_CLASSES, dim=DIM), seed=0)
    step = TrainingStep(model, settings)
    if start is not None:
        for name, tensor in model.tensors().items():
            tensor.copy_(start[0][name])
        step.load_state_tensors(start[1])
    for number in steps:
        step(random_batch(number), number=number, progress=0.1)
    return (
        {name: tensor.clone() for name, tensor in model.tensors().items()},
        {name: tensor.clone() for name, tensor in step.state_tensors().items()},
    )


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How often the extensions were asked. What mining finds is replaced by what float32 finds, because bytes do not
    tell apart what is nearly equal."""
    counts = {"mined": 0, "moved": 0}
    search, move = int8.Int8Search.__call__, row_table.compiled_move

    def mine(
        self: int8.Int8Search, queries: Tensor, rows: Tensor, ids: Tensor, hidden: tuple[Tensor, Tensor], *, kept: int
    ) -> object:
        counts["mined"] += 1
        found = search(self, queries, rows, ids, hidden, kept=kept)
        assert found is not None
        scores = queries.detach() @ rows[ids].T
        scores[hidden] = -math.inf
        places = scores.topk(kept, dim=1).indices
        # Most of them are the same.
        assert (places[:, :, None] == found[0][:, None, :]).any(dim=2).float().mean() > 0.8
        return places, found[1]

    def move_rows(*given: object, **options: object) -> None:
        counts["moved"] += 1
        move(*given, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(int8.Int8Search, "__call__", mine)
        patch.setattr(row_table, "compiled_move", move_rows)
        patch.setattr(int8, "_LEAST_WORK", 0)
        yield counts


@contextmanager
def without_build(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(int8, "compiled_module", lambda: None)
        patch.setattr(compiled_rows, "compiled_module", lambda: None)
        yield


@needs_build
@pytest.mark.parametrize("changes", [{}, {"top": 4}, {"exclude_known": False}, {"optimiser": "adaptive"}], ids=str)
def test_steps_with_and_without_the_extensions(monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]) -> None:
    settings = small_settings(**(MINED | {"feature_rate": 1.0} | changes))
    with counted(monkeypatch) as counts:
        own, _ = trained(settings, range(4))
    moves_per_step = 0 if settings.optimiser == "adaptive" else 2
    assert counts == {"mined": 4, "moved": 4 * moves_per_step}
    with counted(monkeypatch) as counts, without_build(monkeypatch):
        plain, _ = trained(settings, range(4))
    assert counts == {"mined": 0, "moved": 0}
    for name in own:
        torch.testing.assert_close(own[name], plain[name], rtol=2e-4, atol=2e-5)


@needs_build
def test_a_run_continues_bit_for_bit_with_any_number_of_threads_for_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own sums keep their number of threads; ours are asked for others."""
    settings = small_settings(**MINED)
    with counted(monkeypatch):
        whole = trained(settings, range(5))
        half = trained(settings, range(3))
        real = torch.get_num_threads
        for module in (int8, compiled_rows):
            monkeypatch.setattr(module.torch, "get_num_threads", lambda: 3 if real() != 3 else 2)
        again = trained(settings, range(3, 5), start=half)
    for expected, got in zip(whole, again, strict=True):
        for name, tensor in expected.items():
            assert torch.equal(tensor, got[name]), name


@needs_build
@pytest.mark.parametrize("kept", [1, 3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_not_numbers_are_found_not_lost(monkeypatch: pytest.MonkeyPatch, kept: int, bad: float) -> None:
    """Bytes cannot stand for them: the product of float32 matrices shows the step that went wrong."""
    monkeypatch.setattr(int8, "_LEAST_WORK", 0)
    generator = torch.Generator().manual_seed(0)
    table = RowTable(torch.randn(2000, 16, generator=generator))
    table.weight[417] = bad
    pool = draw_batch_pool(torch.tensor([3, 4]), num_classes=2000, pool_size=1999, generator=generator)
    queries = torch.randn(2, 16, generator=generator).abs()
    assert pool_mining.Int8Search.suits(queries, table.weight, width=2000, kept=kept)
    places, _ = PoolMiner(table, kept=kept)(queries, pool, None)
    assert pool.shared_ids[places[:, 0]].tolist() == [417, 417]


@needs_build
def test_one_miner_through_several_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that steps share does not show; nor do pools that change the path."""
    monkeypatch.setattr(int8, "_LEAST_WORK", 0)
    generator = torch.Generator().manual_seed(1)
    table = RowTable(torch.randn(5000, 24, generator=generator))
    miner = PoolMiner(table, kept=2)
    for num_points, pool_size in [(9, 3000), (9, 3000), (4, 3000), (9, 40), (9, 2900), (9, 4999)]:
        positives = torch.randint(5000, (num_points,), generator=generator)
        pool = draw_batch_pool(positives, num_classes=5000, pool_size=pool_size, generator=generator)
        labels = SparseRows(np.arange(num_points + 1), positives.numpy(), None)
        queries = torch.randn(num_points, 24, generator=generator)
        places, hidden = miner(queries, pool, labels)
        scores = queries @ table.weight[pool.shared_ids].T
        scores[pool.mask()] = -math.inf
        assert hidden is None
        torch.testing.assert_close(scores.gather(1, places), scores.topk(2, dim=1).values, rtol=0, atol=0.05)
