"""A comparison from beginning to end: search, final runs, files. Finished runs in the folder are not repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from owlmine.compare.figures import KS
from owlmine.compare.folder import REPORT, RESULTS, CompareFolder
from owlmine.compare.methods import BASELINE, METHODS, Method, Setting, choose_methods, parse_methods
from owlmine.compare.options import CompareOptions
from owlmine.compare.report import comparison_page
from owlmine.compare.results import MethodRuns, figures_csv, make_results, table_tex
from owlmine.compare.runs import Job, RunRecord, Runs, Show
from owlmine.compare.search import Search
from owlmine.data.store import Store
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.recipe.plan import Facts, resolve


@dataclass(frozen=True)
class Request:
    """The data and the folder, as given on the command line."""

    data: str
    out: Path


def run_comparison(store: Store, request: Request, options: CompareOptions, show: Show) -> dict[str, Any]:
    """Searches, trains and evaluates every method, and writes the files into the folder. Returns the content of
    results.json.

    Called again, it resumes; runs that fit the new options are not repeated.
    """
    folder = CompareFolder(request.out)
    folder.check()
    asked, options = options, settled(store, options)
    assert options.pool is not None
    methods, skipped = choose_methods(parse_methods(options.methods), num_classes=store.num_classes, pool=options.pool)
    if not methods:
        raise OwlmineError(f"no method is left to compare: {'; '.join(skipped)}")
    notes = list(skipped)
    if BASELINE not in [method.name for method in methods]:
        notes.append(f"There are no ratios, because {BASELINE} is not among the methods")
    for note in notes:
        show.message(note)
    with folder.held():
        runs = Runs(store, folder, show, data_name=Path(request.data).name, keep_models=options.keep_models)
        compared = [compare_method(method, options, runs, show) for method in methods]
        results = make_results(store, options, compared, notes=notes, data=request.data)
        results["runs_made"], results["runs_found"] = runs.made, runs.found
        results["command"] = command(request, asked)
        _write_files(folder, results)
    return results


def settled(store: Store, options: CompareOptions) -> CompareOptions:
    """The options with the device and pool of all methods filled in. Raises OwlmineError for unsuitable data."""
    check_data(store)
    _check_validation(store, options)
    device, baseline = choose_device(options.device), METHODS[BASELINE]
    train_options = options.final_options(baseline, baseline.starts[0], seed=options.seed)
    try:
        pool = resolve(train_options, Facts.of(store, device)).model.pool
    except ValueError as error:
        raise OwlmineError(f"--{error}") from error
    return replace(options, device=device.type, pool=pool)


def check_data(store: Store) -> None:
    """Raises OwlmineError if nothing can be compared on these data."""
    if "test" not in store.splits or not len(store["test"]):
        raise OwlmineError(f"{store.path}: has no test split; wanted one to test on")
    if store.num_classes <= KS[-1]:
        raise OwlmineError(f"{store.path}: has {store.num_classes} classes; wanted more than {KS[-1]}")


def _check_validation(store: Store, options: CompareOptions) -> None:
    try:
        part = options.validation_part(store)
    except ValueError as error:
        raise OwlmineError(f"--{str(error).replace('_', '-', 1)}") from error
    if not len(part):
        block = f" with --validation-block {options.validation_block}" if options.validation_block > 1 else ""
        raise OwlmineError(
            f"--validation is {options.validation:g}{block}, which holds out no training point; wanted at least one to"
            " choose settings by"
        )


def compare_method(method: Method, options: CompareOptions, runs: Runs, show: Show) -> MethodRuns:
    """Searches for a setting and makes the final runs with it."""
    tried: list[RunRecord] = []
    search = Search(method, _measure(method, options, runs, tried), most_runs=options.search_runs)
    setting = search.best()
    show.message(f"{method.title}: best setting {setting_text(setting, method)}, P@1 {search.tried[setting]:.2f}")
    finals = []
    for number in range(options.seeds):
        seed = options.seed + number
        title = f"{method.title}, seed {seed} ({number + 1} of {options.seeds})"
        chosen = options.final_options(method, setting, seed=seed)
        finals.append(runs.get(Job("final", method.name, title, chosen, setting)))
    return MethodRuns(method, setting, tried, finals, settled=search.settled)


def _measure(method: Method, options: CompareOptions, runs: Runs, tried: list[RunRecord]) -> Callable[[Setting], float]:
    def measure(setting: Setting) -> float:
        title = f"{method.title}, search {len(tried) + 1} of {options.search_runs}, {setting_text(setting, method)}"
        tried.append(runs.get(Job("search", method.name, title, options.search_options(method, setting), setting)))
        validated: float = tried[-1]["validation"]["P@1"]
        return validated

    return measure


def setting_text(setting: Setting, method: Method) -> str:
    """Rates of classes, features and maps; the scale if it is searched."""
    scale = f", scale {setting.scale:g}" if "scale" in method.knobs else ""
    return f"rates {setting.class_rate:g}/{setting.feature_rate:g}/{setting.map_rate:g}{scale}"


def command(request: Request, options: CompareOptions) -> list[str]:
    """The command line of this comparison."""
    words = ["owlmine", "compare", request.data, "--out", str(request.out)]
    for field in fields(options):
        value, flag = getattr(options, field.name), "--" + field.name.replace("_", "-")
        if value != field.default:
            words += [flag] if value is True else [flag, str(value)]
    return words


def _write_files(folder: CompareFolder, results: dict[str, Any]) -> None:
    """The report is written last: if it exists, the rest does too."""
    folder.write(RESULTS, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    folder.write("figures.csv", figures_csv(results))
    folder.write("table.tex", table_tex(results))
    folder.write(REPORT, comparison_page(results))
