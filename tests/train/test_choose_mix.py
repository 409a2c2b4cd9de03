"""The parts of a re-ranker are weighed by what ranks validation points best.

Shapes: N points, S places of a shortlist.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from owlmine.train import choose_mix as module
from owlmine.train.choose_mix import Evidence, Mix, Shortlists, choose_mix, usual_mix

from .test_fit_mix import loss_by_loop, one_thread_of_numpy  # noqa: F401

Array = np.ndarray[Any, Any]

# Places, and those of them that the dense model has listed.
PLACES, LISTED = 8, 6


def some_lists(seed: int = 0, num_points: int = 60, places: int = PLACES) -> tuple[Shortlists, Array]:
    """And a score that knows more of the hits than the lists do."""
    generator = np.random.default_rng(seed)
    hits = generator.random((num_points, places)) < 0.25
    scores = np.sort(generator.random((num_points, places)).astype(np.float32), axis=1)[:, ::-1]
    rarities = generator.random((num_points, places)).astype(np.float32)
    telling = (hits + generator.normal(size=hits.shape)).astype(np.float32)
    return Shortlists(np.ascontiguousarray(scores), hits, rarities), telling


def some_evidence(seed: int, *, with_names: bool = True) -> Evidence:
    """Every part tells something of the hits, and none tells all."""
    lists, _ = some_lists(seed)
    generator = np.random.default_rng(seed + 1000)
    hits_NS = generator.random(lists.hits_NS.shape) < 0.7 * lists.scores_NS**2
    lists = replace(lists, hits_NS=hits_NS)

    def telling(noise: float) -> Array:
        return (lists.hits_NS + noise * generator.normal(size=lists.hits_NS.shape)).astype(np.float32)

    linear = {cost: telling(noise) for cost, noise in ((0.3, 3.0), (1.0, 2.0), (3.0, 4.0))}
    votes = {(kind, power): telling(2.0) for kind in ("sparse", "dense") for power in (2.0, 4.0)}
    evidence = Evidence(lists, LISTED, linear, votes, telling(1.0))
    return evidence if with_names else evidence.without_names


def figure_by_parts(evidence: Evidence, mix: Mix) -> float:
    mixed = evidence.lists.scores_NS + np.float32(mix.weight) * evidence.linear[mix.cost]
    mixed = mixed + np.float32(mix.lift) * evidence.lists.rarities_NS
    if mix.kind is not None:
        mixed = mixed + np.float32(mix.vote_weight) * evidence.votes[mix.kind, mix.power]
    if evidence.names_NS is not None:
        mixed = mixed + np.float32(mix.name_weight) * evidence.names_NS
    return evidence.lists.precision(mixed)


def loss_of(evidence: Evidence, mix: Mix, scale: float) -> float:
    """Where the dense score counts ``scale`` times."""
    parts = [
        (evidence.lists.scores_NS, 1.0, 1.0),
        (evidence.linear[mix.cost], mix.weight, module._LINEAR),
        (evidence.lists.rarities_NS, mix.lift, module._LIFT),
    ]
    if mix.kind is not None:
        parts.append((evidence.votes[mix.kind, mix.power], mix.vote_weight, module._VOTES))
    if mix.name_weight:
        assert evidence.names_NS is not None
        parts.append((evidence.names_NS, mix.name_weight, module._NAMES))
    scores, weights, priors = zip(*parts, strict=True)
    usual, used = [module._SCALE * prior for prior in priors], [scale * weight for weight in weights]
    return loss_by_loop(scores, evidence.lists.hits_NS, usual, used)


def gain(evidence: Evidence, cost: float) -> float:
    """By which share names make the loss of the same lists smaller, where classifiers have this cost."""
    (_, without), (_, with_names) = (evidence.fitted(Mix(cost), names=names) for names in (False, True))
    return 1 - with_names / without


@pytest.mark.parametrize("places", [1, 2, 4, 8])
def test_precision_against_a_loop(places: int) -> None:
    lists, mixed = some_lists(places=places)
    # Few values: many are equal, and among these the first counts.
    for scores in (mixed, np.round(mixed)):
        figures = []
        for k in (k for k in (1, 3, 5) if k <= places):
            found = 0
            for row in range(len(scores)):
                order = sorted(range(places), key=lambda s: (-scores[row, s], s))[:k]
                found += sum(bool(lists.hits_NS[row, s]) for s in order)
            figures.append(100 * found / (k * len(scores)))
        assert lists.precision(scores) == pytest.approx(np.mean(figures))


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("kind", [None, "dense"])
def test_no_other_weights_have_a_smaller_loss(kind: str | None, names: bool) -> None:
    evidence = some_evidence(0)
    mix, loss = evidence.fitted(Mix(0.3, kind=kind, power=2.0 if kind else 0.0), names=names)
    assert (mix.cost, mix.kind) == (0.3, kind)
    assert (mix.vote_weight > 0, mix.name_weight > 0) == (kind is not None, names)

    def best_loss(of: Mix) -> float:
        """A mix tells what the parts count beside the dense score, and not how much that one counts."""
        return float(minimize_scalar(lambda log: loss_of(evidence, of, math.exp(log)), bounds=(0, 4)).fun)

    # Weights are told in three digits; the loss is that of the weights before.
    assert best_loss(mix) == pytest.approx(loss, rel=1e-4)
    parts = ["weight", "lift", *(["vote_weight"] if kind else []), *(["name_weight"] if names else [])]
    for part in parts:
        for factor in (0.8, 1.25):
            assert best_loss(replace(mix, **{part: getattr(mix, part) * factor + 1e-3})) > loss


def test_a_part_that_is_wrong_does_not_count_against_anything() -> None:
    """A weight below 0 would make a re-ranker that nobody can load."""
    lists, telling = some_lists()
    mix, _ = choose_mix(Evidence(lists, PLACES, {1.0: -telling}, {("dense", 2.0): -telling}, -telling))
    assert (mix.weight, mix.kind, mix.name_weight) == (0.0, None, 0.0)


def test_where_no_label_is_listed_weights_are_the_usual_ones() -> None:
    evidence = some_evidence(0)
    evidence.lists.hits_NS[:] = False
    mix, figure = choose_mix(evidence)
    assert (mix.weight, mix.lift, mix.kind, mix.name_weight) == (module._LINEAR, module._LIFT, None, 0.0)
    assert figure == 0


def test_no_cost_would_be_better() -> None:
    evidence = replace(some_evidence(1, with_names=False), votes={})
    mix, figure = choose_mix(evidence)
    fitted = {cost: evidence.fitted(Mix(cost), names=False) for cost in evidence.linear}
    assert mix.cost == min(fitted, key=lambda cost: fitted[cost][1]) == 1.0
    assert mix == fitted[1.0][0]
    assert figure == figure_by_parts(evidence, mix)
    assert mix.kind is None
    assert "no neighbours vote" in mix.told


def test_votes_that_tell_more_are_taken() -> None:
    lists, telling = some_lists()
    nothing = np.zeros_like(telling)
    evidence = Evidence(lists, PLACES, {1.0: nothing}, {("dense", 2.0): nothing, ("sparse", 4.0): telling})
    mix, figure = choose_mix(evidence)
    assert (mix.kind, mix.power) == ("sparse", 4.0)
    assert figure == figure_by_parts(evidence, mix)
    assert figure > lists.precision(lists.scores_NS) + 1
    assert "sparse neighbours" in mix.told


def test_names_that_tell_more_are_taken() -> None:
    lists, telling = some_lists()
    nothing = np.zeros_like(telling)
    evidence = Evidence(lists, LISTED, {1.0: nothing}, {("dense", 2.0): nothing}, telling)
    mix, figure = choose_mix(evidence)
    assert mix.kind is None
    assert mix.name_weight > 0
    assert figure == figure_by_parts(evidence, mix)
    assert figure > lists.precision(lists.scores_NS) + 1
    assert f"no neighbours vote, names {mix.name_weight:g} times, rare classes" in mix.told
    assert "names" not in Mix().told


def test_what_is_known_without_names() -> None:
    """Of the places of the dense model, and all else as it is."""
    evidence = some_evidence(0)
    found = evidence.without_names
    assert (found.listed, found.names_NS) == (LISTED, None)
    pairs = [
        (found.lists.scores_NS, evidence.lists.scores_NS),
        (found.lists.hits_NS, evidence.lists.hits_NS),
        (found.lists.rarities_NS, evidence.lists.rarities_NS),
        *((found.linear[cost], part) for cost, part in evidence.linear.items()),
        *((found.votes[key], part) for key, part in evidence.votes.items()),
    ]
    assert (list(found.linear), list(found.votes)) == (list(evidence.linear), list(evidence.votes))
    for part, whole in pairs:
        np.testing.assert_array_equal(part, whole[:, :LISTED])


@pytest.mark.parametrize("part", ["votes", "names"])
@pytest.mark.parametrize(("share", "is_taken"), [(0.99, True), (1.01, False)])
def test_what_brings_too_little_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, part: str, share: float, is_taken: bool
) -> None:
    """On either side of what it brings. Without names all is chosen anew, on the dense model's places."""
    lists, telling = some_lists()
    nothing, names = np.zeros_like(telling), part == "names"
    evidence = Evidence(
        lists, LISTED, {1.0: nothing}, {} if names else {("dense", 2.0): telling}, names_NS=telling if names else None
    )
    _, loss = evidence.fitted(Mix(), names=False)
    taken, smaller = evidence.fitted(Mix() if names else Mix(kind="dense", power=2.0), names=names)
    without = (evidence.without_names if names else evidence).fitted(Mix(), names=False)[0]
    assert (without == evidence.fitted(Mix(), names=False)[0]) == (not names)
    monkeypatch.setattr(module, "_LEAST_GAIN", share * (1 - smaller / loss))
    assert choose_mix(evidence)[0] == (taken if is_taken else without)


