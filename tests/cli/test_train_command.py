"""``owlmine train`` as a user runs it: exits, messages, signals, full disks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import owlmine
from owlmine.data import Store, SyntheticOptions, synthesize
from owlmine.errors import DataError

from ..conftest import Command
from ..train.runs import contents

SMALL = ("--dim", "16", "--pool", "30", "--batch-size", "32", "--device", "cpu")


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
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    wanted = {"dim": 16, "depth": 2, "top": 4, "learn_scale": True, "loss": "mined-softmax", "epochs": 20.0}
    assert {name: config["options"][name] for name in wanted} == wanted
    assert config["data"]["name"] == "store"
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
        assert " go on with --resume" in one_error_line(errors)
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


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, less than the class and feature tables of these tests."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs a privileged user")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk(store: Store, tiny_disk: Path, owlmine_command: Command) -> None:
    """No checkpoint fits, which is told and lived with; the model does not fit either, which ends the command."""
    out = tiny_disk / "out"
    done = owlmine_command(
        "train", store.path, "--out", out, *SMALL, "--epochs", "2", "--checkpoint-minutes", "0.00001"
    )
    assert done.returncode == 2
    assert "not written: No space left on device; training goes on" in done.stderr
    assert "epoch  2.00" in done.stderr
    assert "the model cannot be written" in one_error_line(done.stderr)
    with pytest.raises(DataError):
        owlmine.load(out)


def test_rates_beyond_all_measure(store: Store, tmp_path: Path, owlmine_command: Command) -> None:
    done = owlmine_command(
        *("train", store.path, "--out", tmp_path / "out", *SMALL, "--epochs", "5"),
        *("--kind", "linear", "--surrogate", "exponential", "--class-rate", "1000"),
    )
    assert done.returncode == 2
    told = one_error_line(done.stderr)
    assert told.startswith("the loss of step ")
    assert "is not a finite number; lower the rates (--class-rate" in told
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--pool", "80"), "pool is 80; wanted at most 79"),
        (("--batch-size", "0"), "--batch-size is 0; wanted 1 or more"),
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
