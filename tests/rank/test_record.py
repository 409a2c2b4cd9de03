"""The record of a model: through JSON and back, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from owlmine.metrics.propensity import PropensityConstants
from owlmine.rank.record import Record

from .test_probabilities import BAD_ENTRIES, EXAMPLE

RECORD = Record(
    data="some data",
    checksum="abc",
    options={"epochs": None, "loss": "bowl"},
    plan={"heads": 3},
    history=({"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}),
    figures={"P@1": 50.0, "P@3": 40},
    rehearsal=0.2,
    calibration=EXAMPLE,
    propensity=PropensityConstants(0.6, 2.6),
    added=({"classes": 3},),
    estimator={"classes": ["a", "b"]},
)
LEAST = Record("some data", None)


@pytest.mark.parametrize("record", [RECORD, LEAST])
def test_through_json_and_back(record: Record) -> None:
    text = json.dumps(record.to_dict(), allow_nan=False)
    assert Record.from_dict(json.loads(text)) == record
    assert json.dumps(Record.from_dict(json.loads(text)).to_dict()) == text


def test_what_is_written_is_a_copy() -> None:
    written = RECORD.to_dict()
    written["history"][0]["loss"] = written["options"]["loss"] = "changed"
    assert RECORD.history[0]["loss"] == 0.5
    assert RECORD.options["loss"] == "bowl"


@pytest.mark.parametrize("record", [None, [], "record", {}, {"data": "some data"}, RECORD.to_dict() | {"more": 1}])
def test_something_else_is_no_record(record: Any) -> None:
    with pytest.raises(ValueError, match=r"the record has .*; wanted .*calibration.*, rehearsal"):
        Record.from_dict(record)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("data", None, "wanted text"),
        ("data", 3, "wanted text"),
        ("checksum", 3, "wanted text or null"),
        ("options", [], "wanted an object"),
        ("plan", None, "wanted an object"),
        ("history", {}, "wanted a list"),
        ("history", [1], "wanted a list of objects"),
        ("figures", [], "wanted an object"),
        ("figures", {"P@1": "50"}, "wanted a number"),
        ("figures", {"P@1": True}, "wanted a number"),
        ("rehearsal", "0.2", "wanted a number or null"),
        ("rehearsal", True, "wanted a number or null"),
        ("propensity", None, "wanted an object"),
        ("propensity", {}, "wanted numbers a and b"),
        ("propensity", {"a": 0.5}, "wanted numbers a and b"),
        ("propensity", {"a": 0.5, "b": 1.5, "c": 1}, "wanted numbers a and b"),
        ("propensity", {"a": "0.5", "b": 1.5}, "wanted numbers a and b"),
        ("propensity", {"a": True, "b": 1.5}, "wanted numbers a and b"),
        ("propensity", {"a": -0.5, "b": 1.5}, "wanted both above 0"),
        ("propensity", {"a": math.nan, "b": 1.5}, "wanted both above 0"),
        ("added", None, "wanted a list"),
        ("added", ["classes"], "wanted a list of objects"),
        ("estimator", [], "wanted an object or null"),
    ],
)
def test_fields_that_cannot_be_are_refused(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        Record.from_dict(RECORD.to_dict() | {name: value})


@pytest.mark.parametrize("calibration", BAD_ENTRIES, ids=range(len(BAD_ENTRIES)))
def test_garbled_calibrations_are_refused(calibration: Any) -> None:
    with pytest.raises(ValueError, match="wanted"):
        Record.from_dict(RECORD.to_dict() | {"calibration": calibration})
