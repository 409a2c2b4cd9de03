"""A training step as one would write it with PyTorch alone: what our own steps are measured against.

EmbeddingBag and Embedding with sparse=True, torch.optim.SGD, the whole N x B score matrix under autograd. It does not
even keep its class vectors at unit length.

Shapes: N points, B pool, D dimension, K classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from owlmine.model import SparseBatch


def plain_step(
    *, num_features: int, num_classes: int, dim: int, pool: int, kept: int | None, device: str
) -> Callable[[SparseBatch, Tensor], Tensor]:
    """A step of mined hinge loss on the ``kept`` hardest of a pool (None: all of it, negative sampling)."""
    bag = nn.EmbeddingBag(num_features, dim, mode="sum", sparse=True, device=device)
    linear = nn.Linear(dim, dim, bias=False, device=device)
    classes = nn.Embedding(num_classes, dim, sparse=True, device=device)
    tables = torch.optim.SGD([*bag.parameters(), *classes.parameters()], lr=0.1)
    maps = torch.optim.SGD(linear.parameters(), lr=0.001, momentum=0.9)

    def step(queries: SparseBatch, positives: Tensor) -> Tensor:
        drawn = torch.randint(num_classes, (pool,), device=device)
        hidden = bag(queries.ids_E, queries.offsets_N, per_sample_weights=queries.values_E)
        vectors = functional.normalize(linear(hidden.relu()), dim=1)
        scores = vectors @ classes(drawn).T
        scores = scores.masked_fill(drawn == positives[:, None], -torch.inf)
        positive = (vectors * classes(positives)).sum(dim=1)
        if kept is None:
            negative = (1 + scores).relu().mean(dim=1)
        elif kept == 1:
            negative = (1 + scores.max(dim=1).values).relu()
        else:
            negative = (1 + scores.topk(kept, dim=1).values).relu().mean(dim=1)
        loss = ((1 - positive).relu() + negative).sum()
        loss.backward()
        for optimizer in (tables, maps):
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


def plain_softmax_step(*, num_classes: int, dim: int, device: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Softmax over all classes of given query vectors, in bfloat16 with a dense gradient: the class side of a step."""
    classes = nn.Parameter(functional.normalize(torch.randn(num_classes, dim, device=device), dim=1).bfloat16())
    optimizer = torch.optim.SGD([classes], lr=0.1)

    def step(vectors: Tensor, positives: Tensor) -> Tensor:
        loss = functional.cross_entropy(20 * (vectors @ classes.T), positives, reduction="sum")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
