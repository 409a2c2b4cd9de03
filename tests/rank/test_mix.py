"""Judges are weighed by what ranks validation points best.

Shapes: N points, S places of a list of candidates.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.index import ExactIndex
from owlmine.rank import mix as module
from owlmine.rank.candidates import SUGGESTED, Encoded, find_candidates
from owlmine.rank.judge import JUDGES, Variant
from owlmine.rank.mix import Evidence, Mix, choose_mix, default_mix
from owlmine.rank.names import NameJudge
from owlmine.rank.neighbours import NeighbourJudge
from owlmine.rank.points import SparsePoints
from owlmine.rank.sparse_weights import SparseWeights

from .small_world import rows_of
from .test_mix_loss import loss_by_loop, one_thread_of_numpy  # noqa: F401

Array = np.ndarray[Any, Any]

# Places, and those of them that the dense model has listed: the others are for what judges suggest, as many for each.
PLACES, LISTED = 8, 6
USUAL: dict[str, Variant] = {"linear": 1.0, "rarity": None}


def some_lists(seed: int = 0, num_points: int = 60, places: int = PLACES) -> tuple[Array, Array, Array, Array]:
    """Dense scores, hits, rarities, and a score that knows more of the hits than the dense one does."""
    generator = np.random.default_rng(seed)
    hits = generator.random((num_points, places)) < 0.25
    scores = np.sort(generator.random((num_points, places)).astype(np.float32), axis=1)[:, ::-1]
    rarities = generator.random((num_points, places)).astype(np.float32)
    telling = (hits + generator.normal(size=hits.shape)).astype(np.float32)
    return np.ascontiguousarray(scores), hits, rarities, telling


def evidence_of(
    linear: Mapping[Variant, Array],
    votes: Mapping[Variant, Array] | None = None,
    names: Array | None = None,
    *,
    rarities: Array | None = None,
    listed: int = LISTED,
    **lists: int,
) -> Evidence:
    """Of the lists of ``some_lists``; judges that are left out were not fitted, and names suggest."""
    dense, hits, usual, _ = some_lists(**lists)
    scores: dict[str, Mapping[Variant, Array]] = {
        "linear": linear,
        "rarity": {None: usual if rarities is None else rarities},
    }
    scores |= {"neighbours": votes} if votes else {}
    scores |= {} if names is None else {"names": {None: names}}
    if names is None:
        return Evidence(dense, hits, scores, dense.shape[1])
    return Evidence(dense, hits, scores, listed, ("names",))


def some_evidence(seed: int, suggested: tuple[str, ...] = ("names",)) -> Evidence:
    """Every judge knows something of the hits, and none knows all."""
    dense, _, rarities, _ = some_lists(seed, places=LISTED + (PLACES - LISTED) * len(suggested))
    generator = np.random.default_rng(seed + 1000)
    hits = generator.random(dense.shape) < 0.7 * dense**2

    def telling(noise: float) -> Array:
        return (hits + noise * generator.normal(size=hits.shape)).astype(np.float32)

    linear = {cost: telling(noise) for cost, noise in ((0.3, 3.0), (1.0, 2.0), (3.0, 4.0))}
    votes = {f"power {power}": telling(2.0) for power in (2, 4, 8, 16)}
    scores = {"linear": linear, "rarity": {None: rarities}, "neighbours": votes, "names": {None: telling(1.0)}}
    return Evidence(dense, hits, scores, LISTED, suggested)


def without(evidence: Evidence, *judges: str) -> Evidence:
    """As where those judges do not exist: places for what they suggest are gone."""
    width = (evidence.dense_NS.shape[1] - evidence.num_listed) // max(len(evidence.suggested), 1)
    places = list(range(evidence.num_listed))
    for number, name in enumerate(evidence.suggested):
        start = evidence.num_listed + number * width
        places += [] if name in judges else range(start, start + width)
    scores = {
        name: {variant: scores_NS[:, places] for variant, scores_NS in forms.items()}
        for name, forms in evidence.scores.items()
        if name not in judges
    }
    suggested = tuple(name for name in evidence.suggested if name not in judges)
    return Evidence(evidence.dense_NS[:, places], evidence.hits_NS[:, places], scores, evidence.num_listed, suggested)


def choose(evidence: Evidence, asked: list[list[str]] | None = None) -> tuple[Mix, float]:
    """By this evidence, and where judges are dropped by what is left of it; ``asked`` gets the judges of each."""
    asked = [] if asked is None else asked

    def gather(judges: Collection[str]) -> Evidence:
        asked.append(list(judges))
        return without(evidence, *(name for name in evidence.scores if name not in judges))

    return choose_mix(gather, list(evidence.scores))


def with_scores(evidence: Evidence, **scores: Mapping[Variant, Array] | None) -> Evidence:
    """With others of these judges; None: without the judge."""
    changed = {**evidence.scores, **scores}
    return replace(evidence, scores={name: forms for name, forms in changed.items() if forms is not None})


def precision_by_sum(evidence: Evidence, mix: Mix) -> float:
    total = evidence.dense_NS.copy()
    for name, weight in mix.weights.items():
        total = total + np.float32(weight) * evidence.scores[name][mix.variants[name]]
    ks = [k for k in (1, 3, 5) if k <= total.shape[1]]
    precisions = []
    for k in ks:
        found = 0
        for row, hits in zip(total, evidence.hits_NS, strict=True):
            order = sorted(range(len(row)), key=lambda s: (-row[s], s))[:k]
            found += sum(bool(hits[s]) for s in order)
        precisions.append(100 * found / (k * len(total)))
    return float(np.mean(precisions))


def loss_of(evidence: Evidence, mix: Mix, scale: float) -> float:
    """Where the dense score counts ``scale`` times."""
    scores, weights, priors = [evidence.dense_NS], [1.0], [1.0]
    for name, weight in mix.weights.items():
        scores.append(evidence.scores[name][mix.variants[name]])
        weights.append(weight)
        priors.append(JUDGES[name].prior)
    usual, used = [module._SCALE * prior for prior in priors], [scale * weight for weight in weights]
    return loss_by_loop(scores, evidence.hits_NS, usual, used)


def gain(evidence: Evidence, cost: float) -> float:
    """By which share names make the loss of the same lists smaller, where classifiers have this cost."""
    variants = {"linear": cost, "rarity": None}
    return 1 - evidence.fit_weights(variants | {"names": None})[1] / evidence.fit_weights(variants)[1]


@pytest.mark.parametrize("places", [1, 2, 4, 8])
def test_precision_against_a_loop(places: int) -> None:
    telling = some_lists(places=places)[3]
    # Few values: many are equal, and among these the first counts.
    for scores in (telling, np.round(telling)):
        evidence = evidence_of({1.0: scores}, places=places)
        mix = Mix({"linear": 3.0, "rarity": 0.0}, USUAL)
        assert evidence.precision(mix) == pytest.approx(precision_by_sum(evidence, mix))
        silent = replace(evidence, dense_NS=np.zeros_like(evidence.dense_NS))
        assert silent.precision(mix) == pytest.approx(precision_by_sum(silent, mix))


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("neighbours", [None, "power 8"])
def test_no_other_weights_have_a_smaller_loss(neighbours: str | None, names: bool) -> None:
    evidence, variants = some_evidence(0), {"linear": 0.3, "rarity": None}
    variants |= {"neighbours": neighbours} if neighbours else {}
    variants |= {"names": None} if names else {}
    mix, loss = evidence.fit_weights(variants)
    assert mix.variants == variants
    assert all(weight > 0 for name, weight in mix.weights.items() if name in ("neighbours", "names"))

    def best_loss(of: Mix) -> float:
        """A mix says what judges count beside the dense score, and not how much that one counts."""
        return float(minimize_scalar(lambda log: loss_of(evidence, of, math.exp(log)), bounds=(0, 4)).fun)

    # Weights have three digits; the loss is that of the weights before.
    assert best_loss(mix) == pytest.approx(loss, rel=1e-4)
    for name, weight in mix.weights.items():
        for factor in (0.8, 1.25):
            assert best_loss(replace(mix, weights={**mix.weights, name: weight * factor + 1e-3})) > loss


def test_weights_have_three_digits() -> None:
    mix, _ = some_evidence(0).fit_weights(USUAL)
    assert [float(f"{weight:.3g}") for weight in mix.weights.values()] == list(mix.weights.values())


def test_a_judge_that_is_wrong_does_not_count_against_anything() -> None:
    """A weight below 0 would make a ranker that nobody can load."""
    telling = some_lists()[3]
    mix, _ = choose(evidence_of({1.0: -telling}, {"power 2": -telling}, -telling, listed=PLACES))
    assert mix.weights["linear"] == 0
    assert set(mix.weights) == {"linear", "rarity"}


def test_where_no_label_is_listed_weights_are_the_priors() -> None:
    evidence = some_evidence(0)
    evidence.hits_NS[:] = False
    mix, precision = choose(evidence)
    assert mix.weights == {"linear": JUDGES["linear"].prior, "rarity": JUDGES["rarity"].prior}
    assert precision == 0


def test_no_cost_would_be_better() -> None:
    evidence = without(some_evidence(1), "names", "neighbours")
    mix, precision = choose(evidence)
    fitted = {cost: evidence.fit_weights({"linear": cost, "rarity": None}) for cost in evidence.scores["linear"]}
    assert mix.variants["linear"] == min(fitted, key=lambda cost: fitted[cost][1]) == 1.0
    assert mix == fitted[1.0][0]
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    assert set(mix.weights) == {"linear", "rarity"}


def test_votes_that_know_more_are_taken() -> None:
    dense, _, _, telling = some_lists()
    nothing = np.zeros_like(telling)
    evidence = evidence_of({1.0: nothing}, {"power 2": nothing, "power 4": telling}, listed=PLACES)
    mix, precision = choose(evidence)
    assert mix.variants["neighbours"] == "power 4"
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    assert precision > evidence.precision(Mix()) + 1
    assert dense is not evidence.dense_NS


def test_names_that_know_more_are_taken() -> None:
    telling = some_lists()[3]
    nothing = np.zeros_like(telling)
    evidence = evidence_of({1.0: nothing}, {"power 2": nothing}, telling)
    mix, precision = choose(evidence)
    assert set(mix.weights) == {"linear", "rarity", "names"}
    assert mix.weights["names"] > 0
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    assert precision > evidence.precision(Mix()) + 1


@pytest.mark.parametrize("judge", ["neighbours", "names"])
@pytest.mark.parametrize(("share", "is_taken"), [(0.99, True), (1.01, False)])
def test_what_helps_too_little_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, judge: str, share: float, is_taken: bool
) -> None:
    """On either side of what it brings. Without names all is chosen anew, on the dense model's places."""
    telling = some_lists()[3]
    nothing, names = np.zeros_like(telling), judge == "names"
    evidence = evidence_of({1.0: nothing}, {} if names else {None: telling}, telling if names else None)
    _, loss = evidence.fit_weights(USUAL)
    taken, smaller = evidence.fit_weights({**USUAL, judge: None})
    alone = (without(evidence, "names") if names else evidence).fit_weights(USUAL)[0]
    assert (alone == evidence.fit_weights(USUAL)[0]) == (not names)
    monkeypatch.setattr(module, "_LEAST_GAIN", share * (1 - smaller / loss))
    assert choose(evidence)[0] == (taken if is_taken else alone)