@pytest.mark.parametrize("seed", range(4))
def test_parts_that_tell_nothing_are_not_taken(seed: int) -> None:
    evidence = some_evidence(seed)
    silent = np.zeros_like(evidence.lists.scores_NS)
    assert choose_mix(replace(evidence, names_NS=silent)) == choose_mix(evidence.without_names)
    assert choose_mix(replace(evidence, votes={("dense", 2.0): silent}))[0].kind is None


@pytest.mark.parametrize("seed", range(4))
def test_where_names_do_not_help_no_place_of_theirs_counts(seed: int) -> None:
    """The model will not have those places, whatever others know of them."""
    evidence = some_evidence(seed)
    rng, theirs = np.random.default_rng(seed), slice(LISTED, PLACES)
    evidence = replace(evidence, names_NS=np.zeros_like(evidence.lists.scores_NS))
    wanted = choose_mix(evidence.without_names)
    for part in (*evidence.linear.values(), *evidence.votes.values(), evidence.lists.rarities_NS):
        part[:, theirs] = 5 * evidence.lists.hits_NS[:, theirs] + rng.normal(size=(60, PLACES - LISTED))
    mix, figure = choose_mix(evidence)
    assert (mix, figure) == wanted
    assert figure == figure_by_parts(evidence.without_names, mix)
    # What they are judged by is the same for both, so that places alone are no reason to take them.
    assert evidence.fitted(Mix(), names=False)[0] != evidence.without_names.fitted(Mix(), names=False)[0]


