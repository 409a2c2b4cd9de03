"""The paper's model against its formula: sparse bag times table, ReLU, map, unit length, product; and ensembles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.dense.encoder import SparseBatch, query_batch
from owlmine.dense.retriever import ModelShape, Retriever, join_models

CPU = torch.device("cpu")


def random_rows(seed: int, num_rows: int, num_features: int, *, dtype: type = np.float32) -> SparseRows:
    """Rows of 0 to 4 features; the first is empty."""
    rng = np.random.default_rng(seed)
    chosen = [np.sort(rng.choice(num_features, size=rng.integers(0, 5), replace=False)) for _ in range(num_rows)]
    chosen[0] = chosen[0][:0]
    indices = np.concatenate(chosen).astype(np.int32)
    return SparseRows(
        offsets_from_counts([len(row) for row in chosen]), indices, rng.normal(size=len(indices)).astype(dtype)
    )


def dense_of(rows: SparseRows, num_features: int) -> np.ndarray:
    return np.asarray(rows.to_scipy(num_features).todense())


def score_by_loops(tensors: dict[str, Tensor], depth: int, query: dict[int, float]) -> list[float]:
    """One query's scores in Python floats."""
    table, classes = tensors["table"].tolist(), tensors["classes"].tolist()
    dim = len(classes[0])
    hidden = [sum(value * table[feature][d] for feature, value in query.items()) for d in range(dim)]
    for number in range(depth):
        matrix = tensors[f"map.{number}"].tolist()
        active = [max(h, 0.0) for h in hidden]
        hidden = [sum(active[i] * matrix[i][d] for i in range(dim)) for d in range(dim)]
    length = math.sqrt(sum(h * h for h in hidden))
    unit = [h / length if length else 0.0 for h in hidden]
    return [sum(u * c for u, c in zip(unit, row, strict=True)) for row in classes]


@settings(max_examples=20, deadline=None)
@given(
    depth=st.integers(0, 2), seed=st.integers(0, 1000), num_features=st.integers(5, 9), num_classes=st.integers(2, 6)
)
def test_scores_are_the_papers_formula(depth: int, seed: int, num_features: int, num_classes: int) -> None:
    shape = ModelShape(num_features=num_features, num_classes=num_classes, dim=3, depth=depth)
    model = Retriever.new(shape, seed=seed)
    rows = random_rows(seed, 5, num_features)
    scores = model.encode(query_batch(rows, CPU)) @ model.classes.weight.T
    for n in range(len(rows)):
        one = rows[n : n + 1]
        query = dict(zip(one.indices.tolist(), one.values.tolist(), strict=True))
        assert scores[n].tolist() == pytest.approx(score_by_loops(model.tensors(), depth, query), abs=1e-5)
    assert scores[0].tolist() == [0.0] * num_classes, "a query without features scores 0 everywhere"


def test_vectors_have_length_one() -> None:
    model = Retriever.new(ModelShape(num_features=30, num_classes=40, dim=16), seed=1)
    vectors = model.encode(query_batch(random_rows(2, 10, 30), CPU))
    lengths = vectors.norm(dim=1)
    assert lengths[0] == 0
    torch.testing.assert_close(lengths[lengths > 0], torch.ones(int((lengths > 0).sum())))
    torch.testing.assert_close(model.classes.weight.norm(dim=1), torch.ones(40))


def test_number_of_parameters_is_the_papers() -> None:
    """512 (d + 512 + K), and what the tensors hold."""
    assert ModelShape(num_features=135_909, num_classes=670_091).num_parameters == 512 * (135_909 + 512 + 670_091)
    for kind, depth, dense in (("embedding", 0, False), ("embedding", 2, True), ("linear", 1, False)):
        shape = ModelShape(num_features=7, num_classes=5, dim=4, depth=depth, kind=kind, dense=dense)
        tensors = Retriever.new(shape, seed=0).tensors()
        assert sum(tensor.numel() for tensor in tensors.values()) == shape.num_parameters
        found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
        assert found == shape.tensor_shapes


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_dense_queries_are_sparse_ones_written_out(depth: int) -> None:
    rows = random_rows(3, 6, 8)
    sparse = Retriever.new(ModelShape(num_features=8, num_classes=5, dim=4, depth=depth), seed=5)
    shape = ModelShape(num_features=8, num_classes=5, dim=4, depth=depth, dense=True)
    dense = Retriever.from_tensors(shape, sparse.tensors())
    torch.testing.assert_close(
        dense.encode(query_batch(dense_of(rows, 8), CPU)), sparse.encode(query_batch(rows, CPU)), atol=1e-6, rtol=1e-5
    )


