"""The demo: the default model of ``owlmine train``, and a comparison of the paper's models with fixed settings.

The product is trained with the default options of ``owlmine train``. The paper's three models get one budget, one seed
and settings that were searched for that budget; their ratios are compared with the paper's Table 2. Together they take
less than three minutes on two cores.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from owlmine.compare.figures import KS, NAMES
from owlmine.compare.folder import REPORT, RESULTS, DemoFolder
from owlmine.compare.methods import BASELINE, METHODS, Method, Setting
from owlmine.compare.options import CompareOptions
from owlmine.compare.report import demo_page
from owlmine.compare.results import MethodRuns, make_results
from owlmine.compare.runs import Job, RunRecord, Runs, Show
from owlmine.data.datasets import SAMPLE, sample_folder
from owlmine.data.rows import Int64
from owlmine.data.store import Split, Store
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.dense.warm_start import warm_start
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.metrics import RankingMetrics
from owlmine.model import Model, load
from owlmine.options import option
from owlmine.rank.predictor import Predictor
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Facts, resolve

PRODUCT, PRODUCT_TITLE = "best", "owlmine train"
# The budget of the paper's models, so that the whole demo stays below three minutes on two slow cores. With 8 epochs
# P@1 would be about 0.8 higher.
EPOCHS, DIM = 5.0, 512
POOL = 1024  # B of the paper's smallest dataset, the one nearest to the sample in size
# The best P@1 of a search at this budget, on held-out blocks of neighbouring training packages. The search changed one
# rate at a time, as ``owlmine compare`` does; the test split was not used.
_SETTINGS = {
    "top-1": Setting(0.09, 1.0, 0.003),
    "top-16": Setting(0.9, 3.0, 0.003),
    BASELINE: Setting(0.003, 3.0, 1e-6),
}
PAPER_METHODS: tuple[Method, ...] = tuple(
    replace(METHODS[name], knobs=(), starts=(setting,)) for name, setting in _SETTINGS.items()
)
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class DemoOptions:
    """The sizes of all four models. By default, the demo chooses those of the paper's models, and the plan those of the
    product."""

    epochs: float | None = option(
        None,
        f"Visits to each training point, for every model (default: {EPOCHS:g} for the paper's models; owlmine train"
        " chooses its own).",
    )
    dim: int | None = option(
        None,
        f"Dimension of query and class vectors, for every model (default: {DIM} for the paper's models; owlmine train"
        " chooses its own).",
    )
    seed: int = option(0, "Random seed.")

    def __post_init__(self) -> None:
        self.product()  # raises ValueError for what is out of range

    def product(self) -> TrainOptions:
        """The options of ``owlmine train``."""
        return TrainOptions.of(epochs=self.epochs, dim=self.dim, seed=self.seed)

    def paper(self) -> CompareOptions:
        """One budget, pool, data order and initial model for the paper's models."""
        return CompareOptions(
            methods=",".join(_SETTINGS),
            epochs=EPOCHS if self.epochs is None else self.epochs,
            dim=self.dim or DIM,
            pool=POOL,
            warm_start=True,
            exclude_known=True,  # the hardest of a pool would often be another correct answer
            seeds=1,
            seed=self.seed,
            keep_models=True,
        )

    def command(self) -> list[str]:
        """The words of the command that trains the product."""
        words = ["owlmine", "train", SAMPLE, "--out", PRODUCT]
        for name, value in asdict(self).items():
            if value:
                words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
        return words


