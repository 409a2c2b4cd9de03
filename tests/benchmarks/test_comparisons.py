"""Table 2 and the questions: what their configurations ask for, what is stored of them, and how they are run."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comparing
import dataset as datasets
import pytest
import questions
import reproduce
import results
import study
import table2

from owlmine.compare.figures import NAMES
from owlmine.compare.folder import CompareFolder
from owlmine.compare.methods import METHODS, Setting
from owlmine.compare.options import CompareOptions
from owlmine.data import Store
from owlmine.errors import OwlmineError
from owlmine.run.run_folder import mark_of

TABLE2_FILES = sorted((results.PAPER / "table2").glob("*.json"))
QUESTION_FILES = sorted((results.PAPER / "questions").glob("*.json"))
TINY = {"epochs": 1.0, "dim": 8, "batch_size": 32, "pool": 10, "validation": 0.2, "device": "cpu", "search_runs": 2}


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_configurations_are_options_of_compare(name: str) -> None:
    dataset = datasets.Dataset.named(name)
    if dataset.table2:
        assert CompareOptions(**dataset.table2).pool > 0
        assert set(dataset.table2["methods"].split(",")) <= set(METHODS)
    asked = {**dataset.questions}
    names = asked.pop("asked", [])
    assert bool(names) == bool(dataset.questions)
    assert set(names) <= set(questions.QUESTIONS)
    place = questions.Place(name, dataset.sizes["classes"], CompareOptions(**asked).pool)
    for question in map(questions.QUESTIONS.__getitem__, names):
        variants = question.variants(place)
        assert len({method.name for method in variants}) == len(variants) > 1, question.name
        for method in variants:
            CompareOptions(**asked).final_options(method, method.starts[0], seed=0)


@pytest.mark.parametrize("file", TABLE2_FILES + QUESTION_FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_stored_comparison_is_whole(file: Path) -> None:
    told = json.loads(file.read_text("utf-8"))
    assert re.fullmatch("[0-9a-f]{40}", told["made_by"]["commit"])
    assert told["data"]["name"] in datasets.DATASETS
    assert told["data"]["classes"] == datasets.Dataset.named(told["data"]["name"]).sizes["classes"]
    options = CompareOptions(**told["options"])
    assert told["methods"]
    for method in told["methods"]:
        assert len(method["finals"]) == options.seeds
        assert [final["seed"] for final in method["finals"]] == list(range(options.seed, options.seed + options.seeds))
        for figure in NAMES:
            runs = [final["test"][figure] for final in method["finals"]]
            assert method["mean"][figure] == pytest.approx(sum(runs) / len(runs))
            assert 0 < method["mean"][figure] <= 100
        tried = [{name: one[name] for name in method["setting"]} for one in method["search"]["tried"]]
        assert asdict(Setting(**method["setting"])) in tried
    # Nothing of the machine's folders.
    assert not re.search(r'"[~/]', file.read_text("utf-8"))


@pytest.mark.parametrize("file", TABLE2_FILES, ids=lambda file: file.stem)
def test_stored_table2_is_that_of_the_configuration(file: Path) -> None:
    told = json.loads(file.read_text("utf-8"))
    wanted = CompareOptions(**datasets.Dataset.named(file.stem).table2)
    assert replace(CompareOptions(**told["options"]), device="auto") == wanted
    assert [method["name"] for method in told["methods"]] == wanted.methods.split(",")
    for method in told["methods"]:
        assert set(method["ratio"]) == set(NAMES)


@pytest.mark.parametrize("file", QUESTION_FILES, ids=lambda file: file.stem)
def test_stored_answers_are_to_the_question(file: Path) -> None:
    told = json.loads(file.read_text("utf-8"))
    assert file.stem == f"{told['data']['name']}-{told['question']}"
    place = questions.Place(told["data"]["name"], told["data"]["classes"], told["options"]["pool"])
    variants = questions.QUESTIONS[told["question"]].variants(place)
    assert [method["name"] for method in told["methods"]] == [variant.name for variant in variants]
    for method, variant in zip(told["methods"], variants, strict=True):
        assert method["own"] == dict(variant.own)
        assert (method["loss"], method["top"]) == (variant.loss, variant.top)


def test_some_comparisons_are_stored() -> None:
    assert len(TABLE2_FILES) >= 4
    assert len(QUESTION_FILES) >= 11


# What a part does of its work folder; how it ends stands in the method's name.
PART = f"""
import sys
from pathlib import Path
work, method = Path(sys.argv[1]), sys.argv[-1]
if method == "early":
    sys.exit(3)
