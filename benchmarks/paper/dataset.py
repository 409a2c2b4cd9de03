"""The datasets of the study: what their files in ``configs`` say, and their stores."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from owlmine.data.datasets import SAMPLE, cache_folder, open_dataset
from owlmine.data.describe import describe
from owlmine.data.options import ConvertOptions
from owlmine.data.store import Store, is_store
from owlmine.errors import OwlmineError

CONFIGS = Path(__file__).parent / "configs"
# What we run of our own, and in which options of training it differs from the dataset's.
OURS: dict[str, dict[str, Any]] = {"ours": {}, "ours-bowl": {"loss": "bowl"}}
# In the order of size.
DATASETS = ("bibtex", "debian-depends", "tibkat-gnd", "yso-finna-en", "commit-files")


@dataclass(frozen=True)
class Dataset:
    """One of ``DATASETS``."""

    name: str
    title: str
    source: str
    """A folder under the data root, or ``sample``."""
    tools: list[str]
    sizes: dict[str, int]
    """What the store must hold: ``train_points``, ``test_points``, ``features`` and ``classes``."""
    convert: dict[str, Any] = field(default_factory=dict)
    """Options of conversion that are not the default."""
    ours: dict[str, Any] = field(default_factory=dict)
    """Options of ``owlmine train`` that are not the default."""
    table2: dict[str, Any] = field(default_factory=dict)
    """Options of ``owlmine compare`` for the paper's Table 2."""
    questions: dict[str, Any] = field(default_factory=dict)
    """The same for the open questions; ``asked`` names those that are asked here."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Tools that are not run here, and why."""
    published: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def named(cls, name: str) -> Dataset:
        if name not in DATASETS:
            raise OwlmineError(f"dataset is {name!r}; wanted one of {', '.join(DATASETS)}")
        return cls(name=name, **tomllib.loads((CONFIGS / f"{name}.toml").read_text("utf-8")))

    def open(self, data_root: Path | None) -> Store:
        """The store, made on first use from the files under ``data_root``; a store there is taken as it is."""
        options = ConvertOptions(**self.convert)
        if self.source == SAMPLE:
            store = open_dataset(SAMPLE, options)
        elif data_root is None:
            raise OwlmineError(f"{self.name}: no data; wanted --data-root FOLDER with a folder {self.source} in it")
        elif is_store(data_root / self.source):
            store = Store.open(data_root / self.source)
        else:
            store = open_dataset(data_root / self.source, options)
        self.check_sizes(store)
        return store

    def check_sizes(self, store: Store) -> None:
        """Raises OwlmineError where rules other than the study's have made the store."""
        found = describe(store)
        for what, wanted in self.sizes.items():
            if found[what] != wanted:
                raise OwlmineError(f"{store.path}: found {found[what]:,} {what}; wanted {wanted:,} for {self.name}")


def work_folder(asked: Path | None) -> Path:
    """Where matrices, the peers' environments and logs are stored."""
    return asked or cache_folder() / "paper-study"
