"""The demo as a user runs it, with a tiny budget, killed on the way; and its report as a browser reads it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data import Store, convert, open_dataset
from owlmine.demo import run as demo_run
from owlmine.demo.curves import Line, curves_svg, round_ticks
from owlmine.demo.earlier import DemoFolder
from owlmine.demo.examples import pick_rows
from owlmine.demo.figures import NAMES, judge, ratios
from owlmine.demo.methods import BASELINE, METHODS
from owlmine.demo.report import report_html
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import OwlmineError
from owlmine.metrics import precision_at_k, recall_at_k
from owlmine.model.folder import load, verify_model
from owlmine.train import Stopped, TrainOptions
from owlmine.train.reporters import SilentReporter
from owlmine.train.run_folder import run_description, working_in
from tests.conftest import Command

BUDGET = ("--epochs", "0.1", "--dim", "8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, owlmine_command: Command) -> tuple[Path, str, str, int]:
    """A demo that was killed after its first method, and then run to its end by the same command.

    The folder, what the second run printed (standard output, standard error), and when the first model was written.
    """
    open_dataset("sample")  # converted once, not by the process that is about to be killed
    out = tmp_path_factory.mktemp("demo") / "out"
    first_model = out / METHODS[0].folder / "config.json"
    killed = subprocess.Popen(
        [sys.executable, "-m", "owlmine", "demo", "--out", str(out), *BUDGET],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
    )
    for _ in range(2400):
        if first_model.exists() or killed.poll() is not None:
            break
        time.sleep(0.05)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    written = first_model.stat().st_mtime_ns
    assert not (out / "results.json").exists()
    ended = owlmine_command("demo", "--out", out, *BUDGET)
    assert ended.returncode == 0, ended.stderr
    return out, ended.stdout, ended.stderr, written


@pytest.fixture(scope="module")
def results(demo: tuple[Path, str, str, int]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((demo[0] / "results.json").read_text("utf-8"))
    return told


def test_a_killed_demo_goes_on_and_keeps_what_was_finished(demo: tuple[Path, str, str, int]) -> None:
    out, _, progress, written = demo
    assert (out / METHODS[0].folder / "config.json").stat().st_mtime_ns == written
    assert f"{METHODS[0].title}: trained before" in progress
    assert all((out / method.folder / "config.json").exists() for method in METHODS)


def test_all_methods_had_the_same_budget(results: dict[str, Any]) -> None:
    assert [method["folder"] for method in results["methods"]] == ["top-1", "top-16", BASELINE]
    assert len({method["points_seen"] for method in results["methods"]}) == 1
    assert 0.09 < results["methods"][0]["points_seen"] / results["data"]["train_points"] < 0.11


def test_ratios_are_figures_over_negative_sampling(results: dict[str, Any]) -> None:
    baseline = results["methods"][-1]["test"]
    for method in results["methods"]:
        for name in NAMES:
            ratio = method["ratio"][name]
            assert (ratio is None) == (baseline[name] == 0)
            assert ratio is None or ratio * baseline[name] == pytest.approx(method["test"][name])


def test_the_terminal_shows_the_results(demo: tuple[Path, str, str, int], results: dict[str, Any]) -> None:
    out, shown, progress, _ = demo
    for method in results["methods"]:
        assert method["title"] in progress
        assert [f"{method['test'][name]:.2f}" for name in NAMES] == figures_of(shown, method["title"])
    for example in results["examples"]:
        assert example["package"] in shown
    assert shown.rstrip().endswith(f"Report: {(out / 'report.html').resolve()}")


def figures_of(shown: str, title: str) -> list[str]:
    """The numbers behind a title in the table of figures, seconds left out."""
    found = re.search(rf"^\s*{re.escape(title)}((?:\s+\d+\.\d\d){{6}})\s+\d+\s*$", shown, re.MULTILINE)
    assert found is not None, shown
    return found[1].split()


def test_examples_are_test_points_with_their_own_labels(results: dict[str, Any]) -> None:
    store = open_dataset("sample")
    batch = store["test"].batch(pick_rows(store, seed=0))
    for place, example in enumerate(results["examples"]):
        true = {store.class_names[c] for c in batch.labels[place : place + 1].indices.tolist()}
        assert set(example["true"]) == true
        for answers in example["predicted"].values():
            assert len(answers) == 5
            assert all(answer["hit"] == (answer["name"] in true) for answer in answers)
            assert [a["score"] for a in answers] == sorted((a["score"] for a in answers), reverse=True)


class Page(HTMLParser):
    """Text of a page and what it refers to; fails on a tag that is not closed."""

    VOID = ("meta", "br", "link", "img", "hr", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open_tags: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in self.VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open_tags == []
    return page


def test_the_report_is_whole_and_needs_nothing_else(demo: tuple[Path, str, str, int]) -> None:
    text = (demo[0] / "report.html").read_text("utf-8")
    page = parsed(text)
    assert page.references == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not re.search(r"https?:|@import|url\(", text)
    assert "$" not in "".join(page.words)
    assert page.tags.count("svg") == 2 + len(METHODS)


def test_the_report_has_the_numbers_of_the_results(demo: tuple[Path, str, str, int], results: dict[str, Any]) -> None:
    cells = parsed((demo[0] / "report.html").read_text("utf-8")).words
    for method in results["methods"]:
        for name in NAMES:
            assert f"{method['test'][name]:.2f}" in cells
            if method["folder"] != BASELINE and method["ratio"][name] is not None:
                assert f"{method['ratio'][name]:.2f}" in cells
    for example in results["examples"]:
        assert example["package"] in cells
        assert set(example["true"]) <= set(cells)


def test_names_in_the_report_are_escaped(results: dict[str, Any]) -> None:
    odd = '<b>&"x"</b> ${tiles}'
    example = results["examples"][0] | {"package": odd, "summary": odd, "true": [odd]}
    page = parsed(report_html(results | {"examples": [example]}))
    assert page.words.count(odd) == 3


def test_a_baseline_of_zero_has_no_ratio(results: dict[str, Any]) -> None:
    nothing = dict.fromkeys(NAMES, 0.0)
    assert ratios(nothing, nothing) == dict.fromkeys(NAMES, None)
    methods = [method | {"ratio": dict.fromkeys(NAMES, None)} for method in results["methods"]]
    assert "– × negative sampling" in "".join(parsed(report_html(results | {"methods": methods})).words)


def test_a_bad_option_is_named_before_anything_is_written(owlmine_command: Command, tmp_path: Path) -> None:
    refused = owlmine_command("demo", "--out", tmp_path / "out", "--dim", "0")
    assert refused.returncode == 2
    assert refused.stderr == "owlmine: error: --dim is 0; wanted 1 or more\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bad", [{"epochs": 0.0}, {"dim": -1}, {"seed": -1}])
def test_options_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is {next(iter(bad.values()))}; wanted"):
        demo_run.DemoOptions(**bad)


class SilentShow:
    """Shows nothing."""

    @contextmanager
    def training(self, title: str, number: int, total: int) -> Iterator[SilentReporter]:
        del title, number, total
        yield SilentReporter()

    def message(self, text: str) -> None:
        del text


class Heard(SilentShow):
    """Remembers what was said, and whether a report lay there while a model was trained."""

    def __init__(self, out: Path) -> None:
        self.messages: list[str] = []
        self.stale = False
        self._report = out / "report.html"

    @contextmanager
    def training(self, title: str, number: int, total: int) -> Iterator[SilentReporter]:
        del title, number, total
        self.stale |= self._report.exists()
        yield SilentReporter()

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_models_that_fit_are_kept_and_others_trained_anew(demo: tuple[Path, str, str, int], tmp_path: Path) -> None:
    """One of three was made with another seed; then all are what the options ask for."""
    out, changed = shutil.copytree(demo[0], tmp_path / "out"), METHODS[1]
    run_file = out / changed.folder / "run.json"
    run_file.write_text(run_file.read_text().replace('"seed": 0', '"seed": 7'))
    (out / changed.folder / "weights.safetensors").write_bytes(b"of another seed")
    before = {method.folder: (out / method.folder / "config.json").stat().st_mtime_ns for method in METHODS}
    show = Heard(out)
    options = demo_run.DemoOptions(epochs=0.1, dim=8)
    demo_run.run_demo(open_dataset("sample"), out, options, show)
    assert show.messages == [
        "Top-1 SNM: trained before",
        "Top-16 SNM: removed an earlier model of other options or data; training anew",
        "Negative sampling: trained before",
        "judging on the test split",
    ]
    after = {method.folder: (out / method.folder / "config.json").stat().st_mtime_ns for method in METHODS}
    assert {name for name in before if before[name] != after[name]} == {changed.folder}
    for method in METHODS:
        assert verify_model(out / method.folder) == []
        expected, found = (load(folder / method.folder).retriever.tensors() for folder in (demo[0], out))
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not show.stale, "told of the model that was removed"


@pytest.fixture
def earlier(small_folder: Path, tmp_path: Path) -> tuple[DemoFolder, Store]:
    """A demo's folder with results and one unfinished run, which is of other options than ``TrainOptions(seed=1)``."""
    store = convert(small_folder, tmp_path / "store")
    home = DemoFolder(tmp_path / "demo")
    with home.held():
        pass
    run = home.path / "top-1"
    (run / "checkpoints").mkdir(parents=True)
    (run / "run.json").write_text(run_description(store, TrainOptions()))
    for name in ("config.json", "weights.safetensors", "checkpoints/step-0000000001.json"):
        (run / name).write_text("something")
    for name in ("results.json", "report.html"):
        (home.path / name).write_text("figures")
    return home, store