@pytest.mark.parametrize(
    ("costs", "judge"), [((0.3, 1.0, 3.0), 1.0), ((1.0, 0.3), 1.0), ((3.0, 0.3), 3.0), ((0.3, 3.0), 0.3)]
)
def test_names_are_judged_beside_one_cost(
    monkeypatch: pytest.MonkeyPatch, costs: tuple[float, ...], judge: float
) -> None:
    """The usual one, or the first where it is not among them: on either side of what they bring there."""
    evidence = some_evidence(0)
    evidence = replace(evidence, linear={cost: evidence.linear[cost] for cost in costs}, votes={})
    gains = {cost: gain(evidence, cost) for cost in costs}
    assert all(abs(gains[judge] - gains[cost]) > 0.002 for cost in costs if cost != judge)
    for difference, are_taken in ((-0.0005, True), (0.0005, False)):
        monkeypatch.setattr(module, "_LEAST_GAIN", gains[judge] + difference)
        assert (choose_mix(evidence)[0].name_weight > 0) == are_taken


def test_names_that_help_and_then_count_for_nothing() -> None:
    """Beside classifiers of one cost, and not beside those of the cost that is best: the model has no names then, and
    the rest is chosen on the places that it has."""
    lists, _ = some_lists(num_points=300)
    noise_NS = np.random.default_rng(0).normal(size=lists.hits_NS.shape)
    names_NS = (lists.hits_NS + 0.7 * noise_NS).astype(np.float32)
    # Hits are this less names: where it counts, names would count against them.
    knowing_NS = (lists.hits_NS + names_NS).astype(np.float32) / 2
    evidence = Evidence(lists, LISTED, {1.0: np.zeros_like(names_NS), 0.3: knowing_NS}, {}, names_NS)
    assert gain(evidence, 1.0) > 0.1
    assert evidence.fitted(Mix(0.3), names=True)[0].name_weight == 0
    assert choose_mix(evidence) == choose_mix(evidence.without_names)


