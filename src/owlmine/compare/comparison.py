"""A comparison from beginning to end: search, final runs, files. What is finished in the folder is not done again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from owlmine.compare.figure_files import figures_csv, table_tex
from owlmine.compare.folder import CompareFolder
from owlmine.compare.methods import BASELINE, Method, Setting, choose_methods, parse_methods
from owlmine.compare.options import CompareOptions
from owlmine.compare.report import report_html
from owlmine.compare.results import MethodRuns, make_results
from owlmine.compare.runs import Plan, Record, Runs, Show
from owlmine.compare.search import Search
from owlmine.data.store import Store
from owlmine.demo.figures import KS
from owlmine.dense.objective import pool_size_for
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.files import write_text
from owlmine.recipe.options import TrainOptions
from owlmine.train.validate import validation_part

RESULTS, REPORT = "results.json", "report.html"


@dataclass(frozen=True)
class Request:
    """What was asked for, in words that can be repeated."""

    data: str
    out: Path


def run_comparison(store: Store, request: Request, asked: CompareOptions, show: Show) -> dict[str, Any]:
    """Searches, trains and judges every method, and leaves the files in the folder. Returns what results.json holds.

    Called again it goes on where it was stopped; runs that other options share are not made again.
    """
    folder = CompareFolder(request.out)
    folder.check()
    options = settled(store, asked)
    methods, left_out = choose_methods(parse_methods(options.methods), num_classes=store.num_classes, pool=options.pool)
    if not methods:
        raise OwlmineError(f"no method to compare: {'; '.join(left_out)}")
    notes = list(left_out)
    if BASELINE not in [method.name for method in methods]:
        notes.append(f"No ratios: {BASELINE} is not among the methods compared")
    for note in notes:
        show.message(note)
    with folder.held():
        runs = Runs(store, folder, show, data_name=Path(request.data).name, keep_models=options.keep_models)
        compared = [compare_method(method, options, runs, show) for method in methods]
        results = make_results(store, options, compared, notes=notes, data=request.data)
        results["runs_made"], results["runs_found"] = runs.made, runs.found
        results["command"] = command(request, asked)
        write_files(request.out, results)
    return results


def settled(store: Store, asked: CompareOptions) -> CompareOptions:
    """The options with device and pool as they will be for every method. Raises OwlmineError where data do not do."""
    if "test" not in store.splits or not len(store["test"]):
        raise OwlmineError(f"{store.path}: has no test split; wanted one to judge on")
    if store.num_classes <= KS[-1]:
        raise OwlmineError(f"{store.path}: has {store.num_classes} classes; wanted more than {KS[-1]}")
    _check_validation(store, asked)
    device = choose_device(asked.device)
    try:
        pool = pool_size_for(TrainOptions(pool=asked.pool), num_classes=store.num_classes, device=device)
    except ValueError as error:
        raise OwlmineError(f"--{error}") from error
    return replace(asked, device=device.type, pool=pool)


def _check_validation(store: Store, asked: CompareOptions) -> None:
    try:
        part = validation_part(store, asked)
    except ValueError as error:
        raise OwlmineError(f"--{str(error).replace('_', '-', 1)}") from error
    if not len(part):
        block = f" with --validation-block {asked.validation_block}" if asked.validation_block > 1 else ""
        raise OwlmineError(
            f"--validation is {asked.validation:g}{block}, which is no point of train;"
            " wanted some to choose settings by"
        )


def compare_method(method: Method, options: CompareOptions, runs: Runs, show: Show) -> MethodRuns:
    """Searches a setting and makes the final runs with it."""
    tried: list[Record] = []
    search = Search(method, _measure(method, options, runs, tried), most_runs=options.search_runs)
    setting = search.best()
    show.message(f"{method.title}: chose {setting_text(setting, method)}, validation P@1 {search.tried[setting]:.2f}")
    finals = []
    for number in range(options.seeds):
        seed = options.seed + number
        title = f"{method.title}, seed {seed} ({number + 1} of {options.seeds})"
        finals.append(
            runs.get(Plan("final", method, setting, options.final_options(method, setting, seed=seed), title))
        )
    return MethodRuns(method, setting, tried, finals, settled=search.settled)


def _measure(method: Method, options: CompareOptions, runs: Runs, tried: list[Record]) -> Callable[[Setting], float]:
    def measure(setting: Setting) -> float:
        title = f"{method.title}, search {len(tried) + 1} of {options.search_runs}, {setting_text(setting, method)}"
        tried.append(runs.get(Plan("search", method, setting, options.search_options(method, setting), title)))
        validated: float = tried[-1]["validation"]["P@1"]
        return validated

    return measure


def setting_text(setting: Setting, method: Method) -> str:
    """Rates of classes, features and maps; the scale where it is searched."""
    scale = f", scale {setting.scale:g}" if "scale" in method.knobs else ""
    return f"{setting.class_rate:g}/{setting.feature_rate:g}/{setting.map_rate:g}{scale}"


def command(request: Request, options: CompareOptions) -> list[str]:
    """The words of a command that asks for the same."""
    from dataclasses import fields

    words = ["owlmine", "compare", request.data, "--out", str(request.out)]
    for field in fields(options):
        value, flag = getattr(options, field.name), "--" + field.name.replace("_", "-")
        if value != field.default:
            words += [flag] if value is True else [flag, str(value)]
    return words


def write_files(out: Path, results: dict[str, Any]) -> None:
    """The report last: where it is, the rest is too."""
    files = {
        RESULTS: json.dumps(results, indent=1, ensure_ascii=False) + "\n",
        "figures.csv": figures_csv(results),
        "table.tex": table_tex(results),
        REPORT: report_html(results),
    }
    for name, text in files.items():
        try:
            write_text(out / name, text)
        except OSError as error:
            raise OwlmineError(f"{out / name}: cannot be written: {error.strerror}") from error
