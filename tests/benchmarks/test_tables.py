"""What is made of stored results, and whether those that are stored make sense."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import dataset as datasets
import peers
import plans
import pytest
import results
import tables
import write_docs

SUMS = {name: letter * 64 for name, letter in zip(("X.train", "Y.train", "X.test", "Y.test"), "abcd", strict=True)}
SIZES = {"train_points": 4880, "test_points": 2515, "features": 1836, "classes": 159}
FILES = sorted((results.PAPER / "table3").glob("*.json"))


def stored_run(**changed: Any) -> dict[str, Any]:
    figures = {f"{metric}@{k}": 10.0 * k for metric in ("P", "R", "nDCG", "PSP") for k in (1, 3, 5)}
    run = {
        "dataset": "bibtex",
        "tool": "pecos",
        "device": "cpu",
        "matrices": copy.copy(SUMS),
        "figures": figures,
        "train_seconds": 12.345,
        "predict_ms_per_point": 0.1234,
        "busy": False,
        "machine": {"cores": 2},
    }
    return run | changed


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    sizes = SIZES | {"points_per_class": 73.06, "classes_per_point": 2.38}
    write(tmp_path / "table1" / "bibtex.json", {"dataset": "bibtex", "sizes": sizes, "matrices": SUMS})
    write(tmp_path / "table3" / "bibtex-pecos-cpu.json", stored_run())
    return tmp_path


def write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result))


def test_table1(stored: Path) -> None:
    assert "| Bibtex | 4,880 | 2,515 | 1,836 | 159 | 73.06 | 2.38 |" in tables.table1(stored)


def test_rows_of_a_dataset(stored: Path) -> None:
    gpu = {"device": "cuda", "gpu": "Some GPU", "busy": True, "train_seconds": 1.26}
    write(stored / "table3" / "bibtex-ours-cuda.json", stored_run(tool="ours", **gpu))
    lines = tables.table3(stored).splitlines()
    assert lines[2] == (
        "| Bibtex | **owlmine** single | 10.00 | 30.00 | 50.00 | 10.00 | 50.00 | 1.3 \\* | 0.12 \\* | Some GPU |"
    )
    assert lines[3].startswith("|  | PECOS XR-Linear 1.2.8 | 10.00 | 30.00 | 50.00 | 10.00 | 50.00 | 12 | 0.12 | CPU")
    assert "Parabel †" in lines[4]
    assert any(line.startswith("\\* a time measured while") for line in lines)


@pytest.mark.parametrize("name", SUMS)
def test_other_matrices_are_left_out(name: str, stored: Path) -> None:
    write(stored / "table3" / "bibtex-omikuji-cpu.json", stored_run(tool="omikuji", matrices=SUMS | {name: "e" * 64}))
    by_dataset, left_out = tables.joined(stored)
    assert [run["tool"] for run in by_dataset["bibtex"]] == ["pecos"]
    assert left_out == [f"bibtex, Omikuji 0.5.2 on cpu: measured on another {name}"]
    assert "| Omikuji" not in tables.table3(stored)
    assert f"Left out: {left_out[0]}." in tables.table3(stored)


def test_a_dataset_without_sizes_is_left_out(stored: Path) -> None:
    write(stored / "table3" / "commit-files-pecos-cpu.json", stored_run(dataset="commit-files"))
    _, left_out = tables.joined(stored)
    assert left_out == ["commit-files, PECOS XR-Linear 1.2.8 on cpu: Table 1 has no such dataset"]


def test_blocks_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(write_docs.BLOCKS, "results: table1", lambda: "| new |")
    text = "before\n<!-- results: table1 -->\nold\n<!-- end -->\nafter\n"
    once = write_docs.with_tables(text)
    assert once == "before\n<!-- results: table1 -->\n| new |\n<!-- end -->\nafter\n"
    assert write_docs.with_tables(once) == once
    with pytest.raises(ValueError, match="has the marker 'results: table9'; expected one of results: table1"):
        write_docs.with_tables(text.replace("table1", "table9"))


@pytest.mark.parametrize("document", write_docs.DOCUMENTS, ids=lambda document: document.name)
def test_documents_show_the_stored_results_and_the_plan(document: Path) -> None:
    text = document.read_text("utf-8")
    assert "<!-- results: " in text or "<!-- plan: " in text
    assert write_docs.with_tables(text) == text, "run: python benchmarks/paper/write_docs.py"


def shown_rows(table: str) -> list[tuple[float, list[str]]]:
    """The size up to which each row holds, and its cells."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return [
        (math.inf if row[0] == "more" else int(row[0].removeprefix("up to ").replace(",", "")), row[1:])
        for row in rows[2:]
    ]


