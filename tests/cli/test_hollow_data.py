"""Data without points: an error in one line, with nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from owlmine.errors import OwlmineError

from ..conftest import Command, write_points
from ..small_models import run

SMALL = ("--dim", "8", "--epochs", "1", "--device", "cpu")


def error_of(*arguments: object) -> str:
    """What the command line would print in one line, and nothing else."""
    done = run(*arguments)
    assert isinstance(done.exception, OwlmineError), (arguments, done.exception)
    assert done.stdout == ""
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.fixture
def hollow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for data; the cache is beside it, so that what is left there can be seen."""
    monkeypatch.setenv("OWLMINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("train.txt", "", "train.txt: found an empty file; wanted a header of 3 numbers"),
        ("train.txt", "0 50 20\n", "train.txt: found no labels; wanted at least one labelled training point"),
        ("train.txt", "2 3 4\n 0:1 2:1\n 1:1\n", "train.txt: found no labels; wanted at least one labelled"),
        ("train.jsonl", "", "train.jsonl: found no points; wanted rows with a text and labels"),
        ("train.csv", "text,labels\n", "train.csv: found no points; wanted rows with a text and labels"),
        ("train.jsonl", '{"text": "?", "labels": ["a"]}\n', "train.jsonl: found no token"),
        ("test.jsonl", '{"text": "a river", "labels": ["a"]}\n', "data: found files test.jsonl; wanted train.*"),
    ],
    ids=["no header", "no rows", "no labels", "no lines", "header alone", "no words", "no train"],
)
def test_train_without_points(hollow: Path, name: str, content: str, told: str) -> None:
    (hollow / name).write_text(content)
    assert told in error_of("train", hollow, "--out", hollow.parent / "model", *SMALL)
    assert [file for file in hollow.parent.rglob("*") if file.is_file()] == [hollow / name]


def test_the_exit_is_clean(hollow: Path, owlmine_command: Command) -> None:
    (hollow / "train.txt").write_text("0 50 20\n")
    done = owlmine_command("train", hollow, "--out", hollow.parent / "model", *SMALL)
    wanted = "found no labels; wanted at least one labelled training point"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"owlmine: error: {hollow / 'train.txt'}: {wanted}\n"


def test_every_labelled_point_is_taken_for_validation(hollow: Path) -> None:
    from owlmine.data import convert
    from owlmine.dense.validation import ValidationPart

    write_points(hollow / "train.txt", 20)
    part = ValidationPart(convert(hollow, hollow.parent / "store"), share=0.05, seed=0)
    (chosen,) = part.rows.tolist()
    lines = [" 0:1 1:1"] * 20
    lines[chosen] = "0,1 0:1 2:1"
    (hollow / "train.txt").write_text("\n".join(["20 3 2", *lines]) + "\n")
    told = error_of("train", hollow, "--out", hollow.parent / "model", *SMALL, "--validation", "0.05")
    assert told == "split 'train': found no labelled point to learn from; wanted at least one"
    assert not (hollow.parent / "model").exists()


def test_empty_test_split(hollow: Path) -> None:
    """Nothing to evaluate on, which is no reason not to train; what cannot be done is not proposed."""
    write_points(hollow / "train.txt", 60)
    (hollow / "test.txt").write_text("0 50 20\n")
    model, picture = hollow.parent / "model", hollow.parent / "figures.png"
    done = run("train", hollow, "--out", model, *SMALL)
    assert done.exit_code == 0, done.exception
    assert "owlmine evaluate" not in done.stdout
    told = error_of("evaluate", model, hollow, "--json", "--plot", picture)
    assert told == "the test split has no points; wanted at least one to evaluate"
    assert not picture.exists()
    (hollow / "test.txt").write_text("")
    assert "test.txt: found an empty file; wanted a header" in error_of("evaluate", model, hollow)


def test_empty_dev_split(hollow: Path) -> None:
    write_points(hollow / "train.txt", 60)
    (hollow / "dev.txt").write_text("0 50 20\n")
    one = ("--recipe", "single", "--patience", "1")
    done = run("train", hollow, "--out", hollow.parent / "model", *SMALL, *one)
    assert done.exit_code == 0, done.exception
    assert "validation" not in done.stdout
    (record,) = (json.loads(line) for line in (hollow.parent / "model" / "metrics.jsonl").read_text().splitlines())
    assert not any(name.startswith("P@") for name in record)


def test_no_queries(hollow: Path) -> None:
    write_points(hollow / "train.txt", 60)
    assert run("train", hollow, "--out", hollow.parent / "model", *SMALL).exit_code == 0
    (hollow / "queries.txt").write_text("0 50 20\n")
    done = run("predict", hollow.parent / "model", hollow / "queries.txt", "--device", "cpu")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
