"""How far class vectors move from where they were drawn, for each method of Table 2 at the rates it chose.

    python benchmarks/paper/moved.py [DATASET] [--data-root FOLDER] [--device auto]

One run a method. The mean cosine of a class vector with itself before training, that of two labels of one point, and
that of two classes at random.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dataset import DATASETS, Dataset
from results import PAPER, machine
from table2 import stored
from tables import markdown

from owlmine.compare.methods import METHODS, Setting
from owlmine.compare.options import CompareOptions
from owlmine.data.store import Store
from owlmine.dense.retriever import Retriever
from owlmine.errors import OwlmineError
from owlmine.files import write_text
from owlmine.recipe.options import TrainOptions
from owlmine.train import train
from owlmine.train.reporters import SilentReporter

_PAIRS = 200_000


def measure(store: Store, options: TrainOptions) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        predictor = train(store, Path(folder) / "model", options, reporter=SilentReporter())
    trained_KD = _unit(predictor.retriever)
    drawn_KD = _unit(Retriever.new(predictor.retriever.shape, seed=options.seed))
    generator = np.random.default_rng(options.seed)
    together_P2 = _pairs_of_labels(store, generator)
    random_P2 = generator.integers(store.num_classes, size=(_PAIRS, 2))
    seen_K = torch.from_numpy(store.class_counts > 0)
    return {
        "to where it was drawn": float((trained_KD * drawn_KD).sum(1)[seen_K].mean()),
        "two labels of a point": _mean_cosine(trained_KD, together_P2),
        "two classes at random": _mean_cosine(trained_KD, random_P2),
    }


def _unit(retriever: Retriever) -> torch.Tensor:
    return torch.nn.functional.normalize(retriever.classes.weight.detach().cpu(), dim=1)


def _pairs_of_labels(store: Store, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """For points drawn at random that have two labels or more, two of them."""
    labels = store["train"].labels
    counts_N = np.diff(labels.offsets)
    points_P = generator.choice(np.flatnonzero(counts_N >= 2), size=_PAIRS)
    first_P = generator.integers(counts_N[points_P])
    # Any other: a step of 1 to count - 1 places onwards, around the end.
    second_P = (first_P + generator.integers(1, counts_N[points_P])) % counts_N[points_P]
    starts_P = labels.offsets[points_P]
    return np.stack([labels.indices[starts_P + first_P], labels.indices[starts_P + second_P]], axis=1)


def _mean_cosine(unit_KD: torch.Tensor, pairs_P2: np.ndarray[Any, Any]) -> float:
    pairs = torch.from_numpy(pairs_P2.astype(np.int64))
    return float((unit_KD[pairs[:, 0]] * unit_KD[pairs[:, 1]]).sum(1).mean())


def table() -> str:
    """From stored results."""
    rows = []
    for name in DATASETS:
        if (file := PAPER / "moved" / f"{name}.json").exists():
            for number, told in enumerate(json.loads(file.read_text("utf-8"))["methods"]):
                title = Dataset.named(name).title if number == 0 else ""
                rows.append((title, told["title"], *(f"{value:.3f}" for value in told["cosines"].values())))
    heads = ("to where it was drawn", "two labels of a point", "two classes at random")
    return markdown(("", "mean cosine of a class vector", *heads), rows, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", default="debian-depends", choices=DATASETS)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="auto", choices=["cpu", "cuda", "auto"])
    arguments = parser.parse_args()
    name, results = arguments.dataset, stored().get(arguments.dataset)
    try:
        if results is None:
            raise OwlmineError(f"{name}: no stored results of Table 2; wanted some that tell the rates")
        store = Dataset.named(name).open(arguments.data_root)
    except OwlmineError as error:
        sys.exit(f"error: {error}")
    asked, methods = CompareOptions(**(results["options"] | {"device": arguments.device})), []
    for told in results["methods"]:
        options = asked.final_options(METHODS[told["name"]], Setting(**told["setting"]), seed=asked.seed)
        methods.append({"title": told["title"], "setting": told["setting"], "cosines": measure(store, options)})
        print(f"{name}: {methods[-1]}", flush=True)
    path = PAPER / "moved" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"methods": methods, "made_by": machine()}, indent=1, ensure_ascii=False) + "\n")
    print(table())


if __name__ == "__main__":
    main()
