"""What ``train`` and ``compare`` say of the files that they convert, and the options that they offer for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from owlmine.cli.compare import compare_command
from owlmine.cli.train import train_command
from owlmine.errors import OwlmineError

from ..conftest import Command
from ..small_models import run, text_point, write_jsonl

BRIEF = ("--recipe", "single", "--dim", "8", "--epochs", "1", "--device", "cpu")
BAD_INPUTS = {
    "a.csv": "body,labels\nthe owl,x\n",
    "b.csv": "text,kind\nthe owl,x\n",
    "c.jsonl": '{"text": "the owl", "labels": ["x"]}\n',
    "d.csv": "text,labels\n",
    "e.unknown": "owl",
    "f.txt": "1 134217729 2\n0 5:1\n",
    "g.svm": "1 1:x\n",
    "h/train.jsonl": '{"text": "owl", "labels": []}\n',
    "i/a_data.txt": "1 2 2\n0 0:1\n",
    "i/a_trSplit.txt": "1\n",
    "i/a_tstSplit.txt": "\n",
    "j/train.npy": "",
    "k.csv": "text,labels\nowl,x,y\n",
}


@pytest.fixture(scope="module")
def commas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose labels are separated by commas, and whose text column has a name of its own."""
    folder = tmp_path_factory.mktemp("commas")
    points = [text_point(number) for number in range(120)]
    rows = [{"body": point["text"], "labels": ",".join(point["labels"])} for point in points]  # type: ignore[arg-type]
    rows[7]["labels"] = ""
    write_jsonl(folder / "train.jsonl", rows)
    return folder


def options_of(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", text))


@pytest.mark.parametrize("command", [train_command, compare_command])
def test_errors_name_options_that_the_command_has(command: Callable[..., None], tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    known = {name for parameter in typer.main.get_command(app).params for name in parameter.opts}
    for name, content in BAD_INPUTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    named = set[str]()
    for name in sorted({name.split("/")[0] for name in BAD_INPUTS}):
        done = CliRunner().invoke(app, [str(tmp_path / name), "--out", str(tmp_path / "out"), "--device", "cpu"])
        assert isinstance(done.exception, OwlmineError), done
        named |= options_of(re.sub(r"owlmine data convert .*", "", str(done.exception)))
    assert named <= known
    assert {"--text-column", "--label-column", "--min-df", "--weighting", "--format"} <= named


def test_train_tells_what_the_conversion_doubted_each_time(commas: Path, tmp_path: Path) -> None:
    for out in ("first", "again"):
        done = run("train", commas, "--out", tmp_path / out, *BRIEF, "--text-column", "body")
        assert done.exit_code == 0, done.exception
        note = r"^train: (\d+) classes contain a comma, .* --label-separator ','\.$"
        told = re.search(note, done.stderr, re.MULTILINE)
        assert told
        assert int(told[1]) > 12
        assert "train: 1 points came without labels; training skips them.\n" in done.stderr
        assert done.stderr.index("contain a comma") < done.stderr.index("epoch")
        assert f"parameters, {told[1]} classes" in done.stdout


def test_train_reads_as_it_is_told(commas: Path, tmp_path: Path) -> None:
    reading = ("--text-column", "body", "--label-separator", ",", "--min-df", "3")
    done = run("train", commas, "--out", tmp_path / "out", *BRIEF, *reading)
    assert done.exit_code == 0, done.exception
    assert "parameters, 12 classes" in done.stdout
    assert "contain a comma" not in done.stderr


def test_the_command_for_the_test_split_can_be_typed(commas: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_bytes((commas / "train.jsonl").read_bytes())
    reading = ("--text-column", "body", "--label-separator", ",")
    done = run("train", folder, "--out", tmp_path / "out", *BRIEF, *reading)
    told = re.search(r"^On the test split: owlmine (evaluate .*)$", done.stdout, re.MULTILINE)
    assert told
    assert told[1].endswith("--text-column body --label-separator ,")
    assert run(*told[1].split()).exit_code == 0


def test_memory_that_runs_out_ends_in_one_line(commas: Path, tmp_path: Path, owlmine_command: Command) -> None:
    """More than the addresses that a process has."""
    huge = ("--recipe", "single", "--device", "cpu", "--text-column", "body", "--dim", str(10**13))
    done = owlmine_command("train", commas, "--out", tmp_path / "out", *huge)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("owlmine: error: owlmine train ran out of memory (")
    assert done.stderr.splitlines()[-1].endswith("; a smaller --dim, --pool or --batch-size needs less memory")
    assert not (tmp_path / "out" / "config.json").exists()
