"""Search among allowed classes, against a plain reference: score all classes, filter, rank.

Shapes: N queries, K classes, D dimension, k best classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.index import ApproximateIndex, ExactIndex, Filter, Index, approximate, filters, search
from owlmine.index.approximate import KINDS, faiss_module
from owlmine.index.exact import searched_among

from .clusters import clustered

needs_faiss = pytest.mark.skipif(faiss_module() is None, reason="needs faiss")
Sets = list[set[int]]


def drawn(num_rows: int, dim: int, seed: int) -> Tensor:
    return torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed))


def array(ids: set[int]) -> Any:
    """In no order, and some twice."""
    return np.array([*ids, *list(ids)[:2]], np.int64)


@st.composite
def some_filters(draw: st.DrawFn, num_classes: int, num_queries: int) -> tuple[Filter, Sets]:
    """One or two rules, and the classes that each query may have."""
    classes = set(range(num_classes))
    parts: list[Filter] = []
    allowed = [classes] * num_queries
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))

    def some() -> set[int]:
        share = draw(st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.97, 1.0]))
        return set(np.flatnonzero(generator.random(num_classes) < share).tolist())

    for kind in draw(
        st.lists(st.sampled_from(["allow", "forbid", "allow each", "forbid each"]), min_size=1, max_size=3)
    ):
        if kind in ("allow", "forbid"):
            one = some()
            parts.append((Filter.allowing if kind == "allow" else Filter.forbidding)(array(one), num_classes))
            own = [one if kind == "allow" else classes - one] * num_queries
        else:
            each = [None if generator.random() < 0.2 else some() for _ in range(num_queries)]
            arrays = [None if one is None else array(one) for one in each]
            parts.append(Filter.per_query(arrays, num_classes, allowed=kind == "allow each"))
            own = [classes if one is None else one if kind == "allow each" else classes - one for one in each]
        allowed = [one & other for one, other in zip(allowed, own, strict=True)]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined & part
    return joined, allowed


def assert_answers(
    found: tuple[Tensor, Tensor], queries_ND: Tensor, table_KD: Tensor, allowed: Sets, k: int, *, exact: bool
) -> None:
    """All of the best ``k`` that are allowed if ``exact``; otherwise as many classes, with their own scores."""
    all_NK = (queries_ND.double() @ table_KD.double().T).numpy()
    scores_Nk, ids_Nk = found[0].numpy(), found[1].numpy()
    assert scores_Nk.shape == ids_Nk.shape == (len(queries_ND), k)
    for row, own in enumerate(allowed):
        count = min(k, len(own))
        ids, scores = ids_Nk[row, :count], scores_Nk[row, :count]
        assert set(ids.tolist()) <= own
        assert len(set(ids.tolist())) == count
        assert (ids_Nk[row, count:] == -1).all()
        assert (scores_Nk[row, count:] == -np.inf).all()
        # Eight roundings of float32, of products of lengths below 20 or so.
        np.testing.assert_allclose(scores, all_NK[row, ids], rtol=0, atol=1e-5)
        assert (np.diff(scores) <= 0).all()
        if exact:
            wanted = np.sort(all_NK[row, sorted(own)])[::-1][:count]
            np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-5)


@pytest.fixture(params=["as it is", "no set is few", "short lists"])
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that small tables take every way."""
    if request.param != "as it is":
        monkeypatch.setattr(filters, "_FEW_CLASSES", 0)
    if request.param == "short lists":
        monkeypatch.setattr(filters, "_LONGEST_LIST", 4)
    return


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 60), st.integers(1, 6))
def test_what_a_filter_allows(data: st.DataObject, num_classes: int, num_queries: int) -> None:
    only, allowed = data.draw(some_filters(num_classes, num_queries))
    assert max(map(len, allowed)) <= only.most <= num_classes
    assert only.num_queries in (None, num_queries)
    ids_NW = np.tile(np.arange(-1, num_classes), (num_queries, 1))
    wanted = [[number in own for number in range(-1, num_classes)] for own in allowed]
    assert only.allows(ids_NW).tolist() == wanted
    rows = np.arange(num_queries)[::-2].copy()
    assert only[rows].allows(ids_NW[rows]).tolist() == [wanted[row] for row in rows]
    first = num_queries // 2
    assert only[first:].allows(ids_NW[first:]).tolist() == wanted[first:]


def test_sizes_of_a_single_rule_are_exact() -> None:
    assert Filter.allowing(np.array([3, 1, 3]), 10).most == 2
    assert Filter.forbidding(np.array([3, 1, 3]), 10).most == 8
    assert Filter.per_query([np.array([1, 2]), np.array([4])], 10, allowed=True).most == 2
    assert Filter.per_query([np.array([1, 2]), None], 10, allowed=False).most == 10
    assert (Filter.allowing(np.arange(5), 10) & Filter.forbidding(np.arange(2), 10)).most == 3


@pytest.mark.usefixtures("limits")
@settings(max_examples=100, deadline=None)
@given(data=st.data(), num_classes=st.integers(1, 300), num_queries=st.integers(1, 6), share=st.floats(0, 1))
def test_exact_search_against_all_scores(data: st.DataObject, num_classes: int, num_queries: int, share: float) -> None:
    only, allowed = data.draw(some_filters(num_classes, num_queries))
    seed = data.draw(st.integers(0, 2**20))
    queries_ND, table_KD = drawn(num_queries, 8, seed), drawn(num_classes, 8, seed + 1)
    k = max(int(share * num_classes), 1)
    found = search(ExactIndex(table_KD), queries_ND, k, only)
    assert_answers(found, queries_ND, table_KD, allowed, k, exact=True)


