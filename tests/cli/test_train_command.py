"""``owlmine train`` as a user runs it: exits, messages, signals, full disks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import owlmine
from owlmine.data import Store, SyntheticOptions, synthesize
from owlmine.errors import DataError, OwlmineError
from owlmine.recipe.options import TrainOptions
from tests.tiny_disk import tiny_disk_at

from ..conftest import Command, write_points
from ..run.runs import contents, curves_of
from ..small_models import dense_data, run, sparse_data, text_model, text_store

SMALL = ("--recipe", "single", "--dim", "16", "--pool", "30", "--batch-size", "32", "--device", "cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """For the commands, which inherit it: small products gain nothing from threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    options = SyntheticOptions(num_classes=80, train_points=640, test_points=10, num_topics=50, relevant=5)
    return synthesize(tmp_path_factory.mktemp("data") / "store", options)


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "owlmine", "train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
        # A shell in the background makes its children ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def one_error_line(stderr: str) -> str:
    """The last line, which must be the only one that tells of an error."""
    assert "Traceback" not in stderr
    errors = [line for line in stderr.splitlines() if line.startswith("owlmine: error: ")]
    assert errors == stderr.splitlines()[-1:], stderr
    return errors[0].removeprefix("owlmine: error: ")


def test_signals_checkpoint_and_resume(store: Store, tmp_path: Path, owlmine_command: Command) -> None:
    """Ctrl-C, then SIGTERM after --resume, then to the end: like a run without either."""
    chosen = (*SMALL, "--epochs", "20", *("--loss", "mined-softmax", "--top", "4", "--learn-scale", "--depth", "2"))
    whole = owlmine_command("train", store.path, "--out", tmp_path / "whole", *chosen)
    assert whole.returncode == 0, whole.stderr
    record = json.loads((tmp_path / "whole" / "config.json").read_text())["record"]
    wanted = {"dim": 16, "depth": 2, "top": 4, "learn_scale": True, "loss": "mined-softmax", "epochs": 20.0}
    assert {name: record["options"][name] for name in wanted} == wanted
    assert record["data"] == "store"
    assert f"{16 * (store.num_features + 2 * 16 + 80):,} parameters, 80 classes" in whole.stdout
    out, resume = tmp_path / "out", ()
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = start(store.path, "--out", out, *chosen, *resume)
        seen = (out / "metrics.jsonl").read_text().count("\n") if resume else 0
        while process.poll() is None and not (
            (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_text().count("\n") > seen
        ):
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == status, errors
        assert " continue with --resume" in one_error_line(errors)
        assert "stopped at step" in one_error_line(errors)
        assert list((out / "checkpoints").glob("*.json"))
        with pytest.raises(DataError):
            owlmine.load(out)
        resume = ("--resume",)
    done = owlmine_command("train", store.path, "--out", out, *chosen, "--resume")
    assert done.returncode == 0, done.stderr
    assert "resumed at step" in done.stderr
    assert done.stdout.startswith(f"{out}: ")
    assert contents(out) == contents(tmp_path / "whole")


SIGNALLED = """
import os, sys
from owlmine.cli import main
from owlmine.rank.probabilities import Calibration

fit, number = Calibration.fit, int(sys.argv.pop(1))

def signalled(*given):
    os.kill(os.getpid(), number)
    return fit(*given)

Calibration.fit = signalled
main()
"""


@pytest.mark.parametrize(
    ("recipe", "number", "repeated"),
    [
        (("--recipe", "single"), signal.SIGINT, False),
        (("--recipe", "single"), signal.SIGTERM, False),
        # Of a rehearsal, after which the models are trained from all points.
        (("--recipe", "best", "--heads", "2"), signal.SIGINT, True),
        (("--recipe", "best", "--heads", "2"), signal.SIGTERM, True),
        # So many validation points that no rehearsal is needed.
        (("--recipe", "best", "--heads", "2", "--validation", "0.8"), signal.SIGTERM, False),
    ],
    ids=["single-SIGINT", "single-SIGTERM", "rehearsal-SIGINT", "rehearsal-SIGTERM", "ensemble-SIGTERM"],
)
def test_signals_while_probabilities_are_fitted(
    store: Store,
    tmp_path: Path,
    owlmine_command: Command,
    recipe: tuple[str, ...],
    number: signal.Signals,
    repeated: bool,
) -> None:
    """After the last step of training, which must not be lost."""
    chosen = (*SMALL, "--epochs", "2", "--validation", "0.1", *recipe)
    command = ("train", str(store.path), "--out", str(tmp_path / "out"), *chosen)
    killed = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(int(number)), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert killed.returncode == 128 + number, killed.stderr
    assert re.search("^stopped .*; continue with --resume$", one_error_line(killed.stderr))
    assert ("rehearsal" in killed.stderr) == repeated
    assert not (tmp_path / "out" / "config.json").exists()
    done = owlmine_command(*command, "--resume")
    assert done.returncode == 0, done.stderr
    assert "rehearsal" not in done.stderr
    assert repeated or "loss" not in done.stderr, "no step is taken again"
    whole = owlmine_command("train", store.path, "--out", tmp_path / "whole", *chosen)
    assert whole.returncode == 0, whole.stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_while_data_are_read(tmp_path: Path, number: signal.Signals) -> None:
    """Before there is a run: nothing to resume, and no silence."""
    os.mkfifo(tmp_path / "train.txt")
    process = start(tmp_path / "train.txt", "--out", tmp_path / "out", *SMALL)
    writer = None
    while writer is None and process.poll() is None:
        with suppress(OSError):  # until the command has opened it, and waits for data
            writer = os.open(tmp_path / "train.txt", os.O_WRONLY | os.O_NONBLOCK)
    assert writer is not None, "it ended before"
    for _ in range(12):  # Python sees a signal late if it comes just before a read: the next one ends the read
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            _, errors = process.communicate(timeout=5)
            break
    os.close(writer)
    assert process.returncode == 128 + number, errors
    assert one_error_line(errors) == "interrupted"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("recipe", "is_best"), [((), True), (("--recipe", "single"), False)], ids=["best", "single"])
