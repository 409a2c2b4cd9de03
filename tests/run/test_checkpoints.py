"""Damaged checkpoints and disks without room: said plainly, and never worse than before."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from owlmine.data import Store
from owlmine.data.batches import Batches
from owlmine.dense.loop import Snapshot
from owlmine.dense.step import TrainingStep
from owlmine.errors import DataError, OwlmineError
from owlmine.model import load
from owlmine.run import checkpoints as checkpoints_module
from owlmine.run import train
from owlmine.run.checkpoints import BestWeights, Checkpoints

from .runs import (
    Listener,
    bytes_of,
    contents,
    ensemble_options,
    file_size_limit,
    interrupted,
    killed_in,
    measure_by_hand,
    save_after_each_step,
    small_options,
    use_step,
)


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 4
    file.write_bytes(data)


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "a bit of the tensors": lambda tensors, record: flip(tensors, -9),
    "a bit of the header": lambda tensors, record: flip(tensors, 20),
    # A digit of the position becomes another digit: still JSON, still a number.
    "a digit of the description": lambda tensors, record: record.write_text(
        record.read_text().replace('"position": 240', '"position": 160').replace('"position": 320', '"position": 160')
    ),
    "half the tensors": lambda tensors, record: tensors.write_bytes(
        tensors.read_bytes()[: tensors.stat().st_size // 2]
    ),
    "half the description": lambda tensors, record: record.write_bytes(
        record.read_bytes()[: record.stat().st_size // 2]
    ),
    "no tensors": lambda tensors, record: tensors.unlink(),
    "no content": lambda tensors, record: record.write_text("null"),
}


def files_of(folder: Path, step: int) -> tuple[Path, Path]:
    stem = folder / "checkpoints" / f"step-{step:010d}"
    return stem.with_suffix(".safetensors"), stem.with_suffix(".json")


@pytest.fixture(scope="module")
def whole(store: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an undisturbed run leaves."""
    out = tmp_path_factory.mktemp("whole") / "out"
    train(store, out, small_options())
    return contents(out)


