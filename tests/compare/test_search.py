"""The search against functions whose best setting is known; ladders; methods and options."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.compare.comparison import settled
from owlmine.compare.curves import NUM_LOOKS
from owlmine.compare.methods import BASELINE, METHODS, Method, Setting, choose_methods, parse_methods
from owlmine.compare.options import CompareOptions
from owlmine.compare.search import Search, stepped
from owlmine.data import Store
from owlmine.errors import OwlmineError
from owlmine.recipe.options import TrainOptions
from owlmine.run import train


def hill(best: Setting) -> Any:
    """100 at ``best``, falling with the distance in decades along each knob."""

    def height(setting: Setting) -> float:
        pairs = zip(asdict(setting).values(), asdict(best).values(), strict=True)
        return 100 * math.exp(-sum(math.log10(one / other) ** 2 for one, other in pairs))

    return height


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_a_hill_is_climbed_to_its_top(method: Method) -> None:
    own = method.starts[0]
    top = {
        knob: stepped(getattr(own, knob), knob, step) for knob, step in zip(method.knobs, (2, -1, 1, -2), strict=False)
    }
    best = replace(own, **top)
    search = Search(method, hill(best), most_runs=60)
    assert search.best() == best
    assert search.settled
    assert set(method.starts) <= set(search.tried)


@pytest.mark.parametrize("most_runs", [1, 2, 5, 12])
def test_runs_are_bounded_and_never_repeated(most_runs: int) -> None:
    asked: list[Setting] = []

    def measure(setting: Setting) -> float:
        asked.append(setting)
        return setting.class_rate  # better without end

    search = Search(METHODS["top-1"], measure, most_runs=most_runs)
    best = search.best()
    assert len(asked) == len(set(asked)) == most_runs
    assert search.tried[best] == max(search.tried.values())
    assert not search.settled


def test_the_walk_begins_at_the_better_start() -> None:
    method = METHODS["top-1"]
    search = Search(method, hill(method.starts[1]), most_runs=3)
    search.best()
    third = list(search.tried)[2]
    assert third == replace(method.starts[1], class_rate=stepped(method.starts[1].class_rate, "class_rate", -1))


def test_neither_start_takes_all_runs() -> None:
    """A long ascent from the better start leaves runs for the other, which lies at the foot of the higher hill."""
    method = METHODS["top-1"]
    own, shared = method.starts
    top = replace(own, class_rate=stepped(own.class_rate, "class_rate", 3))

    def measure(setting: Setting) -> float:
        endless = 10 - math.log10(setting.class_rate) if setting.map_rate == shared.map_rate else 0.0
        return max(endless, hill(top)(setting))

    assert measure(shared) > measure(own)
    search = Search(method, measure, most_runs=14)
    assert search.best() == top
    assert not search.settled


def test_a_start_that_is_far_worse_gets_what_is_left() -> None:
    method = METHODS["top-1"]
    own, shared = method.starts
    search = Search(method, lambda setting: 20.0 if setting.map_rate == own.map_rate else 9.0, most_runs=60)
    search.best()
    around_own = [setting.map_rate == own.map_rate for setting in search.tried]
    assert around_own[:2] == [True, False]
    assert list(search.tried)[2:8] == [
        replace(own, **{knob: stepped(getattr(own, knob), knob, step)}) for knob in method.knobs for step in (-1, 1)
    ]
    assert replace(shared, class_rate=0.001) in list(search.tried)[8:]


def test_every_start_is_walked_from() -> None:
    """Three hills, the highest behind the start that scores least."""
    rates = (0.001, 0.1, 10.0)
    starts = tuple(Setting(rate, 1.0, rate) for rate in rates)
    method = replace(METHODS["top-1"], starts=starts, knobs=("class_rate", "feature_rate"))
    tops = [replace(start, class_rate=stepped(start.class_rate, "class_rate", 1)) for start in starts]

    def measure(setting: Setting) -> float:
        place = rates.index(setting.map_rate)
        return 40 + 2 * place if setting == starts[place] else 50 - place if setting == tops[place] else 0.0

    search = Search(method, measure, most_runs=60)
    assert search.best() == tops[0]
    assert search.settled
    assert set(starts) | set(tops) <= set(search.tried)
    # 3 starts, then a third each: the walk from the best may take 3 runs of 9, up to its top and one beyond.
    short = Search(method, measure, most_runs=12)
    assert short.best() == tops[0]
    assert not short.settled
    assert [setting.map_rate for setting in list(short.tried)[3:]] == [10.0] * 3 + [0.1] * 3 + [0.001] * 3


def test_a_start_that_learns_nothing_is_tried_with_smaller_rates() -> None:
    """Rates that blow the loss up count as 0, and so do all their neighbours."""

    def measure(setting: Setting) -> float:
        return 1.0 if setting.feature_rate < 0.5 else 0.0

    search = Search(METHODS["top-1"], measure, most_runs=12)
    assert search.best().feature_rate < 0.5


def test_of_equal_settings_the_first_is_chosen() -> None:
    method = METHODS[BASELINE]
    assert Search(method, lambda _: 7.0, most_runs=12).best() == method.starts[0]


@settings(max_examples=60, deadline=None)
@given(st.integers(-8, 4), st.sampled_from([1, 3]), st.integers(-4, 4))
def test_a_ladder_of_rates_is_closed(decade: int, digit: int, steps: int) -> None:
    rate = float(f"{digit}e{decade}")
    assert stepped(rate, "class_rate", 0) == rate
    assert stepped(stepped(rate, "class_rate", steps), "class_rate", -steps) == rate
    assert stepped(rate, "class_rate", 1) / rate == pytest.approx(3 if digit == 1 else 10 / 3)


def test_a_ladder_of_scales_is_finer() -> None:
    assert [stepped(10.0, "scale", step) for step in (-4, -3, -2, -1, 0, 1, 2, 3)] == [0.5, 1, 2, 5, 10, 20, 50, 100]


def test_starts_stand_on_the_ladder() -> None:
    for method in METHODS.values():
        for start in method.starts:
            assert all(stepped(value, knob, 0) == value for knob, value in asdict(start).items())


def test_methods_differ_in_loss_top_and_setting_alone() -> None:
    options, neutral = CompareOptions(), TrainOptions().to_dict()
    own = ("loss", "top", "class_rate", "feature_rate", "map_rate", "scale")
    made = [options.final_options(method, method.starts[0], seed=0) for method in METHODS.values()]
    assert len({one.with_(**{name: neutral[name] for name in own}) for one in made}) == 1
    assert len({(one.loss.loss, one.loss.top) for one in made}) == len(METHODS)
    assert sorted(method.number for method in METHODS.values()) == list(range(1, NUM_LOOKS + 1))
    assert made[0].model.recipe == "single"
    assert not made[0].steps.warm_start
    assert not made[0].loss.exclude_known


def test_only_the_hinges_of_the_paper_keep_their_scale() -> None:
    for method in METHODS.values():
        assert ("scale" in method.knobs) != (method.loss in ("bowl", "negative-sampling-bowl"))
        assert "scale" in method.knobs or {start.scale for start in method.starts} == {1.0}


def test_powl_without_a_scale_would_be_bowl_again(small_store: Store, tmp_path: Path) -> None:
    """Why its scale is searched: scores of unit vectors seldom lie a whole margin apart."""
    options = CompareOptions(dim=8, pool=10, epochs=2, device="cpu")
    bowl = options.final_options(METHODS["top-1"], Setting(0.1, 1.0, 0.001), seed=0)
    trained = {
        name: train(small_store, tmp_path / name, bowl.with_(loss=loss, scale=scale)).dense.tensors()["classes"]
        for name, loss, scale in (("bowl", "bowl", 1.0), ("powl", "powl", 1.0), ("scaled", "powl", 5.0))
    }
    torch.testing.assert_close(trained["bowl"], trained["powl"], rtol=0, atol=1e-5)
    assert float((trained["bowl"] - trained["scaled"]).abs().max()) > 1e-3


def test_all_methods_that_suit_the_data_are_chosen() -> None:
    names = [method.name for method in choose_methods([], num_classes=20_000, pool=1024)[0]]
    assert names == list(METHODS)
    chosen, skipped = choose_methods([], num_classes=20_001, pool=100)
    assert [method.name for method in chosen] == [n for n in METHODS if n not in ("top-256", "full-softmax")]
    assert skipped == [
        "Top-256 SNM skipped: it keeps 256 negatives, more than the pool of 100",
        "Full softmax skipped: it scores all 20,001 classes in every step;"
        " name full-softmax in --methods to include it",
    ]
    assert [m.name for m in choose_methods(["full-softmax"], num_classes=10**6, pool=100)[0]] == ["full-softmax"]


def test_names_are_read_with_spaces_and_in_any_order() -> None:
    assert parse_methods(" negative-sampling , top-1,") == ("top-1", "negative-sampling")
    assert parse_methods("") == ()


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"methods": "top-1,top-2"}, "methods is 'top-1,top-2', but there is no top-2; wanted some of top-1, top-16"),
        ({"epochs": 0.0}, "epochs is 0.0; wanted above 0"),
        ({"dim": 0}, "dim is 0; wanted 1 or more"),
        ({"pool": -1}, "pool is -1; wanted 1 or more"),
        ({"search_runs": 0}, "search_runs is 0; wanted 1 or more"),
        ({"search_share": 0.0}, "search_share is 0.0; wanted above 0, at most 1"),
        ({"search_share": 1.5}, "search_share is 1.5; wanted above 0, at most 1"),
        ({"seeds": 0}, "seeds is 0; wanted 1 or more"),
        ({"seed": 2**32 - 1}, "seed is 4294967295; wanted 0 to"),
        ({"device": "tpu"}, "device is 'tpu'; wanted auto, cpu or cuda"),
    ],
)
def test_options_out_of_range_are_refused(bad: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("^", r"\^")):
        CompareOptions(**bad)


@pytest.mark.parametrize(
    ("validation", "block", "told"),
    [
        (0.001, 50, "--validation is 0.001 with --validation-block 50, which holds out no training point; wanted"),
        (0.6, 200, "--validation-block is 200 with validation 0.6, which takes all 200 points of train; wanted some"),
        (0.6, 9000, "--validation-block is 9000; wanted at most 5,000, the most points to validate on"),
    ],
)
def test_points_to_choose_by_and_points_to_learn_from(
    validation: float, block: int, told: str, small_store: Store
) -> None:
    with pytest.raises(OwlmineError, match=told):
        settled(small_store, CompareOptions(validation=validation, validation_block=block, device="cpu"))
