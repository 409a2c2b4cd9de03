"""A model folder damaged in any way is refused with the name of a file, or answers as before.

Where checksums were made again after the damage answers may be others, but they are finite, and what cannot be read is
still refused in words. ``OWLMINE_TORTURE_FOLDERS`` sets how many folders are damaged.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

import owlmine
from owlmine.data.rows import SparseRows
from owlmine.errors import OwlmineError
from owlmine.rank import JUDGES, Mix
from owlmine.recipe import fit as recipe
from owlmine.run import train

from ..sealed import seal
from ..small_models import OPTIONS, sparse_model, text_model, text_store

FOLDERS = int(os.environ.get("OWLMINE_TORTURE_FOLDERS", "240"))
TEXTS = ["the river and a castle", "the violin near the pepper", "nothing known", "owls hoot near the river"]
ODD_NUMBERS = (0, 1, -1, 2, 3, 0.5, -1.5, 1e30, 1e300, 2**31, 2**63, 2**64, 10**30, float("nan"), float("inf"))
ODD_VALUES = (
    *ODD_NUMBERS,
    None,
    True,
    False,
    "",
    "x",
    "\ud800",
    "dense",
    "linear",
    "tfidf",
    "none",
    [],
    [1],
    {},
    {"a": 1},
)
HEADER_VALUES = (
    0,
    1,
    -1,
    7,
    2**40,
    2**63,
    "F16",
    "BF16",
    "F32",
    "F64",
    "I32",
    "I64",
    "U8",
    "BOOL",
    None,
    [],
    [0, 8],
    {},
)

EVERY_JUDGE = Mix(
    {"linear": 0.2, "rarity": 0.1, "neighbours": 0.3, "vector_neighbours": 0.2, "names": 1.5},
    {"linear": 1.0, "rarity": None, "neighbours": "power 4", "vector_neighbours": "power 16", "names": None},
)

Answers = list[NDArray[Any]]


@dataclass(frozen=True)
class Model:
    folder: Path
    answers: Callable[[Path], Answers]


def texts_answered(folder: Path) -> Answers:
    model = owlmine.load(folder)
    batches = [model.predict_batch(TEXTS, 8)]
    if model.record.calibration is not None:
        batches.append(model.predict_batch(TEXTS, 3, tail=0.5))
    return [*(part for batch in batches for part in arrays_of(batch)), words_of(model, TEXTS)]


def counts_answered(folder: Path) -> Answers:
    model = owlmine.load(folder)
    ids, counts = np.array([3, 20, 17, 20, 0, 44], np.int32), np.array([1, 1, 2, 1, 3, 1], np.float32)
    rows = SparseRows(np.array([0, 2, 3, 6]), ids, counts)
    return [*arrays_of(model.predict_batch(rows, 20)), words_of(model, rows)]


def classifier_answered(folder: Path) -> Answers:
    classifier, rows = owlmine.OwlmineClassifier.load(folder), np.arange(20.0).reshape(4, 5)
    probabilities = [classifier.predict_proba(rows)] if hasattr(classifier, "predict_proba") else []
    return [classifier.predict(rows), *classifier.predict_top_with_scores(rows, k=2), *probabilities]


def arrays_of(batch: owlmine.Predictions) -> Answers:
    found = (batch.ids_Nk, batch.scores_Nk, batch.probabilities_Nk)
    return [part for part in found if part is not None]


def words_of(model: owlmine.Model, queries: Any) -> NDArray[Any]:
    """Reading the words of every answer is a part of answering."""
    return np.array([repr([(one.key, one.name) for one in row]) for row in model.predict(queries, k=3)])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    place = tmp_path_factory.mktemp("models")
    options = OPTIONS.with_(recipe="best", heads=2, validation=0.2, shortlist=6, neighbours=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "choose_mix", lambda gather, judges: (EVERY_JUDGE, gather(judges).precision(EVERY_JUDGE)))
        best = train(text_store(), place / "best", options)
    assert set(best.ranker.judges) == set(JUDGES)
    assert best.record.calibration is not None
    best.add_classes(["owls near the river", "small owls"], [["owl"], ["owl"]]).save(place / "added")
    twin = shutil.copytree(place / "best", place / "twin")
    tensors = load_file(twin / "weights.safetensors")
    parts = ("classes.codes", "classes.scales")
    save_file(tensors | {part: tensors[part].roll(1, 0).clone() for part in parts}, twin / "weights.safetensors")
    seal(twin)
    random_ = np.random.default_rng(2)
    classifier = owlmine.OwlmineClassifier(dim=4, heads=2, epochs=1, random_state=1)
    columns, numbers = random_.normal(size=(60, 5)), np.arange(60) % 3
    classifier.fit(columns, numbers).save(place / "classifier")
    # An indicator, one column of which has no training point.
    classifier.set_params(k=2, recipe="single", random_state=2)
    classifier.fit(columns, np.eye(4, dtype=int)[numbers]).save(place / "columns")
    return [
        Model(place / "best", texts_answered),
        Model(sparse_model(), counts_answered),
        Model(place / "added", texts_answered),
        Model(place / "classifier", classifier_answered),
        Model(place / "columns", classifier_answered),
        Model(twin, texts_answered),
        Model(text_model(), texts_answered),
    ]


def damage(folder: Path, others: list[Path], chance: random.Random) -> str:
    """Something happens to a file of the folder; what it was."""
    harm = chance.choice([flip, scribble, cut, swap, leave_out, edit_header, edit_record, edit_record, odd_numbers])
    names = sorted(file.name for file in folder.iterdir() if file.suffix == ".safetensors")
    if harm in (flip, scribble, cut, leave_out):
        names += ["config.json", "README.md"]
    if harm is edit_record:
        names = ["config.json"]
    file = folder / chance.choice(names)
    if harm is swap:
        other = chance.choice([one for one in others if one.name != folder.name])
        file = folder / chance.choice([one.name for one in other.glob("*.safetensors")] + ["config.json"])
        shutil.copyfile(other / file.name, file)
    else:
        harm(file, chance)
    return f"{harm.__name__} of {file.name}"


def flip(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def scribble(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    start, length = chance.randrange(len(data)), chance.randint(1, 64)
    data[start : start + length] = chance.randbytes(len(data[start : start + length]))
    file.write_bytes(data)


def cut(file: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.8 else data + chance.randbytes(8))


def swap(file: Path, chance: random.Random) -> None:
    raise AssertionError("needs another folder")


def leave_out(file: Path, chance: random.Random) -> None:
    del chance
    file.unlink()


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def edit_header(file: Path, chance: random.Random) -> None:
    entries, body = header_of(file.read_bytes())
    if entries:
        changed(entries, chance, HEADER_VALUES)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    file.write_bytes(struct.pack("<Q", len(header)) + header + body)


def edit_record(file: Path, chance: random.Random) -> None:
    config = json.loads(file.read_text())
    parts = [(config, name) for name in config if name != "record"]
    # Answers do not depend on what the record says about its run.
    parts += [(config["record"], name) for name in config["record"] if name not in ("history", "options", "plan")]
    tree, name = chance.choice(parts)
    if isinstance(tree[name], dict | list) and tree[name] and chance.random() < 0.8:
        changed(tree[name], chance, ODD_VALUES)
    else:
        changed(tree, chance, ODD_VALUES, key=name)
    file.write_text(json.dumps(config))


def changed(tree: Any, chance: random.Random, values: tuple[Any, ...], *, key: Any = None) -> None:
    """A node of a JSON tree is replaced, left out or, where it is a number, moved a little."""
    if key is None:
        key = chance.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        if isinstance(tree[key], dict | list) and tree[key] and chance.random() < 0.8:
            changed(tree[key], chance, values)
            return
    if chance.random() < 0.15:
        del tree[key]
    elif isinstance(tree[key], int | float) and chance.random() < 0.4:
        tree[key] += chance.choice([-1, 1, 8])
    else:
        tree[key] = chance.choice(values)


def odd_numbers(file: Path, chance: random.Random) -> None:
    """In a tensor, at places where its numbers are."""
    entries, body = header_of(file.read_bytes())
    head, data = file.read_bytes()[: -len(body) or None], bytearray(body)
    codes = {"F32": "<f", "I64": "<q", "I32": "<i", "U16": "<H", "U8": "B", "I8": "b"}
    filled = [e for e in entries.values() if e["dtype"] in codes and e["data_offsets"][0] < e["data_offsets"][1]]
    for entry in chance.choices(filled, k=chance.randint(1, 3)) if filled else ():
        code, (start, end) = codes[entry["dtype"]], entry["data_offsets"]
        size = struct.calcsize(code)
        place = start + size * chance.randrange((end - start) // size)
        values: tuple[Any, ...] = (0, 1, -1, 255, 10**6, -(10**8), 2**31 - 1, 2**63 - 1)
        if code == "<f":
            values = (0.0, -1.0, 1e38, -1e38, 1e-45, 100.0, float("nan"), float("inf"), float("-inf"))
        bounds = {"B": (0, 255), "<H": (0, 65_535), "b": (-128, 127)}
        if code in bounds:
            least, most = bounds[code]
            values = (*(value for value in values if least <= value <= most), least, most)
        value = chance.choice([v for v in values if code != "<i" or abs(v) < 2**31])
        data[place : place + size] = struct.pack(code, value)
    file.write_bytes(head + data)


def outcome(model: Model, folder: Path, wanted: Answers) -> tuple[str, str]:
    try:
        found = model.answers(folder)
    except OwlmineError as error:
        return ("refused" if str(folder) in str(error) else "refused without a file"), str(error)
    except Exception as error:
        return "traceback", repr(error)
    for part in found:
        if part.dtype.kind == "f" and np.isnan(part).any():
            return "not a number", repr(part)
    same = len(found) == len(wanted) and all(map(np.array_equal, found, wanted))
    return ("equal" if same else "different"), ""


def test_damaged_folders_are_refused_or_answer_as_before(models: list[Model], tmp_path: Path) -> None:
    chance, counts = random.Random(7), Counter[tuple[bool, str]]()
    wanted = [model.answers(model.folder) for model in models]
    faults: list[str] = []
    for number in range(FOLDERS):
        own = number % 5
        folder = shutil.copytree(models[own].folder, tmp_path / "folder")
        told = damage(folder, [model.folder for model in models], chance)
        sealed = number % 8 >= 4 and sealed_again(folder)
        kind, message = outcome(models[own], folder, wanted[own])
        counts[sealed, kind] += 1
        good = ("refused", "equal", *(("different", "refused without a file") if sealed else ()))
        if kind not in good:
            faults.append(f"{number}, {told}, {'sealed' if sealed else 'as it was'}: {kind} {message}")
        shutil.rmtree(folder)
    print({f"{kind}{', checksums made again' if sealed else ''}": n for (sealed, kind), n in sorted(counts.items())})
    assert not faults, "\n".join(faults)
    assert counts[False, "refused"]
    assert counts[True, "different"]


def sealed_again(folder: Path) -> bool:
    try:
        seal(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True
