"""What every registered judge promises. Registering a judge enrols it.

Shapes: N queries, S places of a list of candidates, K classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from owlmine.dense.retriever import ModelShape
from owlmine.rank import JUDGES, Judge, Mix, Ranker
from owlmine.rank.candidates import Candidates, Encoded, Suggests
from owlmine.rank.judge import ByFeatures, ByVotes, Variant

from ..rank.small_world import SHORTLIST, World, world

CPU = torch.device("cpu")
# Cosines of float32, to the power of 16.
ROUNDING = 1e-5
every_judge = pytest.mark.parametrize("name", list(JUDGES))


@cache
def small_world() -> World:
    return world()


@cache
def forms_of(name: str) -> Mapping[Variant, Judge]:
    return JUDGES[name].fit(small_world().training, None)


def some_candidates(name: str) -> Candidates:
    """With what the judge suggests, if it does."""
    form = next(iter(forms_of(name).values()))
    return small_world().candidates(suggesters=[form] if isinstance(form, Suggests) else [])


def with_places(candidates: Candidates, ids_NS: Any, dense_NS: Any = None) -> Candidates:
    """The same queries and other lists."""
    ids_NS = np.asarray(ids_NS, np.int64)
    dense_NS = np.zeros(ids_NS.shape, np.float32) if dense_NS is None else dense_NS
    return replace(candidates, ids_NS=ids_NS, dense_NS=np.where(ids_NS < 0, np.float32(-np.inf), dense_NS))


def row_of(candidates: Candidates, row: int) -> Candidates:
    """One query alone, encoded alone."""
    own = slice(row, row + 1)
    queries = candidates.sparse_queries[own]
    return Candidates(
        Encoded.of(small_world().model, queries),
        candidates.ids_NS[own],
        candidates.dense_NS[own],
        candidates.best_N[own],
        candidates.num_listed,
        candidates.suggested,
    )


def through_a_file(judge: Judge, shape: ModelShape | None = None, **changes: Tensor | None) -> Judge:
    """What a file keeps, read again; ``changes`` to its tensors: None leaves one out."""
    tensors: dict[str, Tensor | None] = {name: tensor.clone() for name, tensor in judge.tensors().items()}
    there = {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}
    settings = json.loads(json.dumps(judge.settings()))
    return type(judge).load(settings, there, shape or small_world().model.shape).on(CPU)


def judges(name: str) -> Iterator[tuple[Variant, Judge]]:
    """Every form, and the first of each as a file has it."""
    yield from forms_of(name).items()
    yield "from a file", through_a_file(next(iter(forms_of(name).values())))


@every_judge
def test_it_says_what_it_is(name: str) -> None:
    judge = JUDGES[name]
    assert judge.name == name
    assert name.isidentifier()
    assert 0 < judge.prior < np.inf
    assert all(isinstance(flag, bool) for flag in (judge.must_help, judge.is_default))
    assert forms_of(name), "the small world has points, labels, words and names: everything that a judge may need"
    for variant in (judge.default_variant, *forms_of(name)):
        assert variant is None or type(variant) in (str, int, float)
        assert json.loads(json.dumps(variant)) == variant


@every_judge
def test_a_chosen_form_is_fitted_alone_and_alike(name: str) -> None:
    candidates = some_candidates(name)
    for variant, judge in forms_of(name).items():
        # The name of a form comes back from a file.
        chosen = json.loads(json.dumps(variant))
        alone = JUDGES[name].fit(small_world().training, chosen)
        assert list(alone) == [variant]
        np.testing.assert_array_equal(alone[variant].scores(candidates), judge.scores(candidates))


@every_judge
def test_forms_differ(name: str) -> None:
    """Else there would be nothing to choose."""
    found = [judge.scores(some_candidates(name)).tobytes() for judge in forms_of(name).values()]
    assert len(set(found)) == len(found)


@every_judge
def test_scores_are_finite_numbers_that_say_something(name: str) -> None:
    candidates = some_candidates(name)
    for _, judge in judges(name):
        scores = judge.scores(candidates)
        assert (scores.dtype, scores.shape) == (np.float32, candidates.ids_NS.shape)
        assert np.isfinite(scores).all()
        assert len(np.unique(scores[candidates.ids_NS >= 0])) > 10


@every_judge
def test_a_batch_is_its_queries_one_by_one(name: str) -> None:
    candidates = some_candidates(name)
    for _, judge in judges(name):
        alone = [judge.scores(row_of(candidates, row)) for row in range(len(candidates.ids_NS))]
        np.testing.assert_allclose(judge.scores(candidates), np.concatenate(alone), rtol=ROUNDING, atol=ROUNDING)


@every_judge
def test_a_score_depends_on_the_query_and_the_class_alone(name: str) -> None:
    """Not on the place of a class, nor on who else is on the list."""
    candidates = small_world().candidates()
    num_queries, num_classes = len(candidates.ids_NS), small_world().model.shape.num_classes
    generator = np.random.default_rng(0)
    for _, judge in judges(name):
        of_all_NK = judge.scores(with_places(candidates, np.tile(np.arange(num_classes), (num_queries, 1))))
        for length in (1, 5, num_classes):
            ids_NS = np.stack([generator.permutation(num_classes)[:length] for _ in range(num_queries)])
            dense_NS = generator.normal(size=ids_NS.shape).astype(np.float32)
            found = judge.scores(with_places(candidates, ids_NS, dense_NS))
            np.testing.assert_allclose(
                found, np.take_along_axis(of_all_NK, ids_NS, axis=1), rtol=ROUNDING, atol=ROUNDING
            )


@every_judge
def test_empty_places_change_nothing_and_stay_finite(name: str) -> None:
    candidates = small_world().candidates()
    empty_NS = np.random.default_rng(1).random(candidates.ids_NS.shape) < 0.4
    ids_NS = np.where(empty_NS, -1, candidates.ids_NS)
    for _, judge in judges(name):
        found, whole = (judge.scores(with_places(candidates, ids)) for ids in (ids_NS, candidates.ids_NS))
        np.testing.assert_array_equal(found[~empty_NS], whole[~empty_NS])
        assert np.isfinite(found).all()
        nothing = judge.scores(with_places(candidates, np.full((len(ids_NS), 2), -1)))
        assert np.isfinite(nothing).all()


@every_judge
def test_empty_places_come_last_whatever_a_judge_says(name: str) -> None:
    candidates = small_world().candidates()
    ids_NS = candidates.ids_NS.copy()
    ids_NS[:, ::2] = -1
    for variant, judge in forms_of(name).items():
        ranker = Ranker({name: judge}, Mix({name: 1e6}, {name: variant}), SHORTLIST)
        scores, ids = ranker.order(with_places(candidates, ids_NS, candidates.dense_NS))
        assert (ids[:, :3] >= 0).all()
        assert (ids[:, 3:] == -1).all()
        assert np.isneginf(scores[:, 3:]).all()
        assert np.isfinite(scores[:, :3]).all()


@every_judge
@pytest.mark.parametrize("num_queries", [0, 3])
@pytest.mark.parametrize("num_places", [0, 2])
def test_lists_of_nothing(name: str, num_queries: int, num_places: int) -> None:
    """No queries, queries without a feature, and lists without a place."""
    empty = small_world().queries[11:].take(np.zeros(num_queries, np.int64))
    assert not empty.counts.any()
    candidates = with_places(small_world().candidates(empty), np.zeros((num_queries, num_places)))
    for _, judge in judges(name):
        scores = judge.scores(candidates)
        assert (scores.dtype, scores.shape) == (np.float32, (num_queries, num_places))
        assert np.isfinite(scores).all()


@every_judge
def test_nothing_that_it_is_given_changes(name: str) -> None:
    candidates = some_candidates(name)
    queries = candidates.sparse_queries
    arrays = [queries.offsets, queries.indices, queries.values, candidates.ids_NS, candidates.dense_NS]
    arrays += [candidates.best_N, candidates.encoded.vectors_ND.numpy()]
    for _, judge in judges(name):
        before = [array.copy() for array in arrays], [tensor.clone() for tensor in judge.tensors().values()]
        judge.scores(candidates)
        if isinstance(judge, Suggests):
            # Nor what it has looked up: whoever asks may write to the answer.
            suggested = judge.suggest(candidates.encoded, 4)
            wanted = suggested.copy()
            suggested[:] = -1
            np.testing.assert_array_equal(judge.suggest(candidates.encoded, 4), wanted)
        for array, old in zip(arrays, before[0], strict=True):
            np.testing.assert_array_equal(array, old)
        for tensor, old_tensor in zip(judge.tensors().values(), before[1], strict=True):
            assert torch.equal(tensor, old_tensor)


@every_judge
def test_it_cannot_be_changed(name: str) -> None:
    for _, judge in judges(name):
        for field in fields(judge):  # type: ignore[arg-type]
            with pytest.raises(AttributeError):
                setattr(judge, field.name, None)


@every_judge
def test_threads_do_not_see_each_other(name: str) -> None:
    lists = [with_places(some_candidates(name), np.full((12, 3), c)) for c in range(12)]
    for _, judge in judges(name):
        wanted = [judge.scores(one) for one in lists]
        with ThreadPoolExecutor(8) as pool:
            for found, one in zip(pool.map(judge.scores, lists * 4), wanted * 4, strict=True):
                np.testing.assert_array_equal(found, one)


@every_judge
def test_through_a_file_it_is_the_same_judge(name: str) -> None:
    candidates = some_candidates(name)
    for judge in forms_of(name).values():
        again = through_a_file(judge)
        assert again.settings() == judge.settings()
        np.testing.assert_array_equal(again.scores(candidates), judge.scores(candidates))
        assert list(again.tensors()) == list(judge.tensors())
        for part, tensor in judge.tensors().items():
            assert torch.equal(again.tensors()[part], tensor)
            # What safetensors can write, and no file would read otherwise.
            assert tensor.device == CPU
            assert tensor.layout == torch.strided


@every_judge
def test_on_the_same_device_nothing_changes(name: str) -> None:
    candidates = some_candidates(name)
    for _, judge in judges(name):
        moved = judge.on(CPU)
        assert type(moved) is type(judge)
        np.testing.assert_array_equal(moved.scores(candidates), judge.scores(candidates))


@every_judge
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_scores_are_nearly_the_same(name: str) -> None:
    """Vectors of neighbours are bfloat16 there, and so is what they are compared with."""
    candidates, gpu = some_candidates(name), torch.device("cuda")
    encoded = Encoded(candidates.encoded.queries, candidates.encoded.vectors_ND.to(gpu))
    for _, judge in judges(name):
        there = judge.on(gpu)
        found = there.scores(replace(candidates, encoded=encoded))
        np.testing.assert_allclose(found, judge.scores(candidates), atol=0.1)
        np.testing.assert_array_equal(there.on(CPU).scores(candidates), judge.scores(candidates))


@every_judge
@pytest.mark.parametrize("num_new", [1, 4])
def test_new_classes_score_nothing_and_known_ones_as_before(name: str, num_new: int) -> None:
    candidates, num_classes = some_candidates(name), small_world().model.shape.num_classes
    shape = replace(small_world().model.shape, num_classes=num_classes + num_new)
    new = with_places(candidates, np.tile(np.arange(num_classes, num_classes + num_new), (12, 1)))
    for _, judge in judges(name):
        wider = judge.with_classes(num_new)
        for one in (wider, through_a_file(wider, shape)):
            np.testing.assert_array_equal(one.scores(candidates), judge.scores(candidates))
            assert not one.scores(new).any()


@pytest.mark.parametrize("name", [name for name, judge in JUDGES.items() if hasattr(judge, "suggest")])
@pytest.mark.parametrize("count", [0, 1, 4, 100])
def test_suggestions_are_classes_each_once(name: str, count: int) -> None:
    queries, model = small_world().queries, small_world().model
    num_classes = model.shape.num_classes
    for _, judge in judges(name):
        assert isinstance(judge, Suggests)
        found = judge.suggest(Encoded.of(model, queries), count)
        assert found.dtype == np.int64
        assert found.shape == (len(queries), min(count, num_classes))
        for row, ids in enumerate(found):
            own = ids[ids >= 0].tolist()
            assert len(set(own)) == len(own)
            assert all(c < num_classes for c in own)
            assert (ids[len(own) :] == -1).all(), "empty places come last"
            alone = Encoded.of(model, queries[row : row + 1])
            np.testing.assert_array_equal(judge.suggest(alone, count)[0], ids)
        assert (found[-1] == -1).all(), "an empty query suggests nothing"
        assert count == 0 or (found >= 0).any()


@pytest.mark.parametrize("name", [name for name, judge in JUDGES.items() if hasattr(judge, "suggest")])
def test_all_forms_suggest_the_same(name: str) -> None:
    """The lists are made before a form is chosen."""
    encoded = Encoded.of(small_world().model, small_world().queries)
    first, *others = (judge.suggest(encoded, 9) for _, judge in judges(name) if isinstance(judge, Suggests))
    assert others
    for other in others:
        np.testing.assert_array_equal(other, first)


OTHER_WORLDS: dict[str, dict[str, Any]] = {
    "fewer classes": {"num_classes": 23},
    "more classes": {"num_classes": 25},
    "fewer features": {"num_features": 19},
    "more features": {"num_features": 21},
    "wider": {"dim": 16},
    "two heads": {"dim": 8, "heads": 2},
    "linear": {"kind": "linear"},
}


@every_judge
@pytest.mark.parametrize("other", OTHER_WORLDS)
def test_a_model_of_another_shape_is_refused_or_served(name: str, other: str) -> None:
    """A class too many for the model is refused always."""
    elsewhere, num_refused = world(**OTHER_WORLDS[other]), 0
    candidates = elsewhere.candidates()
    for judge in forms_of(name).values():
        try:
            moved = through_a_file(judge, elsewhere.model.shape)
        except ValueError:
            num_refused += 1
            continue
        scores = moved.scores(candidates)
        assert scores.shape == candidates.ids_NS.shape
        assert np.isfinite(scores).all()
    if other == "fewer classes":
        assert num_refused == len(forms_of(name))


@every_judge
def test_a_model_of_dense_queries_is_refused(name: str) -> None:
    """Judges look at features, except for those that look at nothing of a query."""
    shape = replace(small_world().model.shape, dense=True)
    vectors = np.zeros((2, shape.num_features), np.float32)
    encoded = Encoded(vectors, torch.zeros(2, shape.dim))
    ids = np.zeros((2, 1), np.int64)
    for judge in forms_of(name).values():
        try:
            there = through_a_file(judge, shape)
        except ValueError:
            continue
        there.scores(Candidates(encoded, ids, ids.astype(np.float32), np.zeros(2, np.float32), 1))


@contextmanager
def is_refused(what: str) -> Iterator[None]:
    """With a sentence of ours, by which somebody may find what is wrong."""
    try:
        yield
    except ValueError as error:
        if not any(word in str(error) for word in ("wanted", "not", "no ")):
            pytest.fail(f"{what}: {error}")
    else:
        pytest.fail(f"{what} was read")


_NUMBERS: dict[torch.dtype, tuple[float, ...]] = {
    torch.float32: (torch.nan, torch.inf, -torch.inf),
    torch.int8: (-128,),
    torch.uint8: (255,),
}


def _damages(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What no file of ours holds in this place."""
    other = torch.float64 if tensor.dtype != torch.float64 else torch.float32
    yield "of another type", tensor.to(other)
    yield "of another integer type", tensor.to(torch.int16)
    yield "with a dimension more", tensor[..., None]
    yield "sparse", tensor.to_sparse() if tensor.dim() else tensor[None].to_sparse()
    if tensor.dim() and len(tensor):
        yield "with an entry less", tensor[:-1]
        yield "empty", tensor[:0]
        yield "with an entry more", torch.cat([tensor, tensor[-1:]])
    for number in _NUMBERS.get(tensor.dtype, (-1, 2**31 - 1, -(2**31))):
        for place in {0, tensor.numel() - 1} if tensor.numel() else ():
            changed = tensor.clone()
            changed.view(-1)[place] = number
            yield f"with {number} at {place}", changed
    if tensor.dtype == torch.int64 and len(tensor.shape) and len(tensor) > 3:
        yield "descending", tensor.flip(0)
        changed = tensor.clone()
        changed[1] = changed[-1] + 1
        yield "with offsets that fall", changed


