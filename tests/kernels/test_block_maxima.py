"""Block maxima against float64.

Shapes: N queries, K classes, D dimension.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from owlmine.mining.kernels.block_maxima import block_maxima
from tests.kernels.conftest import Fenced

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def inputs(num_queries: int, num_classes: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_queries + num_classes + dim)
    queries = torch.randn(num_queries, dim, generator=generator)
    return queries.to(dtype), torch.randn(num_classes, dim, generator=generator).to(dtype)


def true_maxima(scores_NK: Tensor, block: int) -> Tensor:
    return torch.stack([part.amax(dim=1) for part in scores_NK.split(block, dim=1)], dim=1)


def slack_of(queries: Tensor, classes: Tensor, device: str) -> float:
    """How far off a score may be: D additions of products, in float32 and in any order.

    A tensor core cuts off where others round, and reads float32 with 11 bits.
    """
    unit = 2.0**-9 if queries.dtype == torch.float32 and device == "cuda" else queries.shape[1] * 2.0**-23
    return float((queries.double().abs() @ classes.double().abs().T).max()) * unit


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_queries", "num_classes", "dim", "block"),
    [(1, 1, 8, 1), (1, 7, 8, 8), (3, 300, 136, 128), (129, 257, 72, 32), (130, 129, 64, 16), (5, 1000, 24, 2)],
)
def test_against_float64(
    num_queries: int, num_classes: int, dim: int, block: int, dtype: torch.dtype, device: str, fenced: Fenced
) -> None:
    queries, classes = inputs(num_queries, num_classes, dim, dtype)
    found = block_maxima(fenced(queries), fenced(classes), block=block)
    assert found.fine_NF is None
    assert found.scores_NK is None
    truth = true_maxima(queries.double() @ classes.double().T, block)
    assert found.maxima_NM.shape == truth.shape
    assert torch.allclose(found.maxima_NM.cpu().double(), truth, rtol=0, atol=slack_of(queries, classes, device))


@pytest.mark.parametrize(("num_queries", "num_classes"), [(1, 1), (4, 127), (131, 259)])
@pytest.mark.parametrize(("block", "fine_block"), [(128, 16), (32, 32), (64, 1)])
def test_fine_maxima_and_scores_are_of_the_same_numbers(
    num_queries: int, num_classes: int, block: int, fine_block: int, device: str, fenced: Fenced
) -> None:
    queries, classes = inputs(num_queries, num_classes, 40, torch.bfloat16)
    found = block_maxima(fenced(queries), fenced(classes), block=block, fine_block=fine_block, keep_scores=True)
    assert found.scores_NK is not None
    assert found.fine_NF is not None
    truth = queries.double() @ classes.double().T
    assert torch.allclose(found.scores_NK.cpu().double(), truth, rtol=0, atol=slack_of(queries, classes, device))
    assert torch.equal(found.fine_NF, true_maxima(found.scores_NK, fine_block))
    assert torch.equal(found.maxima_NM, true_maxima(found.scores_NK, block))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_past_the_last_class_is_no_class(dtype: torch.dtype, fenced: Fenced) -> None:
    # Every score is negative, so rows of zeros past the end would win.
    queries, classes = torch.ones(2, 8, dtype=dtype), torch.full((131, 8), -1.0, dtype=dtype)
    found = block_maxima(fenced(queries), fenced(classes), block=16, fine_block=4, keep_scores=True)
    for part in (found.maxima_NM, found.fine_NF, found.scores_NK):
        assert part is not None
        assert bool((part == -8).all())


def test_rows_that_tiles_cannot_read_are_refused(fenced: Fenced) -> None:
    queries, classes = inputs(3, 20, 12, torch.bfloat16)
    with pytest.raises(AssertionError):
        block_maxima(fenced(queries), fenced(classes), block=16)
    with pytest.raises(AssertionError):
        block_maxima(*inputs(3, 20, 16, torch.bfloat16), block=256)


def test_classes_past_32_bits(long_table: Tensor) -> None:
    queries = torch.ones(2, 2048, dtype=torch.bfloat16, device=long_table.device)
    found = block_maxima(queries, long_table, block=128, fine_block=16)
    assert found.fine_NF is not None
    for maxima in (found.maxima_NM, found.fine_NF):
        assert maxima[:, -1].tolist() == [256.0, 256.0]
        assert bool((maxima[:, :-1] == 0).all())