@pytest.mark.parametrize("seed", range(4))
def test_judges_that_know_nothing_are_not_taken(seed: int) -> None:
    evidence = some_evidence(seed)
    silent = {None: np.zeros_like(evidence.dense_NS)}
    assert choose(with_scores(evidence, names=silent)) == choose(without(evidence, "names"))
    assert "neighbours" not in choose(with_scores(evidence, neighbours=silent))[0].weights


@pytest.mark.parametrize("seed", range(4))
def test_where_names_do_not_help_no_place_of_theirs_counts(seed: int) -> None:
    """The model will not have those places, whatever others know of them."""
    evidence = some_evidence(seed)
    rng, theirs = np.random.default_rng(seed), slice(LISTED, PLACES)
    evidence = with_scores(evidence, names={None: np.zeros_like(evidence.dense_NS)})
    wanted = choose(without(evidence, "names"))
    for name in ("linear", "neighbours", "rarity"):
        for scores in evidence.scores[name].values():
            scores[:, theirs] = 5 * evidence.hits_NS[:, theirs] + rng.normal(size=(60, PLACES - LISTED))
    mix, precision = choose(evidence)
    assert (mix, precision) == wanted
    assert precision == pytest.approx(precision_by_sum(without(evidence, "names"), mix))
    # What they are judged by is the same for both, so that places alone are no reason to take them.
    assert evidence.fit_weights(USUAL)[0] != without(evidence, "names").fit_weights(USUAL)[0]


