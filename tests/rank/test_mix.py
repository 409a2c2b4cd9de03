"""Judges are weighed by what ranks validation points best.

Shapes: N points, S places of a list of candidates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from owlmine.rank import mix as module
from owlmine.rank.judge import JUDGES, Variant
from owlmine.rank.mix import Evidence, Mix, choose_mix, default_mix

from .test_mix_loss import loss_by_loop, one_thread_of_numpy  # noqa: F401

Array = np.ndarray[Any, Any]

# Places, and those of them that the dense model has listed.
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
    """Of the lists of ``some_lists``; judges that are left out were not fitted."""
    dense, hits, usual, _ = some_lists(**lists)
    scores: dict[str, Mapping[Variant, Array]] = {
        "linear": linear,
        "rarity": {None: usual if rarities is None else rarities},
    }
    scores |= {"neighbours": votes} if votes else {}
    scores |= {} if names is None else {"names": {None: names}}
    return Evidence(dense, hits, scores, listed)


def some_evidence(seed: int) -> Evidence:
    """Every judge knows something of the hits, and none knows all."""
    dense, _, rarities, _ = some_lists(seed)
    generator = np.random.default_rng(seed + 1000)
    hits = generator.random(dense.shape) < 0.7 * dense**2

    def telling(noise: float) -> Array:
        return (hits + noise * generator.normal(size=hits.shape)).astype(np.float32)

    linear = {cost: telling(noise) for cost, noise in ((0.3, 3.0), (1.0, 2.0), (3.0, 4.0))}
    votes = {f"{kind}, power {power}": telling(2.0) for kind in ("sparse", "dense") for power in (2, 4)}
    scores = {"linear": linear, "rarity": {None: rarities}, "neighbours": votes, "names": {None: telling(1.0)}}
    return Evidence(dense, hits, scores, LISTED)


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
@pytest.mark.parametrize("neighbours", [None, "dense, power 2"])
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
    mix, _ = choose_mix(evidence_of({1.0: -telling}, {"dense": -telling}, -telling, listed=PLACES))
    assert mix.weights["linear"] == 0
    assert set(mix.weights) == {"linear", "rarity"}


def test_where_no_label_is_listed_weights_are_the_priors() -> None:
    evidence = some_evidence(0)
    evidence.hits_NS[:] = False
    mix, precision = choose_mix(evidence)
    assert mix.weights == {"linear": JUDGES["linear"].prior, "rarity": JUDGES["rarity"].prior}
    assert precision == 0


def test_no_cost_would_be_better() -> None:
    evidence = with_scores(some_evidence(1).without("names"), neighbours=None)
    mix, precision = choose_mix(evidence)
    fitted = {cost: evidence.fit_weights({"linear": cost, "rarity": None}) for cost in evidence.scores["linear"]}
    assert mix.variants["linear"] == min(fitted, key=lambda cost: fitted[cost][1]) == 1.0
    assert mix == fitted[1.0][0]
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    assert set(mix.weights) == {"linear", "rarity"}


def test_votes_that_know_more_are_taken() -> None:
    dense, _, _, telling = some_lists()
    nothing = np.zeros_like(telling)
    evidence = evidence_of({1.0: nothing}, {"dense": nothing, "sparse": telling}, listed=PLACES)
    mix, precision = choose_mix(evidence)
    assert mix.variants["neighbours"] == "sparse"
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    assert precision > evidence.precision(Mix()) + 1
    assert dense is not evidence.dense_NS


def test_names_that_know_more_are_taken() -> None:
    telling = some_lists()[3]
    nothing = np.zeros_like(telling)
    evidence = evidence_of({1.0: nothing}, {"dense": nothing}, telling)
    mix, precision = choose_mix(evidence)
    assert set(mix.weights) == {"linear", "rarity", "names"}
    assert mix.weights["names"] > 0
    assert precision == pytest.approx(precision_by_sum(evidence, mix))
    assert precision > evidence.precision(Mix()) + 1


def test_without_a_judge_that_suggests_its_places_are_gone() -> None:
    evidence = some_evidence(0)
    found = evidence.without("names")
    assert found.num_listed == LISTED
    assert list(found.scores) == ["linear", "rarity", "neighbours"]
    np.testing.assert_array_equal(found.dense_NS, evidence.dense_NS[:, :LISTED])
    np.testing.assert_array_equal(found.hits_NS, evidence.hits_NS[:, :LISTED])
    for name, forms in found.scores.items():
        assert list(forms) == list(evidence.scores[name])
        for variant, scores in forms.items():
            np.testing.assert_array_equal(scores, evidence.scores[name][variant][:, :LISTED])


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
    without = (evidence.without("names") if names else evidence).fit_weights(USUAL)[0]
    assert (without == evidence.fit_weights(USUAL)[0]) == (not names)
    monkeypatch.setattr(module, "_LEAST_GAIN", share * (1 - smaller / loss))
    assert choose_mix(evidence)[0] == (taken if is_taken else without)


@pytest.mark.parametrize("seed", range(4))
def test_judges_that_know_nothing_are_not_taken(seed: int) -> None:
    evidence = some_evidence(seed)
    silent = {None: np.zeros_like(evidence.dense_NS)}
    assert choose_mix(with_scores(evidence, names=silent)) == choose_mix(evidence.without("names"))
    assert "neighbours" not in choose_mix(with_scores(evidence, neighbours=silent))[0].weights


@pytest.mark.parametrize("seed", range(4))
def test_where_names_do_not_help_no_place_of_theirs_counts(seed: int) -> None:
    """The model will not have those places, whatever others know of them."""
    evidence = some_evidence(seed)
    rng, theirs = np.random.default_rng(seed), slice(LISTED, PLACES)
    evidence = with_scores(evidence, names={None: np.zeros_like(evidence.dense_NS)})
    wanted = choose_mix(evidence.without("names"))
    for name in ("linear", "neighbours", "rarity"):
        for scores in evidence.scores[name].values():
            scores[:, theirs] = 5 * evidence.hits_NS[:, theirs] + rng.normal(size=(60, PLACES - LISTED))
    mix, precision = choose_mix(evidence)
    assert (mix, precision) == wanted
    assert precision == pytest.approx(precision_by_sum(evidence.without("names"), mix))
    # What they are judged by is the same for both, so that places alone are no reason to take them.
    assert evidence.fit_weights(USUAL)[0] != evidence.without("names").fit_weights(USUAL)[0]


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
        assert ("names" in choose_mix(evidence)[0].weights) == are_taken


def test_names_that_help_and_then_count_for_nothing() -> None:
    """Beside classifiers of one cost, and not beside those of the cost that is best: the model has no names then, and
    the rest is chosen on the places that it has."""
    dense, hits, rarities, _ = some_lists(num_points=300)
    noise = np.random.default_rng(0).normal(size=hits.shape)
    names = (hits + 0.7 * noise).astype(np.float32)
    # Hits are this less names: where it counts, names would count against them.
    knowing = (hits + names).astype(np.float32) / 2
    linear = {1.0: np.zeros_like(names), 0.3: knowing}
    evidence = Evidence(dense, hits, {"linear": linear, "rarity": {None: rarities}, "names": {None: names}}, LISTED)
    assert gain(evidence, 1.0) > 0.1
    assert evidence.fit_weights({"linear": 0.3, "rarity": None, "names": None})[0].weights["names"] == 0
    assert choose_mix(evidence) == choose_mix(evidence.without("names"))


@pytest.mark.parametrize("seed", range(4))
def test_weights_are_fitted_anew_with_each_judge(seed: int) -> None:
    evidence = some_evidence(seed)
    mix, precision = choose_mix(evidence)
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
    )
    mix, precision = choose_mix(with_empty)
    assert (mix, precision) == choose_mix(evidence)
    assert mix.weights["names"] > 0
    silent = with_scores(with_empty, names={None: np.zeros_like(with_empty.dense_NS)})
    assert choose_mix(silent) == choose_mix(evidence.without("names"))


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
        evidence = evidence.without("names")
    if judges == "no votes":
        evidence = with_scores(evidence, neighbours=None)
    if judges == "a rarity of 0":
        evidence = with_scores(evidence, rarity={None: -evidence.hits_NS.astype(np.float32)})
    began, precision = choose_mix(evidence)
    assert (began.weights["rarity"] == 0) == (judges == "a rarity of 0")
    monkeypatch.setattr(module, "_POINTS_TO_CLIMB", len(evidence) + 1)
    assert choose_mix(evidence) == (began, precision)
    monkeypatch.setattr(module, "_POINTS_TO_CLIMB", len(evidence))
    climbed, higher = choose_mix(evidence)
    assert higher == pytest.approx(precision_by_sum(evidence, climbed))
    assert higher > precision
    assert all(evidence.precision(other) <= higher for other in near(climbed, evidence))
    # What did not help does not come in by a step, and the form of what always counts stays.
    assert set(climbed.weights) == set(began.weights)
    assert climbed.variants["linear"] == began.variants["linear"]


@pytest.mark.parametrize("judge", ["linear", "rarity"])
def test_a_weight_of_nothing_may_step_up(judge: str) -> None:
    """A climb is not held where the fit has left it."""
    telling = some_lists()[3]
    scores = {name: telling if name == judge else np.zeros_like(telling) for name in ("linear", "rarity")}
    evidence = evidence_of({1.0: scores["linear"]}, rarities=scores["rarity"], listed=PLACES)
    began = Mix({"linear": 0.0, "rarity": 0.0}, USUAL)
    climbed, precision = module._climb(evidence, began, evidence.precision(began))
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
    whole = whole if names else whole.without("names")

    def of_rows(rows: slice) -> Evidence:
        scores = {
            name: {variant: part[rows] for variant, part in forms.items()} for name, forms in whole.scores.items()
        }
        return Evidence(whole.dense_NS[rows], whole.hits_NS[rows], scores, whole.num_listed)

    again = Evidence.joined([of_rows(slice(0, 5)), of_rows(slice(5, 6)), of_rows(slice(6, None))])
    assert (again.num_listed, len(again)) == (whole.num_listed, len(whole))
    assert choose_mix(again) == choose_mix(whole)
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
    assert str(mix) == "weights beside the dense score: linear 0.2 (1.0), neighbours 0.1 (x), names 1.5"
    assert str(Mix()) == "weights beside the dense score: none"


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
