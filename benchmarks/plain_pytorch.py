"""A training step as one would write it with PyTorch alone: what our own steps are measured against.

EmbeddingBag and Embedding with sparse=True, torch.optim.SGD, the whole N x B score matrix under autograd. It does not
even keep its class vectors at unit length.

Shapes: N points, B pool, D dimension, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from owlmine.data.batches import Batches
from owlmine.dense.encoder import SparseBatch
from owlmine.dense.step import draw_positives

PlainStep = Callable[[SparseBatch, Tensor], Tensor]
# Of the scores in a softmax, here and in our own steps.
SCALE = 20.0


class _Encoder(nn.Module):
    def __init__(self, num_features: int, dim: int, device: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(num_features, dim, mode="sum", sparse=True, device=device)
        self.linear = nn.Linear(dim, dim, bias=False, device=device)

    def forward(self, queries: SparseBatch) -> Tensor:
        hidden = self.bag(queries.ids_E, queries.offsets_N, per_sample_weights=queries.values_E)
        return functional.normalize(self.linear(hidden.relu()), dim=1)


def plain_step(
    *, num_features: int, num_classes: int, dim: int, pool: int, kept: int | None, device: str, softmax: bool = False
) -> PlainStep:
    """A step of mined hinge loss on the ``kept`` hardest of a pool (None: all of it, negative sampling), or of sampled
    softmax."""
    encoder = _Encoder(num_features, dim, device)
    classes = nn.Embedding(num_classes, dim, sparse=True, device=device)
    tables = torch.optim.SGD([*encoder.bag.parameters(), *classes.parameters()], lr=0.1)
    maps = torch.optim.SGD(encoder.linear.parameters(), lr=0.001, momentum=0.9)
    log_q = math.log(pool / (num_classes - 1))

    def losses(positive: Tensor, scores: Tensor) -> Tensor:
        if softmax:
            return functional.softplus(torch.logsumexp(SCALE * scores - log_q, dim=1) - SCALE * positive)
        if kept is None:
            negative = (1 + scores).relu().mean(dim=1)
        elif kept == 1:
            negative = (1 + scores.max(dim=1).values).relu()
        else:
            negative = (1 + scores.topk(kept, dim=1).values).relu().mean(dim=1)
        return (1 - positive).relu() + negative

    def step(queries: SparseBatch, positives: Tensor) -> Tensor:
        drawn = torch.randint(num_classes, (pool,), device=device)
        vectors = encoder(queries)
        scores = vectors @ classes(drawn).T
        scores = scores.masked_fill(drawn == positives[:, None], -torch.inf)
        positive = (vectors * classes(positives)).sum(dim=1)
        loss = losses(positive, scores).sum()
        loss.backward()
        for optimizer in (tables, maps):
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


def plain_full_softmax_step(*, num_features: int, num_classes: int, dim: int, device: str) -> PlainStep:
    """A whole step of softmax over all classes: the class side of ``plain_softmax_step`` behind the encoder."""
    encoder = _Encoder(num_features, dim, device)
    classes = nn.Parameter(functional.normalize(torch.randn(num_classes, dim, device=device), dim=1).bfloat16())
    optimizers = (
        torch.optim.SGD(encoder.bag.parameters(), lr=0.1),
        torch.optim.SGD([classes], lr=0.1),
        torch.optim.SGD(encoder.linear.parameters(), lr=0.001, momentum=0.9),
    )

    def step(queries: SparseBatch, positives: Tensor) -> Tensor:
        scores = encoder(queries).bfloat16() @ classes.T
        loss = functional.cross_entropy(SCALE * scores, positives, reduction="sum")
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


def plain_softmax_step(*, num_classes: int, dim: int, device: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Softmax over all classes of given query vectors, in bfloat16 with a dense gradient: the class side of a step."""
    classes = nn.Parameter(functional.normalize(torch.randn(num_classes, dim, device=device), dim=1).bfloat16())
    optimizer = torch.optim.SGD([classes], lr=0.1)

    def step(vectors: Tensor, positives: Tensor) -> Tensor:
        loss = functional.cross_entropy(SCALE * (vectors @ classes.T), positives, reduction="sum")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def loaded(batches: Batches, *, seed: int, device: torch.device) -> Iterator[tuple[SparseBatch, Tensor]]:
    """Batches as a plain step takes them, put together on the host and copied: queries, and one label of each point."""
    random = np.random.default_rng(seed)
    while True:
        _, batch = batches.next()
        positives = torch.from_numpy(draw_positives(batch.labels, random))
        yield SparseBatch.of(batch.queries, device), positives.to(device)
