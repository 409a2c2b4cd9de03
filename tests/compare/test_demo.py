"""The demo as a user runs it, with a tiny budget, killed halfway; its folder; and its report as a browser reads it."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.compare import demo as compare_demo
from owlmine.compare import runs as compare_runs
from owlmine.compare.demo import PAPER_METHODS, PRODUCT, PRODUCT_TITLE, DemoOptions, dense_figures, pick_rows, run_demo
from owlmine.compare.figures import NAMES, ratios
from owlmine.compare.folder import DemoFolder
from owlmine.compare.methods import BASELINE
from owlmine.compare.report import demo_page
from owlmine.data import Store, convert, open_dataset
from owlmine.dense.encoder import query_batch
from owlmine.dense.progress import Reporter
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import OwlmineError
from owlmine.evaluate.of_model import evaluate_model
from owlmine.folder.model_folder import verify_model
from owlmine.metrics import precision_at_k, recall_at_k
from owlmine.model import load
from owlmine.recipe.options import TrainOptions
from owlmine.run import Stopped
from owlmine.run.run_folder import working_in
from tests.compare.conftest import Heard
from tests.compare.pages import parsed
from tests.compare.test_files import HOSTILE
from tests.conftest import Command

BUDGET = ("--epochs", "0.1", "--dim", "8")
OPTIONS = DemoOptions(epochs=0.1, dim=8)
MODELS = (PRODUCT, *(method.name for method in PAPER_METHODS))

Demo = tuple[Path, str, str, int]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, owlmine_command: Command) -> Demo:
    """A demo that was killed after its first model, and then run to its end by the same command.

    The folder, what the second run printed (standard output, standard error), and when the first model was written.
    """
    open_dataset("sample")  # converted once, not by the process that is about to be killed
    out = tmp_path_factory.mktemp("demo") / "out"
    first_model = out / MODELS[0] / "config.json"
    killed = subprocess.Popen(
        [sys.executable, "-m", "owlmine", "demo", "--out", str(out), *BUDGET],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
    )
    for _ in range(6000):
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
def results(demo: Demo) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((demo[0] / "results.json").read_text("utf-8"))
    return found


def test_a_killed_demo_resumes_and_keeps_what_was_finished(demo: Demo) -> None:
    out, _, progress, written = demo
    assert (out / PRODUCT / "config.json").stat().st_mtime_ns == written
    assert "removed" not in progress
    assert all((out / name / "config.json").exists() for name in MODELS)


def test_the_product_is_what_owlmine_train_gives(demo: Demo, results: dict[str, Any]) -> None:
    """With the default options but for those that were asked for, and scored as ``owlmine evaluate`` would."""
    model = load(demo[0] / PRODUCT)
    defaults = TrainOptions().to_dict()
    changed = {name: value for name, value in model.record.options.items() if value != defaults[name]}
    assert changed == {"epochs": 0.1, "dim": 8}
    assert DemoOptions().product() == TrainOptions()
    figures = evaluate_model(model, open_dataset("sample")["test"], ks=(1, 3, 5)).figures
    assert results["product"]["test"] == {name: figures[name] for name in NAMES}
    assert shlex.join(results["product"]["command"]) == "owlmine train sample --out best --epochs 0.1 --dim 8"
    assert shlex.join(DemoOptions().command()) == "owlmine train sample --out best"
    assert results["product"]["judges"]


def test_the_papers_models_had_the_same_budget(demo: Demo, results: dict[str, Any]) -> None:
    assert [method["name"] for method in results["methods"]] == ["top-1", "top-16", BASELINE]
    assert len({method["points_seen"] for method in results["methods"]}) == 1
    assert 0.09 < results["methods"][0]["points_seen"] / results["data"]["learnt_points"] < 0.11
    own = {"loss", "top", "class_rate", "feature_rate", "map_rate"}
    options = [load(demo[0] / method["name"]).record.options for method in results["methods"]]
    shared = [{name: value for name, value in one.items() if name not in own} for one in options]
    assert shared[0] == shared[1] == shared[2]
    assert shared[0]["recipe"] == "single"


def test_ratios_are_figures_over_negative_sampling(results: dict[str, Any]) -> None:
    baseline = results["methods"][-1]["mean"]
    for method in results["methods"]:
        for name in NAMES:
            ratio = method["ratio"][name]
            assert (ratio is None) == (baseline[name] == 0)
            assert ratio is None or ratio * baseline[name] == pytest.approx(method["mean"][name])


def test_the_terminal_shows_the_results(demo: Demo, results: dict[str, Any]) -> None:
    out, shown, progress, _ = demo
    rows = [(PRODUCT_TITLE, results["product"]["test"])]
    rows += [(method["title"], method["mean"]) for method in results["methods"]]
    for title, figures in rows:
        assert title in progress
        assert [f"{figures[name]:.2f}" for name in NAMES] == figures_of(shown, title)
    assert shown.index(PRODUCT_TITLE) < shown.index("Top-1 SNM")
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
        assert set(example["predicted"]) == set(MODELS)
        for answers in example["predicted"].values():
            assert len(answers) == 5
            assert all(answer["hit"] == (answer["name"] in true) for answer in answers)
            assert [a["score"] for a in answers] == sorted((a["score"] for a in answers), reverse=True)


def test_the_report_is_whole_and_needs_nothing_else(demo: Demo) -> None:
    text = (demo[0] / "report.html").read_text("utf-8")
    page = parsed(text)
    assert page.references == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not re.search(r"https?:|@import|url\(", text)
    assert not re.search(r"[{][{%]|[%}][}]", "".join(page.words))
    assert page.tags.count("svg") == 2 + len(PAPER_METHODS)


def test_the_report_has_the_numbers_of_the_results(demo: Demo, results: dict[str, Any]) -> None:
    words = parsed((demo[0] / "report.html").read_text("utf-8")).words
    assert f"{results['product']['test']['P@1']:.2f} %" in words, "the tile of the product"
    assert words.index(PRODUCT_TITLE) < words.index("Top-1 SNM")
    assert shlex.join(results["product"]["command"]) in words
    for figures in (results["product"]["test"], *(method["mean"] for method in results["methods"])):
        assert {f"{figures[name]:.2f}" for name in NAMES} <= set(words)
    for method in results["methods"]:
        for name in NAMES:
            if method["name"] != BASELINE and method["ratio"][name] is not None:
                assert f"{method['ratio'][name]:.2f}" in words
    assert "2.33" in words, "the paper's own ratio"
    for example in results["examples"]:
        assert example["package"] in words
        assert set(example["true"]) <= set(words)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_the_report_are_escaped(results: dict[str, Any], name: str) -> None:
    example = results["examples"][0]
    answers = {model: [answer | {"name": name} for answer in given] for model, given in example["predicted"].items()}
    example = example | {"package": name, "summary": name, "true": [name], "predicted": answers}
    page = parsed(demo_page(results | {"examples": [example]}))
    assert set(page.tags) == set(parsed(demo_page(results)).tags)
    assert page.handlers == []
    assert sum(words.strip().removeprefix("✓ ") == name for words in page.words) == 3 + 5 * len(MODELS)


def test_a_baseline_of_zero_has_no_ratio(results: dict[str, Any]) -> None:
    nothing = dict.fromkeys(NAMES, 0.0)
    assert ratios(nothing, nothing) == dict.fromkeys(NAMES, None)
    methods = [method | {"ratio": dict.fromkeys(NAMES, None)} for method in results["methods"]]
    assert "P@1, – × negative sampling" in parsed(demo_page(results | {"methods": methods})).words


def test_a_bad_option_is_named_before_anything_is_written(owlmine_command: Command, tmp_path: Path) -> None:
    refused = owlmine_command("demo", "--out", tmp_path / "out", "--dim", "0")
    assert refused.returncode == 2
    assert refused.stderr == "owlmine: error: --dim is 0; wanted 1 or more\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bad", [{"epochs": 0.0}, {"dim": -1}, {"seed": -1}])
def test_options_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is {next(iter(bad.values()))}; wanted"):
        DemoOptions(**bad)


class Watching(Heard):
    """Remembers whether a report lay there while a model was trained."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.stale = False
        self._report = out / "report.html"

    def running(self, title: str) -> Any:
        self.stale |= self._report.exists()
        return super().running(title)


