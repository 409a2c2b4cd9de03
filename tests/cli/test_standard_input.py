"""``owlmine predict MODEL -`` reads what ``--input-format`` says, as it arrives."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from owlmine.errors import OwlmineError

from ..conftest import Command
from ..small_models import dense_model, run, sparse_model, text_model, text_point, text_store


def delimited(rows: list[dict[str, object]], delimiter: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(("id", "title", "text", "labels"))
    for row in rows:
        # A cell with a line break and the delimiter in it, as spreadsheets write them.
        writer.writerow((row["id"], f"a\n{delimiter}title", row["text"], ";".join(row["labels"])))  # type: ignore[arg-type]
    return text.getvalue()


ROWS = [text_point(number) for number in range(40)]
INPUTS = {
    "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "csv": delimited(ROWS, ","),
    "tsv": delimited(ROWS, "\t"),
}


@pytest.mark.parametrize("format", INPUTS)
def test_a_table_from_a_pipe_is_answered_as_the_file_is(format: str, tmp_path: Path, owlmine_command: Command) -> None:
    file = tmp_path / f"queries.{format}"
    file.write_text(INPUTS[format])
    expected = owlmine_command("predict", text_model(), file, "--text-column", "text")
    assert len(expected.stdout.splitlines()) == len(ROWS)
    assert json.loads(expected.stdout.splitlines()[1])["id"] == "p1"
    piped = owlmine_command(
        "predict", text_model(), "-", "--input-format", format, "--text-column", "text", input=INPUTS[format]
    )
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == expected.stdout


def test_vectors_from_a_pipe_are_answered_as_the_file_is(tmp_path: Path, owlmine_command: Command) -> None:
    text = "3 1:1 4:2\n\n0,2 7:1 9:1 # a note\n" * 20
    (tmp_path / "queries.svm").write_text(text)
    options = ("--input-format", "svmlight", "--first-feature", "1")
    expected = owlmine_command("predict", sparse_model(), tmp_path / "queries.svm", *options)
    assert len(expected.stdout.splitlines()) == 40, expected.stderr
    assert owlmine_command("predict", sparse_model(), "-", *options, input=text).stdout == expected.stdout
    unclear = owlmine_command("predict", sparse_model(), "-", *options[:2], input=text)
    assert unclear.returncode == 2
    assert "wanted --first-feature 0 or 1" in unclear.stderr


@contextmanager
def conversation(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "owlmine", "predict", *map(str, arguments), "--device", "cpu"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def ask(process: subprocess.Popen[bytes], text: str) -> dict[str, object]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text.encode())
    process.stdin.flush()
    answer: dict[str, object] = json.loads(process.stdout.readline())
    return answer


def test_a_row_is_answered_before_the_next_is_asked() -> None:
    """Also where blank lines follow it."""
    with conversation(text_model(), "-", "--input-format", "jsonl", "--k", "1") as process:
        for number, topic in enumerate(("river", "lantern", "pepper")):
            answer = ask(process, json.dumps({"text": f"the {topic}", "id": f"q{number}"}) + "\n\n")
            assert (answer["query"], answer["id"]) == (number, f"q{number}")
            assert answer["classes"][0]["key"] == f"c-{topic}"  # type: ignore[index]
    with conversation(text_model(), "-", "--input-format", "csv", "--k", "1") as process:
        assert ask(process, "id,text\nq0,the river\n")["id"] == "q0"
        assert ask(process, 'q1,"the\ncastle"\n')["id"] == "q1"


def test_without_a_format_a_line_is_a_text(owlmine_command: Command) -> None:
    done = owlmine_command("predict", text_model(), "-", "--k", "1", input="\ufeffthe river\nthe castle\n")
    keys = [json.loads(line)["classes"][0]["key"] for line in done.stdout.splitlines()]
    assert keys == ["c-river", "c-castle"]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (text_model, ("--input-format", "parquet"), "wanted text, jsonl, csv, tsv or svmlight; parquet can only be"),
        (dense_model, ("--input-format", "npy"), "npy can only be read from a file"),
        (text_model, ("--input-format", "svmlight"), "found sparse vectors; wanted text, which the model takes"),
        (sparse_model, (), "found text; wanted sparse vectors, which the model takes, in a file, or --input-format"),
        (text_model, ("--text-column", "title"), "wanted a table: --input-format jsonl, csv or tsv"),
        (text_model, ("--id-column", "number"), "--id-column number for text, which has no columns"),
        (text_model, ("--input-format", "jsonl"), "standard input, line 2: found '[]'; wanted one JSON object"),
        (text_model, ("--input-format", "jsonl", "--text-column", "body"), "a column for text called 'body'"),
    ],
)
def test_what_cannot_be_read_is_reported(model: Callable[[], Path], options: tuple[str, ...], message: str) -> None:
    done = run("predict", model(), "-", *options, input='{"text": "x"}\n[]\n')
    assert isinstance(done.exception, OwlmineError)
    assert message in str(done.exception)


def test_columns_mean_nothing_to_a_file_of_lines_or_a_store(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the river\n")
    done = run("predict", text_model(), tmp_path / "lines.txt", "--text-column", "title")
    assert "wanted a table: --input-format jsonl, csv, tsv or parquet" in str(done.exception)
    done = run("predict", text_model(), text_store(), "--text-column", "title")
    assert "is a finished store; reading options only apply to the original files" in str(done.exception)
