"""Seeded damage to the bytes of valid files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from random import Random

TOKENS = (
    b"\n", b"\r\n", b"\r", b"\0", b" ", b"\t", b"-1", b"+", b"0", b"9", b"99999999999999999999", b"2147483647", b"nan",
    b"inf", b"1e400", b"-0.0", b".5", b":", b",", b";", b'"', b'""', b"\\", b"\\ud800", b"\\u0000", b"\xff", b"\xc3",
    b"#", b"qid:1", b"{}", b"[]", b"[", b"]", b"{", b"null", b"true", b"NaN", b"1.0", b"\xef\xbb\xbf", b"\xe2\x80\xa8",
    b"\x1f\x8b",
)  # fmt: skip


def _flip(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _replace(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def _insert(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data) + 1)
    data[place:place] = random.choice(TOKENS)


def _overwrite(data: bytearray, random: Random) -> None:
    token, place = random.choice(TOKENS), random.randrange(len(data))
    data[place : place + len(token)] = token


def _delete(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data))
    del data[place : place + random.choice((1, 1, 2, 5, 40))]


def _repeat(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data))
    piece = data[place : place + random.choice((1, 4, 30))]
    data[place:place] = piece * random.choice((1, 1, 3, 50))


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def _extreme(data: bytearray, random: Random) -> None:
    """Eight bytes that are a very large or very small number."""
    place = random.randrange(len(data))
    data[place : place + 8] = random.choice((b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80"))


_WAYS: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip, _replace, _insert, _insert, _overwrite, _delete, _repeat, _cut, _extreme,
)  # fmt: skip


def damaged(data: bytes, random: Random) -> bytes:
    """One to three changes, anywhere."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        if changed:
            random.choice(_WAYS)(changed, random)
    return bytes(changed)


def damaged_archive(data: bytes, random: Random) -> bytes:
    """A zip archive whose checksums are right although one of its members is damaged."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as good, zipfile.ZipFile(buffer, "w") as archive:
        victim = random.choice(good.namelist())
        for name in good.namelist():
            content = good.read(name)
            archive.writestr(name, damaged(content, random) if name == victim else content)
    return buffer.getvalue()
