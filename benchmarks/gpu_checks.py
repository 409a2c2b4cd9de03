"""Every kernel on the GPU against float64 truth, on fresh random data and odd shapes; prints what disagrees."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from owlmine.dense.class_sides import pool_form
from owlmine.losses.modules import PooledOneVsAll, PoolLoss, SampledSoftmax, negative_sampling_loss
from owlmine.losses.surrogates import surrogate_names
from owlmine.mining import hardest
from owlmine.mining.distinct import permuted
from owlmine.mining.kernels.bags import DeviceRows, add_to_bags, sum_bags
from owlmine.mining.kernels.class_passes import Passes
from owlmine.mining.kernels.class_rows import kept_scores, query_gradients, update_classes
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.pool_classes import Pool, PoolForm, pool_class_step
from owlmine.mining.kernels.pool_rows import left_out_of_pool, pool_rows
from owlmine.mining.kernels.unit_rows import unit_rows, unit_rows_back

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
        positives = torch.cat([ids[torch.randint(width, (25,))], torch.randint(num_classes, (25,), device="cuda")])
        exclusions = Exclusions.of_padded(exclude)
        marks = left_out_of_pool(positives, exclusions, key, num_classes=num_classes, width=width).mask(width)
        left_out = torch.where(torch.isin(positives, ids), positives, ids[-1])
        wanted = (ids[None, :, None] == torch.cat([exclude, left_out[:, None]], dim=1)[:, None, :]).any(dim=2)
        yield "what is left out of that pool", float((marks != wanted).sum())


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


def check_pool_classes() -> Found:
    """Losses on a whole pool, in blocks: in float32 nearly exact, in bfloat16 but for the rounding of slopes."""
    num_classes, width = 9_001, 4_133
    for phi in surrogate_names():
        for kind in ("bowl", "powl"):
            yield from _pool_loss(negative_sampling_loss(pool_size=width - 1, kind=kind, phi=phi, scale=2.0))
    for made in (SampledSoftmax, PooledOneVsAll):
        yield from _pool_loss(made(num_classes=num_classes, pool_size=width - 1, scale=9.0))


def _pool_loss(
    loss: PoolLoss, *, num_classes: int = 9_001, width: int = 4_133, num_queries: int = 333, dim: int = 136
) -> Found:
    # Vectors on the grid of bfloat16: what is left are the errors of the arithmetic.
    queries, classes = units(num_queries, dim).bfloat16().float(), units(num_classes, dim).bfloat16().float()
    positives = torch.randint(num_classes, (num_queries,), device="cuda")
    listed = torch.cat([positives[:, None], torch.randint(num_classes, (num_queries, 7), device="cuda")], dim=1)
    number = int(torch.randint(2**32, ()))
    pool = permuted(torch.arange(width), key=number, num_classes=num_classes).cuda()
    # Of the classes that the batch shares a point leaves out its positive, or else the last one.
    left_out = torch.where(torch.isin(positives, pool), positives, pool[-1])
    hidden = (pool[None, :, None] == torch.cat([listed, left_out[:, None]], dim=1)[:, None, :]).any(dim=2)
    own = (queries.double() * classes[positives].double()).sum(dim=1).requires_grad_()
    scores = (queries.double() @ classes[pool].double().T).requires_grad_()
    losses = loss.of_each_point(own, scores, hidden)
    own_slopes, slopes = torch.autograd.grad(losses.sum(), (own, scores))
    wanted = slopes @ classes[pool].double() + own_slopes[:, None] * classes[positives].double()
    moves = torch.zeros(num_classes, dim, dtype=torch.float64, device="cuda")
    moves.index_add_(0, pool, slopes.T @ queries.double())
    moves.index_add_(0, positives, own_slopes[:, None] * queries.double())
    form = pool_form(loss)
    assert isinstance(form, PoolForm)
    # Of a million scores some lie so near to a kink of the ramp, at 0, that they fall on its other side.
    kink = 1e-4 if form.kind == "ramp" else 0.0
    for operands, spare in ((torch.float32, kink), (torch.bfloat16, kink + 2.0**-8)):
        table = classes.clone()
        found, gradients = pool_class_step(
            queries,
            table,
            positives,
            torch.tensor([-0.1], device="cuda"),
            form=form,
            pool=Pool(torch.tensor([number], device="cuda"), width - 1),
            excluded=Exclusions.of_padded(listed),
            key=torch.tensor([5], device="cuda"),
            passes=Passes(chunk=1000, operands=operands),
        )
        name = f"{form.kind}{', pairwise' if form.pairwise else ''}, {operands}"
        truth = functional.normalize(classes.double() - 0.1 * moves, dim=1)
        truth = torch.where((moves != 0).any(dim=1, keepdim=True), truth, classes.double())
        yield f"{name}: losses", float(((found - losses) / losses.clamp_min(1e-3)).abs().max())
        yield f"{name}: gradients", max(0.0, float((gradients - wanted).norm() / wanted.norm()) - spare)
        yield f"{name}: rows", max(0.0, float((table - truth).norm() / (0.1 * moves).norm()) - spare)


def run_all() -> int:
    """How many disagreed."""
    wrong = 0
    for check in (check_hardest, check_pool, check_bags, check_class_rows, check_pool_classes):
        errors = list(check())
        bad = [(name, error) for name, error in errors if not error <= ERROR]
        wrong += len(bad)
        print(f"{check.__name__}: {len(errors) - len(bad)} of {len(errors)} agree", *bad[:12], sep="\n   ", flush=True)
    return wrong
