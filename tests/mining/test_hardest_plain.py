"""The hardest of all classes in blocks against a full sort, and of pools and with exclusions against loops."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.mining import hardest
from owlmine.mining import hardest_classes as hardest_plain
from owlmine.mining.hardest_classes import have_triton


def by_full_sort(queries: Tensor, classes: Tensor, k: int) -> tuple[list[list[float]], list[list[int]]]:
    scores, ids = [], []
    for row in (queries @ classes.T).tolist():
        order = sorted(range(len(row)), key=lambda c: (-row[c], c))[:k]
        scores.append([row[c] for c in order])
        ids.append(order)
    return scores, ids


@settings(max_examples=60, deadline=None)
@given(
    num_queries=st.integers(1, 4),
    num_classes=st.integers(1, 40),
    k=st.integers(1, 12),
    block=st.integers(1, 60),
    spread=st.integers(0, 3),
    seed=st.integers(0, 10_000),
)
def test_equals_a_full_sort_with_ties_to_the_smaller_id(
    num_queries: int, num_classes: int, k: int, block: int, spread: int, seed: int
) -> None:
    """Small whole numbers: products are exact, and ties are everywhere, at the edges of blocks too."""
    k = min(k, num_classes)
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-spread, spread + 1, (num_queries, 2), generator=generator).float()
    classes = torch.randint(-spread, spread + 1, (num_classes, 2), generator=generator).float()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardest_plain, "_BLOCK_SCORES", block)
        scores, ids = hardest(queries, classes, k)
    assert (scores.tolist(), ids.tolist()) == by_full_sort(queries, classes, k)


def test_many_ties_in_one_block() -> None:
    """Wide enough that a partial sort is used, which promises nothing about ties."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randint(-1, 2, (16, 3), generator=generator).float()
    classes = torch.randint(-1, 2, (5000, 3), generator=generator).float()
    scores, ids = hardest(queries, classes, 20)
    assert (scores.tolist(), ids.tolist()) == by_full_sort(queries, classes, 20)


@settings(max_examples=40, deadline=None)
@given(num_classes=st.integers(1, 300), k=st.integers(1, 12), block=st.integers(1, 400), seed=st.integers(0, 10_000))
def test_equals_a_full_sort_where_scores_differ(num_classes: int, k: int, block: int, seed: int) -> None:
    k, generator = min(k, num_classes), torch.Generator().manual_seed(seed)
    # Products of distinct whole numbers below 2^24: exact, and without ties.
    classes = torch.randperm(num_classes, generator=generator).float()[:, None]
    queries = torch.tensor([[1.0], [-3.0], [7.0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardest_plain, "_BLOCK_SCORES", block)
        scores, ids = hardest(queries, classes, k)
    assert (scores.tolist(), ids.tolist()) == by_full_sort(queries, classes, k)


def test_never_holds_all_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []

    class Watched(Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = super().__torch_function__(function, types, args, kwargs or {})
            if isinstance(result, Tensor):
                widths.append(result.numel())
            return result

    monkeypatch.setattr(hardest_plain, "_BLOCK_SCORES", 64)
    queries, classes = torch.randn(8, 4).as_subclass(Watched), torch.randn(1000, 4)
    hardest(queries, classes, 5)
    assert widths
    assert max(widths) <= 8 * 4 + 2 * 64 + 8 * 2 * 5, "queries, a block, and the best so far; not 8 x 1000"


@pytest.mark.parametrize("k", [0, 6])
def test_as_many_as_there_are_classes_at_most(k: int) -> None:
    model = Retriever.new(ModelShape(num_features=3, num_classes=5, dim=2, dense=True), seed=0)
    with pytest.raises(ValueError, match=f"k is {k}; wanted 1 to the 5 classes"):
        model.top(torch.zeros(1, 3), k)


def test_no_queries() -> None:
    scores, ids = hardest(torch.zeros(0, 3), torch.zeros(4, 3), 2)
    assert scores.shape == ids.shape == (0, 2)


@settings(max_examples=40, deadline=None)
@given(
    num_classes=st.integers(3, 60),
    k=st.integers(1, 12),
    of_pool=st.booleans(),
    padded=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_pools_and_exclusions_against_loops(num_classes: int, k: int, of_pool: bool, padded: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randperm(num_classes, generator=generator)[: max(num_classes // 2, 1)] if of_pool else None
    names = list(range(num_classes)) if pool is None else pool.tolist()
    k = min(k, len(names))
    queries, classes = torch.randint(-2, 3, (4, 3), generator=generator).float(), torch.randn(num_classes, 3)
    lists = [torch.randperm(num_classes, generator=generator)[:count].tolist() for count in (0, 1, 3, num_classes - 1)]
    if padded:
        width = max(map(len, lists))
        exclude: Tensor | tuple[Tensor, Tensor] = torch.tensor([row + [-1] * (width - len(row)) for row in lists])
    else:
        offsets = torch.tensor([0, *map(len, lists)]).cumsum(0)
        exclude = offsets, torch.tensor([number for row in lists for number in row])
    scores, ids = hardest(queries, classes, k, pool=pool, exclude=exclude)
    for query, row, found, values in zip(queries, lists, ids.tolist(), scores.tolist(), strict=True):
        allowed = [(float(query @ classes[name]), -place, name) for place, name in enumerate(names) if name not in row]
        best = sorted(allowed, key=lambda entry: (-round(entry[0], 4), -entry[1]))[:k]
        missing = k - len(best)
        assert [round(entry[0], 3) for entry in best] + [-torch.inf] * missing == [round(v, 3) for v in values]
        assert found[len(best) :] == [-1] * missing
        assert set(found[: len(best)]) <= {entry[2] for entry in allowed}


def test_says_what_is_wrong() -> None:
    queries, classes = torch.zeros(2, 3), torch.zeros(5, 3)
    with pytest.raises(ValueError, match=r"given \(2, 3\) and \(5, 4\); wanted \[N, D\] and \[K, D\]"):
        hardest(queries, torch.zeros(5, 4), 1)
    with pytest.raises(ValueError, match="wanted a vector of int64 class ids"):
        hardest(queries, classes, 1, pool=torch.zeros(2))
    with pytest.raises(ValueError, match="k is 3; wanted 1 to the 2 classes to choose from"):
        hardest(queries, classes, 3, pool=torch.tensor([1, 4]))


def test_queries_take_the_type_of_the_table() -> None:
    queries, classes = torch.randn(2, 8), torch.randn(5, 8).bfloat16()
    _, ids = hardest(queries, classes, 2)
    assert ids.shape == (2, 2)


def test_without_triton_one_line_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # what an import then finds
    have_triton.cache_clear()
    try:
        assert not have_triton()
        assert not have_triton()
    finally:
        have_triton.cache_clear()
    assert [record.getMessage() for record in caplog.records] == [
        "Triton is not installed, so the GPU uses plain PyTorch, which is slower"
    ]