folder = work.with_name(work.name + "-" + method)
(folder / "runs").mkdir(parents=True)
(folder / {mark_of(Path(), "compare").name!r}).write_text("made by a part")
(folder / "runs" / ("final-" + method + ".json")).write_text(method)
sys.exit("stopped" if method == "late" else 0)
"""


def run_parts(methods: str, work: Path) -> None:
    table2.in_parts("small", {"methods": methods}, [sys.executable, "-c", PART, str(work)], work=work)


def gathered(work: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in (work / "runs").iterdir()}


def test_parts_are_gathered(tmp_path: Path) -> None:
    work = tmp_path / "small"
    run_parts("one,two", work)
    assert gathered(work) == {"final-one.json": "one", "final-two.json": "two"}
    CompareFolder(work).check()


def test_parts_that_fail_leave_what_they_have(tmp_path: Path) -> None:
    work = tmp_path / "small"
    with pytest.raises(SystemExit, match=r"^small: not finished \(early, late\); the same command resumes$"):
        run_parts("early,late,one", work)
    assert gathered(work) == {"final-late.json": "late", "final-one.json": "one"}
    CompareFolder(work).check()


def test_nothing_to_gather_leaves_no_folder(tmp_path: Path) -> None:
    """One without the mark would be taken for something else by the next call."""
    with pytest.raises(SystemExit, match=r"small: not finished \(early\)"):
        run_parts("early", tmp_path / "small")
    assert not (tmp_path / "small").exists()


def table2_verb(*words: str) -> None:
    arguments = study._parser().parse_args(["table2", *words])
    arguments.verb(arguments)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the verb would do on data that are never opened: limits set, commands of parts, comparisons made."""
    seen = SimpleNamespace(limits=[], parts=[], compared=[])
    monkeypatch.setattr(datasets.Dataset, "open", lambda self, root: None)
    monkeypatch.setattr(comparing, "stop_after", seen.limits.append)
    monkeypatch.setattr(table2, "in_parts", lambda name, options, command, work: seen.parts.append((command, work)))

    def compare(
        store: Store, name: str, options: dict[str, Any], *, work: Path, keep: bool = True, settings: object = None
    ) -> None:
        seen.compared.append((name, options["methods"], work, keep))

    monkeypatch.setattr(table2, "table2", compare)
    return seen


def test_only_parts_have_the_limit(seen: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.0, 130.0])
    monkeypatch.setattr(study, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    names, root, work = ["debian-depends", "tibkat-gnd"], tmp_path / "a root", tmp_path / "work"
    table2_verb(*names, "--data-root", str(root), "--work", str(work), "--limit", "50", "--at-once", "--device", "cuda")
    assert seen.limits == []
    assert [work for _, work in seen.parts] == [work / "table2" / name for name in names]
    for (command, _), name, left in zip(seen.parts, names, (50.0, 20.0), strict=True):
        assert command[:2] == [sys.executable, str(Path(study.__file__))]
        told = study._parser().parse_args([*command[2:], "--method", "top-1"])
        assert (told.verb, told.datasets, told.device) == (study.table2, [name], "cuda")
        assert (told.data_root, told.work, told.limit) == (root, work, left)
        assert not told.at_once
    assert [(name, keep) for name, _, _, keep in seen.compared] == [(name, True) for name in names]


def test_a_spent_limit_is_still_one(seen: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 99.0])
    monkeypatch.setattr(study, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    table2_verb("debian-depends", "--limit", "50", "--at-once")
    ((command, _),) = seen.parts
    assert study._parser().parse_args(command[2:]).limit == 1.0


def test_a_part_works_where_its_runs_are_gathered_from(seen: SimpleNamespace, tmp_path: Path) -> None:
    table2_verb("debian-depends", "--method", "top-16", "--work", str(tmp_path), "--limit", "9")
    assert seen.limits == [9.0]
    work = tmp_path / "table2" / "debian-depends"
    assert seen.compared == [("debian-depends", "top-16", table2.part_folder(work, "top-16"), False)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("debian-depends", "bibtex"), "bibtex: has no Table 2"),
        (("debian-depends", "--method", "top-2"), "--method names 'top-2'; wanted one of top-1, top-16"),
    ],
)
def test_what_table2_cannot_do_is_told_before_any_run(words: tuple[str, ...], told: str, seen: SimpleNamespace) -> None:
    with pytest.raises(OwlmineError, match=told):
        table2_verb(*words)
    assert seen.compared == []


def test_ways_of_running_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        table2_verb("debian-depends", "--at-once", "--method", "top-1")
    assert "not allowed with argument" in capsys.readouterr().err


def test_steps_of_nothing_cannot_be_timed(small_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table2, "PAPER", tmp_path)
    with pytest.raises(OwlmineError, match="debian-depends: no stored results of Table 2"):
        table2.time_steps(small_store, "debian-depends")


def _softmax_answer(folder: Path, **seconds: float | None) -> None:
    """What is stored of the question "softmax", as far as equal cost goes by it."""
    losses = {"top 1": "bowl", "sampled": "sampled-softmax", "mined, 16": "mined-softmax", "full": "softmax"}
    told = [
        {
            "name": name,
            "title": name,
            "loss": loss,
            "setting": asdict(Setting(0.2, 4.0, 0.003, 5.0)),
            "seconds_per_step_alone": seconds.get(loss.replace("-", "_")),
        }
        for name, loss in losses.items()
    ]
    (folder / "questions").mkdir(parents=True)
    (folder / "questions" / "debian-depends-softmax.json").write_text(json.dumps({"methods": told}), "utf-8")