def test_the_default_recipe_is_the_best(store: Store, tmp_path: Path, recipe: tuple[str, ...], is_best: bool) -> None:
    brief = ("--dim", "8", "--epochs", "1", "--device", "cpu")
    done = run("train", store.path, "--out", tmp_path / "out", *brief, *recipe)
    assert done.exit_code == 0, done.exception
    model = owlmine.load(tmp_path / "out")
    assert set(model.ranker.judges) == ({"linear", "rarity", "neighbours"} if is_best else set())
    assert (model.dense.shape.heads > 1) == is_best
    where = "On validation points"
    if is_best:
        where = "On 20% of the training points, held out in a rehearsal"
    figures = ", ".join(f"{name} {value:.2f}" for name, value in model.record.figures.items())
    assert f"{where}: {figures}.\n" in done.stdout
    assert list(model.record.figures) == ["P@1", "P@3", "P@5"]
    last = done.stdout.split("P@1 ")[1].splitlines()[1:]
    assert last == [
        "These points come from the training data; new ones can be harder.",
        f"On the test split: owlmine evaluate {tmp_path / 'out'} {store.path}",
    ]


def test_figures_of_a_dev_split_are_called_so(tmp_path: Path) -> None:
    for name in ("train", "dev", "test"):
        write_points(tmp_path / f"{name}.txt", 60)
    done = run("train", tmp_path, "--out", tmp_path / "out", "--dim", "8", "--epochs", "1", "--device", "cpu")
    assert done.exit_code == 0, done.exception
    assert "On the dev split: P@1 " in done.stdout
    assert "training data" not in done.stdout