def test_models_that_fit_are_kept_and_others_trained_again(demo: Demo, tmp_path: Path) -> None:
    """One of four was made with another seed; then all are what the options ask for."""
    out, changed = shutil.copytree(demo[0], tmp_path / "out"), PAPER_METHODS[1]
    run_file = out / changed.name / "run.json"
    run_file.write_text(run_file.read_text().replace('"seed": 0', '"seed": 7'))
    (out / changed.name / "weights.safetensors").write_bytes(b"of another seed")
    before = {name: (out / name / "config.json").stat().st_mtime_ns for name in MODELS}
    show = Watching(out)
    run_demo(open_dataset("sample"), out, OPTIONS, show)
    assert show.messages == [
        "Top-16 SNM: removed an earlier model with other options or data; training it again",
        "testing and writing the report",
    ]
    assert [text.partition(":")[0] for text in show.ended if text.endswith("(found)")] == [
        PRODUCT_TITLE,
        "Top-1 SNM",
        "Negative sampling",
    ]
    after = {name: (out / name / "config.json").stat().st_mtime_ns for name in MODELS}
    assert {name for name in before if before[name] != after[name]} == {changed.name}
    for name in MODELS:
        assert verify_model(out / name) == []
        expected, found = (load(folder / name).dense.tensors() for folder in (demo[0], out))
        assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert not show.stale, "describes the model that was removed"


