"""Damages copies of small stores in seeded ways, and looks at them as commands do.

    python damaged_stores.py FOLDER NUMBER [FIRST]

Half of the damaged stores get new checksums: the content must then be refused for what it is. Each case is a fork of
this process, so that a crash ends one case. Prints a line of JSON per case: what was done, and what came of it.

    refused      by an OwlmineError that names the store
    same         the answers of the undamaged store
    other        other answers: right for a store with new checksums, wrong for one whose checksums do not fit
    anything else is a crash, an error of another type, or a figure that is no number
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import owlmine
from owlmine.data.describe import describe
from owlmine.data.store import meta_checksum
from owlmine.errors import OwlmineError
from owlmine.evaluate.model_data import open_for_model
from owlmine.evaluate.of_model import evaluate_model
from owlmine.exchange.answers import answer
from owlmine.exchange.queries import open_queries
from owlmine.rank.predictor import Predictor

from ..small_models import MODELS

_NUMBERS = (-(10**8), -1, 1, 10**8, 2**31 - 1, -(2**31), 2**62, -(2**62))
_VALUES = (float("nan"), float("inf"), float("-inf"), 1e18, -1.0, 0.0)
_WORDS: tuple[Any, ...] = (
    None,
    -1,
    0,
    1,
    2**31,
    2**70,
    1.5,
    float("nan"),
    "",
    "sparse",
    "dense",
    "tfidf",
    [],
    {},
    True,
)


def looked_at(predictor: Predictor, path: Path, scratch: Path) -> str:
    """Everything that commands do with a store, as a digest."""
    store, split = open_for_model(predictor, path, scratch)
    evaluation = evaluate_model(predictor, store[split])
    answers = [
        (found.number, [(one.key, one.name, one.score) for one in found.classes])
        for block in answer(predictor, open_queries(predictor, path), 3)
        for found in block.answers
    ]
    batches = []
    for name in store.splits:
        rows = np.random.default_rng(0).permutation(len(store[name]))
        batch = store[name].batch(rows)
        queries = batch.queries.values if hasattr(batch.queries, "values") else batch.queries
        assert queries is not None
        batches.append((float(queries.sum(dtype=np.float64)), int(batch.labels.indices.sum())))
    # What is undefined where a kind of class is empty is no number; all others are.
    figures = {n: value for n, value in evaluation.figures.items() if "/" not in n or not math.isnan(value)}
    told = [describe(store), figures, answers, batches, list(store.class_keys), list(store.class_names)]
    if numbers := [number for number in _floats(told) if not math.isfinite(number)]:
        raise ArithmeticError(f"the number {numbers[0]}")
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _floats(told: Any) -> list[float]:
    if isinstance(told, float):
        return [told]
    inner = told.values() if isinstance(told, dict) else told if isinstance(told, list | tuple) else ()
    return [number for one in inner for number in _floats(one)]


def damage(store: Path, rng: random.Random) -> str:
    """Damages one file of the store; returns what was done."""
    kind = rng.choice(_KINDS)
    return f"{kind.__name__.strip('_')}: {kind(store, rng)}"


def _flip_bits(store: Path, rng: random.Random) -> str:
    file = _any_file(store, rng)
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return file.name


def _truncate(store: Path, rng: random.Random) -> str:
    file = _any_file(store, rng)
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.8 else data + b"\0" * rng.randint(1, 99))
    return file.name


def _edit_array(store: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(store.glob("*.npy")))
    array = np.array(np.load(file))
    flat = array.reshape(-1)
    if not len(flat):
        return f"{file.name} is empty"
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.choice((0, len(flat) - 1, rng.randrange(len(flat))))
        value = rng.choice(_VALUES if array.dtype.kind == "f" else _NUMBERS)
        limits = None if array.dtype.kind == "f" else np.iinfo(array.dtype)
        flat[place] = value if limits is None else min(max(int(value), int(limits.min)), int(limits.max))
    np.save(file, array)
    return file.name


def _swap_files(store: Path, rng: random.Random) -> str:
    files = sorted(store.glob("*.npy"))
    one, other = rng.sample(files, 2)
    if rng.random() < 0.5:
        alike = [file for file in files if file.name.rpartition(".")[0][-7:] == one.name.rpartition(".")[0][-7:]]
        other = rng.choice(alike)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    return f"{one.name} and {other.name}"


def _edit_header(store: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(store.glob("*.npy")))
    data = file.read_bytes()
    head = data[:128]
    old, new = rng.choice(
        (
            (b"'<i8'", b"'|O'"),
            (b"'<i8'", b"'<f8'"),
            (b"'<i4'", b"'<f4'"),
            (b"'<f4'", b"'<i4'"),
            (b"'|u1'", b"'|i1'"),
            (b"False", b"True"),
            (b"(", b"(-"),
            (b"(", b"(9"),
            (b",)", b",1)"),
            (b"{", b"["),
            (b"NUMPY", b"PICKL"),
        )
    )
    changed = head.replace(old, new, 1).rstrip(b"\n").rstrip(b" ")
    file.write_bytes((changed.ljust(127) + b"\n")[:128] + data[128:])
    return f"{file.name}, {old!r} to {new!r}"


def _edit_meta(store: Path, rng: random.Random) -> str:
    file = store / "meta.json"
    meta = json.loads(file.read_text())
    owner, place = _place(meta, rng)
    word = rng.choice(_WORDS)
    if rng.random() < 0.2:
        owner.pop(place)
        word = "(removed)"
    elif isinstance(owner[place], int) and rng.random() < 0.5:
        owner[place] = word = owner[place] + rng.choice((-1, 1, 7))
    else:
        owner[place] = word
    file.write_text(json.dumps(meta))
    return f"{place} to {word}"


def _place(meta: Any, rng: random.Random) -> tuple[Any, Any]:
    owner = meta
    while True:
        place = rng.choice(sorted(owner)) if isinstance(owner, dict) else rng.randrange(len(owner))
        inner = owner[place]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.2:
            return owner, place
        owner = inner


_KINDS: tuple[Callable[[Path, random.Random], str], ...] = (
    _flip_bits, _truncate, _edit_array, _edit_array, _edit_array, _swap_files, _edit_header, _edit_meta, _edit_meta,
)  # fmt: skip


def _any_file(store: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(store.iterdir()))


def renew_checksums(store: Path) -> None:
    """Sizes and checksums as they are now; nothing where ``meta.json`` is no longer JSON."""
    file = store / "meta.json"
    try:
        meta = json.loads(file.read_text())
        for name, entry in meta["arrays"].items():
            data = (store / f"{name}.npy").read_bytes()
            entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        meta["checksum"] = meta_checksum(meta)
        file.write_text(json.dumps(meta))
    except (ValueError, TypeError, KeyError, AttributeError, OSError):
        return


def _outcome(predictor: Predictor, path: Path, scratch: Path, wanted: str) -> str:
    try:
        found = looked_at(predictor, path, scratch)
    except OwlmineError as error:
        return "refused" if str(error).startswith(str(path)) else f"an error that names no file: {error}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
    return "same" if found == wanted else "other"


def _in_a_fork(work: Callable[[], str]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, work().encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return told if status == 0 else f"ended by signal {os.WTERMSIG(status)}"


def main(folder: Path, number: int, first: int) -> None:
    predictors = {kind: owlmine.load(model()) for kind, (model, _, _) in MODELS.items()}
    stores = {kind: store() for kind, (_, _, store) in MODELS.items()}
    wanted = {kind: looked_at(predictors[kind], stores[kind], folder) for kind in MODELS}
    for case in range(first, first + number):
        rng = random.Random(case)
        kind, renewed = rng.choice(sorted(MODELS)), rng.random() < 0.5
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            path = Path(scratch) / "store"
            shutil.copytree(stores[kind], path)
            done = damage(path, rng)
            if renewed:
                renew_checksums(path)
            outcome = _in_a_fork(partial(_outcome, predictors[kind], path, Path(scratch), wanted[kind]))
        print(
            json.dumps({"case": case, "kind": kind, "renewed": renewed, "done": done, "outcome": outcome}), flush=True
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0]))
