"""The report: one HTML file that needs nothing else, made from ``results.json`` alone."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from owlmine.demo import sections
from owlmine.demo.earlier import REPORT
from owlmine.demo.paper import PAPER_DATASET
from owlmine.errors import OwlmineError
from owlmine.files import write_text

_START_NOTE = (
    "Before training, a class vector is the mean of the vectors of its training points, under an encoder that is still"
    " random. Every method starts from there, so what training adds is the difference to this column."
)
_CURVE_NOTE = (
    "Packages of one source stand together in the test split; validation packages were drawn one by one and often have"
    " sisters among those learnt from, so these curves lie higher than the test figures. Seconds are those of this"
    " machine, validation included; they say little where other work ran beside it. Points seen do not depend on the"
    " machine."
)
_COMMANDS = """\
echo "a mail server for small networks" | owlmine predict top-1 -
owlmine evaluate top-1 sample
owlmine train MY-DATA --out my-model"""
_PYTHON = """\
import owlmine

model = owlmine.load("top-1")
for answer in model.predict(["a mail server for small networks"], k=5)[0]:
    print(answer.name, round(answer.score, 3))"""


def write_report(out: Path, results: dict[str, Any]) -> Path:
    """Writes the page into the folder and returns its path."""
    path = out / REPORT
    try:
        write_text(path, report_html(results))
    except OSError as error:
        raise OwlmineError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def report_html(results: dict[str, Any]) -> str:
    data = results["data"]
    template = Template(files("owlmine.demo").joinpath("page.html").read_text("utf-8"))
    return template.substitute(
        style=style_sheet(),
        tiles=sections.tiles(results),
        what=_what(results),
        how=_how(results),
        paper_note=f"Beside ours, dimmed, stand the paper’s ratios for {PAPER_DATASET}: other data, the same pool.",
        ratio_table=sections.ratio_table(results),
        classes=f"{data['classes']:,}",
        test_points=f"{data['test_points']:,}",
        validation_points=f"{data['validation_points']:,}",
        figure_table=sections.figure_table(results),
        start_note=_START_NOTE,
        legend=sections.legend(results),
        curve_points=sections.curve_svg(results, "points", "points seen"),
        curve_seconds=sections.curve_svg(results, "seconds", "seconds"),
        curve_note=_CURVE_NOTE,
        examples=sections.example_cards(results),
        commands=escape(_COMMANDS),
        python=escape(_PYTHON),
        footer=f"Written by {escape(results['written_by'])}, seed {results['options']['seed']}. The numbers"
        " of this page are in results.json beside it.",
    )


def style_sheet() -> str:
    """How pages look on a screen, on a telephone and in print."""
    return files("owlmine.demo").joinpath("style.css").read_text("utf-8")


def _what(results: dict[str, Any]) -> str:
    data = results["data"]
    return (
        f"From the description of a Debian package, find the packages that it depends on: {data['classes']:,} classes,"
        f" {data['train_points']:,} packages to learn from, {data['test_points']:,} to be judged on. The model is the"
        " paper’s: a bag of words becomes a unit vector, each class is a unit vector, their inner product is the score."
        f" A step draws a pool of {results['options']['pool']:,} classes at random. Negative sampling learns from all"
        " of them alike; stochastic negative mining sorts their scores and learns from the highest one (Top-1) or"
        " sixteen (Top-16), the negatives that the model confuses most with the truth."
    )


def _how(results: dict[str, Any]) -> str:
    options = results["options"]
    seen = results["methods"][0]["points_seen"]
    return (
        f"All three see the same {seen:,} points ({options['epochs']:g} epochs) in the same order, from the same start,"
        f" with {options['dim']} dimensions, and leave the other known labels of a point out of its pool. Each has step"
        " sizes of its own, chosen on packages cut from train; the test packages took no part in any choice. The start"
        " suits mining: tried apart, from random class vectors and with larger steps of the encoder, negative sampling"
        " did three points better on such packages than it does here."
    )