@pytest.mark.usefixtures("limits")
def test_equal_scores_come_by_smaller_id() -> None:
    table_KD = drawn(1, 8, 0).repeat(200, 1)
    queries_ND, odd = table_KD[:2], np.arange(1, 200, 2)
    for only in (
        Filter.allowing(odd, 200),
        Filter.forbidding(odd - 1, 200),
        Filter.per_query([odd, odd], 200, allowed=True),
    ):
        assert search(ExactIndex(table_KD), queries_ND, 5, only)[1].tolist() == [[1, 3, 5, 7, 9]] * 2


def test_tiles_of_allowed_classes_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    queries_ND, table_KD, ids = drawn(5, 8, 0), drawn(500, 8, 1), np.arange(3, 500, 2)
    whole = searched_among(queries_ND, table_KD, 9, ids)
    monkeypatch.setattr("owlmine.index.exact._MOST_CLASSES", 7)
    tiled = searched_among(queries_ND, table_KD, 9, ids)
    assert torch.equal(whole[1], tiled[1])
    torch.testing.assert_close(whole[0], tiled[0])


NUM_CLASSES, DIM = 20_000, 33


@pytest.fixture(scope="module")
def table_KD() -> Tensor:
    return clustered(NUM_CLASSES, DIM, 1)


@pytest.fixture(scope="module")
def queries_ND() -> Tensor:
    return clustered(20, DIM, 2)


@pytest.fixture(scope="module", params=list(KINDS))
def index(request: pytest.FixtureRequest, table_KD: Tensor) -> Iterator[Index]:
    """It searches enough groups to find nearly all classes: what is missing then, filters have lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(approximate, "_PROBED", 3)
        yield ApproximateIndex.build(table_KD, kind=request.param)


def recall(found: Tensor, wanted: Tensor) -> float:
    return float((found[:, :, None] == wanted[:, None, :]).any(dim=1).float().mean())


@needs_faiss
@pytest.mark.parametrize("k", [1, 10, 1_500])
@pytest.mark.parametrize("share", [0.0, 0.002, 0.02, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("each", [False, True])
def test_an_index_answers_with_allowed_classes_alone(
    index: Index, queries_ND: Tensor, k: int, share: float, *, each: bool
) -> None:
    generator = np.random.default_rng(3)
    masks = [generator.random(NUM_CLASSES) < share for _ in range(20 if each else 1)]
    ids = [np.flatnonzero(mask) for mask in masks]
    only = Filter.per_query(ids, NUM_CLASSES, allowed=True) if each else Filter.allowing(ids[0], NUM_CLASSES)
    allowed = [set(own.tolist()) for own in (ids if each else ids * 20)]
    is_small = share < 1 / 8
    found = search(index, queries_ND, k, only)
    assert_answers(found, queries_ND, index.table_KD, allowed, k, exact=is_small)
    complement = [np.flatnonzero(~mask) for mask in masks]
    only = (
        Filter.per_query(complement, NUM_CLASSES, allowed=False)
        if each
        else Filter.forbidding(complement[0], NUM_CLASSES)
    )
    assert_answers(search(index, queries_ND, k, only), queries_ND, index.table_KD, allowed, k, exact=False)
    wanted = search(ExactIndex(index.table_KD), queries_ND, k, only)[1]
    if min(map(len, allowed)) >= k:
        assert recall(found[1], wanted) > 0.9


@needs_faiss
def test_the_best_may_all_be_forbidden(index: Index, queries_ND: Tensor, table_KD: Tensor) -> None:
    """However many: the list grows, then all that are allowed are scored."""
    order_NK = (queries_ND @ table_KD.T).argsort(dim=1, descending=True).numpy()
    for count in (1, 30, 300, 3_000, 19_000, NUM_CLASSES - 3, NUM_CLASSES):
        only = Filter.per_query(list(order_NK[:, :count]), NUM_CLASSES, allowed=False)
        allowed = [set(row[count:].tolist()) for row in order_NK]
        found = search(index, queries_ND, 5, only)
        assert_answers(found, queries_ND, table_KD, allowed, 5, exact=False)
        if count <= NUM_CLASSES - 5:
            assert recall(found[1], torch.from_numpy(order_NK[:, count : count + 5].copy())) > 0.9


@needs_faiss
def test_classes_far_from_the_query_are_found(index: Index, queries_ND: Tensor, table_KD: Tensor) -> None:
    """The quarter with the lowest scores, in groups that the index does not search for the query."""
    order_NK = (queries_ND @ table_KD.T).argsort(dim=1).numpy()
    own = [row[: NUM_CLASSES // 4] for row in order_NK]
    found = search(index, queries_ND, 5, Filter.per_query(own, NUM_CLASSES, allowed=True))[1]
    best_Nk = torch.from_numpy(order_NK[:, NUM_CLASSES // 4 - 5 : NUM_CLASSES // 4].copy())
    assert recall(found, best_Nk) > 0.99


@needs_faiss
def test_a_query_is_answered_as_in_a_batch(index: Index, queries_ND: Tensor) -> None:
    generator = np.random.default_rng(4)
    sets = [np.flatnonzero(generator.random(NUM_CLASSES) < share) for share in np.geomspace(0.001, 1, 20)]
    for allowed in (True, False):
        only = Filter.per_query(sets, NUM_CLASSES, allowed=allowed)
        together = search(index, queries_ND, 7, only)[1]
        alone = [search(index, queries_ND[row : row + 1], 7, only[row : row + 1])[1] for row in range(20)]
        assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("ids", [[50], [-1], [0.5], ["a"], 3, [[1]]])
def test_ids_are_those_of_classes(ids: Any) -> None:
    with pytest.raises(ValueError, match=r"a filter of .*wanted .*ids"):
        Filter.allowing(ids, 20)
