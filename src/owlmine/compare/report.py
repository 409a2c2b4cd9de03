"""The report: one HTML file that needs nothing else, made from ``results.json`` alone."""

from __future__ import annotations

import shlex
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from owlmine.compare import sections
from owlmine.compare.machine import machine_text
from owlmine.demo.paper import TABLE_2
from owlmine.demo.report import style_sheet


def report_html(results: dict[str, Any]) -> str:
    data, options = results["data"], results["options"]
    template = Template(files("owlmine.compare").joinpath("page.html").read_text("utf-8"))
    return template.substitute(
        style=style_sheet(),
        name=escape(data["name"]),
        tiles=sections.tiles(results),
        lead=f"{len(results['methods'])} ways to learn among {data['classes']:,} classes, each at settings of its own.",
        what=_what(results),
        how=_how(results),
        notes=sections.notes(results),
        ratios=_ratios(results),
        test_points=f"{data['test_points']:,}",
        seeds=_seeds(options),
        figure_table=sections.figure_table(results),
        validation=_validation(results),
        legend=sections.legend(results),
        curve_points=sections.curve_svg(results, "points", "points seen"),
        curve_seconds=sections.curve_svg(results, "seconds", "seconds"),
        first_seed=options["seed"],
        search=_search(results),
        setting_table=sections.setting_table(results),
        data_table=sections.data_table(results),
        command=escape(shlex.join(results["command"])),
        machine=escape(machine_text(results["machine"])),
        footer=f"Written by {escape(results['written_by'])}. Data checksum {data['checksum'][:16]}.",
    )


def _what(results: dict[str, Any]) -> str:
    options = results["options"]
    return (
        "The model is the paper’s: features become a unit vector, each class is a unit vector, their inner product is"
        f" the score ({options['dim']} dimensions). A step takes {options['batch_size']} points and draws a pool of"
        f" {options['pool']:,} classes at random. Top-k mining sorts the pool’s scores and learns from the highest k;"
        " negative sampling learns from the whole pool alike; the others differ in the loss as their names say."
    )


def _how(results: dict[str, Any]) -> str:
    options = results["options"]
    seen = next((m["points_seen"] for m in results["methods"] if m["points_seen"] is not None), 0)
    start = "the mean vector of their points" if options["warm_start"] else "random directions"
    known = "left out of its pool" if options["exclude_known"] else "left in its pool, as in the paper"
    return (
        f"Every final run sees {seen:,} points ({options['epochs']:g} epochs); runs of one seed see them in the same"
        f" order, whatever the method. Class vectors start from {start}. Other labels of a point are {known}. Each"
        " method has step sizes of its own, and a score scale where its loss wants one; they were chosen on validation"
        " points, and the test split took no part in any choice."
    )


def _ratios(results: dict[str, Any]) -> str:
    if results["baseline"] is None:
        return "<p>There are no ratios: negative sampling is not among the methods compared.</p>"
    own = results["paper"]["dataset"]
    text = (
        "Each figure on the test split divided by that of negative sampling; above 1 is better. Under ours, dimmed,"
        f" stand the paper’s ratios for {own}, its dataset nearest to this one."
    )
    told = ", ".join(f"{ratios['top-1']['P@1']:.2f} ({dataset})" for dataset, ratios in TABLE_2.items())
    note = f"The paper’s ratios for P@1 of Top-1 on its four datasets: {told}."
    table = sections.ratio_table(results)
    return f'<p>{text}</p>\n<div class="wide">\n{table}\n</div>\n<p class="note">{note}</p>'


def _seeds(options: dict[str, Any]) -> str:
    if options["seeds"] == 1:
        return "One seed: differences of a few tenths mean nothing."
    return f"Mean of {options['seeds']} seeds and standard deviation between them."


def _validation(results: dict[str, Any]) -> str:
    data = results["data"]
    place = "of the dev split" if data["validation_from"] == "dev" else "cut from train before training"
    return f"{data['validation_points']:,} points {place}"


def _search(results: dict[str, Any]) -> str:
    options = results["options"]
    return (
        "A walk along one rate at a time, by factors of 3 (a scale by about 2), from two starts: one of the method’s"
        f" own and one that all share. A run of the search has {options['epochs'] * options['search_share']:g} epochs,"
        f" {options['search_share']:g} of a final run, and one seed; a method may have {options['search_runs']} of"
        " them. One whose loss is not finite counts as 0. Dimmed scales were not searched."
    )
