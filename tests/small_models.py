"""Small trained models of every kind of query, made once per test run, and commands run without a new process."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import typer
from typer.testing import CliRunner

from owlmine.data import convert
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

from .conftest import write_points

OPTIONS = TrainOptions.of(recipe="single", dim=16, epochs=4, batch_size=16, validation=0, device="cpu")
TOPICS = (
    "river",
    "castle",
    "violin",
    "falcon",
    "copper",
    "ballad",
    "meadow",
    "lantern",
    "harbour",
    "pepper",
    "glacier",
    "saddle",
)


@functools.cache
def workplace() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="owlmine-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def text_point(number: int) -> dict[str, object]:
    """A text about two topics, labelled with both; every topic meets every other."""
    one, other = TOPICS[number % 12], TOPICS[(number + 1 + number // 12 % 11) % 12]
    text = f"the {one} and the {other} near a {('big', 'small', 'quiet')[number % 3]} {one}"
    return {"id": f"p{number}", "text": text, "labels": sorted({f"c-{one}", f"c-{other}"})}


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@functools.cache
def text_data() -> Path:
    folder = workplace() / "texts"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", [text_point(number) for number in range(240)])
    test = [text_point(number) for number in range(1000, 1036)]
    test[3]["labels"] = ["c-river", "c-unheard-of"]
    test[4]["labels"] = ["c-unheard-of"]
    test[5]["text"] = "?"
    test[6]["labels"] = []
    write_jsonl(folder / "test.jsonl", test)
    (folder / "labels.tsv").write_text("".join(f"c-{topic}\t{topic.title()}\n" for topic in TOPICS))
    return folder


@functools.cache
def text_store() -> Path:
    return convert(text_data(), workplace() / "texts.store").path


@functools.cache
def text_model() -> Path:
    train(text_store(), workplace() / "text-model", OPTIONS)
    return workplace() / "text-model"


@functools.cache
def calibrated_model() -> Path:
    """With validation points, and so with probabilities."""
    train(text_store(), workplace() / "calibrated-model", OPTIONS.with_(validation=0.4))
    return workplace() / "calibrated-model"


@functools.cache
def sparse_data() -> Path:
    """Counts, so that the store weights them; with pairs that scoring leaves out."""
    folder = workplace() / "points"
    folder.mkdir()
    for name, num_points in (("train", 200), ("test", 60)):
        file = write_points(folder / f"{name}.txt", num_points)
        file.write_text(file.read_text().replace(".5", ""))
    lines = (folder / "test.txt").read_text().splitlines()
    labels = [(row, label) for row, line in enumerate(lines[1:]) for label in line.split()[0].split(",")]
    (folder / "filter_labels_test.txt").write_text("".join(f"{row} {label}\n" for row, label in labels[::3]))
    return folder


@functools.cache
def sparse_store() -> Path:
    return convert(sparse_data(), workplace() / "points.store").path


@functools.cache
def sparse_model() -> Path:
    train(sparse_store(), workplace() / "sparse-model", OPTIONS)
    return workplace() / "sparse-model"


@functools.cache
def dense_data() -> Path:
    folder = workplace() / "vectors"
    folder.mkdir()
    random = np.random.default_rng(3)
    centres = random.normal(size=(7, 9))
    for name, num_points in (("train", 140), ("test", 35)):
        classes = np.arange(num_points) % 7
        np.save(folder / f"{name}.npy", (centres[classes] + 0.3 * random.normal(size=(num_points, 9))).astype("f4"))
        np.save(folder / f"{name}.labels.npy", classes)
    return folder


@functools.cache
def dense_store() -> Path:
    return convert(dense_data(), workplace() / "vectors.store").path


@functools.cache
def dense_model() -> Path:
    train(dense_store(), workplace() / "dense-model", OPTIONS)
    return workplace() / "dense-model"


MODELS = {
    "text": (text_model, text_data, text_store),
    "sparse": (sparse_model, sparse_data, sparse_store),
    "dense": (dense_model, dense_data, dense_store),
}


def run(*arguments: object, input: str | bytes | None = None) -> Any:
    """``owlmine ARGUMENTS`` in this process; an error that the command line would print is ``result.exception``."""
    from owlmine.cli.evaluate import evaluate_command
    from owlmine.cli.index import index_command
    from owlmine.cli.predict import predict_command
    from owlmine.cli.train import train_command

    app = typer.Typer()
    app.command("evaluate")(evaluate_command)
    app.command("index")(index_command)
    app.command("predict")(predict_command)
    app.command("train")(train_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)
