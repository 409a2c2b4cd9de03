"""Which room may import which: imports point one way, and no two rooms import each other."""

from __future__ import annotations

import ast
from pathlib import Path

import owlmine

# A room may import those before it on this list, and those on its own line.
LAYERS = (
    ("errors", "version"),
    ("options", "files", "device", "extensions"),
    ("pictures",),
    ("mining",),
    ("losses", "data"),
    ("metrics", "theory"),
    ("dense", "index"),
    ("rank",),
    ("recipe",),
    ("folder", "exchange", "evaluate", "add_classes"),
    ("model",),
    ("run", "estimator", "serve"),
    ("compare",),
    ("cli",),
)
RANK = {room: number for number, layer in enumerate(LAYERS) for room in layer}
# The public door and ``python -m owlmine`` name what is behind them.
DOORS = ("__init__", "__main__")


def imports() -> dict[tuple[str, str], str]:
    """For each pair of rooms of which the first imports the second, a file where it does."""
    root, found = Path(owlmine.__file__).parent, {}
    for file in sorted(root.rglob("*.py")):
        room = file.relative_to(root).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            rooms = {name.split(".")[1] for name in names if name.startswith("owlmine.")}
            found |= {(room, other): str(file.relative_to(root)) for other in rooms - {room}}
    return {pair: file for pair, file in found.items() if pair[0] not in DOORS}


def test_imports_point_one_way() -> None:
    unknown = {room for pair in imports() for room in pair} - set(RANK)
    assert not unknown, "rooms without a layer"
    upward = [
        f"{file}: {room} imports {other}" for (room, other), file in imports().items() if RANK[other] > RANK[room]
    ]
    assert not upward


def test_no_two_rooms_import_each_other() -> None:
    pairs = set(imports())
    cycles, reach = [], {room: {other for one, other in pairs if one == room} for room, _ in pairs}
    for room, others in reach.items():
        seen, ahead = set(), set(others)
        while ahead:
            other = ahead.pop()
            if other not in seen:
                seen.add(other)
                ahead |= reach.get(other, set())
        cycles += [room] if room in seen else []
    assert not cycles
