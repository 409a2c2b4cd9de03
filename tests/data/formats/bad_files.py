"""Files that are broken in every way we could think of, and what the message must say of each."""

from __future__ import annotations

import gzip
import io
import lzma
import zipfile
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

Files = dict[str, bytes]
GOOD = b"2 4 3\n0,2 0:1 3:0.5\n1 1:2\n"
LINES = b'{"text": "a snowy owl", "labels": ["x"]}\n{"text": "the barn owl", "labels": ["y"]}\n'


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(*, packed: bool = True, **arrays: Any) -> bytes:
    """A CSR matrix of two rows and three columns, with some of its arrays replaced."""
    members: dict[str, Any] = {
        "format": np.array(b"csr"),
        "shape": np.array([2, 3]),
        "indptr": np.array([0, 1, 2], np.int32),
        "indices": np.array([0, 2], np.int32),
        "data": np.array([1.0, 1.0], np.float32),
    } | arrays
    buffer = io.BytesIO()
    save = np.savez_compressed if packed else np.savez
    save(buffer, **{name: array for name, array in members.items() if array is not None})
    return buffer.getvalue()


def raw_npz(**members: bytes) -> bytes:
    """The same matrix with members given as bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz())) as good, zipfile.ZipFile(buffer, "w") as archive:
        for name in good.namelist():
            archive.writestr(name, members.get(name.removesuffix(".npy"), good.read(name)))
    return buffer.getvalue()


def npy_header(text: str) -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def lying_npy(shape: str, dtype: str = "<f4", body: bytes = b"\0" * 16) -> bytes:
    return npy_header(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}") + body


def table(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def old(text: str) -> Files:
    return {"train.txt": text.encode()}


def new(x: str, y: str) -> Files:
    return {"trn_X_Xf.txt": x.encode(), "trn_X_Y.txt": y.encode()}


def jsonl(line: str) -> Files:
    return {"train.jsonl": LINES + line.encode() + b"\n"}


def pecos(x: bytes, y: bytes | None = None) -> Files:
    return {"X.trn.npz": x, "Y.trn.npz": npz() if y is None else y}


def dense(x: bytes, y: bytes | None = None) -> Files:
    return {"train.npy": x, "train.labels.npy": npy(np.array([0, 1])) if y is None else y}


VECTORS = npy(np.eye(2, dtype=np.float32))
TWICE = pa.array([[("x", 1.0), ("x", 2.0)]], pa.map_(pa.string(), pa.float64()))
PARQUET = table(text=["snowy owl", "barn owl"] * 50, labels=[["x"], ["y"]] * 50)

# name: files, the file that is blamed, its line (None where a line makes no sense), what the message says
CASES: dict[str, tuple[Files, str, int | None, str]] = {
    # headers and counts
    "no header": (old("0 1:1\n1 2:1\n"), "train.txt", 1, "wanted a header of 3 numbers: points features classes"),
    "header of two": (old("2 4\n0 0:1\n1 1:1\n"), "train.txt", 1, "found '2 4'; wanted a header of 3 numbers"),
    "header of words": (old("two 4 3\n"), "train.txt", 1, "found 'two 4 3'"),
    "negative header": (old("2 -4 3\n"), "train.txt", 1, "wanted a header"),
    "endless header": ({"train.txt": b"9" * 5000}, "train.txt", 1, "wanted a header"),
    "huge features": (old("2 4294967296 3\n"), "train.txt", 1, "wanted at most 2147483648"),
    "too many points": (old("1 4 3\n0 0:1\n1 1:1\n"), "train.txt", 3, "wanted the 1 points of the header"),
    "too few points": (old("3 4 3\n0 0:1\n1 1:1\n"), "train.txt", None, "found 2 points; wanted the 3 points"),
    "blanks of no use": (old("4 4 3\n0 0:1\n\n1 1:1\n"), "train.txt", None, "found 2 points and 1 blank lines"),
    "no points": (old("0 4 3\n"), "train.txt", None, "found no labels"),
    "empty file": (old(""), "train.txt", None, "found an empty file"),
    "no labels at all": (old("2 4 3\n 0:1\n 1:1\n"), "train.txt", None, "wanted at least one labelled training point"),
    "matrix too short": (new("2 4\n0:1\n", "2 3\n0:1\n1:1\n"), "trn_X_Xf.txt", None, "found 1 rows; wanted the 2 rows"),
    "matrix too long": (new("1 4\n0:1\n1:1\n", "1 3\n0:1\n"), "trn_X_Xf.txt", 3, "found more than 1 rows"),
    "ragged pair": (new("2 4\n0:1\n1:1\n", "3 3\n0:1\n1:1\n2:1\n"), "trn_X_Y.txt", None, "rows; wanted 2, as in"),
    "ragged pair, other way": (new("2 4\n0:1\n1:1\n", "1 3\n0:1\n"), "trn_X_Y.txt", None,
        "found 1 rows; wanted at least 2"),
    "labels of another size": (
        {"train.txt": GOOD, "test.txt": GOOD.replace(b"4 3", b"4 5", 1)}, "test.txt", None,
        "found 5 classes; wanted 3 classes, as in"),
    # numbers in sparse text
    "class too large": (old("2 4 3\n0 0:1\n3 1:1\n"), "train.txt", 3, "found '3'; wanted a class id below 3"),
    "negative class": (old("2 4 3\n0 0:1\n-1 1:1\n"), "train.txt", 3, "wanted a class id of 0 or more"),
    "feature too large": (old("2 4 3\n0 0:1\n1 4:1\n"), "train.txt", 3, "wanted a feature id below 4"),
    "negative feature": (old("2 4 3\n0 0:1\n1 -1:1\n"), "train.txt", 3, "wanted a feature id of 0 or more"),
    "text for a number": (old("2 4 3\n0 0:1\n1 1:owl\n"), "train.txt", 3, "found '1:owl'; wanted a decimal number"),
    "not a number": (old("2 4 3\n0 0:1\n1 1:nan\n"), "train.txt", 3, "wanted a finite value"),
    "infinite": (old("2 4 3\n0 0:-inf\n1 1:1\n"), "train.txt", 2, "wanted a finite value"),
    "too large for float32": (old("2 4 3\n0 0:1e39\n1 1:1\n"), "train.txt", 2, "wanted a value that float32 can hold"),
    "feature twice": (old("2 4 3\n0 0:1 0:2\n1 1:1\n"), "train.txt", 2, "found feature 0 twice"),
    "svmlight label": ({"train.svm": b"1.5 1:1\n"}, "train.svm", 1, "wanted whole-number labels"),
    "svmlight of comments": ({"train.svm": b"# nothing\n\n"}, "train.svm", None, "found no points"),
    "weight of zero or less": (new("1 4\n0:1\n", "1 3\n0:-1\n"), "trn_X_Xf.txt", None, "found the label weight -1.0"),
    # text
    "invalid UTF-8": ({"train.jsonl": LINES + b'{"text": "\xff"}\n'}, "train.jsonl", 3, "found byte 0xff at column 11"),
    "UTF-16": ({"train.csv": "text,labels\nowl,x\n".encode("utf-16")}, "train.csv", 1, "wanted UTF-8"),
    "NUL in csv": ({"train.csv": b"text,labels\no\0wl,x\n"}, "train.csv", 2, "found a NUL byte"),
    "broken JSON": (jsonl('{"text": "owl", '), "train.jsonl", 3, "wanted one JSON object per line"),
    "JSON list": (jsonl("[1, 2]"), "train.jsonl", 3, "found '[1, 2]'; wanted one JSON object"),
    "pretty JSON": ({"train.json": b'[\n {"text": "owl"}\n]'}, "train.json", 1, "wanted one JSON object per line"),
    "deep JSON": (jsonl('{"text": "owl", "labels": ' + "[" * 100_000 + "]" * 100_000 + "}"), "train.jsonl", 3, "JSON"),
    "JSON of many digits": (jsonl('{"text": "owl", "labels": [' + "9" * 5000 + "]}"), "train.jsonl", 3,
        "wanted a JSON"),
    "lone surrogate": (jsonl(r'{"text": "owl", "labels": ["\ud800"]}'), "train.jsonl", 3, "surrogates not allowed"),
    "lone surrogate within": (jsonl(r'{"text": "owl", "labels": "[\"\\ud800\"]"}'), "train.jsonl", 3,
        "a name or a whole"),
    "digits within": (jsonl('{"text": "owl", "labels": "[' + "9" * 5000 + ']"}'), "train.jsonl", 3,
        "a JSON list of labels"),
    "label 1.0": (jsonl('{"text": "owl", "labels": [1.0]}'), "train.jsonl", 3,
        "found the label '1.0'; wanted a name or"),
    "label true": (jsonl('{"text": "owl", "labels": true}'), "train.jsonl", 3, "found the label 'True'"),
    "label null": (jsonl('{"text": "owl", "labels": [null]}'), "train.jsonl", 3, "found the label 'None'"),
    "label empty": (jsonl('{"text": "owl", "labels": [""]}'), "train.jsonl", 3, "wanted a name or a whole number"),
    "label list in list": (jsonl('{"text": "owl", "labels": [["x"]]}'), "train.jsonl", 3, "wanted a name or a whole"),
    "label of the wrong kind": (jsonl('{"text": "owl", "labels": 0.5}'), "train.jsonl", 3, "wanted a list of labels"),
    "text of the wrong kind": (jsonl('{"text": 7, "labels": []}'), "train.jsonl", 3, "found '7' in column 'text'"),
    "weight null": (jsonl('{"text": "owl", "labels": {"x": null}}'), "train.jsonl", 3, "wanted a positive number"),
    "weight NaN": (jsonl('{"text": "owl", "labels": {"x": NaN}}'), "train.jsonl", 3, "wanted a positive number"),
    "weight of 400 digits": (jsonl('{"text": "owl", "labels": {"x": 1%s}}' % ("0" * 400)), "train.jsonl", 3,
        "a positive"),
    "weight beyond float32": (jsonl('{"text": "owl", "labels": {"x": 1e39}}'), "train.jsonl", 3, "float32 can hold"),
    "weight below float32": (jsonl('{"text": "owl", "labels": {"x": 1e-60}}'), "train.jsonl", 3, "float32 can hold"),
    "a row without labels column": (jsonl('{"text": "owl", "label": ["x"]}'), "train.jsonl", 3,
        "wanted a column 'labels'"),
    "weights that do not fit": (
        {"trn.json": b'{"title": "owl", "content": "", "target_ind": [1, 2], "target_rel": [1.0]}\n'}, "trn.json", 1,
        "wanted a weight per label"),
    "no known column": ({"train.jsonl": b'{"words": "owl", "labels": []}\n'}, "train.jsonl", 1, "a column for text"),
    "csv without columns": ({"train.csv": b"a,b\nowl,x\n"}, "train.csv", 2, "found columns 'a', 'b'; wanted a column"),
    "csv ragged": ({"train.csv": b'text,labels\n"two\nlines",x\nowl,x,y\n'}, "train.csv", 4, "found 3 cells; wanted 2"),
    "csv quote open": ({"train.csv": b'text,labels\nowl,x\n"open,x\nowl,x\n'}, "train.csv", 3, "wanted valid csv"),
    "csv column twice": ({"train.csv": b"text,labels,text\nowl,x,y\n"}, "train.csv", 1,
        "found the column 'text' twice"),
    "csv empty": ({"train.csv": b""}, "train.csv", None, "found no header"),
    "csv of a header": ({"train.csv": b"text,labels\n"}, "train.csv", None, "found no points"),
    "tsv with commas": ({"train.tsv": b"text,labels\nowl,x\n"}, "train.tsv", 2, "wanted a column for text"),
    "no token left": ({"train.jsonl": b'{"text": "- - !", "labels": ["x"]}\n'}, "train.jsonl", None, "no token"),
    "line labels": (
        {"X.trn.txt": b"owl\n", "Y.trn.txt": b"x\n"}, "Y.trn.txt", 1, "found 'x'; wanted a class number from 0"),
    "line label too large": (
        {"X.trn.txt": b"owl\n", "Y.trn.txt": b"9" * 5000}, "Y.trn.txt", 1, "wanted a class number from 0"),
    "fewer texts": (
        {"X.trn.txt": b"owl\n", "Y.trn.txt": b"0\n1\n"}, "Y.trn.txt", None, "found at least 2 rows; wanted 1"),
    # compression
    "gz cut": ({"train.txt.gz": gzip.compress(GOOD * 99)[:-9]}, "train.txt.gz", None, "damaged gz"),
    "gz broken": ({"train.txt.gz": gzip.compress(GOOD)[:15] + b"\xff" * 20}, "train.txt.gz", None, "damaged gz"),
    "gz with a tail": ({"train.txt.gz": gzip.compress(GOOD) + b"tail"}, "train.txt.gz", None, "damaged gz"),
    "gz empty": ({"train.txt": GOOD, "filter_labels_train.txt.gz": b""}, "filter_labels_train.txt.gz", None,
        "a gz stream"),
    "xz cut": ({"train.txt.xz": lzma.compress(GOOD)[:-20]}, "train.txt.xz", None, "damaged xz"),
    "xz broken": ({"train.txt.xz": lzma.compress(GOOD)[:30] + b"?" * 60}, "train.txt.xz", None, "damaged xz"),
    "zst cut": ({"train.txt.zst": pa.compress(GOOD, "zstd", asbytes=True)[:-3]}, "train.txt.zst", None, "damaged zst"),
    "zst broken": ({"train.txt.zst": b"\x28\xb5\x2f\xfd" + b"\xff" * 40}, "train.txt.zst", None, "damaged zst"),
    "a line of 100 MB": ({"train.txt.gz": b""}, "train.txt.gz", 2, "found a line of more than"),
    "a text of 100 MB": ({"train.jsonl.gz": b""}, "train.jsonl.gz", 1, "wanted at most 33,554,432"),
    # npz
    "npz cut": (pecos(npz()[:-30]), "X.trn.npz", None, "an archive that cannot be read"),
    "npz of another form": (pecos(npz(format=np.array(b"csc"))), "X.trn.npz", None,
        "found a matrix in the form b'csc'"),
    "npz format a number": (pecos(npz(format=np.array(10**12))), "X.trn.npz", None, "cannot be read"),
    "npz format a float": (pecos(npz(format=np.array(0.5))), "X.trn.npz", None, "cannot be read"),
    "npz without indices": (pecos(npz(indices=None)), "X.trn.npz", None, "indices.npy"),
    "npz shape of reals": (pecos(npz(shape=np.array([2.0, 3.0]))), "X.trn.npz", None, "cannot be read"),
    "npz shape of three": (pecos(npz(shape=np.array([2, 3, 1]))), "X.trn.npz", None, "cannot be read"),
    "npz shape negative": (pecos(npz(shape=np.array([-2, 3]))), "X.trn.npz", None, "found shape [-2, 3]"),
    "npz rows that lie": (pecos(npz(shape=np.array([10**15, 3]))), "X.trn.npz", None, "mismatched lengths"),
    "npz columns that lie": (pecos(npz(shape=np.array([2, 10**15]))), "X.trn.npz", None, "at most 2147483648 columns"),
    "npz offsets that lie": (pecos(npz(indptr=np.array([0, 9, 2]))), "X.trn.npz", None,
        "offsets out of order near row 0"),
    "npz offsets that wrap": (
        pecos(npz(indptr=np.array([0, 2**63 - 1, -(2**63) + 2]))), "X.trn.npz", None, "offsets out of order"),
    "npz first offset": (pecos(npz(indptr=np.array([1, 1, 2]))), "X.trn.npz", None, "mismatched lengths"),
    "npz entries left": (pecos(npz(indptr=np.array([0, 1, 1]))), "X.trn.npz", None, "1 entries after the last row"),
    "npz reals as indices": (pecos(npz(indices=np.array([0.0, np.nan]))), "X.trn.npz", None, "cannot be read"),
    "npz complex": (pecos(npz(data=np.array([1j, 1]))), "X.trn.npz", None, "cannot be read"),
    "npz objects": (pecos(npz(data=np.array([None, 1], object))), "X.trn.npz", None, "cannot be read"),
    "npz records": (pecos(npz(data=np.zeros(2, "i4,f4"))), "X.trn.npz", None, "cannot be read"),
    "npz index too large": (pecos(npz(indices=np.array([0, 3]))), "X.trn.npz", None,
        "found column 3 in row 1; wanted 0 to 2"),
    "npz index negative": (pecos(npz(indices=np.array([-1, 2]))), "X.trn.npz", None, "found column -1 in row 0"),
    "npz column twice": (
        pecos(npz(indptr=np.array([0, 0, 2]), indices=np.array([2, 2]))), "X.trn.npz", None, "column 2 twice in row 1"),
    "npz NaN": (pecos(npz(data=np.array([1, np.nan]))), "X.trn.npz", None, "found the value nan in row 1"),
    "npz beyond float32": (pecos(npz(data=np.array([1e39, 1]))), "X.trn.npz", None, "finite in float32"),
    "npz label weights": (pecos(npz(), npz(data=np.array([1.0, -1.0]))), "X.trn.npz", None, "the label weight -1.0"),
    "npz without labels": ({"X.trn.npz": npz()}, "X.trn.npz", None, "found no labels next to it"),
    "npz lies about items": (
        pecos(raw_npz(data=lying_npy("(1000000000000000,)"))), "X.trn.npz", None, "mismatched lengths"),
    "npz promises too much": (
        pecos(raw_npz(shape=lying_npy("(1000000000000000,)", "<i8"))), "X.trn.npz", None, "cannot be read"),
    "npz ends early": (pecos(raw_npz(data=lying_npy("(2,)", "<f4", b"\0" * 5))), "X.trn.npz", None, "ends too early"),
    "npz goes on": (pecos(raw_npz(data=lying_npy("(2,)", "<f4", b"\0" * 50))), "X.trn.npz", None, "more bytes"),
    # npy
    "npy cut": (dense(VECTORS[:-1]), "train.npy", None, "bytes where its header states"),
    "npy empty": (dense(b""), "train.npy", None, "cannot be read"),
    "npy that is a zip": (dense(npz()), "train.npy", None, "wanted an array of numpy.save"),
    "npy of 10^15 rows": (dense(lying_npy("(1000000000000000, 2)")), "train.npy", None, "header states"),
    "npy of 10^30 rows": (dense(lying_npy(f"({10**30}, 2)")), "train.npy", None, "header states"),
    "npy without width": (dense(lying_npy("(1000000000000000, 0)", body=b"")), "train.npy", None,
        "points x dimensions"),
    "npy negative": (dense(lying_npy("(-2, 2)")), "train.npy", None, "cannot be read"),
    "npy header of brackets": (dense(npy_header("(" * 3000)), "train.npy", None, "cannot be read"),
    "npy header cut": (dense(npy_header("{'descr': '<f4")), "train.npy", None, "cannot be read"),
    "npy header of Python 2": (dense(lying_npy("(2L, 2L)", "<f4", b"\0\0\xc0\x7f" * 4)), "train.npy", None,
        "found nan"),
    "npy objects": (dense(npy(np.array([[None]]), allow_pickle=True)), "train.npy", None, "cannot be read"),
    "npy records": (dense(npy(np.zeros((2, 2), "i4,f4"))), "train.npy", None, "wanted numbers, points x dimensions"),
    "npy one axis": (dense(npy(np.zeros(4))), "train.npy", None, "wanted numbers, points x dimensions"),
    "npy complex": (dense(npy(np.zeros((2, 2), complex))), "train.npy", None, "wanted numbers"),
    "npy infinite": (dense(npy(np.array([[1, 2], [3, np.inf]]))), "train.npy", None, "found inf in row 1, column 1"),
    "npy beyond float32": (dense(npy(np.array([[1, 2], [3, -1e39]]))), "train.npy", None, "finite in float32"),
    "npy labels too low": (dense(VECTORS, npy(np.array([0, -2]))), "train.labels.npy", None, "found -2 in row 1"),
    "npy labels too large": (
        dense(VECTORS, npy(np.array([0, 2**31], np.uint64))), "train.labels.npy", None, "found 2147483648 in row 1"),
    "npy labels of reals": (dense(VECTORS, npy(np.array([0.0, 1.0]))), "train.labels.npy", None,
        "one integer per point"),
    "npy labels ragged": (dense(VECTORS, npy(np.array([0]))), "train.labels.npy", None,
        "found 1 rows; wanted at least 2"),
    "npy of another width": (
        {**dense(VECTORS), "test.npy": npy(np.eye(3)), "test.labels.npy": npy(np.array([0, 1, 1]))}, "test.npy", None,
        "found 3 features; wanted 2 features"),
    # parquet
    "parquet cut": ({"train.parquet": PARQUET[:-9]}, "train.parquet", None, "wanted parquet"),
    "parquet of noise": ({"train.parquet": b"PAR1" + b"\xff" * 200 + b"PAR1"}, "train.parquet", None, "wanted parquet"),
    "parquet empty": ({"train.parquet": b""}, "train.parquet", None, "wanted parquet"),
    "parquet without rows": (
        {"train.parquet": table(text=pa.array([], pa.string()), labels=pa.array([], pa.string()))}, "train.parquet",
        None, "found no points"),
    "parquet columns": ({"train.parquet": table(a=["owl"], b=["x"])}, "train.parquet", None, "found columns 'a', 'b'"),
    "parquet numbers": ({"train.parquet": table(text=["owl"], labels=[0.5])}, "train.parquet", None, "in row 0"),
    "parquet bytes": ({"train.parquet": table(text=[b"owl"], labels=["x"])}, "train.parquet", None, "wanted text"),
    "parquet null label": ({"train.parquet": table(text=["owl"], labels=[["x", None]])}, "train.parquet", None,
        "'None'"),
    "parquet key twice": (

        {"train.parquet": table(text=["owl"], labels=TWICE)},
        "train.parquet", None, "cannot be read"),
    # what lies beside
    "filter of words": ({"train.txt": GOOD, "filter_labels_train.txt": b"0 a\n"}, "filter_labels_train.txt", 1,
        "two numbers"),
    "filter of three": ({"train.txt": GOOD, "filter_labels_train.txt": b"0 1 2\n"}, "filter_labels_train.txt", 1,
        "two numbers"),
    "filter too large": (
        {"train.txt": GOOD, "filter_labels_train.txt": b"0 1\n2 1\n"}, "filter_labels_train.txt", 2, "a point below 2"),
    "filter class": (
        {"train.txt": GOOD, "filter_labels_train.txt": b"0 3\n"}, "filter_labels_train.txt", 1, "a class below 3"),
    "filter of 5000 digits": (
        {"train.txt": GOOD, "filter_labels_train.txt": b"0 " + b"9" * 5000}, "filter_labels_train.txt", 1,
        "two numbers"),
    "names without tab": ({"train.txt": GOOD, "labels.tsv": b"0 owl\n"}, "labels.tsv", 1, "wanted a label, a tab"),
    "names of no JSON": ({"train.txt": GOOD, "lbl.json": b'{"title": "x"}\n{"name": 1}\n'}, "lbl.json", 2,
        "with a title"),
    "name null": ({"train.txt": GOOD, "lbl.json": b'{"title": null}\n'}, "lbl.json", 1, "a JSON object with a title"),
    "name of digits": ({"train.txt": GOOD, "lbl.json": b'{"title": %s}\n' % (b"9" * 5000)}, "lbl.json", 1,
        "with a title"),
    "name surrogate": ({"train.txt": GOOD, "lbl.json": rb'{"title": "\udc00"}'}, "lbl.json", 1, "with a title"),
    "class features": ({"train.txt": GOOD, "Yf.txt": b"2 4\n0:1\n1:1\n"}, "Yf.txt", None, "found 2 rows; wanted 3"),
    "class features real": (
        {"train.txt": b"2 4 2\n0 0:1\n1 1:2\n", "Yf.txt": b"2 4\n0:1\n1:0.5\n"}, "Yf.txt", None, "not whole counts"),
    "split list": (
        {"a_data.txt": GOOD, "a_trSplit.txt": b"1\n", "a_tstSplit.txt": b"3\n"}, "a_tstSplit.txt", 1,
        "a point from 1 to 2"),
    "split list of zero": (
        {"a_data.txt": GOOD, "a_trSplit.txt": b"0\n", "a_tstSplit.txt": b"2\n"}, "a_trSplit.txt", 1,
        "a point from 1 to 2"),
    "split list of 5000 digits": (
        {"a_data.txt": GOOD, "a_trSplit.txt": b"1\n", "a_tstSplit.txt": b"1" * 5000}, "a_tstSplit.txt", 1,
        "a point from"),
    "split list empty": (
        {"a_data.txt": GOOD, "a_trSplit.txt": b"\n", "a_tstSplit.txt": b"1\n"}, "a_trSplit.txt", None, "an empty list"),
    "split list beside blanks": (
        {"a_data.txt": GOOD.replace(b"\n1", b"\n\n1"), "a_trSplit.txt": b"1\n", "a_tstSplit.txt": b"2\n"}, "a_data.txt",
        None, "1 stray blank lines"),
    "two split lists": (
        {"a_data.txt": GOOD, "a_trSplit.txt": b"1\n", "b_trSplit.txt": b"1\n", "a_tstSplit.txt": b"2\n"},
        "b_trSplit.txt", None, "found a second trSplit file next to a_trSplit.txt"),
    "two train files": ({"train.txt": GOOD, "a_train.txt.gz": gzip.compress(GOOD)}, "train.txt", None,
        "a second train file"),
}  # fmt: skip
