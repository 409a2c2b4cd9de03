"""How well classes added without training are found, and what that costs the others.

    python benchmarks/add_classes.py STORE [--judge test|dev] [--seed 0] [--examples 5] [--work FOLDER] [--name NAME]
                                           [--recipe single|best] [--option name=value ...]

A tenth of the classes are held out, of those with at least one training point more than there are examples and with a
point in the split to judge on. One model is trained without them: their labels leave train, and so do points that have
no label left. They are then added from a few of their training points. Two more models are trained: on everything, and
on everything but the labels of held-out classes beyond those few. Choices were made with ``--judge dev --seed 1``; the
stored results are from ``--judge test --seed 0``.

Of new classes: R@1 and R@5 of their labels over points that have some, and the mean over classes of the share of their
labels that are found. Of old ones: P@1, 3 and 5 over points without a new label. And P of all labels over all points.
"trained on all" is what shares refer to. With the recipe best, all models choose their mix on held-out points of
train, so none of them sees another split. Results in results/add_classes.json, results/add_classes-best.json, or
under another name.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, save_result
from numpy.typing import NDArray
from settings import parsed

from owlmine.add_classes.add import add_classes
from owlmine.add_classes.examples import Examples, Gathering
from owlmine.add_classes.vectors import CAUTION
from owlmine.data.formats.block import RowLabels
from owlmine.data.memory import MemoryDataset
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store import SparseTable, Split, Store
from owlmine.folder.model_folder import load_model, save_model
from owlmine.metrics.hits import find_hits
from owlmine.metrics.metrics import precision_at_k, recall_at_k
from owlmine.rank.predictor import Predictor
from owlmine.recipe.fit import fit
from owlmine.recipe.options import TrainOptions

CAUTIONS = (5.0, 6.0, 6.5, CAUTION, 8.0)
SHARE = 0.1
DEPTH = 5


def held_out(store: Store, judge: str, *, num_examples: int, random: np.random.Generator) -> Int64:
    """Ascending ids."""
    judged = np.bincount(store[judge].labels.indices, minlength=store.num_classes)
    fitting = np.flatnonzero((np.asarray(store.class_counts) > num_examples) & (judged > 0))
    return np.sort(random.choice(fitting, round(SHARE * len(fitting)), replace=False))


def reduced(store: Store, keep_E: NDArray[np.bool_]) -> MemoryDataset:
    """The train split with the marked ones of its labels, and without points and classes that have none left."""
    queries, labels = store["train"].queries, _labels(store).select(keep_E)
    assert isinstance(queries, SparseTable)
    rows = np.flatnonzero(labels.counts)
    labels = labels.take(rows)
    classes, new_ids = np.unique(labels.indices, return_inverse=True)
    new_labels = SparseRows(labels.offsets, new_ids, None)
    return MemoryDataset(
        {"train": Split("train", _table(queries.rows(rows)), _table(new_labels), None)},
        num_features=store.num_features,
        class_keys=[store.class_keys[number] for number in classes.tolist()],
        class_names=[store.class_names[number] for number in classes.tolist()],
        queries="sparse",
        weighting=store.meta["weighting"],
        vocabulary=store.vocabulary,
        frequencies=store.array("weighting.frequencies"),
    )


def _labels(store: Store) -> SparseRows:
    return store["train"].labels.slice(0, len(store["train"]))


def _table(rows: SparseRows) -> SparseTable:
    return SparseTable(rows.offsets, rows.indices.astype(np.int32), rows.values)


def chosen_labels(store: Store, held: Int64, *, num_examples: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Marks so many random labels of each class among those of train."""
    classes = np.asarray(store["train"].labels.indices)
    order = np.argsort(classes, kind="stable")
    low, high = np.searchsorted(classes[order], held), np.searchsorted(classes[order], held, side="right")
    chosen_E = np.zeros(len(classes), np.bool_)
    for start, stop in zip(low.tolist(), high.tolist(), strict=True):
        chosen_E[random.choice(order[start:stop], num_examples, replace=False)] = True
    return chosen_E


def as_examples(predictor: Predictor, store: Store, chosen_E: NDArray[np.bool_]) -> Examples:
    labels = _labels(store).select(chosen_E)
    rows = np.flatnonzero(labels.counts)
    own = labels.take(rows)
    gathering = Gathering(predictor)
    keys = [store.class_keys[number] for number in own.indices.tolist()]
    gathering.add(store["train"].batch(rows).queries, RowLabels(own.offsets, keys))
    return gathering.finish({})


def retrieved(predictor: Predictor, store: Store, split: Split) -> Int64:
    """Class ids of the store [N, 5]."""
    ids = np.concatenate([predictor.answer(batch.queries, DEPTH).ids_Nk for batch in split.blocks(2048)])
    numbers = {key: number for number, key in enumerate(store.class_keys)}
    return np.array([numbers[key] for key in predictor.classes.keys], np.int64)[ids]


