"""Every engine reads back what was written, and the three agree bit for bit on well-formed text."""

from __future__ import annotations

import io
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from owlmine.data import sparse_text, sparse_text_numpy
from owlmine.data import sparse_text as sparse_text_compiled
from owlmine.data.rows import SparseRows
from owlmine.data.sparse_text import Grammar, ParsedBlock, compiled_module, parse_block

needs_build = pytest.mark.skipif(
    compiled_module() is None, reason="owlmine.data._sparse_text is not built (no C compiler at install time)"
)
COMPILED = pytest.param("compiled", marks=needs_build)
every_engine = pytest.mark.parametrize("engine", ["plain", "numpy", COMPILED])
fast_engines = pytest.mark.parametrize("engine", ["numpy", COMPILED])
BUILT = ["plain", "numpy"] + ([] if compiled_module() is None else ["compiled"])


def parse(data: bytes, engine: str, grammar: Grammar = Grammar.LABELLED, **bounds: int | None) -> ParsedBlock:
    bounds = {"num_features": None, "num_classes": None, **bounds}
    return parse_block(data, grammar=grammar, path="a.txt", first_line=1, engine=engine, **bounds)


def as_lists(rows: SparseRows) -> list[list[float]]:
    entries = rows.indices if rows.values is None else np.stack([rows.indices, rows.values], 1)
    return [part.tolist() for part in np.split(entries, rows.offsets[1:-1])] if len(rows) else []


def assert_same(one: ParsedBlock, other: ParsedBlock) -> None:
    for a, b in ((one.features, other.features), (one.labels, other.labels)):
        assert (a.offsets.dtype, a.indices.dtype) == (b.offsets.dtype, b.indices.dtype)
        np.testing.assert_array_equal(a.offsets, b.offsets)
        np.testing.assert_array_equal(a.indices, b.indices)
    assert one.features.values is not None
    assert other.features.values is not None
    # As bits, so that -0.0 differs from 0.0.
    np.testing.assert_array_equal(one.features.values.view(np.int32), other.features.values.view(np.int32))
    assert (one.labels.values, one.crlf_lines, one.duplicate_labels) == (
        other.labels.values,
        other.crlf_lines,
        other.duplicate_labels,
    )


ids = st.integers(0, 2**31 - 1) | st.integers(0, 99)
number_texts = st.one_of(
    st.integers(0, 20).map(str),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e30, 1e30).map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.6f}"),
    st.from_regex(r"\A[+-]?([0-9]{1,24}(\.[0-9]{0,24})?|\.[0-9]{1,24})([eE][+-]?[0-9]{1,2})?\Z").filter(
        lambda text: abs(float(text)) < 3.4e38
    ),
)
blanks = st.text(" \t", min_size=1, max_size=3)


@st.composite
def written_rows(draw: st.DrawFn, grammar: Grammar) -> tuple[bytes, list[list[int]], list[list[list[float]]], int]:
    """A block as text, and what was meant: labels, features and the number of CRLF lines."""
    text, all_labels, all_features, crlf_lines = "", [], [], 0
    for _ in range(draw(st.integers(0, 6))):
        label_ids = ids if grammar is Grammar.LABELLED else ids.flatmap(lambda i: st.sampled_from([i, -i]))
        labels = [] if grammar is Grammar.MATRIX else draw(st.lists(label_ids, max_size=4))
        features = draw(st.lists(st.tuples(ids, number_texts), max_size=6, unique_by=lambda pair: pair[0]))
        line = ",".join(map(str, labels))
        if grammar is Grammar.SVMLIGHT and draw(st.booleans()):
            line += draw(blanks) + "qid:17"
        for feature_id, number in features:
            line += draw(blanks) + f"{feature_id}:{number}"
        line += draw(st.just("") | blanks)
        if grammar is Grammar.SVMLIGHT and draw(st.booleans()):
            line += "# a: remark, é"
        end = draw(st.sampled_from(["\n", "\r\n"]))
        text += line + end
        crlf_lines += end == "\r\n"
        all_labels.append(list(dict.fromkeys(labels)))
        all_features.append([[float(i), float(np.float32(float(number)))] for i, number in features])
    return text.encode(), all_labels, all_features, crlf_lines