@pytest.mark.parametrize("seed", range(4))
def test_weights_are_fitted_anew_with_each_part(seed: int) -> None:
    evidence = some_evidence(seed)
    mix, figure = choose_mix(evidence)
    assert mix.name_weight > 0
    assert mix.kind is not None
    assert figure == figure_by_parts(evidence, mix)
    alone = {cost: evidence.fitted(Mix(cost), names=True) for cost in evidence.linear}
    cost = min(alone, key=lambda cost: alone[cost][1])
    fitted = [evidence.fitted(Mix(cost, kind=kind, power=power), names=True) for kind, power in evidence.votes]
    assert mix == min(fitted, key=lambda one: one[1])[0]
    before = alone[cost][0]
    assert (mix.weight, mix.lift, mix.name_weight) != (before.weight, before.lift, before.name_weight)


def test_empty_places_do_not_count() -> None:
    """As lists have where names suggest too few: score -inf, and all else 0."""
    evidence = some_evidence(2)

    def longer(part: Array, value: float) -> Array:
        return np.concatenate([part, np.full((len(part), 3), value, part.dtype)], axis=1)

    lists, names_NS = evidence.lists, evidence.names_NS
    assert names_NS is not None
    with_empty = Evidence(
        Shortlists(longer(lists.scores_NS, -np.inf), longer(lists.hits_NS, False), longer(lists.rarities_NS, 3.0)),
        LISTED,
        {cost: longer(part, 0) for cost, part in evidence.linear.items()},
        {key: longer(part, 0) for key, part in evidence.votes.items()},
        longer(names_NS, 0),
    )
    mix, figure = choose_mix(with_empty)
    assert (mix, figure) == choose_mix(evidence)
    assert mix.name_weight > 0
    silent = replace(with_empty, names_NS=np.zeros_like(with_empty.lists.scores_NS))
    assert choose_mix(silent) == choose_mix(evidence.without_names)