def test_a_model_that_was_taken_away_is_trained_again(demo: Demo, tmp_path: Path) -> None:
    """Its record alone is no model."""
    out = shutil.copytree(demo[0], tmp_path / "out")
    shutil.rmtree(out / "top-1")
    show = Watching(out)
    run_demo(open_dataset("sample"), out, OPTIONS, show)
    assert verify_model(out / "top-1") == []
    assert len([text for text in show.ended if text.endswith("(found)")]) == 3


def test_a_model_that_diverged_ends_the_demo(demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = shutil.copytree(demo[0], tmp_path / "out")
    shutil.rmtree(out / "top-1")
    wild = tuple(
        replace(method, starts=(replace(method.starts[0], feature_rate=1e38, map_rate=1e38),))
        for method in PAPER_METHODS
    )
    monkeypatch.setattr(compare_demo, "PAPER_METHODS", wild)
    with pytest.raises(OwlmineError, match="Top-1 SNM: training diverged"):
        run_demo(open_dataset("sample"), out, OPTIONS, Heard())
    assert list((out / "runs").glob("final-top-1-*")) == []
    assert not (out / "top-1").exists()


@pytest.fixture
def earlier(small_folder: Path, tmp_path: Path) -> tuple[DemoFolder, Store]:
    """A demo's folder with results and one unfinished run, which has other options than ``seed=1``."""
    store = convert(small_folder, tmp_path / "store")
    home = DemoFolder(tmp_path / "demo")
    with home.held():
        pass
    run = home.path / "top-1"
    (run / "checkpoints").mkdir(parents=True)
    record = {"options": TrainOptions().binding(), "plan": {}, "data": store.meta["checksum"]}
    (run / "run.json").write_text(json.dumps(record))
    for name in ("config.json", "weights.safetensors", "checkpoints/step-0000000001.json"):
        (run / name).write_text("something")
    for name in ("results.json", "report.html", "runs/final-top-1-0123.json", "runs/final-top-16-0123.json"):
        (home.path / name).write_text("figures")
    return home, store


def files_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_what_fits_is_left_alone(earlier: tuple[DemoFolder, Store]) -> None:
    home, store = earlier
    before = files_in(home.path)
    assert not home.clear("top-1", store, TrainOptions())
    assert files_in(home.path) == before


def test_a_record_without_its_model_goes(earlier: tuple[DemoFolder, Store]) -> None:
    home, store = earlier
    before = files_in(home.path)
    assert not home.clear("top-16", store, TrainOptions())
    assert files_in(home.path) == [name for name in before if name != "runs/final-top-16-0123.json"]


@pytest.mark.parametrize("run", [None, "", "null", "{"])
def test_what_does_not_fit_goes(earlier: tuple[DemoFolder, Store], run: str | None) -> None:
    home, store = earlier
    if run is not None:
        (home.path / "top-1" / "run.json").write_text(run)
    (home.path / "mine.txt").write_text("mine")
    assert home.clear("top-1", store, TrainOptions.of(seed=1))
    assert files_in(home.path) == [".owlmine-demo", "mine.txt", "runs/final-top-16-0123.json"]


def test_nothing_is_removed_where_no_demo_was(earlier: tuple[DemoFolder, Store]) -> None:
    home, store = earlier
    (home.path / ".owlmine-demo").unlink()
    before = files_in(home.path)
    with pytest.raises(OwlmineError, match="has other contents; wanted a new folder or one that owlmine demo made"):
        run_demo(store, home.path, DemoOptions(), Heard())
    assert files_in(home.path) == before


def test_nothing_is_removed_under_a_process_that_trains(earlier: tuple[DemoFolder, Store]) -> None:
    home, store = earlier
    before = files_in(home.path)
    with working_in(home.path / "top-1"), pytest.raises(OwlmineError, match="another process is training"):
        home.clear("top-1", store, TrainOptions.of(seed=1))
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
            home.clear("top-1", store, TrainOptions.of(seed=1))
    assert not (run / "config.json").exists()
    assert (run / "run.json").exists()
    assert home.clear("top-1", store, TrainOptions.of(seed=1))
    assert list(run.iterdir()) == []


def test_a_stopped_demo_says_how_to_resume(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(*_: object, reporter: Reporter, **__: object) -> None:
        del reporter
        raise Stopped(signal.SIGTERM, "stopped at step 3 of 9; continue with --resume")

    monkeypatch.setattr(compare_runs, "train", stopped)
    with pytest.raises(Stopped, match=r"^stopped at step 3 of 9; run the same command again to resume$") as caught:
        run_demo(open_dataset("sample"), tmp_path / "out", DemoOptions(), Heard())
    assert caught.value.signal == signal.SIGTERM


def test_figures_of_a_dense_model_agree_with_the_metrics(small_folder: Path, tmp_path: Path) -> None:
    store = convert(small_folder, tmp_path / "store")
    model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=4), seed=1)
    found = dense_figures(model, store["test"])
    batch = store["test"].batch(np.arange(len(store["test"])))
    ids = model.top(query_batch(batch.queries, model.device), 5)[1].numpy()
    for k in (1, 3, 5):
        assert found[f"P@{k}"] == pytest.approx(100 * precision_at_k(ids, batch.labels, k))
        assert found[f"R@{k}"] == pytest.approx(100 * recall_at_k(ids, batch.labels, k))


def test_the_papers_methods_differ_in_loss_and_rates_alone() -> None:
    paper, neutral = DemoOptions().paper(), TrainOptions().to_dict()
    own = ("loss", "top", "class_rate", "feature_rate", "map_rate", "scale")
    made = [paper.final_options(method, method.starts[0], seed=0) for method in PAPER_METHODS]
    assert len({one.with_(**{name: neutral[name] for name in own}) for one in made}) == 1
    assert {one.loss.loss for one in made} == {"bowl", "negative-sampling-bowl"}
    assert {one.loss.scale for one in made} == {1.0}