def test_sizes_hold_up_to_each_limit_and_change_behind_it() -> None:
    rows = shown_rows(plans.sizes())
    assert [most for most, _ in rows] == [25_000, 60_000, 200_000, 800_000, math.inf]
    for most, cells in rows:
        for on_gpu, cell in zip((True, False), cells, strict=True):
            at = plans.plan(points=min(int(min(most, 10**9)), 10**9), on_gpu=on_gpu)
            sizes = f"{at.heads} of {at.model.dim} dimensions, {at.model.epochs:g} epochs"
            assert cell == f"{sizes}, {at.model.batch_size:,} a batch"
    for (most, cells), (_, following) in itertools.pairwise(rows):
        behind = [plans.plan(points=int(most) + 1, on_gpu=on_gpu).heads for on_gpu in (True, False)]
        assert [int(cell.split()[0]) for cell in following] == behind
        assert cells != following


@pytest.mark.parametrize("on_gpu", [False, True])
def test_pools_are_those_of_the_plan(on_gpu: bool) -> None:
    first = 2
    for most, cells in shown_rows(plans.pools()):
        words = cells[on_gpu].replace(",", "")
        for num_classes in (first, min(first + 7, int(min(most, 10**9))), int(min(most, 10**9))):
            wanted = {"all others": num_classes - 1, "1/8 of them": num_classes // 8}.get(words)
            pool = plans.plan(classes=num_classes, on_gpu=on_gpu).model.pool
            assert pool == (int(words) if wanted is None else wanted), num_classes
        first = int(min(most, 10**9)) + 1


def test_every_loss_of_the_table_is_planned_so() -> None:
    for line in plans.losses().splitlines()[2:]:
        name, top, scale, *rates = (cell.strip() for cell in line.strip("|").split("|"))
        model = plans.plan(loss=name.strip("`")).model
        assert (model.top, model.scale) == (int(top), float(scale))
        assert [model.class_rate, model.feature_rate, model.map_rate] == [float(rate) for rate in rates]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_stored_run_is_whole(file: Path) -> None:
    run = json.loads(file.read_text())
    assert file == results.result_file(run)
    assert set(results.IDENTITY) <= set(run)
    assert run["tool"] in {*datasets.OURS, *peers.all_peers()}
    assert all(re.fullmatch("[0-9a-f]{64}", run["matrices"][name]) for name in SUMS)
    for metric in ("P", "R", "nDCG", "PSP"):
        assert all(0 < run["figures"][f"{metric}@{k}"] <= 100 for k in (1, 3, 5))
    assert run["figures"]["R@1"] <= run["figures"]["R@3"] <= run["figures"]["R@5"]
    assert min(run["train_seconds"], run["predict_ms_per_point"], run["peak_rss_mib"]) > 0
    assert {"busy", "load_before", "load_after", "machine"} <= set(run)
    # Nothing of the machine's folders.
    assert not re.search(r'"[~/]', file.read_text())


@pytest.mark.parametrize("file", sorted((results.PAPER / "table1").glob("*.json")), ids=lambda file: file.stem)
def test_stored_sizes_are_those_of_the_study(file: Path) -> None:
    told = json.loads(file.read_text())
    wanted = datasets.Dataset.named(file.stem).sizes
    assert {name: told["sizes"][name] for name in wanted} == wanted
    assert set(told["matrices"]) == set(SUMS)


def test_some_results_are_stored() -> None:
    assert len(FILES) >= 8