@every_judge
def test_damaged_tensors_are_refused(name: str) -> None:
    """With a word on what was wanted, whatever they could do to compiled code."""
    num_damages = 0
    for variant, judge in forms_of(name).items():
        for part, tensor in judge.tensors().items():
            for damage, changed in _damages(tensor):
                with is_refused(f"{variant}: {part} {damage}"):
                    through_a_file(judge, **{part: changed})
                num_damages += 1
            with pytest.raises(ValueError, match=f"wanted.*{part.rpartition('.')[2]}"):
                through_a_file(judge, **{part: None})
        with pytest.raises(ValueError, match=r"surplus.*wanted"):
            through_a_file(judge, surplus=torch.zeros(1))
        with pytest.raises(ValueError, match="wanted"):
            through_a_file(judge, **dict.fromkeys(judge.tensors()))
    assert num_damages > 5


@every_judge
def test_damaged_settings_are_refused(name: str) -> None:
    shape = small_world().model.shape
    for judge in forms_of(name).values():
        tensors, settings = judge.tensors(), judge.settings()
        for damaged in (None, [], "settings", 3, settings | {"surplus": 1}):
            with pytest.raises(ValueError, match="wanted"):
                type(judge).load(damaged, tensors, shape)  # type: ignore[arg-type]
        for key in settings:
            with pytest.raises(ValueError, match="wanted"):
                type(judge).load({other: value for other, value in settings.items() if other != key}, tensors, shape)
            for value in (None, [], {}, "", "x", True, -1, 0, float("nan"), float("inf"), 10**400):
                with is_refused(f"{key} = {str(value)[:20]}"):
                    type(judge).load(settings | {key: value}, tensors, shape)


