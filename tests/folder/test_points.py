"""Ids and texts of training points in a model folder: they come back as they were, and are refused where they cannot
be right."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import owlmine
from owlmine.data.arrays import StringTable
from owlmine.data.store import PointWords
from owlmine.errors import DataError
from owlmine.folder.model_folder import verify_model
from owlmine.rank.words import FeatureWords

from ..rank.test_explain import predictor_of
from ..sealed import seal

IDS = [f"point {number}" if number % 5 else "" for number in range(90)]
TEXTS = [f"text é {number} {'日' * (number % 9)}" for number in range(90)]
LEFT_OUT = np.array([0, 7, 8])


def some_model(points: PointWords, *, judges: tuple[str, ...] = ("linear", "neighbours")) -> owlmine.Model:
    own = predictor_of(judges=judges)
    return owlmine.Model.of(replace(own, features=FeatureWords({"kind": "none"}, None, None, None), points=points))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("points") / "model"
    some_model(PointWords(StringTable.of(IDS), StringTable.of(TEXTS), LEFT_OUT)).save(folder)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "copy")


def test_words_come_back_as_they_were(saved: Path, tmp_path: Path) -> None:
    loaded = owlmine.load(saved)
    assert verify_model(saved) == []
    assert list(loaded.points.ids or ()) == IDS
    assert list(loaded.points.texts or ()) == TEXTS
    assert loaded.points.left_out.tolist() == LEFT_OUT.tolist()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "points.safetensors").read_bytes() == (saved / "points.safetensors").read_bytes()


@pytest.mark.parametrize(
    "points",
    [
        PointWords(StringTable.of(IDS)),
        PointWords(texts=StringTable.of(TEXTS)),
        PointWords(left_out=LEFT_OUT),
        PointWords(StringTable.of([""] * 90), StringTable.of([""] * 90)),
    ],
    ids=["ids", "texts", "rows", "empty"],
)
def test_some_of_them(points: PointWords, tmp_path: Path) -> None:
    some_model(points).save(tmp_path / "model")
    found = owlmine.load(tmp_path / "model").points
    for name in ("ids", "texts"):
        table, wanted = getattr(found, name), getattr(points, name)
        assert (table is None) == (wanted is None)
        assert list(table or ()) == list(wanted or ())
    assert found.left_out.tolist() == points.left_out.tolist()


def test_no_words_no_file(tmp_path: Path) -> None:
    some_model(PointWords()).save(tmp_path / "model")
    assert not (tmp_path / "model" / "points.safetensors").exists()
    assert not owlmine.load(tmp_path / "model").points


def test_texts_are_mapped_and_not_read(copy: Path) -> None:
    """A text that is not UTF-8 is found when it is shown, or when everything is verified."""
    harm(copy, {"texts.bytes": torch.full((len("".join(TEXTS).encode()),), 255, dtype=torch.uint8)})
    model = owlmine.load(copy)
    model.predict(np.eye(20)[:2])
    told = "points.safetensors: found string 0 that is not UTF-8; wanted .*: the model is damaged"
    assert model.points.texts
    with pytest.raises(DataError, match=told):
        model.points.texts[0]
    with pytest.raises(DataError, match=r"not UTF-8.*the model is damaged"):
        model.explain(np.eye(20)[3])
    (error,) = verify_model(copy)
    assert error.path == str(copy / "points.safetensors")


def harm(folder: Path, changes: dict[str, torch.Tensor | None]) -> None:
    """With checksums that fit."""
    tensors: dict[str, Any] = {
        name: tensor.clone() for name, tensor in load_file(folder / "points.safetensors").items()
    }
    save_file({n: t for n, t in (tensors | changes).items() if t is not None}, folder / "points.safetensors")
    seal(folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ids.bytes": None}, "ids.bytes"),
        ({"left_out": None}, "left_out"),
        ({"more": torch.zeros(1)}, "tensors are .*'more'"),
        ({"left_out": torch.tensor([3, 3])}, "rows that were left out do not ascend"),
        ({"left_out": torch.tensor([-3, 3])}, "rows that were left out do not ascend"),
        ({"left_out": torch.tensor([1.0])}, "left_out is torch.float32"),
        ({"ids.offsets": torch.arange(90)}, "89 ids, but config.json says 90"),
        ({"ids.offsets": torch.zeros(91, dtype=torch.int64)}, "offsets of ids do not ascend"),
        ({"texts.offsets": torch.zeros(91, dtype=torch.int32)}, "texts.offsets is torch.int32"),
    ],
    ids=str,
)
def test_words_that_cannot_be_right(copy: Path, changes: dict[str, torch.Tensor | None], told: str) -> None:
    harm(copy, changes)
    with pytest.raises(DataError, match=f"points.safetensors: found content that cannot be read .*{told}"):
        owlmine.load(copy)


def test_a_damaged_file_is_found(copy: Path) -> None:
    data = bytearray((copy / "points.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "points.safetensors").write_bytes(data)
    with pytest.raises(DataError, match=r"points\.safetensors: found a checksum that differs"):
        owlmine.load(copy)
    (copy / "points.safetensors").unlink()
    with pytest.raises(DataError, match=r"points\.safetensors: found no such file"):
        owlmine.load(copy)


def edit(folder: Path, **changes: Any) -> None:
    """None leaves a field out."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text()) | changes
    left_out = [name for name, value in changes.items() if value is None]
    (folder / "config.json").write_text(json.dumps({n: v for n, v in config.items() if n not in left_out}))
    seal(folder)


@pytest.mark.parametrize("points", ["yes", 1, [], {}])
def test_a_config_that_says_nonsense(copy: Path, points: Any) -> None:
    sums = json.loads((copy / "config.json").read_text())["sha256"]
    edit(copy, points=points, sha256={name: value for name, value in sums.items() if name != "points"})
    with pytest.raises(DataError, match=r"config\.json: .*points are .*; wanted true or false"):
        owlmine.load(copy)


def test_words_of_points_that_do_not_vote(copy: Path, tmp_path: Path) -> None:
    some_model(PointWords(), judges=("linear",)).save(tmp_path / "other")
    shutil.copyfile(copy / "points.safetensors", tmp_path / "other" / "points.safetensors")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    edit(tmp_path / "other", points=True, sha256=config["sha256"] | {"points": ""})
    with pytest.raises(DataError, match=r"points\.safetensors: .*90 ids, but config\.json says 0"):
        owlmine.load(tmp_path / "other")


def test_models_of_the_version_before_still_load(tmp_path: Path) -> None:
    """They say nothing of points."""
    some_model(PointWords()).save(tmp_path / "model")
    new = owlmine.load(tmp_path / "model").predict(np.eye(20)[:3])
    edit(tmp_path / "model", version=3, points=None)
    assert owlmine.load(tmp_path / "model").predict(np.eye(20)[:3]) == new
    edit(tmp_path / "model", points=False)
    with pytest.raises(DataError, match="fields missing or unknown: points"):
        owlmine.load(tmp_path / "model")
    edit(tmp_path / "model", version=4, points=None)
    with pytest.raises(DataError, match="fields missing or unknown: points"):
        owlmine.load(tmp_path / "model")
