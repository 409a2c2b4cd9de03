"""Texts in which classes that training has hardly seen go by their names. A conftest imports the fixtures it wants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from owlmine.data import Store, convert

from ..small_models import write_jsonl

COMMON = ("river", "castle", "falcon", "copper", "meadow", "lantern", "harbour", "pepper", "glacier", "saddle")
RARE = (
    *("accordion", "bassoon", "clarinet", "dulcimer", "euphonium", "flugelhorn", "harpsichord", "kettledrum"),
    *("mandolin", "piccolo", "recorder", "saxophone", "tambourine", "ukulele", "vibraphone", "zither"),
)
KEYS = {name: f"c{number:02}" for number, name in enumerate(COMMON + RARE)}
"""Of classes whose names stand in a file beside the data."""


def common_point(number: int) -> tuple[str, str]:
    """About one of ten things; an instrument is there too, in the plural, and says nothing."""
    one, other = COMMON[number % 10], COMMON[(number // 10 + 3) % 10]
    return f"{one} {one} with {RARE[number * 7 % 16]}s by a {('big', 'small', 'quiet')[number % 3]} {other}", one


def rare_points(first: int) -> list[tuple[str, str]]:
    """Every other instrument, with a word that stands beside each."""
    return [(f"{name}s by something {('big', 'small', 'quiet')[n % 3]}", name) for n, name in enumerate(RARE[first::2])]


def write_texts(folder: Path, *, names_beside: bool) -> Path:
    """Training has a single text of each instrument, which does not mention it. Names are the keys of classes, or stand
    in a file beside the data. Half of the instruments are in the dev split, the others in the test split."""
    splits = {
        "train": [common_point(number) for number in range(200)] + [("nothing of note", name) for name in RARE],
        "dev": rare_points(0) + [common_point(number) for number in range(200, 208)],
        "test": rare_points(1),
    }
    folder.mkdir()
    for split, points in splits.items():
        rows = [{"text": text, "labels": [KEYS[name] if names_beside else name]} for text, name in points]
        write_jsonl(folder / f"{split}.jsonl", rows)
    if names_beside:
        lines = [f"{key}\t{name.title()} ({key})\n" for name, key in KEYS.items()]
        (folder / "labels.tsv").write_text("".join(lines))
    return folder


def train_points(folder: Path) -> tuple[list[str], list[list[str]]]:
    """Without the dev split."""
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts") / "data", names_beside=False)


@pytest.fixture(scope="session")
def text_store(text_folder: Path) -> Store:
    return convert(text_folder, text_folder.parent / "store")


@pytest.fixture(scope="session")
def text_store_without_dev(text_folder: Path) -> Store:
    return convert({"train": train_points(text_folder)}, text_folder.parent / "without-dev")


@pytest.fixture(scope="session")
def labelled_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = write_texts(tmp_path_factory.mktemp("labelled") / "data", names_beside=True)
    return convert(folder, folder.parent / "store")
