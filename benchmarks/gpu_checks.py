"""Every kernel on the GPU against float64 truth, on fresh random data and odd shapes; tells what disagrees."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from owlmine.kernels.bags import DeviceRows, add_to_bags, sum_bags
from owlmine.kernels.class_rows import kept_scores, query_gradients, update_classes
from owlmine.kernels.exclusions import Exclusions
from owlmine.kernels.pool_rows import excluded_from_pool, pool_rows
from owlmine.kernels.unit_rows import unit_rows, unit_rows_back
from owlmine.mining import hardest
from owlmine.mining.permutation import permuted

# Of sums of up to a thousand products of unit vectors in float32.
ERROR = 2e-5
Found = Iterator[tuple[str, float]]


def units(count: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return functional.normalize(torch.randn(count, dim, device="cuda"), dim=1).to(dtype)


def check_hardest() -> Found:
    """Scores of the ids found against the best ones: equal unless ids are wrong by more than the arithmetic's error."""
    shapes = (
        (1, 130, 512, 1),
        (1000, 33_333, 512, 1),
        (129, 4_099, 200, 17),
        (77, 70_001, 72, 256),
        (33, 9_001, 20, 1024),
        (5, 1_025, 512, 1024),
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for num_queries, num_classes, dim, k in shapes:
            for of_pool in (False, True):
                queries, classes = units(num_queries, dim, dtype), units(num_classes, dim, dtype)
                classes[num_classes // 2 : num_classes // 2 + 40] = classes[0]  # ties
                pool = torch.randperm(num_classes, device="cuda")[: max(num_classes * 3 // 4, k)] if of_pool else None
                names = torch.arange(num_classes, device="cuda") if pool is None else pool
                truth = queries.double() @ classes[names].double().T
                random_ids = torch.randint(num_classes, (num_queries, 1), device="cuda")
                exclude = torch.cat([names[truth.topk(2, dim=1).indices], random_ids], dim=1)
                truth.masked_fill_((names[None, :, None] == exclude[:, None, :]).any(dim=2), -torch.inf)
                kept = min(k, len(names) - 3)
                scores, ids = hardest(queries, classes, kept, pool=pool, exclude=exclude)
                where = torch.empty(num_classes, dtype=torch.int64, device="cuda")
                where[names] = torch.arange(len(names), device="cuda")
                found = truth.gather(1, where[ids])
                name = f"hardest {kept} of {num_classes}, {num_queries} queries, D = {dim}, {dtype}, pool {of_pool}"
                best = truth.topk(kept, dim=1).values
                yield name, float((found.sort(dim=1, descending=True).values - best).abs().max())
                yield f"{name}: scores", float((found - scores.double()).abs().max())
                repeats = sum(len(row.unique()) != kept for row in ids[:100])
                yield f"{name}: repeated ids", float(repeats)


def check_pool() -> Found:
    for num_classes, width in ((7, 7), (1000, 333), (2_812_281, 32_768)):
        classes = torch.randn(num_classes, 24, device="cuda")
        number = int(torch.randint(2**32, ()))
        key = torch.tensor([number], device="cuda")
        ids, rows = pool_rows(classes, key, width=width, dtype=torch.bfloat16)
        truth = permuted(torch.arange(width), key=number, num_classes=num_classes)
        yield f"pool of {width} from {num_classes}", float((ids.cpu() != truth).sum())
        yield "rows of that pool", float((rows != classes[ids].bfloat16()).sum())
        exclude = torch.cat([ids[torch.randint(width, (50, 3))], torch.randint(num_classes, (50, 2), device="cuda")], 1)
        marks = excluded_from_pool(Exclusions.of_padded(exclude), key, num_classes=num_classes, width=width)
        wanted = (ids[None, :, None] == exclude[:, None, :]).any(dim=2)
        yield "exclusions from that pool", float((marks != wanted).sum())


def check_bags() -> Found:
    for dim in (512, 72, 1000):
        counts = torch.randint(0, 90, (300,))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).cuda()
        ids = torch.randint(1000, (int(offsets[-1]),), device="cuda")
        values = torch.rand(len(ids), device="cuda")
        rows = DeviceRows(offsets, ids.int(), values)
        table, points = torch.randn(1000, dim, device="cuda"), torch.randperm(300, device="cuda")[:77]
        dense = torch.zeros(300, 1000, dtype=torch.float64, device="cuda")
        dense.index_put_((torch.arange(300).repeat_interleave(counts).cuda(), ids), values.double(), accumulate=True)
        sums = sum_bags(table, rows, points, relu=False)
        truth = dense[points] @ table.double()
        yield f"sums of bags, D = {dim}", float((sums - truth).norm() / truth.norm())
        steps = torch.randn(77, dim, device="cuda")
        moved = table.clone()
        add_to_bags(moved, rows, points, steps, torch.tensor([-0.5], device="cuda"))
        truth = table.double() - 0.5 * dense[points].T @ steps.double()
        yield f"moves of bags, D = {dim}", float((moved - truth).norm() / truth.norm())


def check_class_rows() -> Found:
    for num_queries, kept, num_classes, dim in ((1000, 2, 50, 512), (33, 257, 700, 72)):
        vectors = torch.randn(num_queries, dim, dtype=torch.float64, device="cuda", requires_grad=True)
        classes = units(num_classes, dim).double().requires_grad_()
        ids = torch.randint(-1, num_classes, (num_queries, kept), device="cuda")
        slopes = torch.randn(num_queries, kept, device="cuda") * (ids >= 0)
        scores = torch.einsum("nd,ntd->nt", functional.normalize(vectors, dim=1), classes[ids.clamp_min(0)])
        (scores * slopes).sum().backward()
        own, _, lengths = unit_rows(vectors.detach().float(), copy_dtype=torch.bfloat16)
        table = classes.detach().float()
        found = kept_scores(own, table, ids)
        yield f"kept scores, {kept}", float((found - scores * (ids >= 0)).abs().max())
        gradient = unit_rows_back(own, lengths, query_gradients(table, ids, slopes))
        assert vectors.grad is not None
        assert classes.grad is not None
        yield f"query gradients, {kept}", float((gradient - vectors.grad).norm() / vectors.grad.norm())
        factor, key = torch.tensor([-0.01], device="cuda"), torch.tensor([5], device="cuda")
        copy = torch.empty_like(table, dtype=torch.bfloat16)
        copy.copy_(table)
        update_classes(table, own, ids, slopes, factor, copy_KD=copy, key=key)
        truth = functional.normalize(classes.detach() - 0.01 * classes.grad, dim=1)
        yield f"class updates, {kept}", float((table - truth).norm() / truth.norm())
        yield f"their copy, {kept}", float((copy != table.bfloat16()).sum())


def run_all() -> int:
    """How many disagreed."""
    wrong = 0
    for check in (check_hardest, check_pool, check_bags, check_class_rows):
        errors = list(check())
        bad = [(name, error) for name, error in errors if not error <= ERROR]
        wrong += len(bad)
        print(f"{check.__name__}: {len(errors) - len(bad)} of {len(errors)} agree", *bad[:12], sep="\n   ", flush=True)
    return wrong
