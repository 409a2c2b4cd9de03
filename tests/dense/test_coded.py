"""Models whose rows are bytes: joined, served, saved, extended."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from owlmine.dense.encoder import SparseBatch
from owlmine.dense.retriever import ModelShape, Retriever, join_models
from owlmine.mining.coded_rows import CodedRows

QUERIES = SparseBatch(torch.tensor([0, 3, 6, 2]), torch.tensor([0, 2, 2]), torch.tensor([1.0, 2.0, 0.5, 3.0]))


def members(count: int, **changes: int) -> list[Retriever]:
    return [Retriever.new(ModelShape(7, 11, **({"dim": 6} | changes)), seed=seed) for seed in range(count)]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_coded_model_is_the_nearest_one_of_bytes(count: int, depth: int) -> None:
    plain = join_models(members(count, depth=depth))
    coded = join_models(members(count, depth=depth), coded=True)
    assert coded.shape == replace(plain.shape, coded=True)
    assert {n: (t.dtype, tuple(t.shape)) for n, t in coded.tensors().items()} == coded.shape.tensor_shapes
    for rows, numbers in ((coded.rows, plain.rows), (coded.encoder.tables()["table"], plain.encoder.tables()["table"])):
        assert isinstance(rows, CodedRows)
        assert isinstance(numbers, torch.Tensor)
        assert torch.equal(rows.codes_RD, CodedRows.of(numbers).codes_RD)
        assert not torch.equal(rows.expanded(), numbers)
    torch.testing.assert_close(coded.encode(QUERIES), plain.encode(QUERIES), rtol=0, atol=0.01)
    assert torch.equal(coded.encode(QUERIES)[1], torch.zeros(6 * count)), "a query without features"


def test_it_answers_as_its_own_numbers_do() -> None:
    coded = join_models(members(2), coded=True)
    tensors = {name: tensor for name, tensor in coded.tensors().items() if name.startswith("map.")}
    tables = coded.encoder.tables() | {"classes": coded.rows}
    tensors |= {name: rows.expanded() for name, rows in tables.items() if isinstance(rows, CodedRows)}
    plain = Retriever.from_tensors(replace(coded.shape, coded=False), tensors)
    scores, ids = plain.top(QUERIES, 4)
    found, found_ids = coded.top(QUERIES, 4)
    assert torch.equal(ids[::2], found_ids[::2])
    torch.testing.assert_close(found, scores)


def test_tensors_and_back_are_the_same_bits() -> None:
    coded = join_models(members(2), coded=True)
    again = Retriever.from_tensors(coded.shape, coded.tensors())
    assert torch.equal(again.encode(QUERIES), coded.encode(QUERIES))
    for name, tensor in again.tensors().items():
        assert torch.equal(tensor, coded.tensors()[name]), name


def test_numbers_of_another_device_are_coded_to_the_same_bytes() -> None:
    """A GPU has the rows as numbers."""
    coded = join_models(members(2), coded=True)
    served = join_models(members(2), coded=True)
    assert isinstance(served.rows, CodedRows)
    served.rows = served.rows.expanded()
    assert torch.equal(served.tensors()["classes.codes"], coded.tensors()["classes.codes"])
    assert torch.equal(served.tensors()["classes.scales"], coded.tensors()["classes.scales"])
    vectors = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(served.with_classes(vectors).tensors()["classes.codes"][-2:], CodedRows.of(vectors).codes_RD)


@pytest.mark.parametrize("coded", [True, False])
def test_classes_are_appended_and_the_known_ones_keep_their_bits(coded: bool) -> None:
    model = join_models(members(2), coded=coded)
    vectors = 3 * torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    larger = model.with_classes(vectors)
    assert (larger.shape.num_classes, larger.shape.coded, len(larger.rows)) == (15, coded, 15)
    assert torch.equal(larger.rows[:11], model.rows[:11])
    assert torch.equal(larger.rows[11:], CodedRows.of(vectors).expanded() if coded else vectors)


def test_a_coded_model_is_not_joined_again_and_a_linear_one_is_not_coded() -> None:
    with pytest.raises(ValueError, match="wanted embedding models with one head"):
        join_models([join_models(members(1), coded=True)])
    with pytest.raises(ValueError, match="coded is True; wanted false for a linear model"):
        ModelShape(7, 11, kind="linear", coded=True)