@pytest.mark.parametrize("grammar", list(Grammar))
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_every_engine_reads_back_what_was_written(grammar: Grammar, data: st.DataObject) -> None:
    text, labels, features, crlf_lines = data.draw(written_rows(grammar))
    for engine in BUILT:
        block = parse(text, engine, grammar)
        assert as_lists(block.labels) == labels
        assert as_lists(block.features) == features
        assert block.crlf_lines == crlf_lines
        assert block.blank_rows.tolist() == [i for i in range(len(labels)) if not labels[i] and not features[i]]
        assert (block.features.indices.dtype, block.labels.indices.dtype) == (np.int32, np.int64)
        assert_same(block, parse(text, "plain", grammar))


def sorted_block(seed: int, num_rows: int) -> bytes:
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(num_rows):
        feature_ids = np.sort(rng.choice(9_000, rng.integers(1, 40), replace=False))
        values = rng.integers(1, 9, len(feature_ids)) if rng.random() < 0.5 else rng.random(len(feature_ids)).round(6)
        pairs = " ".join(f"{i}:{v:f}" if v < 1 else f"{i}:{v:.0f}" for i, v in zip(feature_ids, values, strict=True))
        labels = ",".join(map(str, np.unique(rng.integers(0, 500, 3))))
        lines.append(f"{labels} {pairs}\n")
    return "".join(lines).encode()


@fast_engines
def test_scikit_learn_reads_the_same(engine: str) -> None:
    text = sorted_block(3, 300)
    theirs, their_labels = load_svmlight_file(
        io.BytesIO(text), n_features=9_000, dtype=np.float32, multilabel=True, zero_based=True
    )
    ours = parse(text, engine, Grammar.SVMLIGHT)
    assert (ours.features.to_scipy(9_000) != theirs).nnz == 0
    assert as_lists(ours.labels) == [sorted(labels) for labels in their_labels]


@fast_engines
@pytest.mark.parametrize("grammar", [Grammar.LABELLED, Grammar.SVMLIGHT])
def test_ordinary_lines_are_not_handed_over(engine: str, grammar: Grammar, monkeypatch: pytest.MonkeyPatch) -> None:
    text = sorted_block(4, 200).replace(b"\n", b"\r\n", 50) + b" 7:-2.5\t3:+4 \n9:0.25\n\n8\n"
    if grammar is Grammar.SVMLIGHT:
        text += b"-1,+3 5:1\n"
    expected = parse(text, "plain", grammar)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a well-formed line went to the plain engine")

    monkeypatch.setattr(sparse_text_numpy, "parse_line", refuse)
    monkeypatch.setattr(sparse_text_compiled, "parse_line", refuse)
    assert_same(parse(text, engine, grammar), expected)


def hard_numbers() -> list[str]:
    """Decimals on and beside the middle between two floats or two doubles, where the last digit decides."""
    rng = np.random.default_rng(8)
    texts = []
    for exponent in rng.integers(-20, 20, 60):
        low = np.float32(rng.random() * 2.0**exponent)
        middle = (Decimal(float(low)) + Decimal(float(np.nextafter(low, np.float32(np.inf))))) / 2
        texts += [
            f"{middle:f}",
            f"{middle:f}0000000000000001",
            f"{middle:.17g}",
            f"{middle:.15g}",
            f"{middle:.20f}",
        ]
        double = float(rng.random() * 2.0**exponent)
        texts.append(f"{(Decimal(double) + Decimal(np.nextafter(double, np.inf))) / 2:f}")
    return texts


EDGE_NUMBERS = (
    "1e-50 5e-324 1e-45 7e-46 1.4e-45 1.17549435e-38 3.4028235e38 3.40282356e38 -3.4028234663852886e38",
    ".5 1. +1 -0 -0.0 0 00 0e999 0.0e-999 1E+5 1e+05 1e-0005 1e00005 0.1234567890123456789",
    "9007199254740992 9007199254740993 9007199254740991e22 9007199254740993e-22 1e22 1e23 1e-22 1e-23",
    "18446744073709551616 99999999999999999999 16777217 16777219 0.000000000000000000000000000000000001",
    "123456789012345.6 12345678901234.56 999999999999999.9",
    "1" + "0" * 38,
    "0" * 5000 + "1",
    "0." + "0" * 5000 + "1",
    "1." + "0" * 5000,
)


