"""What a comparison leaves behind: results.json, figures.csv, table.tex and the page say the same."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from owlmine.compare.figure_files import table_tex, tex
from owlmine.compare.report import report_html
from owlmine.compare.results import _paper
from owlmine.compare.table import print_results
from owlmine.demo.curves import NUM_LOOKS, Line, curves_svg, mark
from owlmine.demo.figures import NAMES
from owlmine.demo.paper import PAPER_CLASSES, TABLE_2
from tests.compare.conftest import Heard, records
from tests.test_demo import parsed

Compared = tuple[Path, dict[str, Any], Heard]


@pytest.fixture
def results(compared: Compared) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((compared[0] / "results.json").read_text("utf-8"))
    assert told == json.loads(json.dumps(compared[1]))
    return told


def test_means_are_those_of_the_runs(compared: Compared, results: dict[str, Any]) -> None:
    for method in results["methods"]:
        finals = [r for name, r in records(compared[0]).items() if name.startswith(f"final-{method['name']}-")]
        for name in NAMES:
            values = [record["test"][name] for record in finals]
            assert method["mean"][name] == pytest.approx(sum(values) / 2)
            assert method["deviation"][name] == pytest.approx(statistics.stdev(values))
        assert method["seconds"] == pytest.approx(method["seconds_per_step"] * 10, rel=1e-6)


def test_ratios_are_means_over_negative_sampling(results: dict[str, Any]) -> None:
    baseline = results["methods"][1]
    assert baseline["name"] == results["baseline"] == "negative-sampling"
    for method in results["methods"]:
        for name in NAMES:
            assert method["ratio"][name] == pytest.approx(method["mean"][name] / baseline["mean"][name])


def test_the_csv_has_the_numbers_of_the_results(compared: Compared, results: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO((compared[0] / "figures.csv").read_text("utf-8"))))
    assert [row["method"] for row in rows] == ["top-1", "negative-sampling", "sampled-softmax"]
    for row, method in zip(rows, results["methods"], strict=True):
        for name in NAMES:
            for what in ("mean", "deviation", "ratio"):
                assert float(row[f"{name} {what}"]) == method[what][name]
        assert float(row["class_rate"]) == method["setting"]["class_rate"]
        assert float(row["seconds_per_step"]) == method["seconds_per_step"]
        assert int(row["search_runs"]) == method["search"]["runs"]


def test_the_latex_table_has_the_numbers_of_the_results(compared: Compared, results: dict[str, Any]) -> None:
    text = (compared[0] / "table.tex").read_text("utf-8")
    rows = [line for line in text.splitlines() if "$" in line]
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    for row, method in zip(rows, results["methods"], strict=True):
        assert row.startswith(method["title"])
        assert row.endswith(r" \\")
        assert row.count("&") == len(NAMES) + 1
        found = re.findall(r"\$(?:\\mathbf\{)?([\d.]+)\}? \\pm ([\d.]+)\$", row)
        assert found == [(f"{method['mean'][name]:.2f}", f"{method['deviation'][name]:.2f}") for name in NAMES]
    assert text.count(r"\mathbf") >= len(NAMES)


def test_latex_of_odd_names() -> None:
    assert tex(r"a_b & 50% \x {y} #1 $2 ~^") == (
        r"a\_b \& 50\% \textbackslash{}x \{y\} \#1 \$2 \textasciitilde{}\textasciicircum{}"
    )


def test_the_report_is_whole_and_needs_nothing_else(compared: Compared, results: dict[str, Any]) -> None:
    text = (compared[0] / "report.html").read_text("utf-8")
    page = parsed(text)
    assert page.references == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not re.search(r"https?:|@import|url\(", text)
    assert "$" not in "".join(page.words)
    assert page.tags.count("svg") == 2 + len(results["methods"])
    for method in results["methods"]:
        for name in NAMES:
            assert f"{method['mean'][name]:.2f}" in page.words
            assert f"±{method['deviation'][name]:.2f}" in page.words
            if method["name"] != results["baseline"]:
                assert f"{method['ratio'][name]:.2f}" in page.words
    assert "2.33" in page.words, "the paper's own ratio"


def test_names_in_the_report_are_escaped(results: dict[str, Any]) -> None:
    odd = '<b>&"x"</b> ${tiles}'
    data = results["data"] | {"name": odd}
    page = parsed(report_html(results | {"data": data, "notes": [odd], "command": ["owlmine", odd]}))
    assert sum(odd in words for words in page.words) == 5


def test_without_a_baseline_the_report_says_so(results: dict[str, Any]) -> None:
    methods = [method | {"ratio": None} for method in results["methods"] if method["name"] != "negative-sampling"]
    bare = results | {"methods": methods, "baseline": None}
    assert "There are no ratios" in "".join(parsed(report_html(bare)).words)
    assert table_tex(bare).count("SNM") == 1


def test_a_method_whose_runs_all_failed_is_told_and_drawn_without(results: dict[str, Any]) -> None:
    nothing = {"curve": [], "seconds": None, "seconds_per_step": None, "points_seen": None}
    one = [results["methods"][0] | nothing, *results["methods"][1:]]
    assert parsed(report_html(results | {"methods": one})).tags.count("svg") == 5
    every = [method | nothing for method in results["methods"]]
    assert "No run came to an end." in parsed(report_html(results | {"methods": every})).words
    assert " & -- " in table_tex(results | {"methods": one})


def test_the_terminal_shows_all_figures_in_80_columns(results: dict[str, Any]) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    widest = {"seconds_per_step": 1.2345, "seconds": 12345.6, "deviation": dict.fromkeys(NAMES, 12.34)}
    print_results(console, results | {"methods": [method | widest for method in results["methods"]]})
    shown = console.export_text()
    assert "…" not in shown
    for method in results["methods"]:
        row = next(line for line in shown.splitlines() if method["title"] in line)
        assert re.findall(r"(?<!±)\b\d+\.\d\d\b", row) == [f"{method['mean'][name]:.2f}" for name in NAMES]
    for note in results["notes"]:
        assert note in shown.replace("\n", " ")


def test_the_papers_table_is_complete() -> None:
    """Spot checks of the paper's Table 2, and that mining harder is better there but for one figure."""
    assert set(TABLE_2) == set(PAPER_CLASSES)
    assert TABLE_2["Amazon-3M"]["top-1"]["P@5"] == 3.07
    assert TABLE_2["WikiLSHTC-325K"]["top-256"]["R@1"] == 1.87
    odd = [
        (dataset, name)
        for dataset, methods in TABLE_2.items()
        for name in NAMES
        for harder, softer in (("top-1", "top-16"), ("top-16", "top-64"), ("top-64", "top-256"))
        if methods[harder][name] < methods[softer][name]
    ]
    assert odd == [("Amazon-670K", "P@5")]


@pytest.mark.parametrize(
    ("name", "classes", "dataset"),
    [("mine", 20_000, "AmazonCat-13K"), ("mine", 10**7, "Amazon-3M"), ("amazon-670k.store", 10, "Amazon-670K")],
)
def test_the_papers_dataset_is_the_same_or_the_nearest(name: str, classes: int, dataset: str) -> None:
    told = _paper(name, classes, ["top-16", "semi-hard"])
    assert told == {"dataset": dataset, "ratios": {"top-16": TABLE_2[dataset]["top-16"]}}


def test_every_curve_looks_different() -> None:
    marks = {mark(number, 5, 5) for number in range(1, NUM_LOOKS + 1)}
    assert len(marks) == NUM_LOOKS == 10
    for number in (0, NUM_LOOKS + 1):
        with pytest.raises(ValueError, match="wanted 1 to 10"):
            mark(number, 0, 0)
    lines = [Line(f"line {n}", n, [1, 2], [n, n + 1]) for n in range(1, NUM_LOOKS + 1)]
    text = curves_svg(lines, x_name="points", y_name="percent", label="ten", size=(760, 400))
    parsed(text)
    assert len(set(re.findall(r'stroke-dasharray="([^"]+)"', text))) == 7
