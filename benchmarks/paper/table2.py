"""The paper's Table 2 on one dataset: mining against negative sampling, every method at rates of its own.

The same as ``owlmine compare`` with the dataset's options, in parts if need be: what a part has finished stays in the
work folder. Runs that share a GPU with others tell nothing of time, so steps are timed afterwards, one method after
the other, alone on the machine.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from comparing import compare, store_results
from dataset import DATASETS, Dataset
from results import PAPER
from tables import markdown

from owlmine.compare.methods import METHODS, Setting
from owlmine.compare.options import CompareOptions
from owlmine.compare.timing import StepTimer
from owlmine.data.store import Store
from owlmine.demo.figures import NAMES
from owlmine.train import train
from owlmine.train.reporters import SilentReporter

# Steps after the first report, which comes after 50.
_TIMED_STEPS = 500
_RATES = ("class_rate", "feature_rate", "map_rate")


def table2(store: Store, name: str, options: dict[str, Any], *, work: Path) -> Path:
    asked = CompareOptions(**options)
    methods = [METHODS[method] for method in asked.methods.split(",")]
    results = compare(store, name, methods, asked, work=work)
    return store_results(results, "table2", name)


def time_steps(store: Store, name: str) -> Path:
    """Adds seconds per step of each method, measured alone, to the stored results."""
    results = json.loads((PAPER / "table2" / f"{name}.json").read_text("utf-8"))
    asked = CompareOptions(**results["options"])
    for method in results["methods"]:
        options = asked.final_options(METHODS[method["name"]], Setting(**method["setting"]), seed=asked.seed)
        method["seconds_per_step_alone"] = _seconds_per_step(store, options)
        print(f"{name}: {method['title']} {1000 * method['seconds_per_step_alone']:.3f} ms a step", flush=True)
    return store_results(results, "table2", name)


def _seconds_per_step(store: Store, options: Any) -> float:
    from dataclasses import replace

    from owlmine.train.validate import validation_part

    points = len(validation_part(store, options).train_rows)
    epochs = (_TIMED_STEPS + 50) * options.batch_size / points
    timer = StepTimer(SilentReporter(), batch_size=options.batch_size)
    with tempfile.TemporaryDirectory() as folder:
        train(store, Path(folder) / "model", replace(options, epochs=epochs), reporter=timer)
    assert timer.seconds_per_step is not None
    return timer.seconds_per_step


def markdown_tables() -> str:
    """Absolute figures and ratios to negative sampling, for every dataset with stored results."""
    figures, ratios = [], []
    for name in DATASETS:
        file = PAPER / "table2" / f"{name}.json"
        if not file.exists():
            continue
        results = json.loads(file.read_text("utf-8"))
        for number, method in enumerate(results["methods"]):
            title = Dataset.named(name).title if number == 0 else ""
            deviations = method["deviation"]
            mean = f"{method['mean']['P@1']:.2f}" + ("" if deviations["P@1"] is None else f" ± {deviations['P@1']:.2f}")
            others = (f"{method['mean'][figure]:.2f}" for figure in NAMES if figure != "P@1")
            seconds = method.get("seconds_per_step_alone") or method["seconds_per_step"]
            rates = " / ".join(f"{method['setting'][rate]:g}" for rate in _RATES)
            cells = (f"{method['search']['validation P@1']:.2f}", f"{1000 * seconds:.2f}", rates)
            figures.append((title, method["title"], mean, *others, *cells))
            if method["name"] != results["baseline"]:
                ratios.append((title, method["title"], *(f"{method['ratio'][figure]:.2f}" for figure in NAMES)))
    rest = tuple(figure for figure in NAMES if figure != "P@1")
    head = ("", "", "P@1", *rest, "validation P@1 of the search", "ms a step", "class / feature / map rate")
    return f"{markdown(head, figures, left=2)}\n\n{markdown(('', '', *NAMES), ratios, left=2)}"


if __name__ == "__main__":
    print(markdown_tables())
