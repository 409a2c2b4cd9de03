"""Whose a folder is: what it says of itself, which runs may go on in it, and what goes when the model is finished."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import owlmine.run
from owlmine.data import Store, convert
from owlmine.device import choose_device
from owlmine.errors import DataError, OwlmineError
from owlmine.model import Model, load
from owlmine.recipe import plan as plan_module
from owlmine.recipe.fit import plan_for
from owlmine.run import check_run, train
from owlmine.run.run_folder import (
    check_own_folder,
    differences,
    is_run_of,
    mark_of,
    own_folder,
    running_in,
    working_in,
)

from .runs import (
    Listener,
    best_options,
    contents,
    ensemble_options,
    interrupted,
    killed_in,
    small_options,
)


@pytest.fixture(scope="module")
def stopped(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stopped") / "out"
    interrupted(store, out, small_options(), at=6)
    return out


@pytest.fixture
def unfinished(stopped: Path, tmp_path: Path) -> Path:
    """A run that was stopped at step 6."""
    return shutil.copytree(stopped, tmp_path / "out")


def bytes_in(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_what_a_run_says_of_itself(store: Store, unfinished: Path) -> None:
    """Every option, what was chosen for the data and the machine, and the checksum of the data."""
    record = json.loads((unfinished / "run.json").read_text())
    assert set(record) == {"options", "plan", "data", "estimate"}
    options = small_options().to_dict()
    assert {*options} - {*record["options"]} == {"tensorboard", "checkpoint_minutes"}
    assert {name: options[name] for name in record["options"]} == record["options"]
    assert record["options"]["heads"] is None, "what was left open"
    assert record["plan"] == plan_for(store, small_options(), name="store").to_dict()
    assert record["plan"]["heads"] == 1
    assert record["data"] == store.meta["checksum"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "seed is 1, was 0"),
        ({"dim": 16}, "dim is 16, was 8"),
        ({"dim": None}, "dim is None, was 8"),
        ({"loss": "powl", "epochs": 3.0}, "loss is 'powl', was 'bowl'; epochs is 3.0, was 2.0"),
        ({"recipe": "best"}, "recipe is 'best', was 'single'"),
        ({"shortlist": 0}, "shortlist is 0, was None"),
    ],
    ids=str,
)
def test_other_options_are_refused(store: Store, unfinished: Path, other: dict[str, Any], message: str) -> None:
    before = bytes_in(unfinished)
    options = small_options(**other)
    with pytest.raises(OwlmineError) as raised:
        train(store, unfinished, options, resume=True)
    assert str(raised.value) == (
        f"{unfinished / 'run.json'}: belongs to a run with other options or data; resume it with the same, or train"
        f" into a new folder ({message})"
    )
    assert bytes_in(unfinished) == before
    assert not is_run_of(unfinished, store, options)


def test_other_data_are_refused(store: Store, store_with_dev: Store, unfinished: Path) -> None:
    before = bytes_in(unfinished)
    with pytest.raises(OwlmineError, match=r"other options or data; .*\(pool is 10, was 20; the data have changed\)"):
        train(store_with_dev, unfinished, small_options(pool=10), resume=True)
    assert bytes_in(unfinished) == before
    assert is_run_of(unfinished, store, small_options())
    assert differences(unfinished, store_with_dev, small_options()) == ["the data have changed"]


@pytest.mark.parametrize("free", [{"tensorboard": True}, {"checkpoint_minutes": 1.0}], ids=str)
def test_whether_somebody_watches_may_change(store: Store, unfinished: Path, free: dict[str, Any]) -> None:
    if "tensorboard" in free:
        pytest.importorskip("tensorboard")
    listener = Listener()
    train(store, unfinished, small_options(**free), resume=True, reporter=listener)
    assert listener.messages == ["resumed at step 6 of 20"]


def test_the_plan_of_another_machine_is_refused(
    store: Store, unfinished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same options, of which one was open: on a GPU it would have become another number."""
    options, out = best_options(dim=None, heads=None), unfinished.parent / "best"
    with killed_in(owlmine.run, "_run"):
        train(store, out, options)
    with killed_in(owlmine.run, "write_metrics"):
        train(store, out, options)
    before = bytes_in(out)
    monkeypatch.setattr(plan_module, "DIM_ON_CPU", 96)
    with pytest.raises(OwlmineError, match=r"\(the plan for this machine: model is \{.*'dim': 96.*, was .*'dim': 128"):
        train(store, out, options, resume=True)
    assert bytes_in(out) == before
    monkeypatch.undo()
    train(store, out, options, resume=True)


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"options": 3, "plan": {}, "data": ""}', '{"options": {}}'])
def test_a_damaged_description_is_refused(store: Store, unfinished: Path, text: str) -> None:
    (unfinished / "run.json").write_text(text)
    with pytest.raises(OwlmineError, match=r"\(run.json cannot be read\)"):
        train(store, unfinished, small_options(), resume=True)


