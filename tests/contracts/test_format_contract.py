"""Every format must give back exactly what an independent writer put into it, plain and compressed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from owlmine.data import ConvertOptions, Store, convert
from owlmine.data.sources import POINT_FORMATS
from owlmine.data.streams import COMPRESSION_SUFFIXES

from ..data.formats.points import Dataset, Point, Row, datasets, expected_rows, numeric_order, stored_rows
from ..data.formats.writers import FORMATS, Format, compress_folder

# Values as they are given and every token, so that rows can be compared exactly.
AS_GIVEN = ConvertOptions(weighting="none", min_df=1, max_df=1.0, split_column=1)
EXAMPLE_SPLITS = {
    "train": [
        Point({"0": 1.0, "2": 1.0}, {0: 1.0, 3: 0.25}, [1.0, 2.0, 3.0, 4.0], "a snowy owl"),
        Point({"2": 1.0}, {1: -2.5}, [0.0, 0.5, 0.0, -1.0], "the barn owl"),
        Point({}, {2: 4.0}, [1.0, 1.0, 1.0, 1.0], "no owl mine"),
    ],
    "test": [
        Point({"2": 1.0, "1": 1.0}, {3: 8.0}, [9.0, 0.0, 0.0, 0.0], "Owl, owl!"),
        Point({"1": 1.0}, {3: 7.0}, [9.0, 0.0, 0.0, 1.0], "barn"),
    ],
}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut is not what these tests are about."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def converted(form: Format, data: Dataset, folder: Path, suffix: str = "") -> Store:
    source = folder / "in"
    source.mkdir()
    given = form.write(data, source)
    if suffix:
        compress_folder(source, suffix)
    return convert(source if given is None else given, folder / "out", AS_GIVEN)


def check(form: Format, data: Dataset, store: Store) -> None:
    found: dict[str, list[Row]] = stored_rows(store)
    assert found == expected_rows(data, blank_is_stray=form.blank_is_stray)
    appearing = list(dict.fromkeys(key for point in data.splits["train"] for key in point.labels))
    if all(key.lstrip("-").isdigit() for key in appearing):
        appearing = numeric_order(set(appearing))
    assert list(store.class_keys) == appearing
    assert store.verify() == []


def test_every_format_of_the_library_is_enrolled() -> None:
    assert {form.point_format for form in FORMATS.values()} - {None} == set(POINT_FORMATS)


@pytest.mark.parametrize("name", FORMATS)
@given(drawn=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_comes_back(name: str, drawn: st.DataObject) -> None:
    form = FORMATS[name]
    data = drawn.draw(datasets(form.kind, named=form.named, weighted=form.weighted))
    for split in set(data.splits) - set(form.splits):
        del data.splits[split]
    if name == "split-index":
        data.splits.setdefault("test", [])
    if form.kind == "sparse":  # svmlight and split lists refuse a split without a single point
        for points in data.splits.values():
            points.append(Point({"0": 1.0}, {0: 1.0}))
    folder = Path(tempfile.mkdtemp())
    try:
        check(form, data, converted(form, data, folder))
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("suffix", COMPRESSION_SUFFIXES)
@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.compressible])
def test_compression_changes_nothing(name: str, suffix: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    data = Dataset(form.kind, {split: list(points) for split, points in EXAMPLE_SPLITS.items()}, 4, 3)
    check(form, data, converted(form, data, tmp_path, suffix))


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.compressible])
def test_line_ends_and_byte_order_marks_change_nothing(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    data = Dataset(form.kind, {split: list(points) for split, points in EXAMPLE_SPLITS.items()}, 4, 3)
    source = tmp_path / "in"
    source.mkdir()
    form.write(data, source)
    for file in source.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    store = convert(source, tmp_path / "out", AS_GIVEN)
    check(form, data, store)
    assert store.meta["splits"]["train"]["accepted"]["crlf_lines"] >= 3


@pytest.mark.parametrize("name", FORMATS)
def test_names_in_capitals_are_the_same(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    data = Dataset(form.kind, {split: list(points) for split, points in EXAMPLE_SPLITS.items()}, 4, 3)
    source = tmp_path / "in"
    source.mkdir()
    given = form.write(data, source)
    if form.compressible:
        compress_folder(source, ".gz")
    for file in list(source.iterdir()):
        file.rename(source / file.name.upper())
    check(form, data, convert(source if given is None else given, tmp_path / "out", AS_GIVEN))
