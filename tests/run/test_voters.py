"""Training points that vote are known by their rows, ids and texts, from the files to the answers of a model."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import owlmine
from owlmine.data import Store, convert
from owlmine.data.options import ConvertOptions
from owlmine.errors import OwlmineError
from owlmine.recipe import plan
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

from ..small_models import dense_store, run, sparse_store, write_jsonl
from .runs import contents, interrupted

KEEP = ConvertOptions(keep_texts=True)
OPTIONS = TrainOptions.of(
    dim=4, epochs=1.0, heads=1, batch_size=32, neighbours=3, shortlist=5, validation=0.3, device="cpu", names=False,
    keep_texts=True,
)  # fmt: skip


def points() -> list[dict[str, Any]]:
    """Labels that nobody can guess, of texts that come four times each: only the same text tells. Some have no word."""
    chance = random.Random(0)
    words = [f"w{number}x" for number in range(60)]
    texts = [" ".join(chance.sample(words, 6)) for _ in range(60)]
    labels = [[f"c{chance.randrange(20)}"] for _ in texts]
    rows = [{"text": text, "labels": own} for text, own in zip(texts * 4, labels * 4, strict=True)]
    for place in (3, 100, 101):
        rows.insert(place, {"text": "?", "labels": ["c0"]})
    return [{"id": f"p{number}"} | row for number, row in enumerate(rows)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("voters")
    write_jsonl(folder / "train.jsonl", points())
    return convert(folder / "train.jsonl", folder / "store", KEEP)


@pytest.fixture(scope="module")
def model_folder(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on all points, after a rehearsal."""
    out = tmp_path_factory.mktemp("model") / "out"
    train(store, out, OPTIONS)
    return out


def check_voters(model: owlmine.Model, *, has_ids: bool = True, has_texts: bool = True) -> None:
    rows, seen = points(), set()
    for number in (0, 7, 50, 150, 200):
        for one in model.explain(rows[number]["text"], 3):
            for voter in one.voters:
                seen.add(voter.row)
                point = rows[voter.row]
                assert one.key in point["labels"]
                assert voter.id == (point["id"] if has_ids else None)
                assert voter.text == (point["text"] if has_texts else None)
    assert len(seen) > 4
    assert max(seen) > 101


def test_points_are_named_by_the_model_and_its_folder(model_folder: Path) -> None:
    model = owlmine.load(model_folder)
    assert model.ranker.num_voters == 240
    assert model.points.left_out.tolist() == [3, 100, 101]
    check_voters(model)