def files_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_what_fits_is_left_alone(earlier: tuple[DemoFolder, Store]) -> None:
    home, store = earlier
    before = files_in(home.path)
    assert not home.clear("top-1", store, TrainOptions())
    assert not home.clear("top-16", store, TrainOptions())
    assert files_in(home.path) == before


@pytest.mark.parametrize("run", [None, "", "null", "{"])
def test_what_does_not_fit_goes(earlier: tuple[DemoFolder, Store], run: str | None) -> None:
    home, store = earlier
    if run is not None:
        (home.path / "top-1" / "run.json").write_text(run)
    (home.path / "mine.txt").write_text("mine")
    assert home.clear("top-1", store, TrainOptions(seed=1))
    assert files_in(home.path) == [".owlmine-demo", "mine.txt"]


def test_nothing_is_removed_where_no_demo_was(earlier: tuple[DemoFolder, Store]) -> None:
    home, store = earlier
    (home.path / ".owlmine-demo").unlink()
    before = files_in(home.path)
    with pytest.raises(OwlmineError, match="holds something else; wanted a new folder or one that owlmine demo made"):
        demo_run.run_demo(store, home.path, demo_run.DemoOptions(), SilentShow())
    assert files_in(home.path) == before


def test_nothing_is_removed_under_a_process_that_trains(earlier: tuple[DemoFolder, Store]) -> None:
    home, store = earlier
    before = files_in(home.path)
    with working_in(home.path / "top-1"), pytest.raises(OwlmineError, match="another process is training"):
        home.clear("top-1", store, TrainOptions(seed=1))
    assert files_in(home.path) == before


