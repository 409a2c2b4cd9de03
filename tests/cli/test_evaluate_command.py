"""``owlmine evaluate`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from owlmine.data import convert
from owlmine.errors import OwlmineError

from ..conftest import Command
from ..sealed import seal
from ..small_models import (
    dense_model,
    dense_store,
    run,
    sparse_data,
    sparse_model,
    text_data,
    text_model,
    text_store,
    write_jsonl,
)


def test_json_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "figures.png"
    done = run("evaluate", text_model(), text_data(), "--json", "--plot", picture, "--device", "cpu")
    assert done.exit_code == 0, done.exception
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert (told["split"], told["points"], told["classes"], told["points_without_label"]) == ("test", 34, 12, 1)
    for k in (1, 3, 5, 10):
        for name in ("P", "R", "nDCG", "PSP", "PSnDCG", "coverage"):
            assert 0 <= told[f"{name}@{k}"] <= 100
    assert told["P@1"] > 80
    assert told["R@1/head"] is None  # no class has a hundred training points
    assert told["propensity"] == {"a": 0.55, "b": 1.5}
    assert sum(size["classes"] for size in told["bins"].values()) == 12


def test_a_store_and_its_files_give_the_same_figures() -> None:
    one = json.loads(run("evaluate", text_model(), text_data(), "--json").stdout)
    other = json.loads(run("evaluate", text_model(), text_store(), "--json").stdout)
    assert {name: value for name, value in one.items() if name != "data"} == {
        name: value for name, value in other.items() if name != "data"
    }


def test_tables_fit_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run("evaluate", text_model(), text_data(), "--k", "1,2,3,4,5,6,7,8,9,10,11,12")
    assert done.exit_code == 0, done.exception
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    for expected in (
        "texts, test split: 34 points, 12 classes",
        "PSnDCG",
        "part of P",
        "10 to 99",
        "Points without a label, counted as 0: 1.",
        "Labels of classes that are not in the model, dropped: 2.",
        "Points left without a label or feature, not evaluated: 2.",
    ):
        assert expected in done.stdout


def test_a_single_file_is_read_whole(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "mine.jsonl", [{"title": "the falcon", "tags": ["c-falcon"]}])
    done = run("evaluate", text_model(), file, "-k", "1", "--propensity", "0.5,0.4", "--json")
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)
    assert (told["points"], told["P@1"], told["PSP@1"]) == (1, 100, 100)
    assert told["propensity"] == {"a": 0.5, "b": 0.4}


def test_constants_follow_the_name_of_the_training_data(tmp_path: Path) -> None:
    """Whatever the data to evaluate on are called."""
    named = tmp_path / "Amazon-670K"
    named.symlink_to(text_data())
    brief = ("--recipe", "single", "--dim", "8", "--epochs", "1", "--device", "cpu")
    assert run("train", named, "--out", tmp_path / "model", *brief).exit_code == 0
    constants = {}
    for model in (tmp_path / "model", text_model()):
        constants[model.name] = json.loads(run("evaluate", model, named, "--json").stdout)["propensity"]
    assert constants == {"model": {"a": 0.6, "b": 2.6}, "text-model": {"a": 0.55, "b": 1.5}}


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run("evaluate", sparse_model(), sparse_data()).exit_code == 0
    assert isinstance(run("evaluate", sparse_model(), text_data()).exception, OwlmineError)
    assert list(tmp_path.iterdir()) == []


def broken_model(tmp_path: Path, **changes: object) -> Path:
    folder = tmp_path / "changed-model"
    folder.mkdir()
    for file in text_model().iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    seal(folder)
    return folder


def test_bad_input_ends_in_one_line(tmp_path: Path) -> None:
    cases: list[tuple[tuple[object, ...], str]] = [
        ((tmp_path / "none", text_data()), "none: found no such folder; wanted a model folder"),
        ((text_data(), text_data()), "texts: found no config.json; wanted a model folder"),
        ((broken_model(tmp_path, version=99), text_data()), "found model version 99"),
        ((text_model(), tmp_path / "none"), "none: found no such file or folder"),
        ((text_model(), text_data(), "--split", "dev"), "no split 'dev'; it has train, test"),
        ((text_model(), dense_store()), "found 7 classes; the model was trained with 12"),
        ((text_model(), sparse_data()), "found sparse vectors; wanted text"),
        ((dense_model(), text_data()), "found text; wanted dense vectors"),
        ((text_model(), text_data(), "--k", "1,13"), "--k is 1,13; wanted 1 to 12"),
        ((text_model(), text_data(), "--k", "one"), "--k is 'one'; wanted whole numbers"),
        ((text_model(), text_data(), "--propensity", "1"), "--propensity is '1'; wanted two numbers"),
        ((text_model(), text_data(), "--propensity", "-1,1"), "--propensity is '-1,1'; wanted two numbers"),
        ((text_model(), text_data(), "--tail", "1"), "the model has no probabilities"),
        ((text_model(), text_data(), "--device", "abacus"), "--device is 'abacus'; wanted cpu, cuda or auto"),
        ((text_model(), text_data(), "--format", "xml"), "--format is 'xml'; wanted one of"),
    ]
    for arguments, message in cases:
        done = run("evaluate", *arguments)
        assert isinstance(done.exception, OwlmineError), (arguments, done.exception)
        assert message in str(done.exception)
        assert "\n" not in str(done.exception)
        assert done.stdout == ""


def test_a_split_without_points(tmp_path: Path, owlmine_command: Command) -> None:
    folder = tmp_path / "hollow"
    folder.mkdir()
    for name in ("train.jsonl", "labels.tsv"):
        (folder / name).write_bytes((text_data() / name).read_bytes())
    write_jsonl(folder / "test.jsonl", [{"text": "the river", "labels": ["c-unheard-of"]}])
    store = convert(folder, tmp_path / "hollow.store")
    done = owlmine_command("evaluate", text_model(), store.path, "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr == "owlmine: error: the test split has no points; wanted at least one to evaluate\n"
    assert done.stdout == ""