@pytest.fixture(scope="module")
def stopped(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of the steps 6 and 8."""
    out = tmp_path_factory.mktemp("stopped") / "out"
    interrupted(store, out, small_options(), at=6)
    interrupted(store, out, small_options(), at=8, resume=True)
    return out


@pytest.fixture
def broken_off(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "out")


@pytest.mark.parametrize("damage", DAMAGES)
def test_falls_back_to_the_one_before(store: Store, broken_off: Path, whole: dict[str, Any], damage: str) -> None:
    before = [file.read_bytes() for file in files_of(broken_off, 8) if file.exists()]
    DAMAGES[damage](*files_of(broken_off, 8))
    assert [file.read_bytes() for file in files_of(broken_off, 8) if file.exists()] != before
    listener = Listener()
    train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert listener.messages[0].startswith("checkpoint of step 8 is damaged (")
    assert listener.messages[1:] == ["resumed at step 6 of 20"]
    assert contents(broken_off) == whole


@pytest.mark.parametrize("damage", DAMAGES)
def test_starts_anew_where_both_are_damaged(store: Store, broken_off: Path, whole: dict[str, Any], damage: str) -> None:
    for step in (6, 8):
        DAMAGES[damage](*files_of(broken_off, step))
    listener = Listener()
    train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert [message.split(" (")[0] for message in listener.messages[:2]] == [
        "checkpoint of step 8 is damaged",
        "checkpoint of step 6 is damaged",
    ]
    assert listener.messages[2:] == ["no checkpoint to resume from; starting from the beginning"]
    assert contents(broken_off) == whole


def test_a_damaged_checkpoint_of_a_member(store: Store, tmp_path: Path) -> None:
    """It begins anew and says so; a member that had not begun misses no checkpoint."""
    out, options = tmp_path / "out", ensemble_options()
    with killed_in(Batches, "next_rows", call=20):
        train(store, out, options)
    (record,) = (out / "members" / "0" / "checkpoints").glob("*.json")
    record.write_text("{")
    listener = Listener()
    train(store, out, options, resume=True, reporter=listener)
    assert [message.partition(" (")[0] for message in listener.messages[:4]] == [
        "model 1 of 2",
        "checkpoint of step 16 is damaged",
        "no checkpoint to resume from; starting from the beginning",
        "model 2 of 2",
    ]
    assert "no checkpoint to resume from; starting from the beginning" not in listener.messages[4:]
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")


def test_what_killed_processes_left_is_removed(store: Store, broken_off: Path, whole: dict[str, Any]) -> None:
    half = tuple(
        f"{name}.0123456789abcdef.writing"
        for name in (".weights.safetensors", ".best.safetensors", "checkpoints/.step-0000000009.json")
    )
    for name in (*half, "checkpoints/step-0000000009.safetensors"):
        (broken_off / name).write_bytes(b"half")
    interrupted(store, broken_off, small_options(), at=12, resume=True)
    assert sorted(file.name for file in broken_off.rglob("*") if file.is_file()) == [
        "metrics.jsonl",
        "run.json",
        *(f"step-{step:010d}.{kind}" for step in (8, 12) for kind in ("json", "safetensors")),
    ]
    train(store, broken_off, small_options(), resume=True)
    assert contents(broken_off) == whole


def test_what_others_left_among_checkpoints_stays(store: Store, broken_off: Path, whole: dict[str, Any]) -> None:
    """Folders, even of a checkpoint's name, and files whose names are not quite those of checkpoints."""
    folder = broken_off / "checkpoints"
    for name in ("mine/step-0000000001.json", "step-0000000007.json/note", "step-0000000010.safetensors/note"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("mine")
    for name in (
        "notes.txt",
        "step-9.json",
        "step-0000000009.json.gz",
        "my-step-0000000009.json",
        ".step-9.json.writing",
    ):
        (folder / name).write_text("mine")
    own = {*files_of(broken_off, 6), *files_of(broken_off, 8)}
    before = {file for file in folder.rglob("*") if file.is_file()} - own
    listener = Listener()
    with pytest.MonkeyPatch.context() as patch:
        save_after_each_step(patch)
        train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert {file for file in folder.rglob("*") if file.is_file()} == before
    expected = contents(broken_off)
    expected["files"].remove("checkpoints")
    assert expected == whole
    assert listener.messages[0] == "resumed at step 8 of 20"
    assert ["checkpoint of step 10 not written" in message for message in listener.messages[1:]] == [True]


def test_checkpoints_on_another_disk(store: Store, broken_off: Path, tmp_path: Path, whole: dict[str, Any]) -> None:
    """Through a link, which stays, and so does what else is there."""
    elsewhere = shutil.move(broken_off / "checkpoints", tmp_path / "elsewhere")
    (elsewhere / "mine").write_text("mine")
    (broken_off / "checkpoints").symlink_to(elsewhere)
    interrupted(store, broken_off, small_options(), at=12, resume=True)
    assert sorted(file.name for file in elsewhere.glob("*.json")) == ["step-0000000008.json", "step-0000000012.json"]
    listener = Listener()
    train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert listener.messages == ["resumed at step 12 of 20"]
    assert [file.name for file in elsewhere.iterdir()] == ["mine"]
    (broken_off / "checkpoints").unlink()
    assert contents(broken_off) == whole


def test_checkpoints_that_cannot_be_removed(
    store: Store, broken_off: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that has become read-only: said once, and the run ends as it would have."""
    unlink = Path.unlink

    def read_only(file: Path, missing_ok: bool = False) -> None:
        if file.parent.name == "checkpoints":
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(file, missing_ok=missing_ok)

    listener = Listener()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", read_only)
        save_after_each_step(patch)
        train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert listener.messages == [
        "resumed at step 8 of 20",
        f"{broken_off / 'checkpoints'}: old checkpoints cannot be removed: Read-only file system; training continues",
        f"{broken_off}: working files of the run cannot be removed: Read-only file system",
    ]
    shutil.rmtree(broken_off / "checkpoints")
    assert contents(broken_off) == whole


def test_no_room_for_checkpoints(store: Store, tmp_path: Path) -> None:
    """Optimiser state makes checkpoints larger than the model: they fail, the training and the model do not."""
    out, listener = tmp_path / "out", Listener()
    options = small_options(optimiser="adaptive", checkpoint_minutes=1e-9)
    train(store, tmp_path / "roomy", options)
    size = (tmp_path / "roomy" / "weights.safetensors").stat().st_size
    with file_size_limit(size):
        train(store, out, options, reporter=listener)
    assert len(listener.messages) == 20
    assert listener.messages[0] == (
        f"{out / 'checkpoints'}: checkpoint of step 1 not written: File too large;"
        " training continues, and the previous checkpoint is kept"
    )
    assert contents(out) == contents(tmp_path / "roomy")


def test_no_room_for_checkpoints_of_members(store: Store, tmp_path: Path) -> None:
    """What fails is said, and the run of all of them ends well."""
    out, listener, options = tmp_path / "out", Listener(), ensemble_options(optimiser="adaptive")
    train(store, tmp_path / "roomy", options)

    def full(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints_module, "write_tensors", full)
        train(store, out, options, reporter=listener)
    assert [message for message in listener.messages if "not written" in message] == [
        f"{out}/members/{number}/checkpoints: checkpoint of step 16 not written:"
        " No space left on device; training continues, and the previous checkpoint is kept"
        for number in (0, 1)
    ]
    assert contents(out) == contents(tmp_path / "roomy")


def test_no_room_for_one_checkpoint_leaves_the_others(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2):
        checkpoints.save(Snapshot(step, {"w": torch.full((50,), float(step))}, {"n": step}))
    with file_size_limit(1000), pytest.raises(OwlmineError, match="checkpoint of step 3 not written: File too large"):
        checkpoints.save(Snapshot(3, {"w": torch.zeros(5000)}, {}))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 4
    found, complaints = checkpoints.newest()
    assert found is not None
    assert (found.step, found.state, complaints) == (2, {"n": 2}, [])
    assert found.tensors.read("w").tolist() == [2.0] * 50


def test_a_checkpoint_without_its_description_does_not_count(tmp_path: Path) -> None:
    """The description is written last and removed first."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2, 3):
        checkpoints.save(Snapshot(step, {"w": torch.zeros(3)}, {}))
    (tmp_path / "checkpoints" / "step-0000000003.json").unlink()
    found, complaints = checkpoints.newest()
    assert found is not None
    assert (found.step, complaints) == (2, [])
    checkpoints.remove_old()
    names = [f"step-000000000{step}.{kind}" for step in (1, 2) for kind in ("json", "safetensors")]
    assert sorted(file.name for file in (tmp_path / "checkpoints").iterdir()) == names


def test_no_room_for_the_best_weights(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is for those of the first epoch, not for the better ones of the second."""
    listener, written = Listener(), []
    write_tensors = checkpoints_module.write_tensors

    def full_disk_later(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        if path.name == "best.safetensors":
            if written:
                raise OSError(errno.ENOSPC, "No space left on device")
            written.append({name: tensor.clone() for name, tensor in tensors.items()})
        write_tensors(path, tensors)

    monkeypatch.setattr(checkpoints_module, "write_tensors", full_disk_later)
    measure_by_hand([10.0, 20.0], monkeypatch)
    trained = train(store, tmp_path / "out", small_options(patience=5), reporter=listener)
    assert listener.messages == [
        f"{tmp_path / 'out' / 'best.safetensors'}: the best weights so far cannot be saved: No space left on device;"
        " training continues"
    ]
    assert all(torch.equal(tensor, written[0][name]) for name, tensor in trained.dense.tensors().items())


@pytest.mark.parametrize("damage", [lambda file: flip(file, -5), Path.unlink], ids=["flipped", "missing"])
def test_damaged_best_weights_are_not_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    out, listener = tmp_path / "out", Listener()
    seen = measure_by_hand([20.0, 10.0], monkeypatch)
    restore = BestWeights.restore

    def damaged(self: BestWeights, tensors: dict[str, torch.Tensor]) -> None:
        damage(out / "best.safetensors")
        restore(self, tensors)

    monkeypatch.setattr(BestWeights, "restore", damaged)
    trained = train(store, out, small_options(patience=5), reporter=listener)
    assert listener.messages == [
        f"{out / 'best.safetensors'}: is missing or has changed; the model keeps the last epoch's weights instead of"
        " the best"
    ]
    assert bytes_of(trained.dense.tensors()) == seen[1]


def test_no_room_for_the_model(store: Store, tmp_path: Path, whole: dict[str, Any]) -> None:
    """Nothing that could be taken for a model; with room again, the run is finished by --resume."""
    out = tmp_path / "out"
    interrupted(store, out, small_options(), at=6)
    with file_size_limit(5000), pytest.raises(OwlmineError, match=r"the model cannot be written: .*File too large"):
        train(store, out, small_options(), resume=True)
    with pytest.raises(DataError, match="unfinished run"):
        load(out)
    train(store, out, small_options(), resume=True)
    assert contents(out) == whole


def test_no_room_at_all(store: Store, tmp_path: Path) -> None:
    with file_size_limit(10), pytest.raises(OwlmineError, match="cannot be written: File too large"):
        train(store, tmp_path / "out", small_options())
    train(store, tmp_path / "out", small_options(epochs=0.2))  # what it left is no run


def test_the_last_good_checkpoint_stays(store: Store, tmp_path: Path) -> None:
    """The update of step 8 spoils the weights, while its own loss is still fine: that step must not be saved."""
    out, options = tmp_path / "out", small_options(checkpoint_minutes=1e-9)

    class Poisoned(TrainingStep):
        def __call__(self, *args: Any, number: int, progress: float) -> Any:
            loss = super().__call__(*args, number=number, progress=progress)
            if number == 7:
                self.model.classes.weight[3, 2] = torch.nan
            return loss

    with pytest.MonkeyPatch.context() as patch:
        use_step(Poisoned, patch)
        message = f"after step 8 classes has numbers that are not finite; .*; earlier checkpoints are in {out}/ch"
        with pytest.raises(OwlmineError, match=message):
            train(store, out, options)
    assert not (out / "config.json").exists()
    found, complaints = Checkpoints(out / "checkpoints").newest()
    assert found is not None
    assert (found.step, complaints) == (7, [])
    train(store, out, options, resume=True)
    assert torch.isfinite(load(out).dense.classes.weight).all()
