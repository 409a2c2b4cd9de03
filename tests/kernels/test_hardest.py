"""The kernels' way to the hardest classes against the plain one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from owlmine.mining.hardest_classes import hardest_plain
from owlmine.mining.kernels import hardest as module
from owlmine.mining.kernels import hardest_one, select_largest
from owlmine.mining.kernels.hardest import hardest_by_kernels, kernel_exclusions


def _inputs(num_queries: int, num_classes: int, dim: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(num_queries + num_classes + dim)
    queries, classes = torch.randn(num_queries, dim), torch.randn(num_classes, dim)
    return queries.to(device, dtype), classes.to(device, dtype)


def _truth(queries: Tensor, rows: Tensor, k: int, ids: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """In float64, with the ids of the rows and padded exclusions."""
    hits = (ids[None, :, None] == exclude[:, None, :]).any(dim=2).nonzero().T
    scores, places = hardest_plain(queries.double(), rows.double(), k, (hits[0], hits[1]))
    return scores, torch.where(places < 0, -1, ids[places])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("num_queries", "num_classes", "dim", "k"), [(3, 5, 8, 1), (70, 300, 48, 1), (9, 700, 24, 7), (2, 900, 20, 40)]
)
@pytest.mark.parametrize("of_pool", [False, True])
def test_equals_float64(
    num_queries: int, num_classes: int, dim: int, k: int, dtype: torch.dtype, of_pool: bool, device: str
) -> None:
    queries, classes = _inputs(num_queries, num_classes, dim, dtype, device)
    ids = torch.randperm(num_classes)[: max(num_classes * 2 // 3, k)].to(device) if of_pool else None
    rows = classes if ids is None else classes[ids]
    names = torch.arange(num_classes, device=device) if ids is None else ids
    none = torch.full((num_queries, 1), -1, device=device)
    _, hard = _truth(queries, rows, min(3, len(rows)), names, none)
    # Excluded: some of the very hardest, a class that is far off, padding.
    exclude = torch.cat([hard, torch.zeros_like(none), none], dim=1)
    exclude[: num_queries // 2] = -1
    scores, found = hardest_by_kernels(queries, classes, k, pool=ids, exclude=kernel_exclusions(exclude))
    true_scores, true_ids = _truth(queries, rows, k, names, exclude)
    assert torch.equal(found, true_ids)
    assert torch.allclose(scores.double(), true_scores, atol=1e-4)


@pytest.mark.parametrize("of_pool", [False, True])
@pytest.mark.parametrize("k", [1, 17])
def test_float32_scores_closer_than_bfloat16_can_tell(k: int, of_pool: bool, device: str) -> None:
    """All classes near one: their scores differ by a thousandth, and rounded to 8 bits most would be equal."""
    torch.manual_seed(k)
    queries = torch.nn.functional.normalize(torch.randn(20, 40), dim=1).to(device)
    classes = (torch.nn.functional.normalize(torch.randn(1, 40), dim=1) + 1e-4 * torch.randn(3000, 40)).to(device)
    ids = torch.randperm(3000).to(device) if of_pool else torch.arange(3000, device=device)
    none = torch.full((20, 1), -1, device=device)
    true_scores, _ = _truth(queries, classes[ids], k, ids, none)
    _, found = hardest_by_kernels(queries, classes, k, pool=ids if of_pool else None, exclude=None)
    chosen = (queries.double()[:, None] * classes.double()[found]).sum(dim=2)
    assert float((chosen.sort(dim=1, descending=True).values - true_scores).abs().max()) < 1e-6


def test_ties_go_to_the_first(device: str) -> None:
    classes = torch.ones(300, 16, dtype=torch.bfloat16, device=device)
    queries = torch.ones(2, 16, dtype=torch.bfloat16, device=device)
    exclude = torch.tensor([[0, 2], [-1, -1]], device=device)
    for k in (1, 3, 40):
        _, ids = hardest_by_kernels(queries, classes, k, pool=None, exclude=kernel_exclusions(exclude))
        allowed = [number for number in range(300) if number not in (0, 2)]
        assert ids.tolist() == [allowed[:k], list(range(k))]


def test_fewer_allowed_than_asked_for(device: str) -> None:
    queries, classes = _inputs(2, 6, 8, torch.bfloat16, device)
    everything = torch.arange(6, device=device).expand(2, 6)
    for k in (1, 3):
        scores, ids = hardest_by_kernels(queries, classes, k, pool=None, exclude=kernel_exclusions(everything))
        assert bool((ids == -1).all())
        assert bool((scores == -torch.inf).all())


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, "_CLASSES"), (torch.float32, "_SPLIT_CLASSES")])
def test_many_classes_and_queries_go_in_passes(
    dtype: torch.dtype, limit: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, 256)
    monkeypatch.setattr(module, "_QUERIES", 4)
    queries, classes = _inputs(9, 600, 16, dtype, device)
    offsets = torch.arange(10, device=device) * 2
    exclude = offsets, torch.arange(18, device=device)
    for k in (1, 5):
        _, ids = hardest_by_kernels(queries, classes, k, pool=None, exclude=kernel_exclusions(exclude))
        names = torch.arange(600, device=device)
        _, true_ids = _truth(queries, classes, k, names, exclude[1].reshape(9, 2))
        assert torch.equal(ids, true_ids)


@pytest.mark.parametrize("of_pool", [False, True])
@pytest.mark.parametrize("k", [1, 5])
def test_more_rows_than_a_pass_has_blocks_for(
    k: int, of_pool: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same limits as on a GPU, 256 times as small: four million classes are 16 thousand."""
    width = module.MAX_WIDTH // 256
    for part in (module, hardest_one, select_largest):
        monkeypatch.setattr(part, "MAX_WIDTH", width)
    monkeypatch.setattr(module, "_CLASSES", module._CLASSES // 256)
    num_classes = module._CLASSES + 3000
    queries, classes = _inputs(3, num_classes, 16, torch.bfloat16, device)
    ids = torch.randperm(num_classes, device=device)[:-500] if of_pool else torch.arange(num_classes, device=device)
    exclude = torch.tensor([[0, -1], [num_classes - 1, 5], [-1, -1]], device=device)
    scores, found = hardest_by_kernels(
        queries, classes, k, pool=ids if of_pool else None, exclude=kernel_exclusions(exclude)
    )
    true_scores, true_ids = _truth(queries, classes[ids], k, ids, exclude)
    assert torch.equal(found, true_ids)
    # Sums of 16 float32 products, up to 17: ten times the largest difference seen.
    assert torch.allclose(scores.double(), true_scores, rtol=0, atol=6e-6)


@pytest.mark.parametrize("k", [1, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_six_million_classes(k: int, dtype: torch.dtype, device: str) -> None:
    if device != "cuda":
        pytest.skip("needs a GPU: the interpreter would take hours")
    num_classes = 6_000_000
    queries, classes = _inputs(40, num_classes, 16, dtype, device)
    names, none = torch.arange(num_classes, device=device), torch.full((40, 1), -1, device=device)
    scores, found = hardest_by_kernels(queries, classes, k, pool=None, exclude=None)
    true_scores, true_ids = _truth(queries, classes, k, names, none)
    # Worst case of a float32 sum of 16 products whose sizes add up to 30, twice.
    assert torch.allclose(scores.double(), true_scores, rtol=0, atol=1e-4)
    chosen = (queries.double()[:, None] * classes[found].double()).sum(dim=2)
    assert torch.allclose(chosen, true_scores, atol=1e-4)
    assert (found == true_ids).float().mean() > 0.99  # Some scores among six million are equal within rounding.
