"""``owlmine index`` as a user runs it, and the commands that use the index."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import owlmine
from owlmine.errors import DataError, OwlmineError
from owlmine.folder.model_folder import verify_model
from owlmine.index import ApproximateIndex, ExactIndex
from owlmine.index.approximate import DEFAULT_KIND, KINDS

from ..sealed import seal
from ..small_models import run, write_jsonl

faiss = pytest.importorskip("faiss")

NUM_CLASSES = 1_200
OPTIONS = {"dim": 16, "heads": 1, "epochs": 2, "device": "cpu"}


def _text(number: int) -> str:
    """Four words that say the class, and one that says nothing."""
    one = number % NUM_CLASSES
    return f"a{one % 40} b{one % 31} c{one % 29} d{one % 37} e{number % 7}"


def _fitted(seed: int) -> owlmine.Model:
    texts = [_text(number) for number in range(3 * NUM_CLASSES)]
    labels = [[f"class {number % NUM_CLASSES}"] for number in range(3 * NUM_CLASSES)]
    return owlmine.fit(texts, labels, options=OPTIONS | {"seed": seed})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index") / "model"
    _fitted(0).save(folder)
    return folder


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "model"))


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    rows = [{"text": _text(number), "labels": [f"class {number}"]} for number in range(50)]
    return write_jsonl(tmp_path / "queries.jsonl", rows)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_saved_measured_and_used(model: Path, queries: Path, kind: str) -> None:
    before = run("predict", model, queries, "-k", "3").stdout
    done = run("index", model, queries, "--json", *(() if kind == DEFAULT_KIND else ("--kind", kind)))
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["queries"] == 50
    assert 50 < figures["recall_of_list"] <= 100
    assert json.loads((model / "config.json").read_text())["index"]["figures"]["listed"] == figures["listed"]
    index = owlmine.load(model).index
    assert isinstance(index, ApproximateIndex)
    assert index.kind == kind == figures["kind"] == json.loads((model / "config.json").read_text())["index"]["kind"]
    assert isinstance(owlmine.load(model, exact=True).index, ExactIndex)
    assert run("predict", model, queries, "-k", "3", "--exact").stdout == before
    answered = [json.loads(line) for line in run("predict", model, queries, "-k", "3").stdout.splitlines()]
    assert [len(answer["classes"]) for answer in answered] == [3] * 50
    assert not verify_model(model)
    assert run("evaluate", model, queries).exit_code == run("evaluate", model, queries, "--exact").exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_added_classes_join_the_index(model: Path, kind: str, tmp_path: Path) -> None:
    assert run("index", model, "--kind", kind).exit_code == 0
    texts, labels = ["a1 b2 c3 e9", _text(1)], [["a new class"], ["another one"]]
    owlmine.load(model).add_classes(texts, labels).save(tmp_path / "larger")
    larger = owlmine.load(tmp_path / "larger")
    assert isinstance(larger.index, ApproximateIndex)
    assert (larger.index.kind, larger.index.num_classes) == (kind, NUM_CLASSES + 2)
    vectors_CD = larger.dense.rows[NUM_CLASSES:]
    assert larger.index.search(vectors_CD, 1)[1][:, 0].tolist() == [NUM_CLASSES, NUM_CLASSES + 1]


def test_there_are_two_kinds(model: Path) -> None:
    with pytest.raises(OwlmineError, match="--kind is 'flat'; wanted ivf or hnsw"):
        raise run("index", model, "--kind", "flat").exception or AssertionError


def test_without_queries_it_is_measured_with_training_points(model: Path) -> None:
    done = run("index", model)
    assert done.exit_code == 0, done.output
    assert "measured on 2,000 training points" in done.stdout


def test_reading_options_need_queries(model: Path) -> None:
    with pytest.raises(OwlmineError, match="owlmine index MODEL DATA"):
        raise run("index", model, "--split", "test").exception or AssertionError


def test_a_model_without_training_points_needs_queries(queries: Path, tmp_path: Path) -> None:
    texts = [_text(number) for number in range(NUM_CLASSES)]
    labels = [[f"class {number}"] for number in range(NUM_CLASSES)]
    owlmine.fit(texts, labels, options={"recipe": "single", "dim": 8, "epochs": 1, "device": "cpu"}).save(
        tmp_path / "m"
    )
    with pytest.raises(OwlmineError, match="owlmine index MODEL DATA"):
        raise run("index", tmp_path / "m").exception or AssertionError
    assert run("index", tmp_path / "m", queries).exit_code == 0


def test_few_classes_need_no_index(queries: Path, tmp_path: Path) -> None:
    owlmine.fit([_text(n) for n in range(40)], [["a", "b"][n % 2] for n in range(40)], options=OPTIONS).save(
        tmp_path / "m"
    )
    with pytest.raises(OwlmineError, match="exact search is as fast"):
        raise run("index", tmp_path / "m", queries).exception or AssertionError
    assert not (tmp_path / "m" / "index.faiss").exists()


@pytest.mark.parametrize("harm", ["cut", "changed", "missing", "of another model", "of another faiss"])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_harmed_index_is_refused_and_exact_search_offered(model: Path, harm: str, kind: str, *, sealed: bool) -> None:
    assert run("index", model, "--kind", kind).exit_code == 0
    file, config = model / "index.faiss", model / "config.json"
    code = file.read_bytes()
    if harm == "cut":
        file.write_bytes(code[: len(code) // 2])
    elif harm == "changed":
        file.write_bytes(code[:8] + bytes(64) + code[72:])
    elif harm == "missing":
        file.unlink()
    elif harm == "of another model":
        wider = _fitted(1).add_classes([_text(1)], [["new class"]])
        file.write_bytes(ApproximateIndex.build(wider.dense.rows, kind=kind).to_bytes().tobytes())
    else:
        record = json.loads(config.read_text())
        record["index"]["faiss"] = "1.0.0"
        config.write_text(json.dumps(record))
        seal(model)
    if sealed:
        seal(model)
    with pytest.raises(DataError, match="index") as refused:
        owlmine.load(model)
    assert str(file) in str(refused.value)
    assert f"owlmine index {model}, or search with --exact" in str(refused.value)
    assert len(owlmine.load(model, exact=True).predict([_text(0)])[0]) == 5
    assert run("index", model).exit_code == 0  # built again
    assert isinstance(owlmine.load(model).index, ApproximateIndex)