def test_an_option_that_came_later_is_named(store: Store, unfinished: Path) -> None:
    """A run of an older version, which did not know it."""
    file = unfinished / "run.json"
    record = json.loads(file.read_text())
    del record["options"]["names"]
    record["options"]["wings"] = 2
    file.write_text(json.dumps(record))
    with pytest.raises(OwlmineError, match=r"\(wings is None, was 2; names is True, was None\)"):
        train(store, unfinished, small_options(), resume=True)


def test_folders_that_are_taken(store: Store, tmp_path: Path, unfinished: Path) -> None:
    def refused(out: Path, message: str, *, resume: bool = False) -> None:
        before = bytes_in(tmp_path)
        with pytest.raises(OwlmineError, match=message):
            train(store, out, small_options(epochs=0.2), resume=resume)
        # Before the data are looked at, which may take an hour.
        with pytest.raises(OwlmineError, match=message):
            check_run(out, small_options(epochs=0.2), resume=resume)
        assert bytes_in(tmp_path) == before

    refused(unfinished, "out: has an unfinished run; continue with --resume")
    (tmp_path / "something").mkdir()
    (tmp_path / "something" / "file").write_text("mine")
    refused(tmp_path / "something", "something: already exists")
    refused(tmp_path / "something" / "file", "file: already exists")
    refused(tmp_path / "something", "something: has no run to resume", resume=True)
    refused(tmp_path / "nowhere", "nowhere: has no run to resume", resume=True)
    assert not (tmp_path / "nowhere").exists()
    train(store, tmp_path / "done", small_options(epochs=0.2))
    refused(tmp_path / "done", "done: contains a finished model; choose another folder")


def test_a_folder_in_which_nothing_was_finished_is_free(store: Store, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".run.json.0123456789abcdef.writing").write_text("{")
    train(store, tmp_path / "out", small_options(epochs=0.2))
    load(tmp_path / "out")
    assert ".run.json" not in "".join(file.name for file in (tmp_path / "out").iterdir())


def test_a_folder_that_cannot_be_made(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OwlmineError, match="file/out: cannot be written: Not a directory"):
        train(store, tmp_path / "file" / "out", small_options())


# Two at once.


def test_one_process_at_a_time(store: Store, unfinished: Path) -> None:
    """Two that write the same checkpoints would damage both runs."""
    with working_in(unfinished), pytest.raises(OwlmineError, match="another process is training in this folder"):
        train(store, unfinished, small_options(), resume=True)
    train(store, unfinished, small_options(), resume=True)