def one_query(name: str, row: int) -> Candidates:
    """One query and its candidates, without empty places."""
    alone = row_of(some_candidates(name), row)
    filled = alone.ids_NS[0] >= 0
    return replace(alone, ids_NS=alone.ids_NS[:, filled], dense_NS=alone.dense_NS[:, filled])


@every_judge
def test_effects_of_features_sum_to_the_score(name: str) -> None:
    """Of judges that can say what each word adds; as every judge does that is linear in the query."""
    for _, judge in judges(name):
        if not isinstance(judge, ByFeatures):
            continue
        assert judge.effect.isidentifier()
        for larger in (judge, judge.with_classes(2)):
            assert isinstance(larger, ByFeatures)
            for row in range(len(small_world().queries)):
                own = one_query(name, row)
                effects_SE = larger.effects(own, own.sparse_queries)
                assert effects_SE.shape == (own.ids_NS.shape[1], len(own.sparse_queries.indices))
                sums_S = effects_SE.sum(axis=1) + larger.biases(own.ids_NS[0])
                # Sums of some dozen numbers.
                np.testing.assert_allclose(sums_S, larger.scores(own)[0], rtol=0, atol=1e-6)


@every_judge
def test_shares_of_voters_sum_to_the_score(name: str) -> None:
    """Of judges whose scores are votes; classes that were added have none."""
    for _, judge in judges(name):
        if not isinstance(judge, ByVotes):
            continue
        assert judge.num_points == len(small_world().training.labels)
        for row in range(len(small_world().queries)):
            own = one_query(name, row)
            for class_id, score in zip(own.ids_NS[0].tolist(), judge.scores(own)[0].tolist(), strict=True):
                points, cosines, shares = judge.voters(own.encoded, class_id)
                assert len(points) == len(cosines) == len(shares) == len(set(points.tolist()))
                assert ((points >= 0) & (points < judge.num_points)).all()
                assert (shares > 0).all()
                assert shares.sum() == pytest.approx(score, abs=1e-7)
            assert not len(judge.voters(own.encoded, 10**6)[0])
