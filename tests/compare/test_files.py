"""What a comparison leaves behind: results.json, figures.csv, table.tex and the page say the same."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from owlmine.compare.figures import NAMES, PAPER_CLASSES, TABLE_2, paper_figures
from owlmine.compare.report import comparison_page
from owlmine.compare.results import table_tex, tex
from owlmine.compare.terminal import print_comparison
from tests.compare.conftest import Heard, records
from tests.compare.pages import parsed

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


HOSTILE = ("<script>alert(1)</script>", '" onmouseover="alert(1)', "it's <b>&amp;</b>", "{{ 7 * 7 }} ${tiles}")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_the_report_are_escaped(results: dict[str, Any], name: str) -> None:
    methods = [method | {"title": name} for method in results["methods"]]
    data, machine = results["data"] | {"name": name}, results["machine"] | {"cpu": name}
    page = parsed(
        comparison_page(
            results
            | {"data": data, "methods": methods, "machine": machine, "notes": [name], "command": ["owlmine", name]}
        )
    )
    assert not {"script", "b"} & set(page.tags) - {"b"}
    assert page.handlers == []
    # In title and heading, as a note, in the command, of the machine; titles in tables, tile, legend and curves.
    assert sum(name in words or shlex.quote(name) in words for words in page.words) >= 5 + 3 * 4


def test_without_a_baseline_the_report_says_so(results: dict[str, Any]) -> None:
    methods = [method | {"ratio": None} for method in results["methods"] if method["name"] != "negative-sampling"]
    bare = results | {"methods": methods, "baseline": None}
    assert "There are no ratios" in "".join(parsed(comparison_page(bare)).words)
    assert table_tex(bare).count("SNM") == 1


def test_a_method_whose_runs_all_failed_is_told_and_drawn_without(results: dict[str, Any]) -> None:
    nothing = {"curve": [], "seconds": None, "seconds_per_step": None, "points_seen": None}
    one = [results["methods"][0] | nothing, *results["methods"][1:]]
    assert parsed(comparison_page(results | {"methods": one})).tags.count("svg") == 5
    every = [method | nothing for method in results["methods"]]
    assert "No run finished." in parsed(comparison_page(results | {"methods": every})).words
    assert " & -- " in table_tex(results | {"methods": one})


def test_the_terminal_shows_all_figures_in_80_columns(results: dict[str, Any]) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    widest = {"seconds_per_step": 1.2345, "seconds": 12345.6, "deviation": dict.fromkeys(NAMES, 12.34)}
    print_comparison(console, results | {"methods": [method | widest for method in results["methods"]]})
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
    told = paper_figures(name, classes, ["top-16", "semi-hard"])
    assert told == {"dataset": dataset, "ratios": {"top-16": TABLE_2[dataset]["top-16"]}}
