"""Options of labelled files, and files with names of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from owlmine.errors import DataError
from owlmine.exchange.labelled import ExampleOptions, read_names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "xml"}, "format is 'xml'"),
        ({"label_separator": ""}, "label_separator is ''"),
        ({"split_column": -1}, "split_column is -1"),
        ({"first_feature": "2"}, "first_feature is '2'"),
    ],
)
def test_bad_options(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExampleOptions(**given)


def test_names(tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("River bank\n\n  Sea \r\n", newline="")
    assert read_names(file) == {"River bank": "River bank", "Sea": "Sea"}
    file.write_text("r1\tRiver bank\nr2\tSea\twith a tab\n")
    assert read_names(file) == {"r1": "River bank", "r2": "Sea\twith a tab"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "names: found no name; wanted names of classes"),
        ("a\tA\nb\n", "names, line 2: found 'b'; wanted a key, a tab and a name, as on the first line"),
        ("a\nb\tB\n", r"names, line 2: found 'b\\tB'; wanted a name without a tab, as on the first line"),
        ("a\t\n", r"names, line 1: found 'a\\t'; wanted a key, a tab and a name"),
        ("\tA\n", r"names, line 1: found '\\tA'; wanted a key, a tab and a name"),
        ("a\nb\na\n", "names, line 3: found 'a' a second time; wanted each class once"),
    ],
)
def test_bad_names(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text(content)
    with pytest.raises(DataError, match=message):
        read_names(file)
    with pytest.raises(DataError, match="no such file"):
        read_names(tmp_path / "none")
