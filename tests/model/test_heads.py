"""Models side by side: the mean of their scores, found in one search."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from owlmine.data.rows import SparseRows
from owlmine.dense.retriever import join_models
from owlmine.model import ModelShape, Retriever, SparseBatch

QUERIES = SparseBatch.of(
    SparseRows(
        np.array([0, 2, 2, 5], np.int64),
        np.array([0, 3, 1, 4, 6], np.int32),
        np.array([0.5, 1.0, 2.0, 0.1, 0.3], np.float32),
    ),
    torch.device("cpu"),
)


def models(count: int, **changes: int) -> list[Retriever]:
    return [Retriever.new(ModelShape(7, 11, **({"dim": 6} | changes)), seed=seed) for seed in range(count)]


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_scores_are_the_mean(depth: int, count: int) -> None:
    single = models(count, depth=depth)
    joined = join_models(single)
    assert joined.shape == ModelShape(7, 11, dim=6 * count, depth=depth, heads=count)
    assert joined.shape.num_parameters == count * single[0].shape.num_parameters
    assert {n: tuple(t.shape) for n, t in joined.tensors().items()} == joined.shape.tensor_shapes
    expected = sum(model.encode(QUERIES) @ model.classes.weight.T for model in single) / count
    torch.testing.assert_close(joined.encode(QUERIES) @ joined.classes.weight.T, expected)
    lengths = joined.encode(QUERIES).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(joined.classes.weight.norm(dim=1), torch.ones(11))
    scores, ids = joined.top(QUERIES, 4)
    best, best_ids = expected.topk(4, dim=1)
    torch.testing.assert_close(scores[[0, 2]], best[[0, 2]])
    assert torch.equal(ids[[0, 2]], best_ids[[0, 2]])


def test_dense_queries() -> None:
    single = models(2, dense=True)
    queries = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    expected = sum(model.encode(queries) @ model.classes.weight.T for model in single) / 2
    joined = join_models(single)
    torch.testing.assert_close(joined.encode(queries) @ joined.classes.weight.T, expected)


def test_the_parts_are_copied() -> None:
    single = models(2)
    joined = join_models(single)
    single[0].classes.weight.zero_()
    assert float(joined.classes.weight.norm(dim=1).min()) > 0.99


def test_what_cannot_be_joined() -> None:
    one, other = models(1)[0], models(1, dim=8)[0]
    linear = Retriever.new(ModelShape(7, 11, kind="linear"), seed=0)
    for given in ([one, other], [linear, linear], [join_models(models(2)), join_models(models(2))]):
        with pytest.raises(ValueError, match="wanted embedding models with one head and the same shape"):
            join_models(given)


def test_bad_shapes() -> None:
    with pytest.raises(ValueError, match="heads is 4; wanted 1 or more, a divisor of dim"):
        ModelShape(7, 11, dim=6, heads=4)
    with pytest.raises(ValueError, match="heads is 2; wanted 1 for a linear model"):
        ModelShape(7, 11, kind="linear", dim=6, heads=2)
    with pytest.raises(ValueError, match="heads is 2; wanted 1: models are trained one by one"):
        Retriever.new(ModelShape(7, 11, dim=6, heads=2), seed=0)
