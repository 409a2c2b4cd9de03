"""What a terminal is sent, seen by a real one: texts of users in full, and none of their control characters."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from owlmine.data import convert
from owlmine.run import train

from ..conftest import Command
from ..small_models import OPTIONS, TOPICS, text_model, text_point, workplace, write_jsonl

# A new window title, and red; a CSI of one character; DEL; text from right to left; markup; an emoji's name.
NAMES = {
    "c-river": "\x1b]0;owned\x07 \x1b[31mriver",
    "c-castle": "\x9b31mcastle\x7f",
    "c-violin": "\u202eviolin\u202c \u2066x\u2069",
    "c-falcon": "[red]falcon[/] :cat: \\",
}
SHOWN = {
    "c-river": r"\x1b]0;owned\x07 \x1b[31mriver",
    "c-castle": r"\x9b31mcastle\x7f",
    "c-violin": r"\u202eviolin\u202c \u2066x\u2069",
    "c-falcon": "[red]falcon[/] :cat: \\",
}
# The newline and what ends lines on a terminal are the only controls that may arrive.
CONTROLS = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@functools.cache
def model() -> Path:
    folder = workplace() / "control-characters"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", [text_point(number) for number in range(240)])
    names = {f"c-{topic}": topic for topic in TOPICS} | NAMES
    (folder / "labels.tsv").write_text("".join(f"{key}\t{name}\n" for key, name in names.items()), encoding="utf-8")
    train(convert(folder, folder / "store"), folder / "model", OPTIONS)
    return folder / "model"


def on_terminal(*arguments: object) -> str:
    """What ``owlmine ARGUMENTS`` sends to a terminal that has no colours, and so needs no escapes."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "owlmine", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
        env=os.environ | {"TERM": "dumb", "COLUMNS": "160", "PYTHONIOENCODING": "utf-8"},
    )
    os.close(its)
    sent = b""
    with open(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                piece = terminal.read(65536)
            except OSError:  # how Linux tells that the other side has closed
                break
            if not piece:
                break
            sent += piece
    process.wait(timeout=60)
    return sent.decode("utf-8")


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    (tmp_path / "queries.txt").write_text("the river and the \x1b[31mcastle\nthe violin and the falcon\n")
    return tmp_path / "queries.txt"


@pytest.mark.parametrize("format", ["table", "csv"])
def test_names_are_written_out(format: str, queries: Path) -> None:
    sent = on_terminal("predict", model(), queries, "--format", format, "--classes", ",".join(NAMES))
    assert not CONTROLS.search(sent), sent
    for name in SHOWN.values():
        assert sent.count(name) == 2, sent


def test_json_on_a_terminal_is_still_json(queries: Path) -> None:
    sent = on_terminal("predict", model(), queries, "--format", "jsonl", "--classes", ",".join(NAMES))
    assert not CONTROLS.search(sent), sent
    for line in sent.splitlines():
        assert {found["key"]: found["name"] for found in json.loads(line)["classes"]} == NAMES


def test_pipes_get_the_bytes_that_there_are(queries: Path, owlmine_command: Command) -> None:
    asked = ("predict", model(), queries, "--classes", ",".join(NAMES), "--format")
    rows = csv.DictReader(io.StringIO(owlmine_command(*asked, "csv").stdout))
    assert {row["key"]: row["name"] for row in rows} == NAMES
    assert "\x1b[31mriver" in owlmine_command(*asked, "table").stdout


def test_queries_are_written_out(queries: Path) -> None:
    sent = on_terminal("predict", model(), queries, "--format", "table")
    assert r"the river and the \x1b[31mcastle" in sent


def test_errors_and_paths_are_written_out(tmp_path: Path) -> None:
    sent = on_terminal("predict", "no \x1b[31m model", "-")
    assert not CONTROLS.search(sent)
    assert r"no \x1b[31m model: found no such folder" in sent
    write_jsonl(tmp_path / "train.jsonl", [text_point(number) for number in range(24)])
    sent = on_terminal("data", "convert", tmp_path / "train.jsonl", tmp_path / "a \x1b[31m[red] store")
    assert not CONTROLS.search(sent)
    assert r"a \x1b[31m[red] store: 12 classes" in sent
    sent = on_terminal("data", "verify", tmp_path / "a \x1b[31m[red] store")
    assert not CONTROLS.search(sent)
    assert r"a \x1b[31m[red] store: " in sent


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_keys_of_new_classes_are_written_out(options: tuple[str, ...], tmp_path: Path) -> None:
    new = [{"text": "the river and the castle", "labels": [f"new\x1b[31m\x9b\u202e{n}"]} for n in range(2)]
    write_jsonl(tmp_path / "new.jsonl", new)  # type: ignore[arg-type]
    sent = on_terminal("add-classes", text_model(), tmp_path / "new.jsonl", "--out", tmp_path / "out", *options)
    assert not CONTROLS.search(sent), sent
    assert ("new\\u001b[31m\\u009b\\u202e0" if options else r"new\x1b[31m\x9b\u202e0") in sent


def test_names_of_files_that_are_no_text(
    tmp_path: Path, owlmine_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are printed as the bytes that they are, also where Python would refuse to."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")
    write_jsonl(tmp_path / "train.jsonl", [text_point(number) for number in range(24)])
    out = os.fsdecode(os.fsencode(tmp_path) + b"/store-\xff")
    done = owlmine_command("data", "convert", tmp_path / "train.jsonl", out, errors="surrogateescape")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{out}: 12 classes")