def figures(ids: Int64, store: Store, split: Split, held: Int64) -> dict[str, float]:
    labels = split.labels.slice(0, len(split))
    is_new = np.isin(labels.indices, held)
    new_labels = labels.select(is_new)
    with_new, without = np.flatnonzero(new_labels.counts), np.flatnonzero(new_labels.counts == 0)
    own, old = new_labels.take(with_new), labels.take(without)
    found = np.bincount(find_hits(ids[with_new], own, depth=DEPTH).classes, minlength=store.num_classes)[held]
    asked = np.bincount(own.indices, minlength=store.num_classes)[held]
    shares = {f"new R@{k}": recall_at_k(ids[with_new], own, k) for k in (1, 5)}
    shares["new R@5, mean of classes"] = float((found / asked).mean())
    shares |= {f"old P@{k}": precision_at_k(ids[without], old, k) for k in (1, 3, 5)}
    shares |= {f"P@{k}": precision_at_k(ids, labels, k) for k in (1, 3, 5)}
    percent = {name: round(100 * share, 3) for name, share in shares.items()}
    return percent | {"new classes shown": int(np.isin(ids, held).sum()), "new labels": int(is_new.sum())}


def mean_vectors(predictor: Predictor, examples: Examples) -> Predictor:
    """The plain way: the mean of a class's query vectors, scaled to length 1 as a warm start does."""
    plain = add_classes(predictor, examples).predictor
    sums = examples.queries.vectors_ND.new_zeros(len(examples.keys), predictor.dense.classes.dim)
    rows, classes = torch.from_numpy(examples.rows_P), torch.from_numpy(examples.classes_P)
    sums.index_add_(0, classes, examples.queries.vectors_ND[rows])
    plain.dense.classes.weight[-len(sums) :] = torch.nn.functional.normalize(sums, dim=1)
    return plain


def trained(data: Callable[[], MemoryDataset], folder: Path, options: TrainOptions) -> Predictor:
    """The model in the folder; where there is none, it is trained and saved there."""
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_model(folder, fit(data(), options, name=folder.name))
    return load_model(folder)


def simulate(store: Store, work: Path, options: TrainOptions, given: argparse.Namespace) -> dict[str, Any]:
    random = np.random.default_rng(given.seed)
    held = held_out(store, given.judge, num_examples=given.examples, random=random)
    chosen_E = chosen_labels(store, held, num_examples=given.examples, random=random)
    known_E = ~np.isin(store["train"].labels.indices, held)
    before = trained(lambda: reduced(store, known_E), work / "model-without", options)
    examples = as_examples(before, store, chosen_E)
    split, rows = store[given.judge], dict[str, dict[str, float]]()

    def judge(name: str, predictor: Predictor) -> None:
        rows[name] = figures(retrieved(predictor, store, split), store, split, held)
        print(name, rows[name], flush=True)

    # Without the other splits, on which a recipe might choose.
    all_E = np.ones_like(known_E)
    judge("trained on all", trained(lambda: reduced(store, all_E), work / "model-full", options))
    few = trained(lambda: reduced(store, known_E | chosen_E), work / "model-few", options)
    judge("trained on the examples", few)
    judge("before", before)
    if not before.ranker.judges:
        judge("mean of unit vectors", mean_vectors(before, examples))
    left_out = {}
    for caution in CAUTIONS:
        addition = add_classes(before, examples, caution=caution)
        judge(f"examples, caution {caution:g}", addition.predictor)
        left_out[f"{caution:g}"] = {f"R@{k}": round(100 * addition.recall(k), 3) for k in (1, 5)}
    if before.features.from_text:
        names = {store.class_keys[number]: store.class_names[number] for number in held.tolist()}
        judge("examples and names", add_classes(before, examples, names).predictor)
        for caution in (5.0, CAUTION):
            judge(f"names, caution {caution:g}", add_classes(before, None, names, caution=caution).predictor)
    return {"held out": len(held), "classes": store.num_classes, "left out examples": left_out, "figures": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--judge", default="test", choices=("test", "dev"), help="the split to judge on")
    parser.add_argument("--seed", type=int, default=0, help="of what is held out")
    parser.add_argument("--examples", type=int, default=5, help="of each class that is added")
    parser.add_argument("--work", type=Path, help="store models here, and use those that are there")
    parser.add_argument("--name", help="of the file of results")
    parser.add_argument("--recipe", default="single", choices=("single", "best"))
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of TrainOptions")
    given = parser.parse_args()
    of_recipe = {"loss": "mined-softmax", "validation": 0.0} if given.recipe == "single" else {}
    options = TrainOptions.of(**{"recipe": given.recipe, "device": "cpu"} | of_recipe | parsed(" ".join(given.option)))
    with tempfile.TemporaryDirectory() as scratch:
        result = simulate(Store.open(given.store), given.work or Path(scratch), options, given)
    given_as = {"store": given.store.name, "judge": given.judge, "seed": given.seed, "examples": given.examples}
    name = given.name or ("add_classes" if given.recipe == "single" else "add_classes-best")
    print(save_result(name, {**given_as, "options": options.to_dict(), **result, "machine": machine()}))


if __name__ == "__main__":
    main()