@pytest.mark.parametrize(
    ("costs", "judged"), [((0.3, 1.0, 3.0), 1.0), ((1.0, 0.3), 1.0), ((3.0, 0.3), 3.0), ((0.3, 3.0), 0.3)]
)
def test_names_are_judged_beside_one_cost(
    monkeypatch: pytest.MonkeyPatch, costs: tuple[float, ...], judged: float
) -> None:
    """The usual one, or the first where it is not among them: on either side of what they bring there."""
    evidence = some_evidence(0)
    linear = {cost: evidence.scores["linear"][cost] for cost in costs}
    evidence = with_scores(evidence, linear=linear, neighbours=None)
    gains = {cost: gain(evidence, cost) for cost in costs}
    assert all(abs(gains[judged] - gains[cost]) > 0.002 for cost in costs if cost != judged)
    for difference, are_taken in ((-0.0005, True), (0.0005, False)):
        monkeypatch.setattr(module, "_LEAST_GAIN", gains[judged] + difference)
        assert ("names" in choose(evidence)[0].weights) == are_taken


def test_names_that_help_and_then_count_for_nothing() -> None:
    """Beside classifiers of one cost, and not beside those of the cost that is best: the model has no names then, and
    the rest is chosen on the places that it has."""
    dense, hits, rarities, _ = some_lists(num_points=300)
    noise = np.random.default_rng(0).normal(size=hits.shape)
    names = (hits + 0.7 * noise).astype(np.float32)
    # Hits are this less names: where it counts, names would count against them.
    knowing = (hits + names).astype(np.float32) / 2
    linear = {1.0: np.zeros_like(names), 0.3: knowing}
    scores: dict[str, Mapping[Variant, Array]] = {"linear": linear, "rarity": {None: rarities}, "names": {None: names}}
    evidence = Evidence(dense, hits, scores, LISTED, ("names",))
    assert gain(evidence, 1.0) > 0.1
    assert evidence.fit_weights({"linear": 0.3, "rarity": None, "names": None})[0].weights["names"] == 0
    assert choose(evidence) == choose(without(evidence, "names"))


