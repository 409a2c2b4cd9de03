"""From a store to the four matrices that every tool learns from and is judged on, with a checksum of each.

X is float32, one row per point, as the store has it after its weighting. Y is 1 where a point has a label. A store
holds no point or class beyond the rules of its conversion, so that nothing is left out here.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

from owlmine.data.store import SparseTable, Store
from owlmine.files import write_text

NAMES = ("X.train", "Y.train", "X.test", "Y.test")
_DONE = "checksums.json"


def matrix(store: Store, name: str) -> csr_matrix:
    """One of ``NAMES``, with sorted indices."""
    kind, _, split = name.partition(".")
    part = store[split]
    if part.filter_pairs is not None:
        raise ValueError(f"{store.path}: {split} has pairs to be filtered; the peers know nothing of such pairs")
    table = part.queries if kind == "X" else part.labels
    if not isinstance(table, SparseTable):
        raise ValueError(f"{store.path}: has dense queries; wanted sparse ones")
    columns = store.num_features if kind == "X" else store.num_classes
    values = np.ones(len(table.indices), np.float32) if kind == "Y" or table.values is None else table.values
    shape = (len(table), columns)
    return canonical(csr_matrix((values, np.array(table.indices), np.array(table.offsets)), shape=shape))


def canonical(any_order: csr_matrix) -> csr_matrix:
    """The same numbers as float32 in the one form that the checksum knows: sorted, each place once, no zeros."""
    result = csr_matrix(any_order, dtype=np.float32, copy=True)
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def checksum(any_order: csr_matrix) -> str:
    """SHA-256 over shape, indptr, indices and data of the canonical form, as int64 and float32, little-endian."""
    whole = canonical(any_order)
    digest = hashlib.sha256(np.array(whole.shape, "<i8").tobytes())
    for array, dtype in ((whole.indptr, "<i8"), (whole.indices, "<i8"), (whole.data, "<f4")):
        digest.update(np.ascontiguousarray(array, dtype).tobytes())
    return digest.hexdigest()


def checksums(store: Store) -> dict[str, str]:
    return {name: checksum(matrix(store, name)) for name in NAMES}


def export(store: Store, folder: Path) -> dict[str, str]:
    """Writes ``NAME.npz`` of each matrix into ``folder`` unless it holds them, and gives their checksums."""
    wanted = store.meta["checksum"]
    try:
        record = json.loads((folder / _DONE).read_text())
    except (OSError, ValueError):
        record = {}
    if record.get("store") == wanted:
        sums: dict[str, str] = record["matrices"]
        return sums
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sums = {}
    for name in NAMES:
        one = matrix(store, name)
        sums[name] = checksum(one)
        save_npz(folder / f"{name}.npz", one, compressed=False)
    # Last: a folder without it was interrupted.
    write_text(folder / _DONE, json.dumps({"store": wanted, "matrices": sums}, indent=1) + "\n")
    return sums
