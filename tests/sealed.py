"""Checksums of a model folder made again, as somebody who means to damage it can."""

from __future__ import annotations

import json
from pathlib import Path

from owlmine.data.store import meta_checksum
from owlmine.files import sha256_of


def seal(folder: Path) -> None:
    """Whatever the files hold now, their checksums fit."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    tables = {n: folder / ("index.faiss" if n == "index" else f"{n}.safetensors") for n in config["sha256"]}
    config["sha256"] |= {name: sha256_of(table) for name, table in tables.items() if table.exists()}
    config["checksum"] = meta_checksum(config)
    file.write_text(json.dumps(config))
