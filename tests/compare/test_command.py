"""``owlmine compare`` as a user runs it, with its bad inputs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from owlmine.cli.compare import compare_command
from owlmine.data import Store, convert
from owlmine.errors import OwlmineError
from owlmine.run.run_folder import working_in
from tests.conftest import Command, write_points

BUDGET = ("--epochs", "1", "--dim", "8", "--batch-size", "32", "--search-runs", "1", "--seeds", "1", "--pool", "10")


def run(*arguments: object) -> Any:
    """In this process; an error that the command line would print is ``result.exception``."""
    app = typer.Typer()
    app.command()(compare_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_comparison_from_the_command_line(owlmine_command: Command, small_store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ("compare", small_store.path, "--out", out, "--methods", "top-1,negative-sampling,top-16", *BUDGET)
    ended = owlmine_command(*asked)
    assert ended.returncode == 0, ended.stderr
    assert "Top-16 SNM skipped: it keeps 16 negatives, more than the pool of 10" in ended.stderr
    assert "Top-1 SNM, search 1 of 1, rates 0.3/10/0.001: validation P@1" in ended.stderr
    assert "Ratio to negative sampling" in ended.stdout
    assert ended.stdout.rstrip().endswith(f"Report: {(out / 'report.html').resolve()}")
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert [method["name"] for method in results["methods"]] == ["top-1", "negative-sampling"]
    repeated = results["command"]
    assert repeated[:5] == ["owlmine", "compare", str(small_store.path), "--out", str(out)]
    again = run(*repeated[2:])
    assert again.exit_code == 0, again.output
    told = json.loads((out / "results.json").read_text("utf-8"))
    assert (told["runs_made"], told["runs_found"]) == (0, 4)
    assert told["methods"] == results["methods"]


def test_a_bad_option_ends_with_status_2(owlmine_command: Command, tmp_path: Path) -> None:
    refused = owlmine_command("compare", "sample", "--out", tmp_path / "out", "--methods", "top-3")
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "owlmine: error: --methods is 'top-3', but there is no top-3; wanted some of top-1,"
    )
    assert not (tmp_path / "out").exists()


def refusal(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, OwlmineError), result.output
    return str(result.exception)


def test_a_folder_with_something_else_is_left_alone(small_store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    told = refusal(small_store.path, "--out", tmp_path, *BUDGET)
    assert told == f"{tmp_path}: has other contents; wanted a new folder or one that owlmine compare made"
    assert "has other contents" in refusal(small_store.path, "--out", tmp_path / "mine.txt", *BUDGET)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_folder_in_use_is_refused(small_store: Store, tmp_path: Path) -> None:
    with working_in(tmp_path / "out"):
        assert "another process" in refusal(small_store.path, "--out", tmp_path / "out", *BUDGET)


def test_data_without_a_test_split_are_refused(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    write_points(tmp_path / "files" / "train.txt", 50)
    store = convert(tmp_path / "files", tmp_path / "store")
    told = refusal(store.path, "--out", tmp_path / "out", *BUDGET)
    assert told == f"{store.path}: has no test split; wanted one to test on"
    assert not (tmp_path / "out").exists()


def test_data_with_few_classes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for split in ("train", "test"):
        write_points(tmp_path / "files" / f"{split}.txt", 50, num_classes=5)
    store = convert(tmp_path / "files", tmp_path / "store")
    assert "has 5 classes; wanted more than 5" in refusal(store.path, "--out", tmp_path / "out", *BUDGET)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--pool", "20"), "--pool is 20; wanted at most 19, all 20 classes except the positive"),
        (
            ("--validation", "0"),
            "--validation is 0, which holds out no training point; wanted at least one to choose settings by",
        ),
        (
            ("--methods", "top-256"),
            "no method is left to compare: Top-256 SNM skipped: it keeps 256 negatives, more than the pool of 10",
        ),
    ],
)
def test_what_the_data_do_not_allow_is_refused(
    small_store: Store, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    assert refusal(small_store.path, "--out", tmp_path / "out", *BUDGET, *options) == told
    assert not (tmp_path / "out").exists()