def run_demo(store: Store, out: Path, options: DemoOptions, show: Show) -> dict[str, Any]:
    """Trains each model into its own folder under ``out``, and writes ``results.json`` and the report there.

    Returns the content of ``results.json``. Called again, it resumes; models with other options or data are trained
    again.
    """
    folder = DemoFolder(out)
    folder.check()
    with folder.held():
        runs = _DemoRuns(store, folder, show)
        paper = options.paper()
        product = runs.get(Job("final", PRODUCT, PRODUCT_TITLE, options.product()))
        compared = []
        for method in PAPER_METHODS:
            (setting,) = method.starts
            job = Job(
                "final", method.name, method.title, paper.final_options(method, setting, seed=options.seed), setting
            )
            compared.append(MethodRuns(method, setting, [], [runs.get(job)], settled=True))
        show.message("testing and writing the report")
        models = {name: load(out / name) for name in (PRODUCT, *_SETTINGS)}
        results = make_results(store, paper, compared, notes=[], data=SAMPLE) | {
            "product": _product(models[PRODUCT], product, options),
            "start": figures_at_start(store, paper),
            "examples": examples(store, models, seed=options.seed),
        }
        folder.write(RESULTS, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        folder.write(REPORT, demo_page(results))
    return results


class _DemoRuns:
    """The runs of a demo: each model has one folder, so one with other options replaces it."""

    def __init__(self, store: Store, folder: DemoFolder, show: Show) -> None:
        self._store, self._folder, self._show = store, folder, show
        self._runs = Runs(store, folder, show, data_name=SAMPLE, keep_models=True)

    def get(self, job: Job) -> RunRecord:
        """The record of a run whose model exists."""
        if self._folder.clear(job.name, self._store, job.options):
            self._show.message(f"{job.title}: removed an earlier model with other options or data; training it again")
        record = self._runs.get(job)
        if not record["finite"]:
            self._folder.forget(job.name)
            raise OwlmineError(f"{job.title}: training diverged (its loss is not finite); try another --seed")
        return record


def _product(model: Model, record: RunRecord, options: DemoOptions) -> dict[str, Any]:
    """The model of ``owlmine train``: its sizes, cost and figures."""
    plan = model.record.plan
    return {
        "name": PRODUCT,
        "title": PRODUCT_TITLE,
        "command": options.command(),
        "heads": plan["heads"],
        "dim": plan["model"]["dim"],
        "epochs": plan["model"]["epochs"],
        "judges": [name for name, weight in model.ranker.mix.weights.items() if weight],
        "parameters": model.dense.shape.num_parameters,
        "seconds": record["wall_seconds"],
        "validation": record["validation"],
        "test": record["test"],
    }


def figures_at_start(store: Store, options: CompareOptions) -> dict[str, dict[str, float]]:
    """The figures before the first step, the same for all models of the paper: class vectors are means of points."""
    any_method = PAPER_METHODS[0]
    train_options = options.final_options(any_method, any_method.starts[0], seed=options.seed)
    device = choose_device(options.device)
    facts = Facts.of(store, device)
    plan = resolve(train_options, facts)
    part = options.validation_part(store)
    model = Retriever.new(plan.shape(facts), seed=plan.member(0).seed, device=device)
    warm_start(model, store["train"], part.train_rows)
    return {"validation": part.measure(model), "test": dense_figures(model, store["test"])}


def dense_figures(model: Retriever, split: Split) -> dict[str, float]:
    """R and P at 1, 3 and 5 in percent, over every point of the split and every class."""
    metrics = RankingMetrics(model.shape.num_classes, ks=KS)
    for batch in split.blocks(_BLOCK_ROWS):
        _, ids = model.top(query_batch(batch.queries, model.device), KS[-1])
        metrics.update(ids.cpu().numpy(), batch.labels)
    figures = metrics.compute()
    return {name: figures[name] for name in NAMES}


NUM_EXAMPLES = 5
NUM_PREDICTED = 5
# Packages with fewer dependencies say little about five answers; with more, the lists are too long to read.
_FEWEST, _MOST = 2, 6


def pick_rows(store: Store, *, seed: int) -> Int64:
    """Rows of the test split, drawn at random from those with two to six labels."""
    counts = np.diff(store["test"].labels.offsets)
    fitting = np.flatnonzero((counts >= _FEWEST) & (counts <= _MOST))
    return np.sort(np.random.default_rng([seed, 5]).choice(fitting, NUM_EXAMPLES, replace=False))


def examples(store: Store, models: Mapping[str, Predictor], *, seed: int) -> list[dict[str, Any]]:
    """Test points in words: a query, its labels, and the answers of each model, best first, marked as hit or miss."""
    rows = pick_rows(store, seed=seed)
    batch, points = store["test"].batch(rows), _sample_points(len(store["test"]))
    answers = {name: model.name(model.answer(batch.queries, NUM_PREDICTED)) for name, model in models.items()}
    found = []
    for place, row in enumerate(rows.tolist()):
        labels = batch.labels[place : place + 1].indices.tolist()
        true = {store.class_names[label] for label in labels}
        package, summary = _title(points[row])
        predicted = {
            name: [
                {
                    "name": answer.name,
                    "score": round(answer.score, 3),
                    "probability": answer.probability,
                    "hit": answer.name in true,
                }
                for answer in answered[place]
            ]
            for name, answered in answers.items()
        }
        found.append({"package": package, "summary": summary, "true": sorted(true), "predicted": predicted})
    return found


def _sample_points(num_points: int) -> list[dict[str, Any]]:
    """The points of the sample's test file. The store leaves none of them out, so rows and lines agree."""
    with lzma.open(sample_folder() / "test.jsonl.xz", "rt", encoding="utf-8") as file:
        points = [json.loads(line) for line in file]
    assert len(points) == num_points
    return points


def _title(point: dict[str, Any]) -> tuple[str, str]:
    """The package, and the first sentence of its description; the texts read ``package words: summary. more``."""
    _, _, description = point["text"].partition(": ")
    return point["id"], description.partition(". ")[0].rstrip(".")