def test_a_run_that_began_meanwhile_is_left_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was free when it was looked at first, and is looked at again under the lock."""
    out = tmp_path / "out"
    plans = owlmine.run.plans_for

    def meanwhile(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        interrupted(store, out, small_options(seed=9), at=6)
        return plans(*given, **named)

    monkeypatch.setattr(owlmine.run, "plans_for", meanwhile)
    with pytest.raises(OwlmineError, match="has an unfinished run; continue with --resume"):
        train(store, out, small_options())
    assert is_run_of(out, store, small_options(seed=9))
    train(store, out, small_options(seed=9), resume=True)
    with (
        pytest.raises(OwlmineError, match="another process has finished the run in the meantime"),
        running_in(out, resume=True),
    ):
        raise AssertionError("it ran")


def test_locks_die_with_their_process(store: Store, unfinished: Path) -> None:
    child = os.fork()
    if not child:
        with working_in(unfinished):
            os._exit(0)
    os.waitpid(child, 0)
    train(store, unfinished, small_options(), resume=True)


# Finished runs.


def test_a_finished_run_gives_its_model(store: Store, tmp_path: Path) -> None:
    out, options = tmp_path / "out", best_options()
    first = train(store, out, options)
    before, listener = bytes_in(out), Listener()
    again = train(store, out, options, resume=True, reporter=listener)
    assert isinstance(again, Model)
    assert all(torch.equal(tensor, first.dense.tensors()[name]) for name, tensor in again.dense.tensors().items())
    assert (bytes_in(out), listener.messages, listener.steps) == (before, [], [])
    with pytest.raises(OwlmineError, match=r"finished model with other options or data; .*\(seed is 4, was 3\)"):
        train(store, out, best_options(seed=4), resume=True)
    assert bytes_in(out) == before


def test_a_finished_run_is_known_by_its_options_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine would have planned it otherwise, but there is nothing left to do."""
    train(store, tmp_path / "out", small_options(dim=None))
    monkeypatch.setattr(plan_module, "DIM", 8)
    assert train(store, tmp_path / "out", small_options(dim=None), resume=True).dense.shape.dim == 512


def test_a_damaged_finished_model_is_refused(store: Store, tmp_path: Path) -> None:
    train(store, tmp_path / "out", small_options())
    (tmp_path / "out" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"weights.safetensors: found a checksum"):
        train(store, tmp_path / "out", small_options(), resume=True)


@pytest.mark.parametrize("options", [small_options(patience=3), best_options()], ids=["single", "best"])
def test_killed_while_tidying_up(store: Store, tmp_path: Path, options: Any) -> None:
    """The model is there; what is left of the run goes, and the model is given."""
    out = tmp_path / "out"
    with killed_in(owlmine.run, "remove_working_files"):
        train(store, out, options)
    (out / ".README.md.0123456789abcdef.writing").write_text("half")
    assert {"checkpoints", "best.safetensors", "members"} & {file.name for file in out.iterdir()}
    again = train(store, out, options, resume=True)
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")
    expected = load(tmp_path / "whole").dense.tensors()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.dense.tensors().items())


def test_other_files_in_a_run_stay(store: Store, unfinished: Path) -> None:
    (unfinished / "notes.txt").write_text("mine")
    (unfinished / "plots").mkdir()
    train(store, unfinished, small_options(), resume=True)
    assert (unfinished / "notes.txt").read_text() == "mine"
    assert (unfinished / "plots").is_dir()


def test_other_files_among_members_stay(store: Store, tmp_path: Path) -> None:
    """As among the checkpoints of a single model."""
    out, options = tmp_path / "out", ensemble_options()
    interrupted(store, out, options, at=3)
    mine = (
        out / "members" / "notes.txt",
        out / "members" / "0" / "notes.txt",
        out / "members" / "0" / "checkpoints" / "a",
    )
    for file in mine:
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text("mine")
    train(store, out, options, resume=True)
    assert [file.read_text() for file in mine] == ["mine"] * 3
    assert sorted(file for file in (out / "members").rglob("*") if file.is_file()) == sorted(mine)


