"""Harmed checkpoints, disks without room, numbers that are not finite: told plainly, and never worse than before."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import owlmine
from owlmine.data import Store, convert
from owlmine.dense.step import TrainingStep
from owlmine.errors import DataError, OwlmineError
from owlmine.train import NotFinite, TrainOptions, train
from owlmine.train.checkpoint import Checkpoint, Checkpoints
from owlmine.train.progress import Clock

from .runs import Listener, contents, file_size_limit, interrupted, small_options, use_step


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 4
    file.write_bytes(data)


HARMS: dict[str, Callable[[Path, Path], None]] = {
    "a bit of the tensors": lambda tensors, told: flip(tensors, -9),
    "a bit of the header": lambda tensors, told: flip(tensors, 20),
    # A digit of the position becomes another digit: still JSON, still a number.
    "a digit of the description": lambda tensors, told: told.write_text(
        told.read_text().replace('"position": 240', '"position": 160').replace('"position": 320', '"position": 160')
    ),
    "half the tensors": lambda tensors, told: tensors.write_bytes(tensors.read_bytes()[: tensors.stat().st_size // 2]),
    "half the description": lambda tensors, told: told.write_bytes(told.read_bytes()[: told.stat().st_size // 2]),
    "no tensors": lambda tensors, told: tensors.unlink(),
    "no content": lambda tensors, told: told.write_text("null"),
}


def files_of(out: Path, step: int) -> tuple[Path, Path]:
    stem = out / "checkpoints" / f"step-{step:010d}"
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


@pytest.mark.parametrize("harm", HARMS)
def test_falls_back_to_the_one_before(store: Store, broken_off: Path, whole: dict[str, Any], harm: str) -> None:
    before = [file.read_bytes() for file in files_of(broken_off, 8) if file.exists()]
    HARMS[harm](*files_of(broken_off, 8))
    assert [file.read_bytes() for file in files_of(broken_off, 8) if file.exists()] != before
    listener = Listener()
    train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert listener.messages[0].startswith("checkpoint of step 8 is damaged (")
    assert listener.messages[1:] == ["resumed at step 6 of 20"]
    assert contents(broken_off) == whole


@pytest.mark.parametrize("harm", HARMS)
def test_starts_anew_where_both_are_harmed(store: Store, broken_off: Path, whole: dict[str, Any], harm: str) -> None:
    for step in (6, 8):
        HARMS[harm](*files_of(broken_off, step))
    listener = Listener()
    train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert [message.split(" (")[0] for message in listener.messages[:2]] == [
        "checkpoint of step 8 is damaged",
        "checkpoint of step 6 is damaged",
    ]
    assert listener.messages[2:] == ["no checkpoint to resume from; starting at the beginning"]
    assert contents(broken_off) == whole


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
    before = {file for file in folder.rglob("*") if file.is_file()} - {
        *files_of(broken_off, 6),
        *files_of(broken_off, 8),
    }
    listener = Listener()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clock, "checkpoint_due", lambda self, minutes: True)
        train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert {file for file in folder.rglob("*") if file.is_file()} == before
    expected = contents(broken_off)
    expected["files"].remove("checkpoints")
    assert expected == whole
    assert listener.messages[0] == "resumed at step 8 of 20"
    assert ["checkpoint of step 10 not written" in message for message in listener.messages[1:]] == [True]


def test_checkpoints_on_another_disk(store: Store, broken_off: Path, tmp_path: Path, whole: dict[str, Any]) -> None:
    """Through a link, which stays, and so does what else is kept there."""
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
    """As on a file system that has become read-only: told once, and the run ends as it would have."""
    unlink = Path.unlink

    def read_only(file: Path, missing_ok: bool = False) -> None:
        if file.parent.name == "checkpoints":
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(file, missing_ok=missing_ok)

    listener = Listener()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", read_only)
        patch.setattr(Clock, "checkpoint_due", lambda self, minutes: True)
        train(store, broken_off, small_options(), resume=True, reporter=listener)
    assert listener.messages == [
        "resumed at step 8 of 20",
        f"{broken_off / 'checkpoints'}: old checkpoints cannot be removed: Read-only file system; training goes on",
        f"{broken_off}: files that only the run needed cannot be removed: Read-only file system",
    ]
    shutil.rmtree(broken_off / "checkpoints")
    assert contents(broken_off) == whole


def test_a_folder_in_which_nothing_was_finished_is_free(store: Store, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".run.json.0123456789abcdef.writing").write_text("{")
    train(store, tmp_path / "out", small_options(epochs=0.2))
    owlmine.load(tmp_path / "out")


def test_no_room_for_checkpoints(store: Store, tmp_path: Path, whole: dict[str, Any]) -> None:
    """Optimiser state makes checkpoints larger than the model: they fail, the training and the model do not."""
    out, listener = tmp_path / "out", Listener()
    adaptive = {"optimiser": "adaptive", "checkpoint_minutes": 1e-9}
    train(store, tmp_path / "roomy", small_options(**adaptive))
    size = (tmp_path / "roomy" / "weights.safetensors").stat().st_size
    with file_size_limit(size):
        train(store, out, small_options(**adaptive), reporter=listener)
    assert len(listener.messages) == 20
    assert listener.messages[0] == (
        f"{out / 'checkpoints'}: checkpoint of step 1 not written: File too large;"
        " training goes on, the checkpoint before it stays"
    )
    assert contents(out) == contents(tmp_path / "roomy")


def test_no_room_for_one_checkpoint_leaves_the_others(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "kept")
    for step in (1, 2):
        checkpoints.save(Checkpoint(step, {"w": torch.full((50,), float(step))}, {"n": step}))
    with file_size_limit(1000), pytest.raises(OwlmineError, match="checkpoint of step 3 not written: File too large"):
        checkpoints.save(Checkpoint(3, {"w": torch.zeros(5000)}, {}))
    assert len(list((tmp_path / "kept").iterdir())) == 4
    found, complaints = checkpoints.newest()
    assert (found.step, found.state, complaints) == (2, {"n": 2}, [])
    assert found.tensors.read("w").tolist() == [2.0] * 50


def test_no_room_for_the_best_weights(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first epoch's weights are kept, the better ones of the second cannot be."""
    from owlmine.train import best
    from owlmine.train.validate import ValidationPart

    figures, listener, saved = iter([10.0, 20.0]), Listener(), []
    write_tensors = best.write_tensors

    def full_disk_later(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        if saved:
            raise OSError(errno.ENOSPC, "No space left on device")
        saved.append({name: tensor.clone() for name, tensor in tensors.items()})
        write_tensors(path, tensors)

    monkeypatch.setattr(best, "write_tensors", full_disk_later)
    monkeypatch.setattr(ValidationPart, "measure", lambda self, model: {"P@1": next(figures)})
    predictor = train(store, tmp_path / "out", small_options(patience=5), reporter=listener)
    assert len(listener.messages) == 1
    assert listener.messages[0].endswith("cannot be kept: No space left on device; training goes on")
    assert predictor.config["kept"]["epoch"] == 1
    assert all(torch.equal(tensor, saved[0][name]) for name, tensor in predictor.retriever.tensors().items())


@pytest.mark.parametrize("harm", [lambda file: flip(file, -5), Path.unlink], ids=["flipped", "missing"])
def test_harmed_best_weights_are_not_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    from owlmine.train.validate import ValidationPart

    out, listener, figures = tmp_path / "out", Listener(), iter([20.0, 10.0])
    last: dict[str, torch.Tensor] = {}

    def measure(self: ValidationPart, model: Any) -> dict[str, float]:
        last.update({name: tensor.clone() for name, tensor in model.tensors().items()})
        if (out / "best.safetensors").exists():
            harm(out / "best.safetensors")
        return {"P@1": next(figures)}

    monkeypatch.setattr(ValidationPart, "measure", measure)
    predictor = train(store, out, small_options(patience=5), reporter=listener)
    assert listener.messages[-1].endswith(
        "best.safetensors: is missing or has changed; the last epoch's weights are kept instead of the best"
    )
    assert all(torch.equal(tensor, last[name]) for name, tensor in predictor.retriever.tensors().items())
    assert predictor.config["kept"]["epoch"] == 2


def test_no_room_for_the_model(store: Store, tmp_path: Path, whole: dict[str, Any]) -> None:
    """Nothing that could be taken for a model; with room again, the run is finished by --resume."""
    out = tmp_path / "out"
    interrupted(store, out, small_options(), at=6)
    with file_size_limit(5000), pytest.raises(OwlmineError, match=r"the model cannot be written: .*File too large"):
        train(store, out, small_options(), resume=True)
    with pytest.raises(DataError, match=r"unfinished run|no config.json"):
        owlmine.load(out)
    train(store, out, small_options(), resume=True)
    assert contents(out) == whole


def test_no_room_at_all(store: Store, tmp_path: Path) -> None:
    with file_size_limit(10), pytest.raises(OwlmineError, match="cannot be written: File too large"):
        train(store, tmp_path / "out", small_options())


def test_loss_that_is_not_finite(store: Store, tmp_path: Path) -> None:
    """Rates beyond all measure: the exponential surrogate overflows in a known step."""
    out, losses = tmp_path / "out", []

    class Watched(TrainingStep):
        def __call__(self, *args: Any, **options: Any) -> Any:
            losses.append(super().__call__(*args, **options))
            return losses[-1]

    options = small_options(kind="linear", surrogate="exponential", class_rate=3.0, schedule="constant", epochs=4.0)
    with pytest.MonkeyPatch.context() as patch:
        use_step(Watched, patch)
        with pytest.raises(OwlmineError) as raised:
            train(store, out, options)
    finite = [bool(torch.isfinite(loss)) for loss in losses]
    assert f"the loss of step {finite.index(False) + 1} is not a finite number; lower the rates" in str(raised.value)
    assert not (out / "config.json").exists()


def test_last_good_checkpoint_is_kept(store: Store, tmp_path: Path) -> None:
    """Weights are poisoned by the update of step 8, whose own loss is still fine: that step must not be saved."""
    out, options = tmp_path / "out", small_options(checkpoint_minutes=1e-9)

    class Poisoned(TrainingStep):
        def __call__(self, *args: Any, number: int, progress: float) -> Any:
            loss = super().__call__(*args, number=number, progress=progress)
            if number == 7:
                self.model.classes.weight[3, 2] = torch.nan
            return loss

    with pytest.MonkeyPatch.context() as patch:
        use_step(Poisoned, patch)
        told = "after step 8 classes holds numbers that are not finite; .*; checkpoints before it are in .*checkpoints"
        with pytest.raises(OwlmineError, match=told):
            train(store, out, options)
    found, complaints = Checkpoints(out / "checkpoints").newest()
    assert (found.step, complaints) == (7, [])
    train(store, out, options, resume=True)
    assert torch.isfinite(owlmine.load(out).retriever.classes.weight).all()


def test_poisoned_weights_are_no_model(store: Store, tmp_path: Path) -> None:
    class Poisoned(TrainingStep):
        def __call__(self, *args: Any, number: int, progress: float) -> Any:
            loss = super().__call__(*args, number=number, progress=progress)
            if number == 9:
                self.model.encoder.table.weight[0, 0] = torch.inf
            return loss

    with pytest.MonkeyPatch.context() as patch:
        use_step(Poisoned, patch)
        with pytest.raises(OwlmineError, match="after step 10 table holds numbers that are not finite"):
            train(store, tmp_path / "out", small_options(epochs=1.0))
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize("kind", ["embedding", "linear"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("values", "row", "told"),
    [
        ([1e30] * 60, 0, "a feature of size 1e+30; wanted at most 1e+15; scale the features down"),
        ([1.0] * 41 + [-1e16] + [1.0] * 18, 41, "a feature of size 1e+16; wanted at most 1e+15"),
        ([1e-20] * 60, None, "no feature larger than 1e-20; wanted at least 1e-12; scale the features up"),
    ],
    ids=["huge", "huge in a row", "tiny"],
)
def test_feature_values_without_sense(
    tmp_path: Path, kind: str, sparse: bool, values: list[float], row: int | None, told: str
) -> None:
    """Finite as they are; their squares are not, or vanish, and all scores would be 0."""
    if sparse:
        # Numbers that are all whole would be counts, and be weighted.
        lines = [f"{i % 6} {i % 3}:{value:g} {(i + 1) % 3}:{min(value, 0.5):g}" for i, value in enumerate(values)]
        (tmp_path / "train.txt").write_text("\n".join(["60 3 6", *lines]) + "\n")
        store = convert(tmp_path / "train.txt", tmp_path / "store")
    else:
        vectors = np.tile(np.array(values, np.float32)[:, None], 3)
        store = convert({"train": (vectors, [[i % 6] for i in range(60)])}, tmp_path / "store")
    place = "train" if row is None else rf"train, row {row} \(from 0\)"
    with pytest.raises(DataError, match=f"^store: {place}: found {re.escape(told)}"):
        train(store, tmp_path / "out", small_options(pool=3, kind=kind, validation=0.0))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"class_rate": 1e30}, r"by step 10 \d+ class vectors have become 0: their lengths overflow; lower the rates"),
        ({"feature_rate": 1e30}, "after step 10 the vectors of queries are 0: their lengths overflow; lower the rates"),
        ({"map_rate": 1e30}, "after step 10 the vectors of queries are 0: their lengths overflow; lower the rates"),
    ],
    ids=str,
)
@pytest.mark.parametrize("loss", ["bowl", "mined-softmax", "softmax", "negative-sampling-bowl"])
def test_rates_that_leave_no_scores(
    store: Store, tmp_path: Path, changes: dict[str, Any], told: str, loss: str
) -> None:
    """Numbers that are finite all the time, and a loss that never changes: the first epoch tells."""
    with pytest.raises(NotFinite, match=told):
        train(store, tmp_path / "out", small_options(loss=loss, **changes))
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"dim": 16}, {"epochs": 3.0}, {"checkpoint_minutes": 1.0}, {"loss": "powl"}], ids=str
)
def test_other_options_are_refused(store: Store, broken_off: Path, other: dict[str, Any]) -> None:
    kept = {file: file.read_bytes() for file in broken_off.rglob("*") if file.is_file()}
    with pytest.raises(OwlmineError, match="tells of other options or data; resume with the same, or train anew"):
        train(store, broken_off, replace(small_options(), **other), resume=True)
    assert {file: file.read_bytes() for file in broken_off.rglob("*") if file.is_file()} == kept


