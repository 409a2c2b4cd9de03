"""Whole comparisons: equal budgets, settings chosen without the test split, runs that are never made twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from owlmine.compare import runs as compare_runs
from owlmine.compare.demo import dense_figures
from owlmine.compare.figures import NAMES
from owlmine.compare.folder import CompareFolder
from owlmine.compare.methods import METHODS, Setting
from owlmine.compare.runs import Job, Runs, StepTimer
from owlmine.data import Store, convert
from owlmine.dense.progress import Progress, SilentReporter
from owlmine.errors import OwlmineError
from owlmine.model import load
from owlmine.run import Stopped
from tests.compare.conftest import OPTIONS, Heard, compare, records
from tests.conftest import write_points

Compared = tuple[Path, dict[str, Any], Heard]


def test_every_method_sees_as_many_points(compared: Compared) -> None:
    out, results, _ = compared
    # 160 of 200 points are left to learn from; 5 batches of 32 an epoch.
    finals = [record for record in records(out).values() if record["purpose"] == "final"]
    assert {record["points_seen"] for record in finals} == {320}
    assert {record["steps"] for record in finals} == {10}
    assert {record["points_seen"] for record in records(out).values() if record["purpose"] == "search"} == {160}
    assert {method["points_seen"] for method in results["methods"]} == {320}


def test_methods_share_all_but_loss_and_setting(compared: Compared) -> None:
    own = {"loss", "top", "class_rate", "feature_rate", "map_rate", "scale"}
    finals = [record for record in records(compared[0]).values() if record["purpose"] == "final"]
    for seed in (0, 1):
        shared = [{k: v for k, v in r["options"].items() if k not in own} for r in finals if r["seed"] == seed]
        assert len(shared) == 3
        assert all(options == shared[0] for options in shared)


def test_each_run_is_trained_with_its_own_setting(compared: Compared) -> None:
    """That of its method: it walks from the method's own starts, and ends with the best of the method's search."""
    out, results, _ = compared
    of_methods = {method["name"]: method for method in results["methods"]}
    made = list(records(out).values())
    assert {record["method"] for record in made} == set(of_methods)
    for record in made:
        method, options, setting = METHODS[record["method"]], record["options"], record["setting"]
        assert {name: options[name] for name in setting} == setting
        assert (options["loss"], options["top"]) == (method.loss, method.top)
        if record["purpose"] == "final":
            assert setting == of_methods[method.name]["setting"]
    for name, method in of_methods.items():
        tried = [{key: one[key] for key in method["setting"]} for one in method["search"]["tried"]]
        starts = [asdict(start) for start in METHODS[name].starts]
        assert tried[:2] == starts or tried[0] == starts[0]
        searched = [r["setting"] for r in made if r["method"] == name and r["purpose"] == "search"]
        assert sorted(map(str, searched)) == sorted(map(str, tried))


def test_the_best_on_validation_is_chosen(compared: Compared) -> None:
    for method in compared[1]["methods"]:
        tried = method["search"]["tried"]
        assert 2 <= len(tried) <= OPTIONS.search_runs
        best = max(tried, key=lambda one: one["P@1"])
        assert method["setting"] == {name: best[name] for name in method["setting"]}
        assert method["search"]["validation P@1"] == best["P@1"]


def test_runs_of_the_search_know_nothing_of_the_test_split(compared: Compared) -> None:
    for record in records(compared[0]).values():
        assert ("test" in record) == (record["purpose"] == "final")


def test_a_poisoned_test_split_changes_no_choice(compared: Compared, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_points(folder / "train.txt", 200)
    lines = ["60 50 20", *(f"{(13 * n + 5) % 20} {n % 50}:9" for n in range(60))]
    (folder / "test.txt").write_text("\n".join(lines) + "\n")
    found, _ = compare(convert(folder, tmp_path / "store"), tmp_path / "out")
    for before, after in zip(compared[1]["methods"], found["methods"], strict=True):
        assert before["setting"] == after["setting"]
        assert before["search"]["tried"] == after["search"]["tried"]
        assert before["mean"] != after["mean"]


def test_figures_are_those_of_the_models(small_store: Store, tmp_path: Path) -> None:
    options = replace(OPTIONS, methods="top-1", search_runs=1, seeds=1, keep_models=True)
    results, _ = compare(small_store, tmp_path / "out", options)
    (final,) = results["methods"][0]["finals"]
    model = load(tmp_path / "out" / "models" / final["model"])
    assert not model.ranker.judges
    assert dense_figures(model.dense, small_store["test"]) == pytest.approx(results["methods"][0]["mean"])
    assert results["methods"][0]["deviation"] == dict.fromkeys(NAMES)
    assert results["baseline"] is None
    assert results["notes"][0] == "There are no ratios, because negative-sampling is not among the methods"


def test_models_are_not_kept_unless_asked_for(compared: Compared) -> None:
    assert sorted(path.name for path in compared[0].iterdir()) == [
        ".owlmine-compare",
        "figures.csv",
        "report.html",
        "results.json",
        "runs",
        "table.tex",
    ]


def test_finished_runs_are_found_again(compared: Compared, small_store: Store, tmp_path: Path) -> None:
    out = shutil.copytree(compared[0], tmp_path / "out")
    before = records(out)
    results, heard = compare(small_store, out)
    assert results["runs_made"] == 0
    assert results["runs_found"] == len(before)
    assert all(text.endswith("(found)") for text in heard.ended)
    assert records(out) == before
    assert results["methods"] == compared[1]["methods"]


def test_other_options_make_only_what_is_missing(compared: Compared, small_store: Store, tmp_path: Path) -> None:
    out = shutil.copytree(compared[0], tmp_path / "out")
    count = len(records(out))
    more, _ = compare(small_store, out, replace(OPTIONS, seeds=3))
    assert (more["runs_made"], more["runs_found"]) == (3, count)
    fewer, _ = compare(small_store, out, replace(OPTIONS, methods="negative-sampling"))
    assert fewer["runs_made"] == 0
    late, heard = compare(small_store, out, replace(OPTIONS, methods="top-1", keep_models=True))
    assert late["runs_made"] == 0
    assert [text.partition(":")[0] for text in heard.messages if "was not saved" in text] == [
        "Top-1 SNM, seed 0 (1 of 2)",
        "Top-1 SNM, seed 1 (2 of 2)",
    ]
    wider, _ = compare(small_store, out, replace(OPTIONS, methods="top-1", pool=12))
    assert wider["runs_found"] == 0


@pytest.mark.parametrize("damage", ["", "null", '{"key": "other"}', "{"])
def test_a_damaged_record_is_made_anew(compared: Compared, small_store: Store, tmp_path: Path, damage: str) -> None:
    out = shutil.copytree(compared[0], tmp_path / "out")
    file = next((out / "runs").glob("final-top-1-*.json"))
    wanted = json.loads(file.read_text())["test"]
    file.write_text(damage)
    results, _ = compare(small_store, out)
    assert results["runs_made"] == 1
    assert json.loads(file.read_text())["test"] == wanted


def test_a_killed_comparison_goes_on(compared: Compared, small_store: Store, tmp_path: Path) -> None:
    """SIGKILL after some runs, while another is under way; then the same figures, and no run made twice."""
    out = tmp_path / "out"
    script = (
        "import sys; from pathlib import Path; from owlmine.data import Store;"
        "from tests.compare.conftest import compare; compare(Store.open(sys.argv[1]), Path(sys.argv[2]))"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(small_store.path), str(out)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"},
    )
    for _ in range(6000):
        if len(list(out.glob("runs/*.json"))) >= 3 or process.poll() is not None:
            break
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = {file: file.stat().st_mtime_ns for file in (out / "runs").glob("*.json")}
    assert 3 <= len(before) < len(records(compared[0]))
    assert not (out / "report.html").exists()
    results, _ = compare(small_store, out)
    assert results["runs_found"] == len(before)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert set(records(out)) == set(records(compared[0]))
    assert not (out / "working").exists()
    for found, whole in zip(results["methods"], compared[1]["methods"], strict=True):
        assert found["mean"] == whole["mean"]
        assert found["setting"] == whole["setting"]


@pytest.fixture
def runs(small_store: Store, tmp_path: Path) -> Runs:
    folder = CompareFolder(tmp_path / "out")
    with folder.held():
        return Runs(small_store, folder, Heard(), data_name="small")


def job(setting: Setting, purpose: Any = "search") -> Job:
    method = METHODS["top-1"]
    return Job(purpose, method.name, "a run", OPTIONS.search_options(method, setting), setting)


def test_a_model_without_its_record_is_not_trained_again(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the end of training and the record: the model is there."""
    wanted, setting = job(Setting(0.1, 1.0, 0.001), "final"), compare_runs.write_text

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compare_runs, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            runs.get(wanted)
    assert compare_runs.write_text is setting
    (model,) = (tmp_path / "out" / "working").iterdir()
    written = (model / "config.json").stat().st_mtime_ns
    seen: list[int] = []
    monkeypatch.setattr(shutil, "rmtree", lambda place, **_: seen.append((place / "config.json").stat().st_mtime_ns))
    record = runs.get(wanted)
    assert seen == [written]
    assert record["seconds_per_step"] > 0
    assert record["points_seen"] == 160