def test_half_removed_is_no_model_and_still_known(
    earlier: tuple[DemoFolder, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever file the removal ends at."""
    home, store = earlier
    run, unlink = home.path / "top-1", Path.unlink

    def stubborn(self: Path, missing_ok: bool = False) -> None:
        if self.name == "weights.safetensors":
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(self, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", stubborn)
        with pytest.raises(OwlmineError, match="top-1: cannot be removed: Permission denied"):
            home.clear("top-1", store, TrainOptions(seed=1))
    assert not (run / "config.json").exists()
    assert (run / "run.json").exists()
    assert home.clear("top-1", store, TrainOptions(seed=1))
    assert list(run.iterdir()) == []


def test_a_stopped_demo_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise Stopped(signal.SIGTERM, "stopped at step 3 of 9; go on with --resume")

    monkeypatch.setattr(demo_run, "train", stopped)
    with pytest.raises(Stopped, match=r"^stopped at step 3 of 9; the same command goes on from there$") as caught:
        demo_run.run_demo(open_dataset("sample"), tmp_path / "out", demo_run.DemoOptions(), SilentShow())
    assert caught.value.signal == signal.SIGTERM


def test_judge_agrees_with_the_metrics(small_folder: Path, tmp_path: Path) -> None:
    store = convert(small_folder, tmp_path / "store")
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=4), seed=1)
    found = judge(model, store["test"])
    batch = store["test"].batch(np.arange(len(store["test"])))
    from owlmine.dense.encoder import query_batch

    ids = model.top(query_batch(batch.queries, model.device), 5)[1].numpy()
    for k in (1, 3, 5):
        assert found[f"P@{k}"] == pytest.approx(100 * precision_at_k(ids, batch.labels, k))
        assert found[f"R@{k}"] == pytest.approx(100 * recall_at_k(ids, batch.labels, k))


def test_methods_differ_in_loss_and_rates_alone() -> None:
    options = [method.options(epochs=1.0, dim=8, seed=0) for method in METHODS]
    neutral = TrainOptions()
    rates = ("loss", "top", "class_rate", "feature_rate", "map_rate")
    same = {replace(o, **{name: getattr(neutral, name) for name in rates}) for o in options}
    assert len(same) == 1
    assert {o.loss for o in options} == {"bowl", "negative-sampling-bowl"}
    assert {o.recipe for o in options} == {"single"}


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_are_few_equal_steps_that_cover_the_range(low: float, span: float) -> None:
    high = low + span
    ticks = round_ticks(low, high)
    slack = 1e-9 * max(abs(low), abs(high), 1e-3)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    np.testing.assert_allclose(np.diff(ticks), ticks[1] - ticks[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (0.0, float("nan")), (0.0, float("inf"))])
def test_ticks_of_no_range_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="wanted numbers"):
        round_ticks(low, high)


def test_curves_stay_inside_the_picture() -> None:
    line = Line("one", 1, [0, 10, 20_000], [3.0, 50.0, 41.5])
    text = curves_svg([line], x_name="points", y_name="percent", label="a & b")
    parsed(text)
    assert 'aria-label="a &amp; b"' in text
    for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text):
        assert 0 <= float(x) <= 460
        assert 0 <= float(y) <= 300


@pytest.mark.parametrize(
    ("last", "told"), [(8_000, "8,000"), (15_000, "15k"), (8_000_000, "8,000k"), (15_000_000, "15M")]
)
def test_ticks_are_told_in_units(last: float, told: str) -> None:
    picture = curves_svg([Line("one", 1, [0.0, last], [1.0, 2.0])], x_name="points", y_name="y", label="one")
    assert f">{told}</text>" in picture