def test_points_that_were_held_out_do_not_shift_rows(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a rehearsal, validation points do not vote. An interrupted run ends the same."""
    monkeypatch.setattr(plan, "ENOUGH_POINTS", 2)
    model = train(store, tmp_path / "whole", OPTIONS)
    assert model.ranker.num_voters == 240 - 72
    assert len(model.points.left_out) == 72 + 3
    check_voters(model)
    interrupted(store, tmp_path / "parts", OPTIONS, at=3)
    train(store, tmp_path / "parts", OPTIONS, resume=True)
    whole, parts = contents(tmp_path / "whole"), contents(tmp_path / "parts")
    assert {"points/ids.bytes", "points/texts.bytes", "points/left_out"} <= set(whole)
    assert parts == whole


def test_without_texts_the_model_has_ids_alone(store: Store, tmp_path: Path) -> None:
    model = train(store, tmp_path / "out", OPTIONS.with_(keep_texts=False))
    check_voters(model, has_texts=False)
    assert "texts.bytes" not in (tmp_path / "out" / "points.safetensors").read_bytes()[:2000].decode("latin-1")


def test_data_in_memory_are_known_by_their_rows() -> None:
    texts, labels = ([row[name] for row in points()] for name in ("text", "labels"))
    model = owlmine.fit(texts, labels, options=OPTIONS)
    check_voters(model, has_ids=False)


def test_files_are_read_with_their_texts(tmp_path: Path) -> None:
    """By the command, which keeps the converted store in the cache; without saying it a second time."""
    write_jsonl(tmp_path / "train.jsonl", points())
    options = [
        f"--{n.replace('_', '-')}={getattr(group, n)}"
        for group in vars(OPTIONS).values()
        for n in vars(group)
        if n in ("dim", "epochs", "heads", "batch_size", "neighbours", "shortlist", "validation", "device")
    ]
    result = run("train", tmp_path / "train.jsonl", "--out", tmp_path / "out", "--keep-texts", "--no-names", *options)
    assert result.exit_code == 0, result.exception
    model = owlmine.load(tmp_path / "out")
    check_voters(model)
    assert model.record.options["keep_texts"] is True


def test_nobody_votes(tmp_path: Path, store: Store) -> None:
    """Nothing is kept then, and nothing can be: the words of points are those of voters."""
    model = owlmine.fit(store, options={"recipe": "single", "dim": 4, "epochs": 0.1, "validation": 0, "device": "cpu"})
    assert not model.points
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / "points.safetensors").exists()
    assert json.loads((tmp_path / "model" / "config.json").read_text())["points"] is False
    assert owlmine.load(tmp_path / "model").explain(points()[0]["text"], 2)[0].voters == ()


@pytest.mark.parametrize(
    ("data", "options", "told"),
    [
        ("plain", {}, "plain: has no texts to keep; convert the data again with: owlmine data convert --keep-texts"),
        (
            "kept",
            {"recipe": "single", "neighbours": None, "shortlist": None},
            "wanted False where no training points vote",
        ),
        ("kept", {"neighbours": 0}, "keep_texts is True; wanted False where no training points vote"),
        ("sparse", {}, "keep_texts is True; wanted False, since .* has sparse vectors"),
        ("dense", {"neighbours": None, "shortlist": None}, "wanted False, since .* has dense vectors"),
    ],
    ids=str,
)
def test_texts_that_cannot_be_kept(tmp_path: Path, data: str, options: dict[str, Any], told: str) -> None:
    write_jsonl(tmp_path / "train.jsonl", points())
    stores = {
        "plain": lambda: convert(tmp_path / "train.jsonl", tmp_path / "plain"),
        "kept": lambda: convert(tmp_path / "train.jsonl", tmp_path / "kept", KEEP),
        "sparse": lambda: Store.open(sparse_store()),
        "dense": lambda: Store.open(dense_store()),
    }
    with pytest.raises(OwlmineError, match=told):
        train(stores[data](), tmp_path / "out", OPTIONS.with_(**options))
    assert not (tmp_path / "out" / "config.json").exists()


def test_classes_that_are_added_have_no_voters(model_folder: Path) -> None:
    model = owlmine.load(model_folder)
    larger = model.add_classes(["w1x w2x w3x", "w1x w2x w4x"], [["new"], ["new"]])
    (one,) = larger.explain("w1x w2x w3x", classes=["new"])
    assert (one.key, one.examples, one.voters) == ("new", 2, ())
    assert {"dense", "offset", "linear"} <= {part.name for part in one.parts}
    assert sum(part.score for part in one.parts) == pytest.approx(one.score, abs=1e-6)
    check_voters(larger)
    assert one.words[0].spans == ((0, 3),)


def test_the_words_of_a_text_and_where_they_are(model_folder: Path) -> None:
    model = owlmine.load(model_folder)
    text = "W1X, unheard-of w2x (w1x)"
    for one in model.explain(text, 2):
        found = {effect.word: [text[start:end] for start, end in effect.spans] for effect in one.words}
        assert found == {"w1x": ["W1X", "w1x"], "w2x": ["w2x"]}
    with pytest.raises(OwlmineError, match=r"query: found a list that holds .*; wanted one text"):
        model.explain([text])
    assert np.isfinite(model.similar_classes("c1", 3)[0].cosine)