def test_other_data_are_refused(store_with_dev: Store, broken_off: Path) -> None:
    with pytest.raises(OwlmineError, match="tells of other options or data"):
        train(store_with_dev, broken_off, replace(small_options(), pool=10), resume=True)


def test_folders_that_are_in_use(store: Store, tmp_path: Path, broken_off: Path) -> None:
    def refused(out: Path, message: str, *, resume: bool = False) -> None:
        with pytest.raises(OwlmineError, match=message):
            train(store, out, small_options(epochs=0.2), resume=resume)

    refused(broken_off, "holds an unfinished run; go on with --resume")
    (tmp_path / "something").mkdir()
    (tmp_path / "something" / "file").write_text("mine")
    refused(tmp_path / "something", "already exists")
    refused(tmp_path / "something" / "file", "already exists")
    refused(tmp_path / "something", "holds no run to resume", resume=True)
    refused(tmp_path / "nowhere", "holds no run to resume", resume=True)
    assert not (tmp_path / "nowhere").exists()
    train(store, tmp_path / "done", small_options(epochs=0.2))
    refused(tmp_path / "done", "holds a finished model; give another folder")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": 60}, "pool is 60; wanted at most 59"),
        ({"pool": 5, "top": 6}, "top is 6; wanted at most the pool of 5"),
        ({"loss": "mined-softmax", "pool": 5, "top": 6}, "top is 6; wanted at most the pool of 5"),
        ({"top": 60, "pool": 0}, "top is 60; wanted at most the pool of 59"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_the_data(store: Store, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OwlmineError, match=message):
        train(store, tmp_path / "out", small_options(**changes))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "hinge"}, "loss is 'hinge'; wanted one of bowl"),
        ({"top": -1}, "top is -1; wanted 1 or more"),
        ({"pool": -1}, "pool is -1; wanted 0 or more"),
        ({"epochs": -1.0}, "epochs is -1.0; wanted above 0, or 0"),
        ({"batch_size": 0}, "batch_size is 0; wanted 1 or more"),
        ({"class_rate": -0.1}, "class_rate is -0.1; wanted above 0"),
        ({"class_rate": float("nan")}, "class_rate is nan; wanted above 0"),
        ({"momentum": 1.0}, "momentum is 1.0; wanted 0 to below 1"),
        ({"validation": 1.0}, "validation is 1.0; wanted 0 to below 1"),
        ({"seed": -1}, "seed is -1; wanted 0 to"),
        ({"device": "tpu"}, "device is 'tpu'; wanted auto, cpu or cuda"),
        ({"surrogate": "cubic"}, "surrogate is 'cubic'; wanted one of hinge"),
        ({"checkpoint_minutes": 0.0}, "checkpoint_minutes is 0.0; wanted above 0"),
    ],
    ids=str,
)
def test_options_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainOptions(**changes)


def test_data_with_one_class(tmp_path: Path) -> None:
    vectors = np.eye(4, dtype=np.float32)
    one = convert({"train": (vectors, [[0]] * 4)}, tmp_path / "one")
    with pytest.raises(OwlmineError, match="num_classes is 1; wanted 2 or more"):
        train(one, tmp_path / "out", small_options(pool=0))