def test_softmaxes_at_equal_cost_take_equal_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PAPER", tmp_path)
    seconds = {"sampled_softmax": 0.25, "mined_softmax": 0.5, "softmax": 2.0}
    _softmax_answer(tmp_path, **seconds)
    variants = questions.QUESTIONS["cost"].variants(questions.Place("debian-depends", 1000, 100))
    assert [variant.title for variant in variants] == ["sampled: 2.00", "mined, 16: 1.00", "full: 0.25"]
    asked = CompareOptions(epochs=12.0)
    for variant in variants:
        assert variant.knobs == ()
        assert variant.starts == (Setting(0.2, 4.0, 0.003, 5.0),)
        epochs = asked.final_options(variant, variant.starts[0], seed=0).steps.epochs
        assert epochs * seconds[variant.loss.replace("-", "_")] == pytest.approx(12.0 * 0.5)
        assert asked.search_options(variant, variant.starts[0]).steps.epochs == pytest.approx(0.25 * epochs)


def test_equal_cost_wants_timed_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PAPER", tmp_path)
    place = questions.Place("debian-depends", 1000, 100)
    with pytest.raises(OwlmineError, match="debian-depends: no stored results of the question 'softmax'"):
        questions.QUESTIONS["cost"].variants(place)
    _softmax_answer(tmp_path, mined_softmax=0.5, softmax=2.0)
    with pytest.raises(OwlmineError, match="debian-depends: the steps of the question 'softmax' have no times"):
        questions.QUESTIONS["cost"].variants(place)


def test_a_question_is_asked_and_its_answer_stored(
    small_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparing, "PAPER", tmp_path / "results")
    question = questions.QUESTIONS["surrogate"]
    two = replace(question, variants=lambda place: question.variants(place)[:2])
    path = questions.ask(small_store, "small", two, {**TINY, "seeds": 2}, work=tmp_path / "work")
    assert path == tmp_path / "results" / "questions" / "small-surrogate.json"
    told = json.loads(path.read_text("utf-8"))
    assert told["question"] == "surrogate"
    assert [method["own"] for method in told["methods"]] == [
        {"surrogate": method["name"]} for method in told["methods"]
    ]
    assert all(len(method["finals"]) == 2 for method in told["methods"])
    assert told["options"]["warm_start"]
    assert told["options"]["exclude_known"]
    assert told["made_by"]["commit"]
    assert str(tmp_path) not in path.read_text("utf-8")
    finals = list((tmp_path / "work" / "runs").glob("final-*.json"))
    assert {json.loads(file.read_text())["options"]["surrogate"] for file in finals} == {
        method["name"] for method in told["methods"]
    }
    # Asked again, every run is found, and nothing is told of them.
    before = capsys.readouterr().out
    questions.ask(small_store, "small", two, {**TINY, "seeds": 2}, work=tmp_path / "work")
    assert before.count("search 1 of 2") == 2
    assert "search 1 of 2" not in capsys.readouterr().out


def test_figures_of_a_repetition_are_named_as_the_stored_ones(tmp_path: Path) -> None:
    figures = {"P@1": 3.0, "P@3": 2.0, "P@5": 1.0}
    files = {
        "table2/debian-depends.json": {"methods": [{"title": "Top-1 SNM", "mean": figures}]},
        "table3/bibtex-ours-cpu.json": {"dataset": "bibtex", "tool": "ours", "device": "cpu", "figures": figures},
        "questions/debian-depends-pool.json": {"methods": []},
    }
    for name, told in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(told))
    found = reproduce.figures(tmp_path)
    assert found == {"Table 2, debian-depends, Top-1 SNM": figures, "Table 3, bibtex, ours, cpu": figures}
    stored = reproduce.figures(results.PAPER)
    assert set(found) <= set(stored)
    assert all(set(reproduce.FIGURES) <= set(one) for one in stored.values())


def test_stored_settings_take_the_place_of_a_search(small_store: Store, tmp_path: Path) -> None:
    """One run of the search at the setting, then the seeds with it."""
    chosen = {"top-1": Setting(0.2, 5.0, 0.002), "negative-sampling": Setting(0.02, 0.5, 0.0002)}
    stored = {"methods": [{"name": name, "setting": asdict(setting)} for name, setting in chosen.items()]}
    (tmp_path / "stored.json").write_text(json.dumps(stored))
    settings = table2.settings_of(tmp_path / "stored.json")
    assert settings == chosen
    options = TINY | {"methods": ",".join(chosen), "seeds": 2}
    work = tmp_path / "work"
    table2.table2(small_store, "small", options, work=work, keep=False, settings=settings)
    runs = [json.loads(file.read_text()) for file in (work / "runs").iterdir()]
    assert sorted((run["method"], run["purpose"]) for run in runs) == sorted(
        (name, purpose) for name in chosen for purpose in ("search", "final", "final")
    )
    assert all(run["setting"] == asdict(chosen[run["method"]]) for run in runs)


def test_a_dataset_without_questions_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["study.py", "questions", "bibtex"])
    with pytest.raises(SystemExit, match="error: bibtex: has no questions"):
        study.main()
