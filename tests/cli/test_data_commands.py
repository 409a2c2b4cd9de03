"""``owlmine data`` as a user runs it: a process of its own, real files, real exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from owlmine.data import Store, open_dataset

from ..conftest import Command

TABLE_1 = ("features", "classes", "train_points", "test_points", "points_per_class", "classes_per_point")


def test_convert_describe_verify(small_folder: Path, tmp_path: Path, owlmine_command: Command) -> None:
    out, picture = tmp_path / "store", tmp_path / "tail.png"
    done = owlmine_command("data", "convert", small_folder, out)
    assert done.returncode == 0, done.stderr
    assert "20 classes, 50 features" in done.stdout
    assert done.stderr == ""

    done = owlmine_command("data", "describe", out, "--json", "--plot", picture)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [told[key] for key in TABLE_1[:4]] == [50, 20, 200, 60]
    assert told["points_per_class"] * 20 == pytest.approx(told["classes_per_point"] * 200)
    assert picture.read_bytes().startswith(b"\x89PNG")

    done = owlmine_command("data", "verify", out)
    assert done.returncode == 0
    assert "all checksums match" in done.stdout
    array = out / "train.features.values.npy"
    data = bytearray(array.read_bytes())
    data[-1] ^= 1
    array.write_bytes(data)
    done = owlmine_command("data", "verify", out)
    assert done.returncode == 2
    assert "found changed bytes in train.features.values.npy" in done.stderr


def test_describe_takes_the_sample(owlmine_command: Command) -> None:
    done = owlmine_command("data", "describe", "sample", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {key: told[key] for key in TABLE_1[:4]} == {
        "features": 32102,
        "classes": 21077,
        "train_points": 45483,
        "test_points": 4632,
    }
    assert told["classes_per_point"] == pytest.approx(4.51, abs=0.005)


def test_describe_converts_once_and_again_when_files_change(
    small_folder: Path, owlmine_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cache of its own: other tests convert folders of this name at the same time.
    monkeypatch.setenv("OWLMINE_CACHE", str(tmp_path / "cache"))

    def stores() -> set[Path]:
        return set((tmp_path / "cache").glob(f"{small_folder.name}-*"))

    for _ in range(2):
        assert owlmine_command("data", "describe", small_folder).returncode == 0
    assert len(stores()) == 1
    (small_folder / "labels.tsv").write_text("3\tthree\n")
    assert owlmine_command("data", "describe", small_folder).returncode == 0
    newest = max(stores(), key=lambda path: path.stat().st_mtime_ns)
    assert len(stores()) == 2
    assert Store.open(newest).class_names[3] == "three"


def test_both_populations_are_told(tmp_path: Path, owlmine_command: Command) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text(
        "".join(json.dumps({"text": f"red apple {i % 3}", "labels": ["fruit"]}) + "\n" for i in range(3))
        + '{"text": "green tree", "labels": ["plant"]}\n{"text": "green tree", "labels": ["plant"]}\n'
    )
    (folder / "test.jsonl").write_text(
        '{"text": "green apple", "labels": ["fruit", "pie"]}\n'
        '{"text": "green tree", "labels": ["pie"]}\n'
        '{"text": "zebra", "labels": ["plant"]}\n'
    )
    dropped = owlmine_command("data", "convert", folder, tmp_path / "a", "--max-df", "1")
    assert dropped.returncode == 0, dropped.stderr
    assert "1 points lost all labels" in dropped.stdout
    assert "left out (--keep-empty keeps them, and counts them as 0)" in dropped.stdout
    assert len(Store.open(tmp_path / "a")["test"]) == 1
    kept = owlmine_command("data", "convert", folder, tmp_path / "b", "--max-df", "1", "--keep-empty")
    assert "kept and count as 0 (1 points without them)" in kept.stdout
    assert len(Store.open(tmp_path / "b")["test"]) == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("describe", "nowhere"), "found no such file or folder; wanted a store, a dataset, or the word sample"),
        (("convert", "nowhere", "out"), "nowhere: found no such file or folder"),
        (("verify", "."), "found no meta.json; wanted a store"),
        (("convert", ".", "out", "--min-df", "0"), "--min-df is 0; wanted 1 or more"),
        (("convert", ".", "out", "--format", "xls"), "--format is 'xls'; wanted one of auto, xmc"),
        (("convert", ".", "out"), "found files none; wanted train.*"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], told: str, tmp_path: Path, owlmine_command: Command) -> None:
    done = owlmine_command("data", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_options_of_conversion_are_refused_for_a_store(
    small_folder: Path, tmp_path: Path, owlmine_command: Command
) -> None:
    assert owlmine_command("data", "convert", small_folder, tmp_path / "out").returncode == 0
    done = owlmine_command("data", "describe", tmp_path / "out", "--min-df", "3")
    assert done.returncode == 2
    assert "is a finished store" in done.stderr


def test_data_commands_do_not_load_torch(owlmine_command: Command, small_folder: Path, tmp_path: Path) -> None:
    """Torch costs a second and hundreds of MiB that no data command needs."""
    import subprocess
    import sys

    code = (
        "import sys, owlmine.data, owlmine.evaluate, owlmine.cli.app;"
        f"owlmine.data.convert({str(small_folder)!r}, {str(tmp_path / 'out')!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_and_help(owlmine_command: Command) -> None:
    assert owlmine_command("--version").stdout.startswith("owlmine ")
    shown = owlmine_command("data", "--help").stdout
    assert all(verb in shown for verb in ("convert", "describe", "verify"))


def test_the_sample_is_converted_like_any_data(tmp_path: Path, owlmine_command: Command) -> None:
    done = owlmine_command("data", "convert", "sample", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    assert Store.open(tmp_path / "store").meta["checksum"] == open_dataset("sample").meta["checksum"]
