"""What the grammar refuses, every engine refuses in the same words, whatever the bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from owlmine.data import sparse_text_numpy
from owlmine.data.sparse_text import Grammar, ParsedBlock, compiled_module, parse_block
from owlmine.errors import DataError

NOT_BUILT = "owlmine.data._sparse_text is not built (no C compiler at install time)"
needs_build = pytest.mark.skipif(compiled_module() is None, reason=NOT_BUILT)
COMPILED = pytest.param("compiled", marks=needs_build)
L, M, S = Grammar.LABELLED, Grammar.MATRIX, Grammar.SVMLIGHT

# (grammar, line, found, wanted), with 50 features and 20 classes.
REFUSED = [
    (L, b"1 x:1", "'x:1'", "a feature id of plain digits"),
    (L, b"1 :1", "':1'", "a feature id of plain digits"),
    (L, b"1 +3:1", "'+3:1'", "a feature id of plain digits"),
    (L, b"1 3.0:1", "'3.0:1'", "a feature id of plain digits"),
    (L, b"1 1_0:1", "'1_0:1'", "a feature id of plain digits"),
    (L, "1 ٣:1".encode(), "'٣:1'", "a feature id of plain digits"),
    (L, b"1,2:3", "'1,2:3'", "a feature id of plain digits"),
    (L, b"qid:3 1:1", "'qid:3'", "a feature id of plain digits"),
    (L, b"1 -3:1", "'-3:1'", "a feature id of 0 or more"),
    (L, b"1 50:1", "'50:1'", "a feature id below 50"),
    (L, b"1 99999999999999999999999:1", "'99999999999999999999999:1'", "a feature id below 50"),
    (L, b"1 18446744073709551617:1", "'18446744073709551617:1'", "a feature id below 50"),
    (L, b"1 5", "'5'", "a pair id:value"),
    (L, b" 5", "'5'", "a pair id:value"),
    (L, b"1 2:3 # note", "'#'", "a pair id:value"),
    (M, b"5", "'5'", "a pair id:value"),
    (M, b"1,2 5:1", "'1,2'", "a pair id:value"),
    (L, b"1 5:", "'5:'", "a decimal number after ':'"),
    (L, b"1 5:x", "'5:x'", "a decimal number after ':'"),
    (L, b"1 5:1:2", "'5:1:2'", "a decimal number after ':'"),
    (L, b"1 5:1,2", "'5:1,2'", "a decimal number after ':'"),
    (L, b"1 5:1_0", "'5:1_0'", "a decimal number after ':'"),
    (L, b"1 5:0x1p3", "'5:0x1p3'", "a decimal number after ':'"),
    (L, b"1 5:.", "'5:.'", "a decimal number after ':'"),
    (L, b"1 5:1e", "'5:1e'", "a decimal number after ':'"),
    (L, b"1 5:1e+", "'5:1e+'", "a decimal number after ':'"),
    (L, b"1 5:--1", "'5:--1'", "a decimal number after ':'"),
    (L, b"1 5:1-1", "'5:1-1'", "a decimal number after ':'"),
    (L, b"1 5:1.2.3", "'5:1.2.3'", "a decimal number after ':'"),
    (L, b"1 5:1\x00", r"'5:1\x00'", "a decimal number after ':'"),
    (L, b"1 5:1\r6:1", r"'5:1\r6:1'", "a decimal number after ':'"),
    (L, b"1 5:1\x0b", r"'5:1\x0b'", "a decimal number after ':'"),
    (L, b"1 5:1\xff", r"'5:1\\xff'", "a decimal number after ':'"),
    (L, b"1 5:nan", "'5:nan'", "a finite value"),
    (L, b"1 5:-NaN", "'5:-NaN'", "a finite value"),
    (L, b"1 5:INF", "'5:INF'", "a finite value"),
    (M, b"5:-Infinity", "'5:-Infinity'", "a finite value"),
    (L, b"1 5:1e39", "'5:1e39'", "a value that float32 can hold"),
    (L, b"1 5:-3.4028236e38", "'5:-3.4028236e38'", "a value that float32 can hold"),
    (L, b"1 5:1e99999999999999999999", "'5:1e99999999999999999999'", "a value that float32 can hold"),
    (L, b"1 5:" + b"9" * 400, "'5:" + "9" * 58 + "…'", "a value that float32 can hold"),
    (L, b"1 5:1 6:1 5:2", "feature 5 twice", "each feature at most once in a row"),
    (L, b"1 5:1 6:1 05:1", "feature 5 twice", "each feature at most once in a row"),
    (M, b"5:1 5:1", "feature 5 twice", "each feature at most once in a row"),
    (L, b"x 5:1", "'x'", "a class id of plain digits"),
    (L, b"1,x 5:1", "'x'", "a class id of plain digits"),
    (L, b"1, 5:1", "'1,'", "a class id of plain digits"),
    (L, b",1 5:1", "',1'", "a class id of plain digits"),
    (L, b"1,,2 5:1", "'1,,2'", "a class id of plain digits"),
    (L, b"2.0 5:1", "'2.0'", "a class id of plain digits"),
    (L, b"1\r 5:1", r"'1\r'", "a class id of plain digits"),
    (L, b"-1 5:1", "'-1'", "a class id of 0 or more"),
    (L, b"1,20 5:1", "'20'", "a class id below 20"),
    (L, b"4294967297 5:1", "'4294967297'", "a class id below 20"),
    (S, b"1.5 5:1", "'1.5'", "whole-number labels separated by commas"),
    (S, b"1, 5:1", "'1,'", "whole-number labels separated by commas"),
    (S, b"+ 5:1", "'+'", "whole-number labels separated by commas"),
    (S, b"nan 5:1", "'nan'", "whole-number labels separated by commas"),
    (S, b"1e400 5:1", "'1e400'", "whole-number labels separated by commas"),
    (S, b"-1 5:1", "'-1'", "labels from 0 to 19"),
    (S, b"20 5:1", "'20'", "labels from 0 to 19"),
    (S, b"+1:3", "'+1:3'", "a feature id of plain digits"),
    (S, b"1 qid:x 5:1", "'qid:x'", "a query id of plain digits after 'qid:'"),
    (S, b"1 5:1 qid:3", "'qid:3'", "a feature id of plain digits"),
]


@pytest.mark.parametrize("engine", ["plain", "numpy", COMPILED])
@pytest.mark.parametrize(("grammar", "line", "found", "wanted"), REFUSED)
def test_refused_lines(engine: str, grammar: Grammar, line: bytes, found: str, wanted: str) -> None:
    good = b"5:1 9:2\r\n" if grammar is M else b"3,4 5:1 9:2\r\n"
    # A second bad line after the first must not be the one that is reported; neither must the end matter.
    for before, after in ((good * 3 + b"\n", b"\nx\n"), (b"", b"\r\n" + good), (good, b"")):
        with pytest.raises(DataError) as caught:
            parse_block(
                before + line + after,
                grammar=grammar,
                num_features=50,
                num_classes=20,
                path="some/a.txt",
                first_line=2,
                engine=engine,
            )
        number = 2 + before.count(b"\n")
        assert str(caught.value) == f"some/a.txt, line {number}: found {found}; wanted {wanted}"
        assert caught.value.line == number


@pytest.mark.parametrize("engine", ["plain", "numpy", COMPILED])
@pytest.mark.parametrize(
    ("grammar", "line", "wanted"),
    [
        (L, b"1 2147483648:1", "a feature id below 2147483648"),
        (L, b"2147483648 1:1", "a class id below 2147483648"),
        (S, b"-2147483648 1:1", "labels from -2147483647 to 2147483647"),
    ],
)
def test_ids_end_at_31_bits_without_a_bound(engine: str, grammar: Grammar, line: bytes, wanted: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_block(line, grammar=grammar, num_features=None, num_classes=None, path="a", first_line=1, engine=engine)
    assert caught.value.wanted == wanted


# ---- mutated bytes ----

SEEDS = {
    L: b"1,2 3:1 7:2 30:1\n5 2:1.5 4:.5\r\n 8:2e1 9:-3\n\n7,7 1:1\t 2:0.123456\n12 9:1 3:2 ",
    M: b"3:1 7:2 30:1\n2:1.5 4:.5\r\n 8:2e1 9:-3\n\n1:1\t 2:0.12345678901234567\n9:1 3:2 ",
    S: b"6 3:1 7:2 30:1\n+5,2.0 qid:4 2:1.5 # no\r\n 8:2e1 9:-3\n#\n7,-0 1:1\t 2:0.123456\n1 9:1 3:2 ",
}
ALPHABET = b"0123456789 " * 12 + b"::::....,,\t\n\n\r+-eE#qid_nai\x00\x0b\xff\xc3"


def mutated(text: bytes, rng: random.Random) -> bytes:
    data = bytearray(text)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[place : place + 1] = bytes([rng.choice(ALPHABET)])
        elif kind == 1:
            data[place:place] = bytes(rng.choices(ALPHABET, k=rng.choice((1, 1, 3))))
        elif kind == 2:
            del data[place : place + rng.choice((1, 1, 2, 12))]
        elif kind == 3:
            data[place:place] = data[place : place + rng.randrange(1, 20)]
        elif place < len(data):
            data[place] ^= 1 << rng.randrange(8)
    return bytes(data)


def outcome(data: bytes, grammar: Grammar, engine: str, bound: int | None) -> ParsedBlock | str:
    try:
        return parse_block(
            data,
            grammar=grammar,
            num_features=bound,
            num_classes=bound,
            path="a",
            first_line=1,
            engine=engine,
        )
    except DataError as error:
        return str(error)


def bits(block: ParsedBlock | str) -> object:
    """Equal for equal outcomes; arrays with their types, values as bits."""
    if isinstance(block, str):
        return block
    arrays = (block.features.offsets, block.features.indices, block.labels.offsets, block.labels.indices)
    assert block.features.values is not None
    values = block.features.values.view(np.int32).tolist()
    return [(a.dtype, a.tolist()) for a in arrays], values, block.crlf_lines, block.duplicate_labels


@pytest.mark.parametrize("engine", ["numpy", COMPILED])
@pytest.mark.parametrize("grammar", list(Grammar))
def test_mutated_bytes_have_one_outcome(engine: str, grammar: Grammar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text_numpy, "_CHUNK_BYTES", 40)  # several chunks in so small a text
    rng = random.Random(grammar.name)
    assert isinstance(outcome(SEEDS[grammar], grammar, "plain", 31), ParsedBlock)
    accepted = 0
    for case in range(2500):
        data = mutated(SEEDS[grammar], rng)
        if case % 5 == 0:
            data = bytes(rng.choices(ALPHABET, k=rng.randrange(25)))
        bound = rng.choice((None, None, 8, 31, 1000))
        expected = outcome(data, grammar, "plain", bound)
        accepted += isinstance(expected, ParsedBlock)
        assert bits(outcome(data, grammar, engine, bound)) == bits(expected), (data, bound)
    assert 300 < accepted < 2200  # neither way is rare


# ---- the extension by itself: it must refuse what would lead it outside its buffers ----


def c_arguments(data: bytes, *, room: int) -> dict[str, object]:
    return {
        "data": data,
        "start": 0,
        "stop": len(data),
        "rules": (True, False, 100, 0, 100),
        "rows": 0,
        "feature_offsets": np.zeros(room + 1, np.int64),
        "feature_ids": np.zeros(room, np.int32),
        "values": np.zeros(room, np.float32),
        "label_offsets": np.zeros(room + 1, np.int64),
        "labels": np.zeros(room, np.int64),
    }


@needs_build
@pytest.mark.parametrize(
    "change",
    [
        {"start": -1},
        {"start": 99},
        {"stop": 5},
        {"stop": 99},
        {"rows": -1},
        {"rows": 5},
        {"feature_offsets": np.full(5, 99)},
        {"label_offsets": np.full(5, -1)},
        {"labels": np.zeros(33, np.uint8)[1:]},
        {"feature_offsets": np.zeros(0, np.int64)},
    ],
)
def test_the_extension_refuses_places_outside_its_buffers(change: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    arguments = c_arguments(b"1 2:3\n4 5:6\n", room=4) | change
    with pytest.raises(ValueError, match="do not fit the buffers"):
        extension.parse(*arguments.values())


@needs_build
def test_the_extension_stops_where_the_room_ends() -> None:
    extension = compiled_module()
    assert extension is not None
    data = b"1 2:3\n4 5:6\n7 8:9\n"
    for name, size in (("feature_ids", 2), ("values", 2), ("labels", 2), ("feature_offsets", 3)):
        arguments = c_arguments(data, room=4)
        arguments[name] = arguments[name][:size]  # type: ignore[index]
        assert extension.parse(*arguments.values()) == (12, 2, 0)
    with pytest.raises(TypeError, match="read-write"):
        extension.parse(*(c_arguments(data, room=4) | {"values": bytes(16)}).values())
