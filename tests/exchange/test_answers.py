"""Queries answered in blocks, and answers written as JSON, CSV and whole files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import owlmine
from owlmine.errors import OwlmineError
from owlmine.exchange.answers import Answer, answer, csv_lines, json_lines, new_file
from owlmine.exchange.queries import QueryBlock
from owlmine.rank.predictor import Prediction

from ..small_models import calibrated_model, text_model


def test_answers_are_numbered_through_and_empty_queries_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.exchange.answers._BLOCK_ROWS", 2)
    predictor = owlmine.load(text_model())
    blocks = [QueryBlock(["the river", "???", "a castle"], ["x", None, "y"]), QueryBlock(["saddle"])]
    answers = [one for block in answer(predictor, blocks, 2) for one in block.answers]
    assert [(one.number, one.id, len(one.classes)) for one in answers] == [
        (0, "x", 2),
        (1, None, 0),
        (2, "y", 2),
        (3, None, 2),
    ]
    alone = predictor.predict(["the river"], 2)[0]
    assert [c.key for c in answers[0].classes] == [c.key for c in alone]
    assert [c.score for c in answers[0].classes] == pytest.approx([c.score for c in alone])
    assert answers[0].classes[0].key == "c-river"
    assert answers[0].classes[0].name == "River"
    for k in (0, 13):
        with pytest.raises(OwlmineError, match=f"{k} classes were asked for; there are 12"):
            answer(predictor, blocks, k)


def test_blocks_shrink_where_many_classes_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are held block by block: their number is bounded, not that of queries alone."""
    monkeypatch.setattr("owlmine.exchange.answers._BLOCK_ANSWERS", 12)
    predictor, blocks = owlmine.load(text_model()), [QueryBlock(["the river"] * 5), QueryBlock(["a castle"])]
    sizes = {k: [len(block.answers) for block in answer(predictor, blocks, k)] for k in (2, 5, 12)}
    assert sizes == {2: [5, 1], 5: [2, 2, 1, 1], 12: [1] * 6}


ANSWERS = [
    Answer(0, "a,b", "text", [Prediction("k1", 'say "hi"', 0.1), Prediction("k2", "ü", -2.0)]),
    Answer(1, None, None, []),
    Answer(2, 5, None, [Prediction("k2", "ü", float(np.float32(0.1)))]),
]


def test_json_lines() -> None:
    rows = [json.loads(line) for line in json_lines(ANSWERS).splitlines()]
    assert rows[0]["classes"] == [
        {"key": "k1", "name": 'say "hi"', "score": 0.1},
        {"key": "k2", "name": "ü", "score": -2.0},
    ]
    assert [row.get("id") for row in rows] == ["a,b", None, 5]
    assert rows[1] == {"query": 1, "classes": []}
    assert rows[2]["classes"][0]["score"] == 0.1  # no digits that float32 does not have


def test_csv_lines_have_one_header() -> None:
    text = csv_lines(ANSWERS[:1]) + csv_lines(ANSWERS[1:])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["query"], row["id"], row["rank"], row["name"]) for row in rows] == [
        ("0", "a,b", "1", 'say "hi"'),
        ("0", "a,b", "2", "ü"),
        ("2", "5", "1", "ü"),
    ]


def test_a_new_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(AttributeError), new_file(path) as file:
        file.write("half") and file.no_such_thing  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []
    with new_file(path) as file:
        file.write("ü\n")
        assert not path.exists()
    assert path.read_bytes() == "ü\n".encode()
    with pytest.raises(OwlmineError, match="already exists"), new_file(path):
        pass
    with pytest.raises(OwlmineError, match="cannot be written"), new_file(tmp_path / "no" / "out"):
        pass
    assert list(tmp_path.iterdir()) == [path]


def test_probable_and_lifted_classes_need_probabilities() -> None:
    blocks = [QueryBlock(["the river"])]
    without, with_them = owlmine.load(text_model()), owlmine.load(calibrated_model())
    with pytest.raises(OwlmineError, match="a minimum probability was asked for, but the model has no probabilities"):
        answer(without, blocks, 3, at_least=0.5)
    with pytest.raises(OwlmineError, match="lifting rare classes was asked for, but the model has no probabilities"):
        answer(without, blocks, 3, tail=0.5)
    with pytest.raises(OwlmineError, match="from 0 to 1"):
        answer(with_them, blocks, 3, at_least=1.5)
    with pytest.raises(OwlmineError, match="tail is 2"):
        answer(with_them, blocks, 3, tail=2)


def test_rare_classes_are_lifted_as_in_the_model() -> None:
    predictor, texts = owlmine.load(calibrated_model()), ["the river and the castle", "a quiet saddle", "pepper"]
    for tail in (0.0, 1.0):
        (block,) = answer(predictor, [QueryBlock(texts)], 4, tail=tail)
        assert [one.classes for one in block.answers] == predictor.predict(texts, 4, tail=tail)