def test_members_on_another_disk(store: Store, tmp_path: Path) -> None:
    """Through a link, which stays; what the run needed goes."""
    out, options, elsewhere = tmp_path / "out", best_options(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    with killed_in(owlmine.run, "FolderSurroundings"):
        train(store, out, options)
    (out / "members").symlink_to(elsewhere)
    train(store, out, options, resume=True)
    assert (out / "members").is_symlink()
    assert list(elsewhere.iterdir()) == []


# Without validation points, devices, data that no model can be made of.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": 60}, "pool is 60; wanted at most 59"),
        ({"pool": 5, "top": 6}, "top is 6; wanted at most the pool of 5"),
        ({"loss": "mined-softmax", "pool": 5, "top": 6}, "top is 6; wanted at most the pool of 5"),
        ({"top": 60, "pool": None}, "top is 60; wanted at most the pool of 59"),
        ({"loss": "softmax", "shared_pool": False}, "shared_pool is off; wanted it on with a loss over all classes"),
        ({"validation_block": 400}, "validation_block is 400 with validation 0.02, which takes all 400 points"),
        ({"validation_block": 6_000}, "validation_block is 6000; wanted at most 5,000"),
        ({"neighbours": 5}, "neighbours is 5; wanted 0 without a shortlist"),
    ],
    ids=str,
)
@pytest.mark.parametrize("recipe", ["single", "best"])
def test_what_no_model_can_be_trained_with_leaves_nothing(
    store: Store, tmp_path: Path, changes: dict[str, Any], message: str, recipe: str
) -> None:
    options = small_options(**({"recipe": recipe, "shortlist": 0} | changes))
    with pytest.raises(OwlmineError, match=message):
        train(store, tmp_path / "deep" / "out", options)
    assert list(tmp_path.iterdir()) == []


def test_data_with_one_class(tmp_path: Path) -> None:
    one = convert({"train": (torch.eye(4).numpy(), [[0]] * 4)}, tmp_path / "one")
    with pytest.raises(OwlmineError, match="num_classes is 1; wanted 2 or more"):
        train(one, tmp_path / "out", small_options(pool=None))
    assert not (tmp_path / "out").exists()


def test_feature_values_without_sense(tmp_path: Path) -> None:
    """Found in the data that were given, before there is a folder."""
    vectors = torch.full((60, 3), 1e30).numpy()
    huge = convert({"train": (vectors, [[number % 6] for number in range(60)])}, tmp_path / "store")
    with pytest.raises(DataError, match=r"^mine: train, row 0 \(from 0\): found a feature of size 1e\+30"):
        train(huge, tmp_path / "out", small_options(pool=3), data_name="mine")
    assert not (tmp_path / "out").exists()


def test_a_device_that_is_not_there(store: Store, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(OwlmineError) as raised:
        choose_device("cuda")
    with pytest.raises(OwlmineError, match=str(raised.value)[:20]):
        train(store, tmp_path / "out", small_options(device="cuda"))
    assert not (tmp_path / "out").exists()


def test_data_by_their_path(store: Store, tmp_path: Path) -> None:
    """Their name is in the record, which settles the constants of rare classes."""
    trained = train(store.path, tmp_path / "out", small_options(epochs=0.2))
    assert (trained.record.data, trained.record.checksum) == (store.path.name, store.meta["checksum"])
    named = train(store, tmp_path / "named", small_options(epochs=0.2), data_name="Wikipedia-500K.store")
    assert (named.record.data, named.record.propensity.a) == ("Wikipedia-500K.store", 0.5)


# Folders of commands that train several models.


def test_the_folder_of_a_command_is_its_own(tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    check_own_folder(out, "compare")
    with own_folder(out, "compare"):
        assert mark_of(out, "compare").read_text().startswith("made by: owlmine ")
        with pytest.raises(OwlmineError, match="another process"), own_folder(out, "compare"):
            raise AssertionError("two at once")
    (out / "model").mkdir()
    check_own_folder(out, "compare")
    with own_folder(out, "compare"):
        pass
    assert (out / "model").is_dir()
    with pytest.raises(OwlmineError, match="has other contents; wanted a new folder or one that owlmine demo made"):
        check_own_folder(out, "demo")
    with pytest.raises(OwlmineError, match="has other contents"), own_folder(tmp_path, "compare"):
        raise AssertionError("somebody else's")
