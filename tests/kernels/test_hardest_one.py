"""Each query's hardest class against loops over float64 scores.

Vectors of small whole numbers make scores exact in every type, so ties are real ties and ids must agree.

Shapes: N queries, K classes, D dimension, E excluded of each.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.hardest_one import hardest_one
from tests.kernels.conftest import Fenced

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def whole_numbers(num_rows: int, dim: int, *, seed: int, most: int = 3) -> Tensor:
    return torch.randint(-most, most + 1, (num_rows, dim), generator=torch.Generator().manual_seed(seed)).float()


def maxima_of(queries: Tensor, classes: Tensor, block: int) -> Tensor:
    scores_NK = queries.double() @ classes.double().T
    return torch.stack([part.amax(dim=1) for part in scores_NK.split(block, dim=1)], dim=1).float()


def padded(excluded: Tensor, fenced: Fenced) -> Exclusions:
    made = Exclusions.of_padded(excluded)
    return Exclusions(fenced(made.rows_N), fenced(made.offsets), fenced(made.ids), made.most)


def best_by_loop(scores: list[float], names: list[int], excluded: set[int]) -> tuple[float, int]:
    best, best_id = -torch.inf, -1
    for score, name in zip(scores, names, strict=True):
        if name not in excluded and score > best:
            best, best_id = score, name
    return best, best_id


def assert_equals_loop(
    queries: Tensor, classes: Tensor, block: int, ids: Tensor | None, excluded: Tensor | None, fenced: Fenced
) -> None:
    scores_N, ids_N = hardest_one(
        fenced(maxima_of(queries, classes, block)),
        fenced(queries),
        fenced(classes),
        block=block,
        ids=None if ids is None else fenced(ids),
        exclude=None if excluded is None else padded(excluded, fenced),
    )
    assert (scores_N.dtype, ids_N.dtype) == (torch.float32, torch.int64)
    names = list(range(len(classes))) if ids is None else ids.tolist()
    scores_NK = (queries.double() @ classes.double().T).tolist()
    for query, (score, found) in enumerate(zip(scores_N.tolist(), ids_N.tolist(), strict=True)):
        forbidden = set() if excluded is None else set(excluded[query].tolist())
        assert (score, found) == best_by_loop(scores_NK[query], names, forbidden), query


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_queries", "num_classes", "dim", "block"),
    [(1, 1, 1, 8), (3, 37, 5, 8), (2, 300, 72, 128), (2, 129, 130, 64)],
)
@pytest.mark.parametrize("of_pool", [False, True])
def test_against_a_loop(
    num_queries: int, num_classes: int, dim: int, block: int, dtype: torch.dtype, of_pool: bool, fenced: Fenced
) -> None:
    queries = whole_numbers(num_queries, dim, seed=dim).to(dtype)
    classes = whole_numbers(num_classes, dim, seed=dim + 1).to(dtype)
    generator = torch.Generator().manual_seed(num_classes)
    ids = torch.randperm(3 * num_classes, generator=generator)[:num_classes] if of_pool else None
    assert_equals_loop(queries, classes, block, ids, None, fenced)
    # Excluded: the hardest ones, one more, padding, an id of no class here.
    hardest = (queries.double() @ classes.double().T).topk(min(4, num_classes), dim=1).indices
    excluded = hardest if ids is None else ids[hardest]
    more = torch.tensor([-1, excluded[0, 0], 3 * num_classes]).expand(num_queries, 3)
    excluded = torch.cat([more, excluded], dim=1)
    excluded[num_queries // 2, 1:] = -1
    assert_equals_loop(queries, classes, block, ids, excluded, fenced)


def test_all_classes_but_few_are_excluded(fenced: Fenced) -> None:
    queries, classes = whole_numbers(4, 6, seed=1), whole_numbers(45, 6, seed=2)
    excluded = torch.arange(45).repeat(4, 1)
    excluded[1, 44] = -1
    excluded[2, 3] = -1
    excluded[3, torch.tensor([0, 7, 8, 31])] = -1
    assert_equals_loop(queries, classes, 8, None, excluded, fenced)
    assert_equals_loop(queries, classes, 8, 44 - torch.arange(45), excluded, fenced)


def test_equal_scores_go_to_the_first(fenced: Fenced) -> None:
    queries, classes = torch.ones(3, 4), torch.ones(40, 4)
    excluded = torch.tensor([[-1] * 10, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [5, 3, 1, 0, -1, -1, -1, -1, -1, -1]])
    assert_equals_loop(queries, classes, 8, None, excluded, fenced)
    assert_equals_loop(queries, classes, 8, 39 - torch.arange(40), excluded, fenced)


def test_rows_of_a_dataset(fenced: Fenced) -> None:
    queries, classes = whole_numbers(5, 8, seed=3), whole_numbers(20, 8, seed=4)
    lists = [[], [4], list(range(20)), [0, 19, 7, 7]]
    rows = [3, 0, 2, 1, 1]
    offsets = torch.tensor([0, 0, 1, 21, 25])
    ids = torch.tensor([i for excluded in lists for i in excluded])
    scores_N, ids_N = hardest_one(
        fenced(maxima_of(queries, classes, 8)),
        fenced(queries),
        fenced(classes),
        block=8,
        ids=None,
        exclude=Exclusions(fenced(torch.tensor(rows)), fenced(offsets), fenced(ids), 20),
    )
    scores_NK = (queries.double() @ classes.double().T).tolist()
    expected = [best_by_loop(scores_NK[n], list(range(20)), set(lists[row])) for n, row in enumerate(rows)]
    assert list(zip(scores_N.tolist(), ids_N.tolist(), strict=True)) == expected
    assert expected[2] == (-torch.inf, -1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_real_numbers(dtype: torch.dtype, fenced: Fenced) -> None:
    generator = torch.Generator().manual_seed(5)
    queries = torch.randn(6, 100, generator=generator).to(dtype)
    classes = torch.randn(150, 100, generator=generator).to(dtype)
    scores_N, ids_N = hardest_one(
        fenced(maxima_of(queries, classes, 32)), fenced(queries), fenced(classes), block=32, ids=None, exclude=None
    )
    truth = (queries.double() @ classes.double().T).max(dim=1)
    # D additions of products in float32, in any order.
    slack = float((queries.double().abs() @ classes.double().abs().T).max()) * 102 * 2.0**-24
    assert torch.allclose(scores_N.cpu().double(), truth.values, rtol=0, atol=slack)
    assert torch.equal(ids_N.cpu(), truth.indices)


def test_blocks_of_minus_infinity_have_no_class(fenced: Fenced) -> None:
    queries, classes = torch.ones(2, 4), torch.ones(20, 4)
    maxima = torch.tensor([[-torch.inf] * 3, [-torch.inf, 4.0, -torch.inf]])
    scores_N, ids_N = hardest_one(fenced(maxima), fenced(queries), fenced(classes), block=8, ids=None, exclude=None)
    assert scores_N.tolist() == [-torch.inf, 4.0]
    assert ids_N.tolist() == [-1, 8]


def test_classes_past_32_bits(long_table: Tensor) -> None:
    queries = torch.ones(2, 2048, dtype=torch.bfloat16, device=long_table.device)
    maxima = torch.zeros(2, -(-len(long_table) // 128), device=long_table.device)
    maxima[:, -1] = 256.0
    scores_N, ids_N = hardest_one(maxima, queries, long_table, block=128, ids=None, exclude=None)
    assert scores_N.tolist() == [256.0, 256.0]
    assert ids_N.tolist() == [len(long_table) - 1] * 2
