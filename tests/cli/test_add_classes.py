"""``owlmine add-classes`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import owlmine
from owlmine.errors import OwlmineError

from ..conftest import Command
from ..small_models import sparse_data, sparse_model, text_model, text_store, write_jsonl


def run(*arguments: object) -> Any:
    """In this process; an error that the command line would print is ``result.exception``."""
    from owlmine.cli.add_classes import add_classes_command

    app = typer.Typer()
    app.command("add-classes")(add_classes_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def example_file(folder: Path) -> Path:
    pairs = [("violin", "copper"), ("ballad", "copper"), ("violin", "pepper"), ("ballad", "pepper")]
    rows: list[dict[str, object]] = [
        {"text": f"the {one} with the {other}", "labels": ["c-music", f"c-{one}"]} for one, other in pairs
    ]
    rows.append({"text": "the falcon near the glacier", "labels": ["c-alps"]})
    rows.append({"text": "?", "labels": ["c-riddle"]})
    return write_jsonl(folder / "examples.jsonl", rows)


def test_from_the_command_line_to_answers(tmp_path: Path, owlmine_command: Command) -> None:
    out = tmp_path / "grown"
    done = owlmine_command("add-classes", text_model(), example_file(tmp_path), "--out", out, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for expected in (
        "2 new classes, 5 examples",
        "left-out",
        "3 to 4         1          4",
        "Not measured, because they have only one example: c-alps.",
        "Not added, because the model knows no feature of their examples and names: c-riddle.",
        "Labels of classes that the model already has, ignored: 4.",
        "Examples without a feature known to the model, ignored: 1.",
        "grown: a model with 14 classes.",
    ):
        assert expected in done.stdout
    answers = owlmine_command("predict", out, "-", "--k", "3", input="a violin of copper\n")
    assert "c-music" in [found["key"] for found in json.loads(answers.stdout)["classes"]]
    judged = owlmine_command("evaluate", out, tmp_path / "examples.jsonl", "--k", "1,5", "--json", "--device", "cpu")
    assert json.loads(judged.stdout)["classes"] == 14
    assert {path.name for path in tmp_path.iterdir()} == {"grown", "examples.jsonl"}


def test_a_mistake_ends_with_one_line(tmp_path: Path, owlmine_command: Command) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "the river", "labels": ["new"]}\n{"text": 5}\n')
    done = owlmine_command("add-classes", text_model(), bad, "--out", tmp_path / "new", "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr.startswith(f"owlmine: error: {bad}, line 2: found ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [bad]


def test_json_and_names(tmp_path: Path) -> None:
    names = tmp_path / "names.tsv"
    names.write_text("c-music\tViolin ballad\nc-ice\tGlacier ice\nc-river\tThe river\nc-words\tgibberish\n")
    out = tmp_path / "deep" / "grown"
    done = run(text_model(), example_file(tmp_path), "--names", names, "--out", out, "--json", "--caution", "4")
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)
    assert found["added"] == [
        {"key": "c-music", "examples": 4, "by_name": True},
        {"key": "c-alps", "examples": 1, "by_name": False},
        {"key": "c-ice", "examples": 0, "by_name": True},
    ]
    assert found["not_added"] == ["c-riddle", "c-words"]
    assert (found["classes"], found["left_out_examples"], found["known_names"], found["known_labels"]) == (15, 4, 1, 4)
    assert 0 <= found["R@1"] <= found["R@5"] <= 100
    model = owlmine.load(out)
    assert model.record.added[0]["source"] == "examples.jsonl, names.tsv"
    assert model.record.added[0]["caution"] == 4
    assert model.record.added[0]["R@5"] == pytest.approx(found["R@5"], abs=0.01)
    assert model.predict(["glacier"], k=1)[0][0].name in ("Glacier ice", "Glacier")


def test_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = tmp_path / "names.txt"
    names.write_text("".join(f"glacier {topic}\n" for topic in ("violin", "castle", "river", "ballad", "meadow")))
    done = run(text_model(), "--names", names, "--out", tmp_path / "grown")
    assert done.exit_code == 0, done.exception
    assert "5 new classes, 0 examples" in done.stdout
    assert "Not measured, because they have only a name: glacier violin, glacier castle," in done.stdout
    done = run(tmp_path / "grown", "--names", names, "--out", tmp_path / "again")
    assert "all 5 names belong to classes that the model already has" in str(done.exception)


def test_long_lists_are_cut(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": "the river", "labels": [f"n{number}"]} for number in range(11)]
    done = run(text_model(), write_jsonl(tmp_path / "many.jsonl", rows), "--out", tmp_path / "grown")
    assert "Not measured, because they have only one example: n0, n1, n2, n3, n4, n5, n6, n7 and 3 more." in done.stdout


def test_bad_input_is_reported_in_one_line(tmp_path: Path) -> None:
    file, out = example_file(tmp_path), tmp_path / "out"
    there = tmp_path / "there"
    there.mkdir()
    cases: list[tuple[tuple[object, ...], str]] = [
        ((text_model(), "--out", out), "no classes were given; wanted a file of examples, or --names"),
        ((text_model(), file, "--out", there), "there: already exists"),
        ((tmp_path / "none", file, "--out", out), "none: found no such folder; wanted a model folder"),
        ((text_model(), tmp_path / "none", "--out", out), "none: found no such file or folder"),
        ((text_model(), "--names", tmp_path / "none", "--out", out), "none: found no such file"),
        ((text_model(), "--names", file, "--split", "train", "--out", out), "names have no splits"),
        ((text_model(), file, "--caution", "0", "--out", out), "--caution is 0; wanted a number above 0"),
        ((text_model(), file, "--format", "xml", "--out", out), "--format is 'xml'; wanted one of"),
        ((text_model(), file, "--split", "test", "--out", out), "is a single file, which is read whole"),
        ((text_model(), file, "--device", "abacus", "--out", out), "--device is 'abacus'"),
        (
            (text_model(), text_store(), "--out", out),
            "all of classes that the model already has; wanted labels of new classes",
        ),
        ((text_model(), sparse_data(), "--out", out), "found sparse vectors; wanted text"),
        ((sparse_model(), file, "--out", out), "found text; wanted sparse vectors"),
        ((sparse_model(), "--names", file, "--out", out), "has a name but no examples; wanted examples"),
    ]
    for arguments, message in cases:
        done = run(*arguments)
        assert isinstance(done.exception, OwlmineError), (arguments, done.exception, done.stdout)
        assert message in str(done.exception)
        assert "\n" not in str(done.exception)
        assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"examples.jsonl", "there"}
