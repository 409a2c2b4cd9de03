"""``owlmine predict --explain`` as a user runs it."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import owlmine
from owlmine.cli.reasons import reasons_table
from owlmine.cli.terminal import Terminal
from owlmine.errors import OwlmineError
from owlmine.rank.explain import Effect, Part, Reasons, Voter

from ..add_classes.models import composed_model, weighed_model
from ..small_models import (
    calibrated_model,
    dense_data,
    dense_model,
    run,
    sparse_data,
    sparse_model,
    text_data,
    text_store,
    write_jsonl,
)

TEXT = "The Castle and the Harbour near a castle"


def lines(*arguments: object, input: str | None = None) -> list[dict[str, Any]]:
    result = run("predict", *arguments, "--explain", "--format", "jsonl", "--device", "cpu", input=input)
    assert result.exit_code == 0, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "folder", [composed_model, weighed_model, calibrated_model], ids=["composed", "weighed", "one"]
)
def test_each_class_has_the_reasons_that_python_gives(folder: Any) -> None:
    model = owlmine.load(folder())
    (answer,) = lines(folder(), "-", "-k", 3, input=TEXT + "\n")
    wanted = model.explain(TEXT, 3)
    assert len(wanted) == len(answer["classes"]) == 3
    for found, one in zip(answer["classes"], wanted, strict=True):
        assert found["reasons"] == json.loads(json.dumps(one.to_dict()))
        assert (found["key"], found["score"]) == (one.key, float(f"{one.score:.7g}"))
        assert sum(part["score"] for part in found["reasons"]["parts"]) == pytest.approx(found["score"], abs=2e-6)
        for word in found["reasons"]["words"]:
            assert [TEXT[start:end].lower() for start, end in word["spans"]] == [word["word"]] * len(word["spans"])


def test_tables_with_ids_filters_and_empty_queries(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": "x", "text": TEXT, "forbidden": ["c-castle"]},
        {"id": "y", "text": "?"},
        {"id": "z", "text": "river", "allowed": ["c-pepper", "c-river"]},
    ]
    answers = lines(composed_model(), write_jsonl(tmp_path / "queries.jsonl", rows), "-k", 2)
    assert [answer["id"] for answer in answers] == ["x", "y", "z"]
    assert "c-castle" not in {found["key"] for found in answers[0]["classes"]}
    assert answers[1]["classes"] == []
    assert {found["key"] for found in answers[2]["classes"]} == {"c-pepper", "c-river"}
    model = owlmine.load(composed_model())
    wanted = model.explain(TEXT, 2, forbidden=["c-castle"])
    assert [found["reasons"] for found in answers[0]["classes"]] == [one.to_dict() for one in wanted]


def test_only_probable_classes_and_only_chosen_ones() -> None:
    (answer,) = lines(calibrated_model(), "-", "--at-least", 0.3, input=TEXT + "\n")
    assert answer["classes"]
    assert all(found["reasons"]["probability"] >= 0.3 for found in answer["classes"])
    (answer,) = lines(calibrated_model(), "-", "--classes", "c-river,c-castle", "--tail", 0.5, input=TEXT + "\n")
    assert {found["reasons"]["key"] for found in answer["classes"]} == {"c-river", "c-castle"}


def test_stores_have_words_without_places() -> None:
    answers = lines(composed_model(), text_store(), "-k", 1)
    assert len(answers) == 34
    words = answers[0]["classes"][0]["reasons"]["words"]
    assert words
    assert all(word["word"] and word["spans"] == [] for word in words)


@pytest.mark.parametrize(("model", "data"), [(sparse_model, sparse_data), (dense_model, dense_data)])
def test_vectors_have_features(model: Any, data: Any) -> None:
    test = next(file for file in sorted(data().glob("test.*")) if "labels" not in file.name)
    answers = lines(model(), test, "-k", 2)
    reasons = answers[0]["classes"][0]["reasons"]
    assert reasons["words"] == []
    assert reasons["features"]
    assert {"feature", "dense"} <= set(reasons["features"][0])


def test_the_table_shows_parts_words_and_nothing_twice() -> None:
    result = run("predict", weighed_model(), "-", "-k", 2, "--explain", "--format", "table", input=TEXT + "\n\n?\n")
    assert result.exit_code == 0
    best = owlmine.load(weighed_model()).explain(TEXT, 2)[0]
    for part in best.parts:
        assert f"{part.score:+.3f}" in result.stdout
        assert part.title[:20] in result.stdout
    assert "Castle" in result.stdout
    assert result.stdout.count("parts") == 2
    assert "no feature known to the model" in result.stdout


def test_without_explain_nothing_changes() -> None:
    plain = run("predict", composed_model(), "-", "-k", 2, "--format", "jsonl", input=TEXT + "\n")
    assert "reasons" not in plain.stdout
    assert [found["key"] for found in json.loads(plain.stdout)["classes"]] == [
        found["key"] for found in lines(composed_model(), "-", "-k", 2, input=TEXT + "\n")[0]["classes"]
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--format", "csv"], "--explain has no place in csv; wanted --format jsonl or table"),
        (["--format", "csv", "--out", "answers.csv"], "--explain has no place in csv"),
    ],
)
def test_csv_has_no_place_for_reasons(arguments: list[str], told: str, tmp_path: Path) -> None:
    result = run("predict", composed_model(), "-", "--explain", *arguments, input=TEXT)
    assert isinstance(result.exception, OwlmineError)
    assert told in str(result.exception)


def test_too_many_classes_to_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.exchange.answers.MOST_CLASSES", 3)
    result = run("predict", composed_model(), "-", "--explain", "-k", 4, input=TEXT)
    assert str(result.exception) == "reasons for 4 classes were asked for; wanted at most 3"


def test_a_file_of_reasons_appears_whole(tmp_path: Path) -> None:
    result = run("predict", composed_model(), text_data() / "test.jsonl", "--explain", "--out", tmp_path / "out.jsonl")
    assert result.exit_code == 0, result.exception
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(answers) == 36
    assert sum("reasons" in found for answer in answers for found in answer["classes"]) == 35 * 5


def test_a_pipe_is_explained_line_by_line() -> None:
    command = [sys.executable, "-m", "owlmine", "predict", str(composed_model()), "-", "-k", "1", "--explain"]
    with subprocess.Popen(
        [*command, "--device", "cpu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"NO_COLOR": "1"}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for topic in ("river", "lantern"):
            process.stdin.write(f"the {topic}\n".encode())
            process.stdin.flush()
            (found,) = json.loads(process.stdout.readline())["classes"]
            assert found["reasons"]["words"][0]["word"] == topic
        process.stdin.close()
        assert process.wait(60) == 0


EVIL = "\x1b[31m[bold]evil\nthing[/] \u202e"


@functools.cache
def evil_reasons() -> Reasons:
    return Reasons(
        key=EVIL,
        name=EVIL,
        score=-0.5,
        probability=None,
        parts=(Part("dense", "dense model", -0.5), Part("linear", "linear classifiers", 0.0)),
        words=(Effect(EVIL, 3, {"dense": -0.25}), Effect(None, 7, {"dense": None}), Effect("owl", 4, {}, ((1, 6),))),
        voters=tuple(Voter("neighbours", row, EVIL if row else None, EVIL, 0.5, 0.1) for row in range(5)),
        spelled_by=(EVIL,),
        listed=True,
        suggested_by=("names",),
        examples=0,
    )


@pytest.mark.parametrize("width", [20, 60, 120])
def test_what_is_shown_cannot_control_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    console = Terminal(file=file, width=width)
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setattr(Console, "_color_system", None, raising=False)
    console.print(reasons_table(evil_reasons(), f"x{EVIL}"))
    shown = file.getvalue()
    assert "\x1b[31m[bold]" not in shown
    assert "\u202e" not in shown
    assert "evil\nthing" not in shown
    if width == 120:
        assert "\\x1b[31m[bold]evil" in shown
        assert "[/]" in shown
        assert "row 0" in shown
        assert "2 more" in shown
        assert "feature 7" in shown
        assert "-0.500" in shown


def test_a_class_outside_the_list_is_shown_as_such() -> None:
    file = io.StringIO()
    unlisted = replace(evil_reasons(), listed=False, suggested_by=(), words=(), voters=(), spelled_by=())
    Terminal(file=file, width=80).print(reasons_table(unlisted, None))
    assert "not among the candidates of this query" in file.getvalue()
    assert "voters" not in file.getvalue()


def test_added_classes_are_explained(tmp_path: Path) -> None:
    larger = owlmine.load(composed_model()).add_classes(["quiet river pepper", "quiet pepper"], [["c-owl"], ["c-owl"]])
    larger.save(tmp_path / "larger")
    (answer,) = lines(tmp_path / "larger", "-", "--classes", "c-owl", input="a quiet river\n")
    parts = {part["name"]: part["score"] for part in answer["classes"][0]["reasons"]["parts"]}
    assert {"dense", "offset", "linear"} <= set(parts)
    assert sum(parts.values()) == pytest.approx(answer["classes"][0]["score"], abs=2e-6)
    assert np.isfinite(list(parts.values())).all()