def near(mix: Mix, evidence: Evidence) -> list[Mix]:
    """A step away: one weight 1.3 times higher or lower, where it counts, or other neighbours where some vote."""
    found = []
    for part in ("weight", "lift", "vote_weight", "name_weight"):
        now = getattr(mix, part)
        steps = (1.3 * now, now / 1.3) if now else (0.02,) if part in ("weight", "lift") else ()
        found += [replace(mix, **{part: float(f"{step:.3g}")}) for step in steps]
    if mix.kind is not None:
        found += [replace(mix, kind=kind, power=power) for kind, power in evidence.votes]
    return found


@pytest.mark.parametrize("parts", ["all", "no votes", "no names", "a lift of 0"])
@pytest.mark.parametrize("seed", range(2))
def test_where_points_are_many_precision_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch, parts: str, seed: int
) -> None:
    """No step makes it higher, and it is no lower than where the climb began."""
    evidence = some_evidence(seed, with_names=parts != "no names")
    if parts == "no votes":
        evidence = replace(evidence, votes={})
    if parts == "a lift of 0":
        evidence = replace(evidence, lists=replace(evidence.lists, rarities_NS=-evidence.lists.hits_NS.astype("f4")))
    began, figure = choose_mix(evidence)
    assert (began.lift == 0) == (parts == "a lift of 0")
    monkeypatch.setattr(module, "_POINTS_TO_CLIMB", len(evidence.lists) + 1)
    assert choose_mix(evidence) == (began, figure)
    monkeypatch.setattr(module, "_POINTS_TO_CLIMB", len(evidence.lists))
    climbed, higher = choose_mix(evidence)
    assert higher == figure_by_parts(evidence, climbed)
    assert higher > figure
    assert all(figure_by_parts(evidence, other) <= higher for other in near(climbed, evidence))
    # What did not earn its place does not come in by a step.
    assert (climbed.cost, climbed.kind is None) == (began.cost, began.kind is None)
    assert (climbed.name_weight > 0) == (began.name_weight > 0)


@pytest.mark.parametrize("part", ["weight", "lift"])
def test_a_weight_of_nothing_may_step_up(part: str) -> None:
    """A climb is not held where the fit has left it."""
    lists, telling = some_lists()
    nothing = np.zeros_like(telling)
    parts = (telling, nothing) if part == "weight" else (nothing, telling)
    evidence = Evidence(replace(lists, rarities_NS=parts[1]), PLACES, {1.0: parts[0]}, {})
    began = Mix(weight=0.0)
    climbed, figure = module._climbed(evidence, began, evidence.precision(began))
    assert figure == evidence.precision(climbed) > evidence.precision(began) + 1
    assert getattr(climbed, part) > 0


def test_where_there_is_nothing_to_choose_by() -> None:
    assert usual_mix(names=False) == Mix()
    assert usual_mix(names=True) == Mix(name_weight=module._NAMES)
    assert module._NAMES > 0


@pytest.mark.parametrize("names", [True, False])
def test_evidence_in_parts_is_the_same_evidence(names: bool) -> None:
    whole = some_evidence(1)
    whole = whole if names else whole.without_names

    def of_rows(rows: slice) -> Evidence:
        lists = whole.lists
        return Evidence(
            Shortlists(lists.scores_NS[rows], lists.hits_NS[rows], lists.rarities_NS[rows]),
            whole.listed,
            {cost: part[rows] for cost, part in whole.linear.items()},
            {key: part[rows] for key, part in whole.votes.items()},
            None if whole.names_NS is None else whole.names_NS[rows],
        )

    again = Evidence.joined([of_rows(slice(0, 5)), of_rows(slice(5, 6)), of_rows(slice(6, None))])
    assert again.listed == whole.listed
    assert choose_mix(again) == choose_mix(whole)
    if names:
        assert again.names_NS is not None
        assert whole.names_NS is not None
        np.testing.assert_array_equal(again.names_NS, whole.names_NS)
    else:
        assert again.names_NS is None
