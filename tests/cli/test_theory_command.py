"""``owlmine theory`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import Command


def test_json_for_the_largest_catalogue(tmp_path: Path, owlmine_command: Command) -> None:
    picture = tmp_path / "theta.png"
    sizes = ("--classes", "10000000", "--pool", "32768", "--top", "1,256")
    done = owlmine_command("theory", *sizes, "--json", "--plot", picture)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [method["top"] for method in told] == [1, 256, None]
    assert [method["theta_first"] for method in told] == pytest.approx([1, 1 / 256, 1 / 5])
    scale = (10_000_000 - 1) / 32768
    assert [method["theta_l1"] for method in told] == pytest.approx([scale, scale, (10_000_000 - 1) / 5])
    for method in told:
        assert 0 < method["theta_l2"] <= method["theta_l2_bound"] * (1 + 1e-12)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_table(owlmine_command: Command) -> None:
    done = owlmine_command("theory", "--classes", "13330", "--pool", "1024", "--k", "3")
    assert done.returncode == 0, done.stderr
    for expected in ("13,330 classes, pools of 1,024, 3 retrieved", "Top-256", "sampling", "(K - 1)/(3B)"):
        assert expected in done.stdout
    assert "…" not in done.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--classes 100 --pool 10 --top 1,16", "--top: given (1, 16); wanted 1 to 10 each"),
        ("--classes 100 --pool 10 --top 1,x", "--top: given '1,x'; wanted whole numbers"),
        ("--classes 100 --pool 10 --top 1 --k 0", "--k: given 0; wanted 1 to 99"),
    ],
)
def test_bad_options_end_in_one_line(given: str, message: str, owlmine_command: Command) -> None:
    done = owlmine_command("theory", *given.split())
    assert done.returncode == 2
    assert done.stderr.startswith(f"owlmine: error: {message}")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_picture_that_cannot_be_written(tmp_path: Path, owlmine_command: Command) -> None:
    picture = tmp_path / "missing" / "theta.png"
    done = owlmine_command("theory", "--classes", "100", "--pool", "10", "--top", "1", "--plot", picture)
    assert done.returncode == 2
    assert done.stderr == f"owlmine: error: {picture}: cannot be written: {picture.parent} is not a folder\n"


@pytest.mark.parametrize(("sizes", "tops", "k"), [((1000, 100), [1, 16, 64], 5), ((4, 2), [1], 3), ((2, 1), [1], 1)])
def test_defaults_fit_any_size(sizes: tuple[int, int], tops: list[int], k: int, owlmine_command: Command) -> None:
    num_classes, pool = sizes
    done = owlmine_command("theory", "--classes", str(num_classes), "--pool", str(pool), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [method["top"] for method in told] == [*tops, None]
    assert told[-1]["theta_first"] == pytest.approx(1 / k)
