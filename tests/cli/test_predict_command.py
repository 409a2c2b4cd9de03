"""``owlmine predict`` as a user runs it."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import owlmine
from owlmine.data import convert
from owlmine.errors import OwlmineError
from owlmine.run import train

from ..small_models import (
    OPTIONS,
    dense_data,
    dense_model,
    run,
    sparse_data,
    sparse_model,
    text_data,
    text_model,
    text_point,
    text_store,
    workplace,
    write_jsonl,
)


def test_a_pipe_is_answered_line_by_line() -> None:
    command = [sys.executable, "-m", "owlmine", "predict", str(text_model()), "-", "-k", "2", "--device", "cpu"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"NO_COLOR": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # Each answer is read before the next question is asked: nothing may wait for the end of the input.
        for number, topic in enumerate(("river", "lantern")):
            process.stdin.write(f"the {topic}\n".encode())
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert answer["query"] == number
            assert answer["classes"][0]["key"] == f"c-{topic}"
            assert answer["classes"][0]["name"] == topic.title()
            assert len(answer["classes"]) == 2
        process.stdin.write(b"???")
        process.stdin.close()
        assert json.loads(process.stdout.readline()) == {"query": 2, "classes": []}
        errors = process.stderr.read().decode()
        assert process.wait() == 0
    assert errors == "1 of 3 queries have no feature that the model knows; their answers are empty\n"


def test_a_table_passes_its_ids_through(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "q.jsonl", [text_point(number) for number in range(3)])
    rows = [json.loads(line) for line in run("predict", text_model(), file).stdout.splitlines()]
    assert [(row["query"], row["id"], len(row["classes"])) for row in rows] == [
        (0, "p0", 5),
        (1, "p1", 5),
        (2, "p2", 5),
    ]
    scores = [found["score"] for found in rows[0]["classes"]]
    assert scores == sorted(scores, reverse=True)


def test_csv_into_a_new_file(tmp_path: Path) -> None:
    out = tmp_path / "answers.csv"
    arguments = (
        "predict",
        text_model(),
        text_store(),
        "--split",
        "train",
        "--k",
        "1",
        "--format",
        "csv",
        "--out",
        out,
    )
    done = run(*arguments)
    assert done.exit_code == 0, done.exception
    assert done.stdout == ""
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["query"] for row in rows] == [str(number) for number in range(240)]
    before = out.read_bytes()
    assert "already exists" in str(run(*arguments).exception)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def test_chosen_classes(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the river\nthe castle and the pepper\n")
    done = run("predict", text_model(), file, "--classes", "c-pepper,Castle", "--classes", "c-river")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(row["classes"]) for row in rows] == [3, 3]
    assert {found["key"] for found in rows[1]["classes"]} == {"c-castle", "c-pepper", "c-river"}
    assert rows[0]["classes"][0]["key"] == "c-river"
    assert rows[1]["classes"][2]["key"] == "c-river"


def test_files_of_classes_for_all_queries_and_fields_for_each(tmp_path: Path) -> None:
    rows = [{"text": "the river"}, {"text": "the river", "forbidden": ["c-castle"]}]
    queries = write_jsonl(tmp_path / "q.jsonl", rows)
    allowed, forbidden = tmp_path / "allowed.txt", tmp_path / "forbidden.txt"
    allowed.write_text("c-castle\nc-pepper\nRiver\n")
    forbidden.write_text("c-river\n")

    def found(*options: object) -> list[list[str]]:
        done = run("predict", text_model(), queries, *options)
        assert done.exit_code == 0, done.exception
        return [[one["key"] for one in json.loads(line)["classes"]] for line in done.stdout.splitlines()]

    both = found("--allowed", allowed)
    assert both[0][0] == "c-river"
    assert [set(row) for row in both] == [{"c-river", "c-castle", "c-pepper"}, {"c-river", "c-pepper"}]
    assert [set(row) for row in found("--allowed", allowed, "--forbidden", forbidden)] == [
        {"c-castle", "c-pepper"},
        {"c-pepper"},
    ]
    left = found("--forbidden", forbidden, "--k", "11")
    assert list(map(len, left)) == [11, 10]
    assert not {"c-river"} & set(left[0] + left[1])
    assert [len(row) for row in found("--classes", "c-river,c-pepper", "--forbidden", forbidden)] == [1, 1]


def test_readable_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    file = write_jsonl(tmp_path / "q.jsonl", [text_point(0), {"id": "[x]", "text": "?" * 200}])
    done = run("predict", text_model(), file, "--format", "table", "--k", "2")
    assert done.exit_code == 0, done.exception
    lines = done.stdout.splitlines()
    assert lines[0].startswith("0 p0  the river and")
    assert "━━━━━━━━━━━━━━━━" in lines[1]
    assert "River" in lines[1]
    assert "c-river" in lines[1]
    assert lines[3].startswith("1 [x]  ???")
    assert lines[4].strip() == "no feature known to the model"
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_vectors(kind: str) -> None:
    model, file = (
        (sparse_model(), sparse_data() / "test.txt") if kind == "sparse" else (dense_model(), dense_data() / "test.npy")
    )
    done = run("predict", model, file, "--k", "3")
    assert done.exit_code == 0, done.exception
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == (60 if kind == "sparse" else 35)
    assert all(len(row["classes"]) == 3 for row in rows)


def test_bad_input_is_reported_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the river\n")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\nnot \xff fine\n")
    broken = tmp_path / "broken.npy"
    broken.write_bytes(b"nothing of the kind")
    unknown, every, empty = tmp_path / "unknown.txt", tmp_path / "every.txt", tmp_path / "empty.txt"
    unknown.write_text("c-river\nc-rivers\n")
    every.write_text("\n".join(owlmine.load(text_model()).classes.keys))
    empty.write_text("\n")
    cases: list[tuple[tuple[object, ...], str]] = [
        ((text_model(), file, "--allowed", unknown), "unknown.txt, line 2: the model has no class 'c-rivers'; did you"),
        ((text_model(), file, "--forbidden", unknown), "unknown.txt, line 2: the model has no class 'c-rivers'"),
        ((text_model(), file, "--forbidden", tmp_path / "no.txt"), "no.txt: found no such file; wanted a file with"),
        ((text_model(), file, "--forbidden", every), "every.txt: no class is left to choose from"),
        ((text_model(), file, "--allowed", empty), "empty.txt: no class is left to choose from"),
        ((text_model(), file, "--forbidden", unknown, "--allowed", "x", "--classes", "y"), "were both given"),
        ((tmp_path / "none", file), "none: found no such folder; wanted a model folder"),
        ((text_model(), tmp_path / "none.txt"), "none.txt: found no such file"),
        ((text_model(), text_data()), "texts: found a folder that is not a store"),
        ((text_model(), file, "--k", "13"), "--k is 13; wanted 1 to 12"),
        ((text_model(), file, "--k", "0"), "--k is 0; wanted 1 to 12"),
        ((text_model(), file, "--classes", "c-river", "--k", "2"), "--k is 2; wanted 1 to 1,"),
        ((text_model(), file, "--classes", "c-rivers"), "no class 'c-rivers'; did you mean 'c-river'"),
        ((text_model(), file, "--classes", ","), "--classes has no class"),
        ((text_model(), file, "--format", "xml"), "--format is 'xml'; wanted jsonl, csv, parquet, table"),
        ((text_model(), file, "--input-format", "xml"), "--input-format is 'xml'; wanted one of"),
        ((text_model(), file, "--split", "test"), "is not a store; leave out --split test"),
        ((text_model(), "-", "--split", "test"), "standard input has no splits"),
        ((text_model(), file, "--device", "abacus"), "--device is 'abacus'"),
        ((text_model(), dense_data() / "test.npy"), "found dense vectors; wanted text"),
        ((sparse_model(), file), "found text; wanted sparse vectors"),
        ((dense_model(), "-"), "standard input: found text; wanted dense vectors"),
        ((text_model(), bad), "bad.txt, line 2: found byte 0xff"),
        ((dense_model(), broken), "broken.npy: found a file that cannot be read"),
        ((text_model(), file, "--out", tmp_path / "no" / "out"), "out: cannot be written"),
    ]
    for arguments, message in cases:
        done = run("predict", *arguments, input="the river\n")
        assert isinstance(done.exception, OwlmineError), (arguments, done.exception, done.stdout)
        assert message in str(done.exception)
        assert "\n" not in str(done.exception)
        assert done.stdout == ""


def test_a_failed_run_leaves_no_file(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"text": "the river"}) + "\nnot json\n")
    out = tmp_path / "out.jsonl"
    assert "lines.jsonl, line 2: found 'not json'" in str(run("predict", text_model(), lines, "--out", out).exception)
    assert list(tmp_path.iterdir()) == [lines]


@functools.cache
def model_with_commas() -> Path:
    """A key with a comma, a name with one, and two plain classes whose keys stand in the first."""
    folder = workplace() / "commas"
    folder.mkdir()
    keys = {"c-river": "Art, Modern", "c-castle": "Art", "c-violin": "Modern"}
    points = [text_point(number) for number in range(240)]
    for point in points:
        point["labels"] = sorted(keys.get(label, label) for label in point["labels"])  # type: ignore[attr-defined]
    write_jsonl(folder / "train.jsonl", points)
    (folder / "labels.tsv").write_text("c-falcon\tBirds, of prey\n")
    train(convert(folder, folder / "store"), folder / "model", OPTIONS)
    return folder / "model"


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["Art, Modern"], {"Art, Modern"}),
        (["Art,Modern"], {"Art", "Modern"}),
        (["Birds, of prey", "Art"], {"c-falcon", "Art"}),
        (["Art, Modern", "Art,c-copper", " Modern "], {"Art, Modern", "Art", "c-copper", "Modern"}),
    ],
)
def test_a_class_may_have_a_comma_in_its_key_or_name(options: list[str], keys: set[str]) -> None:
    chosen = [word for value in options for word in ("--classes", value)]
    done = run("predict", model_with_commas(), "-", *chosen, input="the river\n")
    assert done.exit_code == 0, done.exception
    assert {found["key"] for found in json.loads(done.stdout)["classes"]} == keys


def test_an_unknown_class_among_several_is_named() -> None:
    done = run("predict", model_with_commas(), "-", "--classes", "Art, Modern,c-coppr", input="the river\n")
    assert str(done.exception) == (
        "--classes: the model has no class 'c-coppr'; did you mean 'c-copper' or 'c-pepper'?;"
        " if a key contains a comma, give it in a --classes of its own"
    )
