"""How far class vectors move from their initial values, for each method of Table 2 at its chosen rates.

    python benchmarks/paper/moved.py [DATASET] [--data-root FOLDER] [--device auto]

One run per method: the mean cosine of a class vector with itself before training, that of two labels of one point, and
that of two random classes.
"""

from __future__ import annotations

import argparse
import json
import sys
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
from owlmine.recipe.fit import fit
from owlmine.recipe.options import TrainOptions

_PAIRS = 200_000


def measure(store: Store, options: TrainOptions) -> dict[str, float]:
    dense, seed = fit(store, options).dense, options.run.seed
    trained_KD, drawn_KD = _unit(dense), _unit(Retriever.new(dense.shape, seed=seed))
    generator = np.random.default_rng(seed)
    together_P2 = _pairs_of_labels(store, generator)
    random_P2 = generator.integers(store.num_classes, size=(_PAIRS, 2))
    seen_K = torch.from_numpy(store.class_counts > 0)
    return {
        "to where it was drawn": float((trained_KD * drawn_KD).sum(1)[seen_K].mean()),
        "two labels of a point": _mean_cosine(trained_KD, together_P2),
        "two classes at random": _mean_cosine(trained_KD, random_P2),
    }


def _unit(model: Retriever) -> torch.Tensor:
    return torch.nn.functional.normalize(model.classes.weight.detach().cpu(), dim=1)


def _pairs_of_labels(store: Store, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Two labels of each of some random points with at least two labels."""
    labels = store["train"].labels
    counts_N = np.diff(labels.offsets)
    points_P = generator.choice(np.flatnonzero(counts_N >= 2), size=_PAIRS)
    first_P = generator.integers(counts_N[points_P])
    # Any other label: 1 to count - 1 places further, wrapping around.
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
            for number, entry in enumerate(json.loads(file.read_text("utf-8"))["methods"]):
                title = Dataset.named(name).title if number == 0 else ""
                rows.append((title, entry["title"], *(f"{value:.3f}" for value in entry["cosines"].values())))
    heads = ("to where it was drawn", "two labels of a point", "two classes at random")
    return markdown(("", "mean cosine of a class vector", *heads), rows, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", default="debian-depends", choices=DATASETS)
    parser.add_argument("--data-root", type=Path, help="folder with one subfolder per dataset")
    parser.add_argument("--device", default="auto", choices=["cpu", "cuda", "auto"])
    arguments = parser.parse_args()
    name, results = arguments.dataset, stored().get(arguments.dataset)
    try:
        if results is None:
            raise OwlmineError(f"{name}: no stored results of Table 2; run it first, for the rates")
        store = Dataset.named(name).open(arguments.data_root)
    except OwlmineError as error:
        sys.exit(f"error: {error}")
    asked, methods = CompareOptions(**(results["options"] | {"device": arguments.device})), []
    for entry in results["methods"]:
        options = asked.final_options(METHODS[entry["name"]], Setting(**entry["setting"]), seed=asked.seed)
        methods.append({"title": entry["title"], "setting": entry["setting"], "cosines": measure(store, options)})
        print(f"{name}: {methods[-1]}", flush=True)
    path = PAPER / "moved" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"methods": methods, "made_by": machine()}, indent=1, ensure_ascii=False) + "\n")
    print(table())


if __name__ == "__main__":
    main()