def test_linear_scores_are_products_and_linear_in_the_table() -> None:
    shape = ModelShape(num_features=8, num_classes=5, kind="linear")
    assert not Retriever.new(shape, seed=0).classes.weight.any(), "the problem is convex: training starts at 0"
    rows, generator = random_rows(4, 6, 8, dtype=np.float64), torch.Generator().manual_seed(0)
    first, second = (torch.randn(5, 8, generator=generator, dtype=torch.float64) for _ in range(2))

    def scores(table: Tensor) -> Tensor:
        model = Retriever.from_tensors(shape, {"classes": table})
        return model.encode(query_batch(rows, CPU)) @ model.classes.weight.T

    torch.testing.assert_close(scores(first), torch.from_numpy(dense_of(rows, 8)) @ first.T)
    torch.testing.assert_close(scores(0.3 * first - 2 * second), 0.3 * scores(first) - 2 * scores(second))


@pytest.mark.parametrize("kind", ["embedding", "linear"])
def test_repeated_features_of_a_row_add_up(kind: str) -> None:
    shape = ModelShape(num_features=6, num_classes=4, dim=3, depth=0, kind=kind)
    model = Retriever.new(shape, seed=0)
    twice = SparseRows(np.array([0, 3]), np.array([2, 4, 2], np.int32), np.array([1, 3, 0.5], np.float32))
    once = SparseRows(np.array([0, 2]), np.array([2, 4], np.int32), np.array([1.5, 3], np.float32))
    torch.testing.assert_close(model.encode(query_batch(twice, CPU)), model.encode(query_batch(once, CPU)))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_gradients_of_row_tables_are_those_of_plain_modules(depth: int) -> None:
    """In float64, against ``nn.EmbeddingBag`` and ``nn.Embedding`` with dense gradients and the same weights."""
    shape = ModelShape(num_features=9, num_classes=7, dim=4, depth=depth)
    tensors = {name: tensor.double() for name, tensor in Retriever.new(shape, seed=3).tensors().items()}
    model = Retriever.from_tensors(shape, {name: tensor.clone() for name, tensor in tensors.items()})
    rows = random_rows(6, 8, 9, dtype=np.float64)
    queries = query_batch(rows, CPU)
    ids = torch.tensor([[1, 4], [1, 1], [0, 6], [6, 2], [4, 4], [2, 1], [0, 0], [5, 1]])

    vectors = model.encoder(queries)
    class_rows, places = model.classes.read(ids)
    (torch.einsum("nd,npd->np", vectors, class_rows[places]).exp().sum()).backward()

    bag = nn.EmbeddingBag.from_pretrained(tensors["table"], freeze=False, mode="sum")
    classes = nn.Embedding.from_pretrained(tensors["classes"], freeze=False)
    maps = [tensors[f"map.{number}"].clone().requires_grad_() for number in range(depth)]
    hidden = bag(queries.ids_E, queries.offsets_N, per_sample_weights=queries.values_E)
    for matrix in maps:
        hidden = hidden.relu() @ matrix
    unit = hidden / hidden.norm(dim=1, keepdim=True).clamp_min(1e-12)
    (unit[:, None] * classes(ids)).sum(dim=2).exp().sum().backward()

    for table, plain in ((model.encoder.table, bag.weight), (model.classes, classes.weight)):
        gradient = torch.zeros_like(plain.grad)
        for touched in table.take_touched():
            assert len(touched.ids_U.unique()) == len(touched.ids_U)
            gradient.index_add_(0, touched.ids_U, touched.gradient_UD)
        torch.testing.assert_close(gradient, plain.grad, rtol=1e-12, atol=1e-12)
    for own, matrix in zip(model.encoder.maps, maps, strict=True):
        torch.testing.assert_close(own.grad, matrix.grad, rtol=1e-12, atol=1e-12)