def test_without_validation_points_there_are_no_figures(store: Store, tmp_path: Path) -> None:
    chosen = ("--dim", "8", "--epochs", "1", "--device", "cpu", "--validation", "0")
    done = run("train", store.path, "--out", tmp_path / "out", *chosen)
    assert done.exit_code == 0, done.exception
    assert "P@1" not in done.stdout
    assert "points" not in done.stdout.replace(str(tmp_path), "")
    assert owlmine.load(tmp_path / "out").record.calibration is None


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, less than the class and feature tables of these tests."""
    with tiny_disk_at(tmp_path / "disk", "64k") as place:
        yield place


def test_full_disk(store: Store, tiny_disk: Path, owlmine_command: Command) -> None:
    """No checkpoint fits, which is told and lived with; the model does not fit either, which ends the command."""
    out = tiny_disk / "out"
    done = owlmine_command(
        "train", store.path, "--out", out, *SMALL, "--epochs", "2", "--checkpoint-minutes", "0.00001"
    )
    assert done.returncode == 2
    assert "not written: No space left on device; training continues" in done.stderr
    assert "epoch  2.00" in done.stderr
    assert "the model cannot be written" in one_error_line(done.stderr)
    with pytest.raises(DataError):
        owlmine.load(out)


def test_rates_beyond_all_measure(store: Store, tmp_path: Path, owlmine_command: Command) -> None:
    done = owlmine_command(
        *("train", store.path, "--out", tmp_path / "out", *SMALL, "--epochs", "5"),
        *("--loss", "bowl", "--kind", "linear", "--surrogate", "exponential", "--class-rate", "1000"),
    )
    assert done.returncode == 2
    told = one_error_line(done.stderr)
    assert told.startswith("the loss of step ")
    assert "is not a finite number; lower the rates (--class-rate" in told
    assert told.endswith("then train into a new folder"), "no checkpoint was written, so none is spoken of"
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--pool", "80"), "pool is 80; wanted at most 79"),
        (("--batch-size", "0"), "--batch-size is 0; wanted 1 or more"),
        (("--effort", "fast", "--minutes", "5"), "--minutes is 5.0; wanted none with --effort fast"),
    ],
)
def test_bad_arguments(
    store: Store, arguments: tuple[str, ...], told: str, tmp_path: Path, owlmine_command: Command
) -> None:
    done = owlmine_command("train", store.path, "--out", tmp_path / "out", *arguments)
    assert done.returncode == 2
    assert told in one_error_line(done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_folder_in_use(store: Store, tmp_path: Path, owlmine_command: Command) -> None:
    (tmp_path / "file").write_text("mine")
    done = owlmine_command("train", store.path, "--out", tmp_path)
    assert (done.returncode, one_error_line(done.stderr)) == (2, f"{tmp_path}: already exists")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("data", "out", "more", "told"),
    [
        (text_model, None, (), "text-model: found files README.md, .*; wanted train"),
        (lambda: "nowhere", None, (), "nowhere: found no such file or folder; wanted a store, a dataset, or the word"),
        (text_store, text_model, (), "text-model: contains a finished model; choose another folder"),
        (text_store, text_store, (), "texts.store: already exists"),
        (text_store, text_store, ("--resume",), "texts.store: has no run to resume"),
        (text_store, text_model, ("--resume",), "text-model: contains a finished model with other options or data"),
        (sparse_data, text_model, ("--resume",), "text-model: contains a finished model with other options or data"),
        (dense_data, text_model, ("--resume",), "text-model: contains a finished model with other options or data"),
    ],
    ids=["model as data", "no data", "a model", "a store", "no run", "other options", "other data", "vectors for text"],
)
def test_wrong_folders(data: Any, out: Any, more: tuple[str, ...], told: str, tmp_path: Path) -> None:
    folder = tmp_path / "out" if out is None else out()
    before = sorted(folder.rglob("*"))
    done = run("train", data(), "--out", folder, "--device", "cpu", *more)
    assert isinstance(done.exception, OwlmineError), done.exception
    assert re.search(told, str(done.exception))
    assert done.stdout == ""
    assert sorted(folder.rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


def test_a_bad_folder_is_told_before_data_are_read(tmp_path: Path) -> None:
    """Reading may take an hour."""
    (tmp_path / "file").write_text("mine")
    done = run("train", "nowhere", "--out", tmp_path)
    assert str(done.exception) == f"{tmp_path}: already exists"


PANELS = ["Arguments", "Options", "Model", "Loss and mining", "Steps", "Run"]


def shown_help(option: str) -> tuple[dict[str, str], str]:
    """The text of each panel, and all of it."""
    shown = run("train", option).stdout
    assert max(map(len, shown.splitlines())) <= 100
    panels = re.findall(r"^╭─ ([\w ]+) ─", shown, re.MULTILINE)
    texts = re.split(r"^╭─.*$", shown, flags=re.MULTILINE)[1:]
    return dict(zip(panels, texts, strict=True)), shown


def leaves() -> Iterator[tuple[str, Any]]:
    """Single options with the panel of each."""
    for group in fields(TrainOptions):
        for leaf in fields(getattr(TrainOptions(), group.name)):
            yield group.metadata["group"], leaf


def test_help_of_all_options_is_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    by_panel, shown = shown_help("--help-all")
    assert list(by_panel) == [*PANELS, "Reading files"]
    for panel, leaf in leaves():
        flag = f"--{leaf.name.replace('_', '-')} "
        assert [name for name, text in by_panel.items() if flag in text] == [panel], flag
    assert "--out" in by_panel["Options"]
    assert "'.[tensorboard]'" in shown, "help is no markup"


def test_help_shows_the_options_that_people_use_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    by_panel, _ = shown_help("--help")
    assert list(by_panel) == PANELS
    for panel, leaf in leaves():
        flag = f"--{leaf.name.replace('_', '-')} "
        wanted = [panel] if leaf.metadata["common"] else []
        assert [name for name, text in by_panel.items() if flag in text] == wanted, flag
    for flag in ("--out", "--resume", "--help-all"):
        assert flag in by_panel["Options"]


def test_tensorboard_is_missing(store: Store, tmp_path: Path, owlmine_command: Command) -> None:
    """As on a machine without it: a module of that name which cannot be imported comes first on the path."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "tensorboard.py").write_text("raise ImportError('not installed')")
    path = os.pathsep.join([str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        done = owlmine_command("train", store.path, "--out", tmp_path / "out", *SMALL, "--tensorboard")
    assert done.returncode == 2
    assert "pip install '.[tensorboard]'" in one_error_line(done.stderr)
    assert not (tmp_path / "out").exists()


def test_killed_while_tensorboard_watches(store: Store, tmp_path: Path, owlmine_command: Command) -> None:
    """SIGKILL after a checkpoint: what was shown is on the disk, and after --resume each step is there once."""
    pytest.importorskip("tensorboard")
    out = tmp_path / "out"
    chosen = (*SMALL, "--epochs", "30", "--checkpoint-minutes", "0.002", "--tensorboard")
    process = start(store.path, "--out", out, *chosen)
    while process.poll() is None and not (
        list(out.glob("checkpoints/*.json")) and (out / "metrics.jsonl").read_text().count("\n") >= 3
    ):
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    epochs = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    # The last epoch may have been in the making.
    assert list(curves_of(out / "tensorboard")["validation/P@1"])[: len(epochs) - 1] == epochs[:-1]
    done = owlmine_command("train", store.path, "--out", out, *chosen, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"tensorboard --logdir {out / 'tensorboard'}" in done.stdout
    curves = curves_of(out / "tensorboard")
    assert list(curves["validation/P@1"]) == list(range(20, 601, 20))
    assert {50, 100, 550, 600} <= set(curves["loss"])


# Effort and time.


def test_the_help_has_effort_and_minutes(owlmine_command: Command) -> None:
    shown = owlmine_command("train", "--help").stdout
    assert "--effort" in shown
    assert "--minutes" in shown


def test_minutes_choose_a_plan_and_say_it(tmp_path: Path, store: Store) -> None:
    """The fastest, if there is no time at all; options that are given stay."""
    out = tmp_path / "model"
    done = start(store.path, "--out", out, "--minutes", "0.00001", "--dim", "16", "--device", "cpu")
    _, stderr = done.communicate()
    assert done.returncode == 0, stderr
    first, second = stderr.splitlines()[:2]
    assert re.fullmatch(
        r"plan: 1 model of 16 dimensions, 5 epochs, .*: about \d+ s, [\d.]+ GiB of memory, \d+ MB on disk", first
    )
    assert second == "this is the fastest plan; it does not fit into --minutes 1e-05"
    assert owlmine.load(out).record.options["minutes"] == 0.00001