@every_engine
def test_values_are_the_float32_of_the_nearest_double(engine: str) -> None:
    texts = " ".join(EDGE_NUMBERS).split() + hard_numbers()
    block = parse("".join(f"{i}:{text}\n" for i, text in enumerate(texts)).encode(), engine, Grammar.MATRIX)
    expected = np.array([float(text) for text in texts]).astype(np.float32)
    assert block.features.values is not None
    np.testing.assert_array_equal(block.features.values.view(np.int32), expected.view(np.int32))


@every_engine
def test_small_things_about_lines(engine: str) -> None:
    empty = parse(b"", engine)
    assert (len(empty.features), len(empty.labels), empty.blank_rows.tolist()) == (0, 0, [])
    assert len(parse(b"\n", engine).features) == len(parse(b" ", engine).features) == 1
    block = parse(b"3\n \t\r\n\n4,4,3,4 0002:1\n 7:2\n8:3\r\n5 1:1", engine)
    assert as_lists(block.labels) == [[3], [], [], [4, 3], [], [], [5]]
    assert as_lists(block.features) == [[], [], [], [[2, 1]], [[7, 2]], [[8, 3]], [[1, 1]]]
    assert (block.crlf_lines, block.duplicate_labels, block.blank_rows.tolist()) == (2, 2, [1, 2])
    svmlight = parse(b"# remark\n+1,-1,2.0,-0 qid:3 1:2#x\n qid:4\n1e3", engine, Grammar.SVMLIGHT)
    assert as_lists(svmlight.labels) == [[], [1, -1, 2, 0], [], [1000]]
    assert svmlight.blank_rows.tolist() == [0, 2]


@every_engine
def test_ids_up_to_the_bounds(engine: str) -> None:
    block = parse(b"2147483647 2147483647:1 0:1\n", engine)
    assert block.features.indices.tolist() == [2147483647, 0]
    assert block.labels.indices.tolist() == [2147483647]
    assert len(parse(b"4 6:1\n", engine, num_features=7, num_classes=5).features) == 1
    assert len(parse(b"4 6:1\n", engine, num_features=2**40, num_classes=2**40).features) == 1


@fast_engines
def test_where_a_block_is_cut_does_not_matter(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text_numpy, "_CHUNK_BYTES", 700)
    text = sorted_block(5, 60) + b"\n11:3\n" + b"4,4 3:.5 2:1\n" + sorted_block(6, 20)[:-1]
    whole = parse(text, "plain")
    assert_same(parse(text, engine), whole)
    for cut in (text.index(b"\n") + 1, text.index(b"\n", 5_000) + 1):
        parts = [parse(text[:cut], engine), parse(text[cut:], engine)]
        assert [row for part in parts for row in as_lists(part.features)] == as_lists(whole.features)
        assert [row for part in parts for row in as_lists(part.labels)] == as_lists(whole.labels)


@every_engine
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_of_three_megabytes(engine: str, end: bytes) -> None:
    order = np.random.default_rng(0).permutation(300_000)
    line = b"1,2 " + b" ".join(b"%d:%d" % (i, i % 9) for i in order.tolist())
    block = parse(line + end, engine)
    assert len(line) > 2_500_000
    np.testing.assert_array_equal(block.features.indices, order)
    np.testing.assert_array_equal(block.features.values, order % 9)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="num_features is -1; wanted None or"):
        parse(b"", "plain", num_features=-1)
    with pytest.raises(ValueError, match="engine is 'fast'; wanted one of auto, compiled, numpy, plain"):
        parse(b"", "fast")


@needs_build
def test_auto_takes_the_compiled_engine_where_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def record(data: bytes, *_: object, **__: object) -> str:
        calls.append(data)
        return "compiled"

    monkeypatch.setattr(sparse_text, "parse_compiled", record)
    assert parse(b"1 2:3\n", "auto") == "compiled"
    assert calls == [b"1 2:3\n"]


def test_without_the_build_auto_takes_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text, "compiled_module", lambda: None)
    monkeypatch.setattr(sparse_text, "parse_numpy", lambda *_, **__: "numpy")
    assert parse(b"1 2:3\n", "auto") == "numpy"
    with pytest.raises(ValueError, match="which was not built here"):
        parse(b"", "compiled")