@pytest.mark.parametrize("dropped", [(), ("neighbours",), ("names",), ("neighbours", "names")])
@pytest.mark.parametrize("seed", range(2))
def test_evidence_is_gathered_anew_without_a_judge_that_suggests_and_is_dropped(
    seed: int, dropped: tuple[str, ...]
) -> None:
    """One that knows nothing; the one that is left is chosen on the places that there will be."""
    evidence = some_evidence(seed, ("neighbours", "names"))
    assert evidence.dense_NS.shape[1] == 10
    silent = {name: {None: np.zeros_like(evidence.dense_NS)} for name in dropped}
    evidence, asked = with_scores(evidence, **silent), []
    chosen = choose(evidence, asked)
    assert set(chosen[0].weights) == {"linear", "rarity", "neighbours", "names"} - set(dropped)
    assert chosen == choose(without(evidence, *dropped))
    assert chosen[1] == pytest.approx(precision_by_sum(without(evidence, *dropped), chosen[0]))
    names = ["linear", "rarity", "neighbours", "names"]
    assert asked == [[n for n in names if n not in dropped[:count]] for count in range(len(dropped) + 1)]


@pytest.mark.parametrize("share", [0.99, 1.01])
def test_a_judge_that_suggests_must_help_beside_those_before_it(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """On either side of what it brings there, which is not what it brings alone."""
    evidence = some_evidence(0, ("neighbours", "names"))
    votes = evidence.scores["neighbours"]["power 2"]
    evidence = with_scores(evidence, neighbours={"power 2": evidence.scores["names"][None]}, names={None: votes})
    before = {**USUAL, "neighbours": "power 2"}
    losses = [evidence.fit_weights(forms)[1] for forms in (USUAL, before, {**before, "names": None})]
    gains = [1 - after / loss for loss, after in itertools.pairwise(losses)]
    alone = 1 - evidence.fit_weights({**USUAL, "names": None})[1] / losses[0]
    assert gains[0] > 1.01 * gains[1]
    assert abs(alone / gains[1] - 1) > 0.02
    monkeypatch.setattr(module, "_LEAST_GAIN", share * gains[1])
    asked: list[list[str]] = []
    mix, _ = choose(evidence, asked)
    assert "neighbours" in mix.weights
    assert ("names" in mix.weights) == (len(asked) == 1) == (share < 1)


def test_a_class_that_two_judges_suggest_stays_where_one_of_them_is_dropped() -> None:
    """Neighbours suggest the right class after many wrong ones, so their votes are of no use. The class had one of
    their places; without them it has one of those for names."""
    num, listed = 24, 1
    unit = SparseRows(np.arange(num + 1), np.arange(num, dtype=np.int32), np.ones(num, np.float32))
    # Of the points near to each query the nearest one has 15 labels, all wrong.
    near_and_far = np.concatenate([np.eye(num), np.eye(num) + np.roll(np.eye(num), 1, axis=1)])
    wrong = [sorted((c + step) % num for step in range(2, 17)) for c in range(num)]
    labels = [*wrong, *([c] for c in range(num))]
    neighbours = NeighbourJudge(
        SparsePoints.of(rows_of(near_and_far), num_features=num),
        SparseRows(offsets_from_counts(np.array([len(own) for own in labels])), np.concatenate(labels), None),
        3,
        4.0,
        num,
    )
    names = NameJudge.over(SparseWeights.of(unit, np.zeros(num, np.float32), num))
    judges: dict[str, dict[Variant, Any]] = {"neighbours": {"power 4": neighbours}, "names": {None: names}}
    model = Retriever.new(ModelShape(num, num, dim=4), seed=0)
    encoded, index, lists = Encoded.of(model, unit), ExactIndex(model.classes.weight), []
    truth = SparseRows(unit.offsets, unit.indices, None)

    def gather(which: Collection[str]) -> Evidence:
        some = {name: forms for name, forms in judges.items() if name in which}
        suggesters = [next(iter(forms.values())) for forms in some.values()]
        lists.append(find_candidates(model, encoded, listed, index=index, suggesters=suggesters))
        return Evidence.of(lists[-1], truth, some, num)

    mix, precision = choose_mix(gather, list(judges))
    assert list(mix.weights) == ["names"]
    assert [found.suggested for found in lists] == [("neighbours", "names"), ("names",)]
    is_there = [found.ids_NS == np.arange(num)[:, None] for found in lists]
    for each in is_there:
        assert (each.sum(axis=1) == 1).all()
    by_dense_N = is_there[0][:, :listed].any(axis=1)
    assert not by_dense_N.all()
    assert not is_there[0][:, listed + SUGGESTED :].any(), "names come after neighbours, who have suggested it"
    np.testing.assert_array_equal(is_there[1][:, listed:].any(axis=1), ~by_dense_N)
    assert precision > 0.95 * 100 * np.mean([1, 1 / 3, 1 / 5]), "each query has one class, and nearly all have it first"


@pytest.mark.parametrize("seed", range(4))
def test_weights_are_fitted_anew_with_each_judge(seed: int) -> None:
    evidence = some_evidence(seed)
    mix, precision = choose(evidence)
    assert set(mix.weights) == {"linear", "rarity", "neighbours", "names"}
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    always = {**USUAL, "names": None}
    alone = {cost: evidence.fit_weights(always | {"linear": cost}) for cost in evidence.scores["linear"]}
    cost = min(alone, key=lambda cost: alone[cost][1])
    with_votes = [
        evidence.fit_weights(always | {"linear": cost, "neighbours": form}) for form in evidence.scores["neighbours"]
    ]
    assert mix == min(with_votes, key=lambda fitted: fitted[1])[0]
    before = alone[cost][0].weights
    assert all(mix.weights[name] != before[name] for name in before if before[name])


@pytest.mark.parametrize("seed", range(4))
def test_forms_change_until_no_single_change_helps(seed: int) -> None:
    """Where neighbours suggest, they are there from the start, in their first form."""
    evidence = some_evidence(seed, ("neighbours", "names"))
    mix, precision = choose(evidence)
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    forms, before = {**USUAL, "neighbours": "power 2", "names": None}, {}
    while forms != before:
        before = dict(forms)
        for name in ("linear", "neighbours"):
            fitted = {form: evidence.fit_weights(forms | {name: form}) for form in evidence.scores[name]}
            forms[name] = min(fitted, key=lambda form: fitted[form][1])
    assert mix == evidence.fit_weights(forms)[0]
    assert mix.variants == forms
    own = evidence.fit_weights(mix.variants)[1]
    for name in ("linear", "neighbours"):
        for form in evidence.scores[name]:
            assert evidence.fit_weights({**mix.variants, name: form})[1] >= own


def test_empty_places_do_not_count() -> None:
    """As lists have where names suggest too few: score -inf, and all else 0."""
    evidence = some_evidence(2)

    def longer(part: Array, value: float) -> Array:
        return np.concatenate([part, np.full((len(part), 3), value, part.dtype)], axis=1)

    with_empty = Evidence(
        longer(evidence.dense_NS, -np.inf),
        longer(evidence.hits_NS, False),
        {
            name: {variant: longer(scores, 3.0 if name == "rarity" else 0) for variant, scores in forms.items()}
            for name, forms in evidence.scores.items()
        },
        LISTED,
        ("names",),
    )
    mix, precision = choose(with_empty)
    assert (mix, precision) == choose(evidence)
    assert mix.weights["names"] > 0
    silent = with_scores(with_empty, names={None: np.zeros_like(with_empty.dense_NS)})
    assert choose(silent) == choose(without(evidence, "names"))


def near(mix: Mix, evidence: Evidence) -> list[Mix]:
    """A step away: one weight 1.3 times higher or lower, where it counts, or other neighbours where some vote."""
    found = []
    for name, weight in mix.weights.items():
        steps = (1.3 * weight, weight / 1.3) if weight else (0.02,) if name in ("linear", "rarity") else ()
        found += [replace(mix, weights={**mix.weights, name: float(f"{step:.3g}")}) for step in steps]
    if "neighbours" in mix.weights:
        found += [replace(mix, variants={**mix.variants, "neighbours": form}) for form in evidence.scores["neighbours"]]
    return found


@pytest.mark.parametrize("judges", ["all", "no votes", "no names", "a rarity of 0"])
@pytest.mark.parametrize("seed", range(2))
def test_where_points_are_many_precision_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch, judges: str, seed: int
) -> None:
    """No step makes it higher, and it is no lower than where the climb began."""
    evidence = some_evidence(seed)
    if judges == "no names":
        evidence = without(evidence, "names")
    if judges == "no votes":
        evidence = with_scores(evidence, neighbours=None)
    if judges == "a rarity of 0":
        evidence = with_scores(evidence, rarity={None: -evidence.hits_NS.astype(np.float32)})
    began, precision = choose(evidence)
    assert (began.weights["rarity"] == 0) == (judges == "a rarity of 0")
    monkeypatch.setattr(module, "_POINTS_TO_CLIMB", len(evidence) + 1)
    assert choose(evidence) == (began, precision)
    monkeypatch.setattr(module, "_POINTS_TO_CLIMB", len(evidence))
    climbed, higher = choose(evidence)
    assert higher == pytest.approx(precision_by_sum(evidence, climbed))
    assert higher > precision
    assert all(evidence.precision(other) <= higher for other in near(climbed, evidence))
    # What did not help does not come in by a step, and the form of what always counts stays.
    assert set(climbed.weights) == set(began.weights)
    assert climbed.variants["linear"] == began.variants["linear"]