@pytest.mark.parametrize("purpose", ["search", "final"])
def test_a_loss_that_leaves_the_numbers_counts_as_nothing(runs: Runs, tmp_path: Path, purpose: str) -> None:
    record = runs.get(job(Setting(1e30, 1e38, 1e38), purpose))
    assert not record["finite"]
    assert record["validation"] == {"P@1": 0.0}
    assert record.get("test") == (dict.fromkeys(NAMES, 0.0) if purpose == "final" else None)
    assert list((tmp_path / "out" / "working").iterdir()) == []
    assert runs.get(job(Setting(1e30, 1e38, 1e38), purpose)) == record


def test_other_errors_are_not_taken_for_bad_rates(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OwlmineError("no space left on device")

    monkeypatch.setattr(compare_runs, "train", full)
    with pytest.raises(OwlmineError, match="no space left"):
        runs.get(job(Setting(0.1, 1.0, 0.001)))


def test_a_stopped_comparison_says_how_to_resume(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise Stopped(signal.SIGTERM, "stopped at step 3 of 9; continue with --resume")

    monkeypatch.setattr(compare_runs, "train", stopped)
    with pytest.raises(Stopped, match=r"^stopped at step 3 of 9; run the same command again to resume$"):
        runs.get(job(Setting(0.1, 1.0, 0.001)))


def test_validation_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 steps in 5 s, 100 s of validation, 50 steps in 10 s; what came before the first report is left out."""
    now = iter([100.0, 100.0, 105.0, 105.0, 205.0, 205.0, 215.0, 215.0])
    monkeypatch.setattr("owlmine.compare.runs.time.monotonic", lambda: next(now))
    timer = StepTimer(SilentReporter(), batch_size=32)
    assert timer.seconds_per_step is None
    for step in (50, 100, 100, 150):
        timer.progress(Progress(step, 150, 0.0, 0.0, points_per_second=64.0, seconds_left=0.0, validation={}))
        if step == 50:
            assert timer.seconds_per_step == 0.5
    assert timer.seconds_per_step == pytest.approx(15 / 100)
