"""What commands write: whole, where they were told and nowhere else, and never over what is there."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import owlmine
from owlmine.errors import OwlmineError
from owlmine.exchange.answers import new_file
from owlmine.files import write_text
from owlmine.run import train

from ..conftest import Command
from ..small_models import OPTIONS, run, text_data, text_model, text_store

BUDGET = ("--epochs", "0.1", "--dim", "8")


def write(path: Path, text: str) -> None:
    with new_file(path) as file:
        file.write(text)


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


class Busy(os.PathLike[str]):
    """A dataset during whose opening something else happens."""

    def __init__(self, path: Path, happens: Callable[[], object]) -> None:
        self._path, self._happens = path, happens

    def __fspath__(self) -> str:
        if self._happens is not None:
            happens, self._happens = self._happens, None  # type: ignore[assignment]
            happens()
        return str(self._path)


def test_of_two_trainings_into_a_folder_one_is_refused(tmp_path: Path) -> None:
    """The second has looked at the folder before the first took it, and comes to it when the first has finished."""
    out = tmp_path / "out"
    slow = Busy(text_store(), lambda: train(text_store(), out, OPTIONS))
    with pytest.raises(OwlmineError, match="out: contains a finished model; choose another folder"):
        train(slow, out, OPTIONS, data_name="slow")  # type: ignore[arg-type]
    assert owlmine.load(out).record.data == text_store().name


def test_of_two_predictions_into_a_file_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    with pytest.raises(OwlmineError, match="answers: appeared"), new_file(path):
        write(path, "quick")
    assert path.read_text() == "quick"
    assert names_in(tmp_path) == ["answers"]


def test_a_new_file_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    test_of_two_predictions_into_a_file_one_is_refused(tmp_path)


def test_what_a_killed_prediction_left_goes(tmp_path: Path) -> None:
    """But only what was written under the same name, and nothing that is still being written."""
    (tmp_path / ".answers.0123456789abcdef.writing").write_text("half")
    others = (".answers.writing", ".answers.notes.writing", ".other.0123456789abcdef.writing")
    for name in others:
        (tmp_path / name).write_text("mine")
    with new_file(tmp_path / "answers") as living:
        living.write("whole")
        living.flush()
        with pytest.raises(ZeroDivisionError), new_file(tmp_path / "answers"):
            raise ZeroDivisionError
    assert (tmp_path / "answers").read_text() == "whole"
    assert names_in(tmp_path) == sorted(["answers", *others])


def test_nothing_is_written_through_a_link_that_waits(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".out.writing", ".out.0123456789abcdef.writing", "out"):
        (tmp_path / name).symlink_to(victim)
    write_text(tmp_path / "out", "ours")
    assert victim.read_text() == "mine"
    assert (tmp_path / "out").read_text() == "ours"
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.parametrize(
    "command", [("compare", "sample", "--search-runs", "1", "--seeds", "1", "--methods", "top-1"), ("demo",)]
)
def test_no_command_writes_through_a_link_in_its_folder(
    command: tuple[str, ...], tmp_path: Path, owlmine_command: Command
) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("mine")
    out.mkdir()
    (out / f"..owlmine-{command[0]}.writing").symlink_to(victim)
    done = owlmine_command(*command, "--out", out, *BUDGET)
    assert victim.read_text() == "mine"
    assert done.returncode == 2
    assert "has other contents; wanted a new folder" in done.stderr


@pytest.mark.parametrize(("command", "other"), [(("demo",), "compare"), (("compare", "sample"), "demo")])
def test_demo_and_compare_leave_each_other_alone(
    command: tuple[str, ...], other: str, tmp_path: Path, owlmine_command: Command
) -> None:
    out = tmp_path / "study"
    out.mkdir()
    for name in (f".owlmine-{other}", "results.json", "report.html"):
        (out / name).write_text(f"of {other}")
    refused = owlmine_command(*command, "--out", out, *BUDGET)
    assert refused.returncode == 2
    wanted = f"has other contents; wanted a new folder or one that owlmine {command[0]} made"
    assert refused.stderr == f"owlmine: error: {out}: {wanted}\n"
    assert names_in(out) == sorted([f".owlmine-{other}", "results.json", "report.html"])
    assert (out / "results.json").read_text() == f"of {other}"


def test_conversion_removes_nothing_that_is_not_its_own(tmp_path: Path, owlmine_command: Command) -> None:
    letters = tmp_path / ".st.partial-letters"
    letters.mkdir()
    (letters / "letter.txt").write_text("dear")
    (tmp_path / ".st.partial-link").symlink_to(letters)
    done = owlmine_command("data", "convert", text_data(), tmp_path / "st")
    assert done.returncode == 0, done.stderr
    assert names_in(tmp_path) == [".st.partial-letters", ".st.partial-link", "st"]
    assert (letters / "letter.txt").read_text() == "dear"
    assert [name for name in names_in(tmp_path / "st") if name.startswith(".")] == []


def test_added_classes_come_without_a_trace(tmp_path: Path, owlmine_command: Command) -> None:
    (tmp_path / "names").write_text("river falcon\n")
    killed = tmp_path / ".out.partial-dead"
    killed.mkdir()
    done = owlmine_command("add-classes", text_model(), "--names", tmp_path / "names", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [name for name in names_in(tmp_path / "out") if name.startswith(".")] == []
    assert killed.exists(), "without our mark it may be anybody's"


PLOTS = {
    "evaluate": ("evaluate", "no-model", "sample"),
    "describe": ("data", "describe", "no-data"),
    "theory": ("theory", "--classes", "1000", "--pool", "100"),
}


@pytest.mark.parametrize("command", PLOTS)
def test_pictures_are_checked_before_the_work(command: str, tmp_path: Path, owlmine_command: Command) -> None:
    taken = tmp_path / "taken.png"
    taken.write_text("mine")
    refused = owlmine_command(*PLOTS[command], "--plot", taken)
    assert refused.returncode == 2
    assert refused.stderr == f"owlmine: error: {taken}: already exists; choose a new name or remove it first\n"
    assert taken.read_text() == "mine"
    nowhere = owlmine_command(*PLOTS[command], "--plot", tmp_path / "no" / "one.png")
    assert nowhere.stderr.endswith(f"one.png: cannot be written: {tmp_path / 'no'} is not a folder\n")
    strange = owlmine_command(*PLOTS[command], "--plot", tmp_path / "one.txt")
    assert "one.txt: the name of the picture ends in '.txt'; wanted one of " in strange.stderr
    assert names_in(tmp_path) == ["taken.png"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_figures_are_printed_whatever_becomes_of_the_picture(
    options: tuple[str, ...], tmp_path: Path, owlmine_command: Command
) -> None:
    """The kernel refuses to write so large a file, as it does on a full disk."""
    done = owlmine_command(
        "evaluate", text_model(), text_store(), "--plot", tmp_path / "one.png", *options,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.endswith(f"{tmp_path / 'one.png'}: the picture cannot be written: File too large\n")
    assert "P@1" in done.stdout if options else "nDCG" in done.stdout
    assert names_in(tmp_path) == []


def test_a_title_with_dollars_is_no_formula(tmp_path: Path) -> None:
    model = tmp_path / r"a $\frac$ b"
    shutil.copytree(text_model(), model)
    done = run("evaluate", model, text_store(), "--plot", tmp_path / "one.svg")
    assert done.exit_code == 0, done.exception


def test_answers_are_refused_a_place_before_the_work(tmp_path: Path, owlmine_command: Command) -> None:
    (tmp_path / "answers").write_text("mine")
    refused = owlmine_command("predict", "no-model", "-", "--out", tmp_path / "answers")
    assert refused.returncode == 2
    assert refused.stderr.endswith("answers: already exists; choose a new name or remove it first\n")
