"""The model on disk: the same answers when loaded, damage noticed, no code inside."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import owlmine
from owlmine import files
from owlmine.data import Store, SyntheticOptions, convert, synthesize
from owlmine.errors import DataError, OwlmineError
from owlmine.folder.model_folder import verify_model
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

from ..conftest import Command
from ..sealed import seal

OPTIONS = TrainOptions.of(recipe="single", dim=8, pool=10, epochs=1.0, batch_size=40, device="cpu")
PARTS = ("weights", "classes", "features", "ranker")
FILES = {"README.md", "config.json", *(f"{name}.safetensors" for name in PARTS)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    options = SyntheticOptions(num_classes=30, train_points=200, test_points=40, num_topics=20, noise_vocabulary=40)
    return synthesize(tmp_path_factory.mktemp("data") / "store", options)


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[owlmine.Model, Path]:
    out = tmp_path_factory.mktemp("model") / "out"
    return train(store, out, OPTIONS), out


@pytest.fixture
def copy(trained: tuple[owlmine.Model, Path], tmp_path: Path) -> Path:
    return shutil.copytree(trained[1], tmp_path / "copy")


def test_loaded_model_gives_the_same_answers(store: Store, trained: tuple[owlmine.Model, Path]) -> None:
    model, out = trained
    loaded = owlmine.load(out)
    rows = store["test"].batch(np.arange(40)).queries
    own, other = model.predict_batch(rows, 5), loaded.predict_batch(rows, 5)
    for name in ("ids_Nk", "scores_Nk", "probabilities_Nk"):
        assert getattr(own, name).tobytes() == getattr(other, name).tobytes(), name
    assert loaded.predict(rows, k=3) == model.predict(rows, k=3)
    assert loaded.record == model.record
    assert list(loaded.classes.keys) == [str(c) for c in range(30)]
    assert loaded.classes.counts.tolist() == store.class_counts.tolist()
    assert loaded.classes.num_points == 200
    loaded.check_fits(store)


def test_what_the_folder_holds(trained: tuple[owlmine.Model, Path]) -> None:
    _, out = trained
    assert {file.name for file in out.iterdir()} == FILES | {"metrics.jsonl", "run.json"}
    assert verify_model(out) == []
    for file in out.iterdir():
        assert not zipfile.is_zipfile(file), "torch.save and joblib write zip files and pickles"
        assert b"\x80\x04" not in file.read_bytes()[:64]
    card = (out / "README.md").read_text()
    assert card.startswith("# A model that retrieves among 30 classes")
    assert "`store`: 200 training points" in card
    assert "dim = 8" in card
    assert "| epoch | loss | P@1 | P@3 | P@5 |" in card
    assert 'owlmine.load("this folder")' in card


def test_files_can_be_read_by_everybody_who_may(trained: tuple[owlmine.Model, Path]) -> None:
    _, out = trained
    (out.parent / "plain").write_text("")
    usual = (out.parent / "plain").stat().st_mode
    assert {file.stat().st_mode for file in out.iterdir()} == {usual}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("place", [3, -1])
def test_flipped_bytes_are_found(copy: Path, name: str, place: int) -> None:
    file = copy / f"{name}.safetensors"
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    (error,) = verify_model(copy)
    assert error.path == str(file)
    with pytest.raises(DataError, match=f"{file.name}: found a checksum that differs from the one in config.json"):
        owlmine.load(copy)


def test_changed_config_and_missing_files_are_found(copy: Path) -> None:
    file = copy / "config.json"
    file.write_text(file.read_text().replace('"num_points": 200', '"num_points": 210'))
    (copy / "weights.safetensors").unlink()
    found = {Path(error.path).name: error.found for error in verify_model(copy)}
    assert found == {
        "config.json": "a checksum that does not match the content",
        "weights.safetensors": "no such file",
    }


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("kept", [0, 0.5, None])
@pytest.mark.parametrize("sealed", [False, True])
def test_harmed_files_do_not_load(copy: Path, name: str, kept: float | None, sealed: bool) -> None:
    file = copy / f"{name}.safetensors"
    if kept is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * kept)])
    if sealed:
        seal(copy)
    with pytest.raises(DataError, match=f"{file.name}: found"):
        owlmine.load(copy)
    assert [error.path for error in verify_model(copy)] == [str(file)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "found model version 2, written by owlmine .*; wanted version 3 or 4; train the model again"),
        ({"version": 5}, "found model version 5, .*; wanted version 3 or 4; load the model with a newer owlmine"),
        ({"version": None}, "found model version None, .*; wanted version 3 or 4; train the model again"),
        ({"format": "other"}, 'wanted "format": "owlmine-model"'),
        ({"shape": {"num_features": 99, "num_classes": 30, "dim": 8}}, "wanted an intact model folder"),
        ({"shape": {"num_features": 100, "num_classes": 31, "dim": 8}}, "wanted an intact model folder"),
        ({"shape": {"num_features": 100, "num_classes": 30, "dim": 8, "depth": 2}}, "wanted an intact model folder"),
        ({"shape": {"num_features": 100, "num_classes": 30, "dim": 8, "wings": 2}}, "wanted an intact model folder"),
        ({"shape": {"num_features": 0, "num_classes": 30}}, "wanted an intact model folder"),
        ({"shape": None}, "wanted an intact model folder"),
    ],
    ids=str,
)
def test_config_that_does_not_fit(copy: Path, change: dict[str, object], told: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | change))
    seal(copy)
    with pytest.raises(DataError, match=told):
        owlmine.load(copy)


@pytest.mark.parametrize("missing", ["written_by", "shape", "num_points", "weighting", "ranker", "record"])
def test_config_without_a_part(copy: Path, missing: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config[missing]
    (copy / "config.json").write_text(json.dumps(config))
    seal(copy)
    with pytest.raises(DataError, match=f"config.json: .*cannot be read .*: {missing}\\)"):
        owlmine.load(copy)


def test_config_with_a_part_too_many(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"reranker": {}}))
    seal(copy)
    with pytest.raises(DataError, match=r"config.json: .*cannot be read .*: reranker\)"):
        owlmine.load(copy)


@pytest.mark.parametrize("part", ["record", "ranker"])
def test_parts_that_make_no_sense_are_refused(copy: Path, part: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    config[part]["wings"] = 2
    (copy / "config.json").write_text(json.dumps(config))
    seal(copy)
    file = {"record": "config.json", "ranker": "ranker.safetensors"}[part]
    with pytest.raises(DataError, match=f"{file}: found content that cannot be read .*wings"):
        owlmine.load(copy)


def test_a_calibration_by_more_classes_than_there_are_is_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["record"]["calibration"]["depth"] = 31
    (copy / "config.json").write_text(json.dumps(config))
    seal(copy)
    with pytest.raises(DataError, match=r"config.json: .*a calibration on the 31 best classes; there are 30"):
        owlmine.load(copy)


def test_no_model_at_all(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(OwlmineError, match="wanted a model folder"):
            owlmine.load(folder)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(DataError, match=r"found an unfinished run; wanted a finished model \(continue with"):
        owlmine.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        owlmine.load(tmp_path)


def test_text_models_take_text(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    words = ["apple pear plum", "engine wheel brake", "violin cello drum"]
    (folder / "train.jsonl").write_text(
        "".join(
            json.dumps({"text": f"{words[i % 3]} {words[i % 3].split()[i % 2]}", "labels": [f"kind {i % 3}"]}) + "\n"
            for i in range(60)
        )
    )
    store = convert(folder, tmp_path / "store")
    options = TrainOptions.of(dim=16, pool=2, epochs=3.0, batch_size=10, device="cpu", validation=0.0)
    trained = train(store, tmp_path / "out", options)
    loaded = owlmine.load(tmp_path / "out")
    for model in (trained, loaded):
        answers = model.predict(["a new wheel for my engine", "plum"], k=1)
        assert [row[0].name for row in answers] == ["kind 1", "kind 0"]
    assert loaded.predict(words, k=3) == trained.predict(words, k=3)
    assert list(loaded.ranker.judges) == list(trained.ranker.judges) == ["linear"]


def test_numbers_that_are_not_finite_are_refused_where_checksums_fit(copy: Path) -> None:
    file = copy / "weights.safetensors"
    for value in (np.nan, -np.inf):
        tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
        tensors["classes"][7, 3] = value
        save_file(tensors, file)
        seal(copy)
        with pytest.raises(DataError, match=r"weights.safetensors: found numbers in classes that are not finite"):
            owlmine.load(copy)
        assert [error.path for error in verify_model(copy)] == [str(file)]


def test_a_table_of_another_seed_is_refused(store: Store, copy: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "other", OPTIONS.with_(seed=5))
    for name in PARTS:
        shutil.copyfile(tmp_path / "other" / f"{name}.safetensors", copy / f"{name}.safetensors")
    # Words of classes and features are the same; what was learned is not.
    with pytest.raises(DataError, match=r"weights.safetensors: found a checksum"):
        owlmine.load(copy)
    shutil.copyfile(tmp_path / "other" / "config.json", copy / "config.json")
    owlmine.load(copy)


@pytest.mark.parametrize("change", [{"reranker": "0"}, {"ranker": None}], ids=["one too many", "one too few"])
def test_checksums_of_other_files_are_refused(copy: Path, change: dict[str, str | None]) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["sha256"] = {name: value for name, value in (config["sha256"] | change).items() if value is not None}
    (copy / "config.json").write_text(json.dumps(config))
    seal(copy)
    with pytest.raises(DataError, match=r"config.json: found checksums of .*; wanted one each of .*, ranker"):
        owlmine.load(copy)


@pytest.mark.parametrize("name", ["sha256", "checksum"])
def test_a_record_without_checksums_is_refused(copy: Path, name: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config[name]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"config.json: found a checksum that does not match the content"):
        owlmine.load(copy)


def test_files_are_compared_with_their_checksums_once(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWLMINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_SETTLED_NS", -1)
    owlmine.load(copy)
    monkeypatch.setattr(files, "sha256_of", lambda path: pytest.fail("read again"))
    owlmine.load(copy)
    monkeypatch.undo()
    # Bytes that turned on the disk leave no trace in times; only a full read finds them.
    file, times = copy / "weights.safetensors", (copy / "weights.safetensors").stat()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"weights.safetensors: found a checksum"):
        owlmine.load(copy)
    assert len(verify_model(copy)) == 1


def test_models_verify_names_the_damaged_file(copy: Path, owlmine_command: Command) -> None:
    done = owlmine_command("models", "verify", copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{copy}: OK, ")
    assert all(name in done.stdout for name in FILES - {"README.md"})
    with (copy / "weights.safetensors").open("r+b") as file:
        file.seek(-600, os.SEEK_END)
        file.write(np.random.default_rng(1).bytes(500))
    done = owlmine_command("models", "verify", copy)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{copy / 'weights.safetensors'}: found a checksum" in done.stderr
    done = owlmine_command("predict", copy, copy / "README.md", "--input-format", "svmlight")
    assert (done.returncode, done.stdout) == (2, "")
    assert "weights.safetensors: found a checksum" in done.stderr


@pytest.fixture(scope="module")
def coded(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[owlmine.Model, Path]:
    """The best recipe: rows, classifiers and points are bytes."""
    out = tmp_path_factory.mktemp("coded") / "out"
    options = TrainOptions.of(dim=8, heads=2, pool=10, epochs=1.0, batch_size=40, neighbours=3, device="cpu")
    return train(store, out, options), out


def test_bytes_come_back_as_they_were(store: Store, coded: tuple[owlmine.Model, Path], tmp_path: Path) -> None:
    model, out = coded
    assert model.dense.shape.coded
    loaded = owlmine.load(out)
    rows = store["test"].batch(np.arange(40)).queries
    own, other = model.predict_batch(rows, 5), loaded.predict_batch(rows, 5)
    for name in ("ids_Nk", "scores_Nk", "probabilities_Nk"):
        assert getattr(own, name).tobytes() == getattr(other, name).tobytes(), name
    loaded.save(tmp_path / "again")
    for part in PARTS:
        assert (tmp_path / "again" / f"{part}.safetensors").read_bytes() == (out / f"{part}.safetensors").read_bytes()
    tensors = load_file(out / "weights.safetensors")
    assert {name: str(tensor.dtype) for name, tensor in tensors.items() if not name.startswith("map")} == {
        "table.codes": "torch.int8",
        "table.scales": "torch.float32",
        "classes.codes": "torch.int8",
        "classes.scales": "torch.float32",
    }


@pytest.mark.parametrize(
    ("file", "name", "number"),
    [
        ("weights", "classes.codes", -128),
        ("weights", "table.codes", -128),
        ("weights", "classes.scales", float("nan")),
        ("weights", "classes.scales", 0.1),
        ("weights", "table.scales", -1.0),
        ("ranker", "linear.codes", -128),
        ("ranker", "linear.scales", 1e38),
        ("ranker", "linear.counts", 255),
        ("ranker", "linear.steps", 255),
    ],
)
def test_forged_bytes_are_refused(
    coded: tuple[owlmine.Model, Path], tmp_path: Path, file: str, name: str, number: float
) -> None:
    folder = shutil.copytree(coded[1], tmp_path / "copy")
    tensors = {part: tensor.clone() for part, tensor in load_file(folder / f"{file}.safetensors").items()}
    tensors[name].view(-1)[0] = number
    save_file(tensors, folder / f"{file}.safetensors")
    seal(folder)
    with pytest.raises(DataError, match=f"{file}.safetensors: found"):
        owlmine.load(folder)


def test_rows_of_another_kind_than_the_record_says_are_refused(
    coded: tuple[owlmine.Model, Path], trained: tuple[owlmine.Model, Path], tmp_path: Path
) -> None:
    for number, (_, out) in enumerate((coded, trained)):
        folder = shutil.copytree(out, tmp_path / f"copy{number}")
        config = json.loads((folder / "config.json").read_text())
        config["shape"]["coded"] = not config["shape"]["coded"]
        (folder / "config.json").write_text(json.dumps(config))
        seal(folder)
        with pytest.raises(DataError, match=r"weights\.safetensors: found .*according to config\.json"):
            owlmine.load(folder)
