"""How fast this machine is: a moment of real work on some of the points, so that estimates hold on any machine.

Nothing here changes what a run learns: each probe has a model, batches and random numbers of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from torch import Tensor

from owlmine.data.batches import Batches
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store import Split
from owlmine.dense.loop import choose_step
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.index import ExactIndex
from owlmine.mining import hardest
from owlmine.rank.linear_training import MinedPairs, train_linear
from owlmine.rank.points import SparsePoints

# Calls of one probe: enough for this time, within these bounds. The first ones prepare memory and compile kernels.
_SECONDS, _FEWEST_CALLS, _MOST_CALLS = 0.15, 3, 60
_UNTIMED_STEPS = 3
# Steps of a run have lower numbers.
_FIRST_NUMBER = 1 << 40
# A table repeats so many random rows: drawing all of a large one would take longer than the probe.
_DRAWN_ROWS, _DRAWN_NUMBERS = 4_096, 1 << 22
_TILE_QUERIES, _TILE_CLASSES, _TILE_NUMBERS = 256, 1 << 15, 1 << 26
# On a GPU, small tables take as long as larger ones.
_GPU_TILE_CLASSES, _GPU_TILE_NUMBERS = 1 << 19, 1 << 29
# For each thread, and for each point.
_PAIR_POINTS, _PAIR_CLASSES, _PAIRS_PER_POINT = 250, 8, 8
_NEIGHBOUR_POINTS, _NEIGHBOUR_QUERIES = (5_000, 30_000), 64
# Classes of a validation point.
_LOOKED_AT = 5


def compile_kernels(
    train: Split, shape: ModelShape, settings: DenseSettings, lists: tuple[int, int] | None, device: torch.device
) -> None:
    """Compiles the kernels of a training and of its searches at the same time: one after the other, that takes some 15
    seconds on a new machine.

    ``lists``: the dimension and length of lists, if there are any.
    """
    model = _model(shape, device)
    parts = choose_step(model, settings, train, lambda reason: None).parts()
    if not parts:
        return
    queries_ND = _rows(min(_TILE_QUERIES, len(train)), shape.dim, torch.Generator().manual_seed(0), device)
    parts.append(partial(hardest, queries_ND, model.rows, min(_LOOKED_AT, shape.num_classes)))
    if lists is not None:
        parts.append(partial(seconds_per_list, shape.num_classes, *lists, device))

    def run(part: Callable[[], object]) -> None:
        with torch.no_grad():  # of this thread
            part()

    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(run, parts))
    _wait(device)


def seconds_per_step(
    train: Split, rows: Int64, shape: ModelShape, settings: DenseSettings, device: torch.device
) -> float:
    """Of training one model of this shape on these points."""
    learn = choose_step(_model(shape, device), settings, train, lambda reason: None)
    batches = Batches(train, batch_size=settings.batch_size, seed=settings.seed, rows=rows)
    number = _FIRST_NUMBER

    def step() -> None:
        nonlocal number
        learn(batches.next_rows(), number=number, progress=0.5)
        number += 1

    for _ in range(_UNTIMED_STEPS):
        step()
    return _seconds_of(step, device)


def _model(shape: ModelShape, device: torch.device) -> Retriever:
    """A model with numbers like those of a new one."""
    if shape.kind == "linear":
        return Retriever.new(shape, seed=0, device=device)
    generator = torch.Generator().manual_seed(0)
    tensors = {f"map.{i}": _rows(shape.dim, shape.dim, generator, device) for i in range(shape.depth)}
    tensors["table"] = _rows(shape.num_features, shape.dim, generator, device)
    tensors["classes"] = _rows(shape.num_classes, shape.dim, generator, device)
    return Retriever.from_tensors(shape, tensors)


def _rows(num_rows: int, dim: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """[R, D] unit vectors, which repeat."""
    num_drawn = min(num_rows, _DRAWN_ROWS, max(_DRAWN_NUMBERS // dim, 1))
    drawn_RD = torch.randn(num_drawn, dim, generator=generator)
    drawn_RD = torch.nn.functional.normalize(drawn_RD, dim=1).to(device)
    return drawn_RD.repeat(-(-num_rows // max(len(drawn_RD), 1)), 1)[:num_rows] if num_rows else drawn_RD


def seconds_per_list(num_classes: int, dim: int, length: int, device: torch.device) -> float:
    """Of finding the best classes of one query among all, without an index."""
    generator = torch.Generator().manual_seed(0)
    on_gpu = device.type == "cuda"
    most, numbers = (_GPU_TILE_CLASSES, _GPU_TILE_NUMBERS) if on_gpu else (_TILE_CLASSES, _TILE_NUMBERS)
    num_tiled = min(num_classes, most, max(numbers // dim, 1))
    index, length = ExactIndex(_rows(num_tiled, dim, generator, device)), min(length, num_tiled)
    queries_ND = _rows(_TILE_QUERIES, dim, generator, device)
    index.rough(queries_ND, length)  # makes the table of bytes
    seconds = _seconds_of(lambda: index.rough(queries_ND, length), device)
    return seconds / _TILE_QUERIES * num_classes / num_tiled


def seconds_per_product(device: torch.device) -> float:
    """Of one multiplication and addition in a product of matrices."""
    left_ND, right_KD = torch.ones(256, 512, device=device), torch.ones(4_096, 512, device=device)
    return _seconds_of(lambda: left_ND @ right_KD.T, device) / (256 * 512 * 4_096)


def seconds_per_pair(train: Split, *, num_features: int) -> float:
    """Of learning from one pair of a class and a point, for one cost of the classifiers. Real points, made-up
    classes."""
    num_threads = torch.get_num_threads()
    num_points, num_classes = min(len(train), num_threads * _PAIR_POINTS), num_threads * _PAIR_CLASSES
    points = train.batch(np.arange(num_points, dtype=np.int64))
    queries = points.queries
    assert isinstance(queries, SparseRows)
    generator = np.random.default_rng(0)
    ids_NS = generator.integers(0, num_classes, (len(points.labels), _PAIRS_PER_POINT))
    labels = SparseRows(points.labels.offsets, points.labels.indices % num_classes, None)
    pairs = MinedPairs.of(ids_NS, labels, num_classes=num_classes)
    return _seconds_of(lambda: train_linear(queries, pairs, num_features=num_features)) / max(len(pairs), 1)


def seconds_per_neighbours(train: Split, *, num_features: int, count: int) -> float:
    """Of finding the nearest of all training points of one query, by features. Among more points it takes longer by as
    much for each point."""
    few, some = (min(len(train), num_points) for num_points in _NEIGHBOUR_POINTS)
    points = train.batch(np.arange(some, dtype=np.int64)).queries
    assert isinstance(points, SparseRows)
    queries, seconds = points[:_NEIGHBOUR_QUERIES], []
    for number in sorted({few, some}):
        lists = SparsePoints.of(points[:number], num_features=num_features)
        seconds.append(_seconds_of(partial(lists.nearest, queries, None, count)) / len(queries))
    slope = max(seconds[-1] - seconds[0], 0.0) / max(some - few, 1)
    return seconds[-1] + slope * (len(train) - some)


def seconds_per_number() -> float:
    """Of sorting one of many numbers with one thread: it stands for all work that is not a product."""
    numbers = np.random.default_rng(0).integers(0, 1 << 31, 100_000)
    return _seconds_of(lambda: np.argsort(numbers)) / len(numbers)


def _seconds_of(work: Callable[[], object], device: torch.device | None = None) -> float:
    """The mean time of a call."""
    _wait(device)
    began, calls = time.perf_counter(), 0
    while calls < _FEWEST_CALLS or (calls < _MOST_CALLS and time.perf_counter() - began < _SECONDS):
        work()
        calls += 1
    _wait(device)
    return (time.perf_counter() - began) / calls


def _wait(device: torch.device | None) -> None:
    """Until the device has done what it was given."""
    if device is not None and device.type == "cuda":
        # Of this thread's stream: while another thread records a graph, one must not wait for the whole device.
        torch.cuda.current_stream(device).synchronize()