def test_reading_without_gradient_leaves_nothing_to_update() -> None:
    model = Retriever.new(ModelShape(num_features=9, num_classes=7, dim=4), seed=3)
    model.top(query_batch(random_rows(6, 8, 9), CPU), 3)
    assert model.encoder.table.take_touched() == []
    assert model.classes.take_touched() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 1}, "num_classes is 1; wanted 2 or more"),
        ({"num_features": 0}, "num_features is 0; wanted 1 or more"),
        ({"dim": 0}, "dim is 0; wanted 1 or more"),
        ({"depth": 9}, "depth is 9; wanted 0 to 8"),
        ({"kind": "tree"}, "kind is 'tree'; wanted embedding or linear"),
    ],
)
def test_shapes_that_make_no_model(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelShape(**{"num_features": 3, "num_classes": 3, **changes})


# An ensemble: the mean of its members' scores, found in one search.

QUERIES = SparseBatch.of(
    SparseRows(
        np.array([0, 2, 2, 5], np.int64),
        np.array([0, 3, 1, 4, 6], np.int32),
        np.array([0.5, 1.0, 2.0, 0.1, 0.3], np.float32),
    ),
    CPU,
)


def members(count: int, **changes: int) -> list[Retriever]:
    return [Retriever.new(ModelShape(7, 11, **({"dim": 6} | changes)), seed=seed) for seed in range(count)]


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_scores_of_an_ensemble_are_the_mean(depth: int, count: int) -> None:
    single = members(count, depth=depth)
    joined = join_models(single)
    assert joined.shape == ModelShape(7, 11, dim=6 * count, depth=depth, heads=count)
    assert joined.shape.num_parameters == count * single[0].shape.num_parameters
    assert {n: (t.dtype, tuple(t.shape)) for n, t in joined.tensors().items()} == joined.shape.tensor_shapes
    expected = sum(model.encode(QUERIES) @ model.classes.weight.T for model in single) / count
    torch.testing.assert_close(joined.encode(QUERIES) @ joined.classes.weight.T, expected)
    lengths = joined.encode(QUERIES).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(joined.classes.weight.norm(dim=1), torch.ones(11))
    scores, ids = joined.top(QUERIES, 4)
    best, best_ids = expected.topk(4, dim=1)
    torch.testing.assert_close(scores[[0, 2]], best[[0, 2]])
    assert torch.equal(ids[[0, 2]], best_ids[[0, 2]])


def test_an_ensemble_of_dense_queries() -> None:
    single = members(2, dense=True)
    queries = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    expected = sum(model.encode(queries) @ model.classes.weight.T for model in single) / 2
    joined = join_models(single)
    torch.testing.assert_close(joined.encode(queries) @ joined.classes.weight.T, expected)


def test_an_ensemble_copies_its_members() -> None:
    single = members(2)
    joined = join_models(single)
    single[0].classes.weight.zero_()
    assert float(joined.classes.weight.norm(dim=1).min()) > 0.99


def test_what_cannot_be_joined() -> None:
    one, other = members(1)[0], members(1, dim=8)[0]
    linear = Retriever.new(ModelShape(7, 11, kind="linear"), seed=0)
    for members_given in ([one, other], [linear, linear], [join_models(members(2)), join_models(members(2))]):
        with pytest.raises(ValueError, match="wanted embedding models with one head and the same shape"):
            join_models(members_given)


def test_heads_that_make_no_model() -> None:
    with pytest.raises(ValueError, match="heads is 4; wanted 1 or more, a divisor of dim"):
        ModelShape(7, 11, dim=6, heads=4)
    with pytest.raises(ValueError, match="heads is 2; wanted 1 for a linear model"):
        ModelShape(7, 11, kind="linear", dim=6, heads=2)
    with pytest.raises(ValueError, match="heads is 2; wanted 1: models are trained one by one"):
        Retriever.new(ModelShape(7, 11, dim=6, heads=2), seed=0)
