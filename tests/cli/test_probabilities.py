"""Probabilities in ``owlmine predict`` and ``owlmine evaluate``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import owlmine
from owlmine.data import Store
from owlmine.errors import OwlmineError
from owlmine.evaluate.of_model import evaluate_model
from owlmine.evaluate.picture import plot_evaluation

from ..small_models import calibrated_model, run, text_data, text_model, text_store


def test_every_answer_has_one() -> None:
    done = run("predict", calibrated_model(), "-", "--k", "3", "--device", "cpu", input="the river\n???\n")
    assert done.exit_code == 0, done.exception
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    probabilities = [found["probability"] for found in first["classes"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0.3 < probabilities[0] <= 1
    assert second == {"query": 1, "classes": []}
    assert done.stderr == "1 of 2 queries have no feature that the model knows; their answers are empty\n"


def test_csv_has_a_column_only_for_models_that_have_them() -> None:
    arguments = ("-", "--k", "2", "--format", "csv", "--device", "cpu")
    text = run("predict", calibrated_model(), *arguments, input="???\nthe river\n").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [0 <= float(row["probability"]) <= 1 for row in rows] == [True, True]
    header = run("predict", text_model(), *arguments, input="the river\n").stdout.splitlines()[0]
    assert header == "query,id,rank,key,name,score"


def test_classes_below_a_probability_are_left_out() -> None:
    arguments = ("predict", calibrated_model(), text_store(), "--device", "cpu")
    whole = [json.loads(line)["classes"] for line in run(*arguments).stdout.splitlines()]
    middle = float(np.median([found["probability"] for classes in whole for found in classes[:1]]))
    done = run(*arguments, "--at-least", middle)
    assert done.exit_code == 0, done.exception
    some = [json.loads(line)["classes"] for line in done.stdout.splitlines()]
    assert some == [[found for found in classes if found["probability"] >= middle] for classes in whole]
    empty = sum(not classes for classes in some)
    assert 0 < empty < len(some)
    kept = sum(map(len, some)) / sum(map(len, whole))
    assert (
        done.stderr
        == f"kept {kept:.1%} of the predictions; no class is probable enough for {empty} of {len(some)} queries\n"
    )


def test_a_wanted_precision() -> None:
    calibration = owlmine.load(calibrated_model()).record.calibration
    assert calibration is not None
    entry = calibration.thresholds[-1]
    arguments = ("predict", calibrated_model(), text_store(), "--device", "cpu")
    done = run(*arguments, "--precision", entry.precision - 0.005)
    assert done.exit_code == 0, done.exception
    assert f"classes with a probability of {entry.threshold:.4g} or more: on" in done.stderr
    assert f"this reached a precision of {entry.precision:g}" in done.stderr
    assert done.stdout == run(*arguments, "--at-least", repr(entry.threshold)).stdout


def test_tables_show_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ("predict", calibrated_model(), "-", "--format", "table", "--device", "cpu")
    assert "%" in run(*arguments, input="the river\n").stdout
    done = run(*arguments, "--at-least", "1", input="the river\n???\n")
    assert "no class is probable enough" in done.stdout
    assert "no feature known to the model" in done.stdout


def test_bad_wishes_are_reported_in_one_line() -> None:
    cases: list[tuple[tuple[object, ...], str]] = [
        ((text_model(), "-", "--at-least", "0.5"), "--at-least: the model has no probabilities"),
        ((text_model(), "-", "--precision", "0.5"), "--precision: the model has no probabilities"),
        ((calibrated_model(), "-", "--at-least", "0.5", "--precision", "0.5"), "both given; wanted one"),
        ((calibrated_model(), "-", "--at-least", "80"), "--at-least is 80; wanted a number above 0"),
        ((calibrated_model(), "-", "--precision", "nan"), "--precision is nan; wanted a number above 0"),
        ((calibrated_model(), "-", "--precision", "1"), "--precision 1 was not reached on the 96 validation points"),
    ]
    for arguments, message in cases:
        done = run("predict", *arguments, input="the river\n")
        assert isinstance(done.exception, OwlmineError), (arguments, done.exception)
        assert message in str(done.exception)
        assert done.stdout == ""


def test_evaluate_says_how_far_they_are_off(tmp_path: Path) -> None:
    predictor, split = owlmine.load(calibrated_model()), Store.open(text_store())["test"]
    bins = [[0.0, 0, 0] for _ in range(15)]
    pairs = []
    for row in range(len(split)):
        batch = split.batch(np.array([row]))
        answers = predictor.answer(batch.queries, 5)
        assert answers.probabilities_Nk is not None
        (ids,), (probabilities,) = answers.ids_Nk, answers.probabilities_Nk
        pairs += [(float(p), int(c) in batch.labels.indices) for c, p in zip(ids, probabilities, strict=True)]
    # No ties here, so bins of equal mass are slices of the sorted list.
    assert len({p for p, _ in pairs}) == len(pairs)
    for place, (p, hit) in enumerate(sorted(pairs)):
        mine = bins[(2 * place + 1) * 15 // (2 * len(pairs))]
        mine[0], mine[1], mine[2] = mine[0] + p, mine[1] + hit, mine[2] + 1
    expected = 100 * sum(abs(total - hits) for total, hits, _ in bins) / len(pairs)

    done = run("evaluate", calibrated_model(), text_data(), "--json", "--device", "cpu")
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)["calibration"]
    assert found["error"] == pytest.approx(expected, abs=0.01)
    assert found["places"] == 5
    assert [one["predictions"] for one in found["bins"]] == [count for _, _, count in bins]
    shown = run("evaluate", calibrated_model(), text_data(), "--device", "cpu").stdout
    assert f"off by {found['error']:.2f} percentage points" in " ".join(shown.split())
    few = evaluate_model(predictor, split, ks=[1]).reliability
    assert few is not None
    assert few.error == pytest.approx(expected, abs=0.01)
    plot_evaluation(evaluate_model(predictor, split), tmp_path / "four.png", title="four panels")
    assert (tmp_path / "four.png").read_bytes().startswith(b"\x89PNG")


def test_models_without_them_say_nothing() -> None:
    done = run("evaluate", text_model(), text_data(), "--json", "--device", "cpu")
    assert json.loads(done.stdout)["calibration"] is None
    assert "percentage points" not in run("evaluate", text_model(), text_data(), "--device", "cpu").stdout


def test_rare_classes_are_lifted_on_request() -> None:
    arguments = ("predict", calibrated_model(), text_store(), "--k", "3", "--device", "cpu")
    plain, lifted = (
        [json.loads(line)["classes"] for line in run(*arguments, "--tail", tail).stdout.splitlines()]
        for tail in ("0", "1")
    )
    assert plain == [json.loads(line)["classes"] for line in run(*arguments).stdout.splitlines()]
    predictor = owlmine.load(calibrated_model())
    queries = Store.open(text_store())["test"].batch(np.arange(len(lifted))).queries
    ids_Nk = predictor.answer(queries, 3, tail=1.0).ids_Nk
    keys = [[predictor.classes.keys[c] for c in row] for row in ids_Nk.tolist()]
    assert [[found["key"] for found in classes] for classes in lifted] == keys


def test_what_cannot_be_lifted() -> None:
    for verb in ("predict", "evaluate"):
        done = run(verb, calibrated_model(), text_store(), "--tail", "2", "--device", "cpu")
        assert isinstance(done.exception, OwlmineError)
        assert str(done.exception).startswith("tail is 2")
        done = run(verb, text_model(), text_store(), "--tail", "0.5", "--device", "cpu")
        assert isinstance(done.exception, OwlmineError)
        assert "the model has no probabilities" in str(done.exception)