@pytest.mark.parametrize("seed", range(4))
def test_the_climb_starts_from_every_form_of_a_judge_that_must_help(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Precision has many peaks: the fit with the least loss may stand below a low one."""
    evidence = some_evidence(seed)
    began, _ = choose(evidence)
    monkeypatch.setattr(module, "_POINTS_TO_CLIMB", len(evidence))
    fits = [evidence.fit_weights({**began.variants, "neighbours": form})[0] for form in evidence.scores["neighbours"]]
    assert choose(evidence)[1] == max(module._climb(module._Precision(evidence), fit)[1] for fit in fits)


@pytest.mark.parametrize("judge", ["linear", "rarity"])
def test_a_weight_of_nothing_may_step_up(judge: str) -> None:
    """A climb is not held where the fit has left it."""
    telling = some_lists()[3]
    scores = {name: telling if name == judge else np.zeros_like(telling) for name in ("linear", "rarity")}
    evidence = evidence_of({1.0: scores["linear"]}, rarities=scores["rarity"], listed=PLACES)
    began = Mix({"linear": 0.0, "rarity": 0.0}, USUAL)
    climbed, precision = module._climb(module._Precision(evidence), began)
    assert precision == evidence.precision(climbed) > evidence.precision(began) + 1
    assert climbed.weights[judge] > 0


def test_where_there_is_nothing_to_choose_by() -> None:
    """Neighbours must first show that they help, and rare classes are not raised."""
    mix = default_mix()
    assert mix.weights == {"linear": 0.2, "names": 1.5}
    assert mix.variants == {"linear": 1.0, "names": None}


@pytest.mark.parametrize("names", [True, False])
def test_evidence_in_parts_is_the_same_evidence(names: bool) -> None:
    whole = some_evidence(1)
    whole = whole if names else without(whole, "names")

    def of_rows(rows: slice) -> Evidence:
        scores = {
            name: {variant: part[rows] for variant, part in forms.items()} for name, forms in whole.scores.items()
        }
        return Evidence(whole.dense_NS[rows], whole.hits_NS[rows], scores, whole.num_listed, whole.suggested)

    again = Evidence.joined([of_rows(slice(0, 5)), of_rows(slice(5, 6)), of_rows(slice(6, None))])
    assert (again.num_listed, again.suggested, len(again)) == (whole.num_listed, whole.suggested, len(whole))
    assert again.suggested == (("names",) if names else ())
    assert choose(again) == choose(whole)
    for name, forms in whole.scores.items():
        for variant, scores in forms.items():
            np.testing.assert_array_equal(again.scores[name][variant], scores)


def test_scores_are_added_in_float32_one_judge_after_the_other() -> None:
    generator = np.random.default_rng(0)
    dense, one, other = (generator.normal(size=(5, 4)).astype(np.float32) for _ in range(3))
    mix = Mix({"linear": 0.3, "rarity": 0.0, "names": 1.7}, {"linear": 1.0, "rarity": None, "names": None})
    wanted = dense + np.float32(0.3) * one + np.float32(1.7) * other
    # A judge that does not count need not be asked.
    found = mix.final_scores(dense, {"linear": one, "names": other})
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)
    assert Mix().final_scores(dense, {}) is dense


def test_a_mix_through_json_and_in_any_order() -> None:
    """Scores are added in one order always, since sums in another order round otherwise."""
    mix = Mix({"linear": 0.2, "neighbours": 0.1, "names": 1.5}, {"linear": 1.0, "neighbours": "x", "names": None})
    assert Mix.from_dict(json.loads(json.dumps(mix.to_dict()))) == mix
    turned = {"weights": dict(reversed(mix.weights.items())), "variants": dict(mix.variants)}
    assert list(Mix.from_dict(turned).weights) == ["linear", "neighbours", "names"]
    assert str(mix) == "weights relative to the dense score: linear 0.2 (1.0), neighbours 0.1 (x), names 1.5"
    assert str(Mix()) == "weights relative to the dense score: none"


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {"weights": {}},
        {"weights": {}, "variants": {}, "more": 1},
        {"weights": [], "variants": {}},
        {"weights": {"linear": 1.0}, "variants": {}},
        {"weights": {"unheard-of": 1.0}, "variants": {"unheard-of": None}},
        {"weights": {"linear": -0.1}, "variants": {"linear": 1.0}},
        {"weights": {"linear": math.nan}, "variants": {"linear": 1.0}},
        {"weights": {"linear": math.inf}, "variants": {"linear": 1.0}},
        {"weights": {"linear": 1e10}, "variants": {"linear": 1.0}},
        {"weights": {"linear": 10**400}, "variants": {"linear": 1.0}},
        {"weights": {"linear": True}, "variants": {"linear": 1.0}},
        {"weights": {"linear": "1"}, "variants": {"linear": 1.0}},
        {"weights": {"linear": 1.0}, "variants": {"linear": [1.0]}},
    ],
)
def test_records_that_cannot_be_are_refused(record: object) -> None:
    with pytest.raises(ValueError, match="wanted"):
        Mix.from_dict(record)
