"""Runs of the study on a small dataset: ours, and a peer that is a script of this test. No network."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import contention
import dataset as datasets
import judge
import matrices
import numpy as np
import ours
import peers
import pytest
import results
import study
import worker

from owlmine.data import Store
from owlmine.errors import OwlmineError
from owlmine.evaluate.of_model import evaluate_model
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

# Answers with the commonest classes of train.
WORKER = """
from worker import Job
job = Job([])
counts = job.Y_train.toarray().sum(axis=0)
best = sorted(range(len(counts)), key=lambda c: -counts[c])[: job.options["answers"]]
job.run(lambda: best, lambda model: [model] * job.X_test.shape[0])
"""


class ScriptPeer(peers.Peer):
    script: Path

    @property
    def worker(self) -> Path:
        return self.script


@pytest.fixture
def script_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptPeer:
    """``worker.py`` is found as it is for real workers: beside the script."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "worker.py").write_text(Path(worker.__file__).read_text())
    (folder / "peer.py").write_text(WORKER)
    monkeypatch.setattr(peers, "environment", lambda peer, work: Path(sys.executable))
    peer = ScriptPeer("commonest", "Commonest", "numpy", "1", [], {"answers": 3})
    monkeypatch.setattr(ScriptPeer, "script", folder / "peer.py", raising=False)
    return peer


@pytest.fixture
def small_dataset(small_store: Store) -> datasets.Dataset:
    sizes = {"train_points": 200, "test_points": 60, "features": 50, "classes": 20}
    return datasets.Dataset("small", "Small", "store", ["ours"], sizes, ours={"epochs": 2.0, "dim": 8})


def test_peer_is_run_judged_and_kept(script_peer: ScriptPeer, small_store: Store, tmp_path: Path) -> None:
    work, kept = tmp_path / "work", tmp_path / "results"
    exported = tmp_path / "matrices", matrices.export(small_store, tmp_path / "matrices")
    result = peers.run_peer(script_peer, "small", small_store, exported, work, results=kept)
    assert result is not None
    counts = np.asarray(small_store.class_counts)
    best = sorted(range(20), key=lambda c: -counts[c])[:3]
    labels = small_store["test"].labels.slice(0, 60)
    hits = np.isin(labels.indices, best[:1]).sum(), np.isin(labels.indices, best).sum()
    assert result["figures"]["P@1"] == pytest.approx(100 * hits[0] / 60, abs=1e-3)
    # Two of five places are empty, and count as misses.
    assert result["figures"]["P@5"] == pytest.approx(100 * hits[1] / 5 / 60, abs=1e-3)
    assert result["train_seconds"] >= 0
    assert result["peak_rss_mib"] > 1
    stored = json.loads((kept / "table3" / "small-commonest-cpu.json").read_text())
    assert stored["figures"] == result["figures"]
    assert stored["matrices"] == exported[1]
    assert str(tmp_path) not in json.dumps(stored)
    assert list(work.glob("tmp*")) == []


def test_same_run_is_not_made_again(script_peer: ScriptPeer, small_store: Store, tmp_path: Path) -> None:
    work, kept = tmp_path / "work", tmp_path / "results"
    exported = tmp_path / "matrices", matrices.export(small_store, tmp_path / "matrices")

    def run(peer: peers.Peer = script_peer, **options: bool) -> results.Result | None:
        return peers.run_peer(peer, "small", small_store, exported, work, results=kept, **options)

    assert run() is not None
    assert run() is None
    assert run(again=True) is not None
    assert run(replace(script_peer, options={"answers": 2})) is not None
    assert run(replace(script_peer, options={"answers": 2}, version="2")) is not None
    other_sums = exported[1] | {"X.test": "0" * 64}
    identity = {"dataset": "small", "tool": "commonest", "device": "cpu", "matrices": other_sums}
    identity |= {"versions": {"numpy": "2"}, "options": {"answers": 2}}
    assert results.found_before(identity | {"matrices": exported[1]}, kept) is not None
    assert results.found_before(identity, kept) is None


def test_failure_names_the_command_and_the_log(script_peer: ScriptPeer, small_store: Store, tmp_path: Path) -> None:
    script_peer.worker.write_text("print('a first line')\nraise SystemExit('the reason')\n")
    exported = tmp_path / "matrices", matrices.export(small_store, tmp_path / "matrices")
    with pytest.raises(OwlmineError, match=r"(?s)peer\.py[^\n]*\nended with status 1.*a first line\nthe reason$"):
        peers.run_peer(script_peer, "small", small_store, exported, tmp_path / "work", results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_failure_of_pip_names_it(tmp_path: Path) -> None:
    peer = peers.Peer("broken", "Broken", "none", "1", [["--no-index", "no-such-package-at-all"]], {})
    with pytest.raises(
        OwlmineError, match=r"pip install --no-index no-such-package-at-all\nended with status"
    ) as caught:
        peers.environment(peer, tmp_path)
    assert "No matching distribution" in str(caught.value)
    assert not (tmp_path / "peers" / "broken-1" / "installed.json").exists()


def test_a_log_holds_every_call_of_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "logs" / "install-some.log"
    words: list[str] = []

    def with_echo(command: list[str], log: Path) -> None:
        (tmp_path / "peers" / "some-1").mkdir(parents=True, exist_ok=True)
        words.append(command[-1])
        run_logged([sys.executable, "-c", f"print('told {len(words)}')"], log)

    run_logged = peers.run_logged
    monkeypatch.setattr(peers, "run_logged", with_echo)
    peer = peers.Peer("some", "Some", "some", "1", [["numpy"], ["some==1"]], {})
    peers.environment(peer, tmp_path)
    assert [line for line in log.read_text().splitlines() if not line.startswith("$ ")] == [
        "told 1",
        "told 2",
        "told 3",
    ]
    peers.environment(replace(peer, install=[["some==1"]]), tmp_path)
    assert "told 3" not in log.read_text()
    assert "told 5" in log.read_text()


def test_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def only_note(command: list[str], log: Path) -> None:
        commands.append(command)
        (tmp_path / "peers" / "some-1").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(peers, "run_logged", only_note)
    peer = peers.Peer("some", "Some", "some", "1", [["some==1"]], {})
    assert peers.environment(peer, tmp_path) == peers.environment(peer, tmp_path)
    assert len(commands) == 2
    peers.environment(replace(peer, install=[["numpy"], ["some==1"]]), tmp_path)
    assert [command[-1] for command in commands[3:]] == ["numpy", "some==1"]


def test_ours_is_judged_as_evaluate_does(small_dataset: datasets.Dataset, small_store: Store, tmp_path: Path) -> None:
    kept = tmp_path / "results"
    result = ours.run_ours(small_dataset, small_store, out=tmp_path / "model", results=kept)
    assert result is not None
    again = train(small_store, tmp_path / "other", TrainOptions.of(recipe="single", epochs=2.0, dim=8, device="cpu"))
    figures = evaluate_model(again, small_store["test"]).figures
    for name, value in result["figures"].items():
        assert value == pytest.approx(figures[name], abs=1e-3), name
    assert result["matrices"] == matrices.checksums(small_store)
    assert "device" not in result["options"]
    assert ours.run_ours(small_dataset, small_store, results=kept) is None
    other = replace(small_dataset, ours={"epochs": 1.0, "dim": 8})
    assert ours.run_ours(other, small_store, results=kept) is not None
    assert json.loads((kept / "table1" / "small.json").read_text())["sizes"]["classes"] == 20


def test_judge_wants_a_list_per_point(small_store: Store) -> None:
    with pytest.raises(ValueError, match="59 ranked lists were given; wanted 60"):
        judge.judge(np.zeros((59, 5), np.int64), small_store, "small")


def test_lists_become_one_array() -> None:
    ids = worker.ranked_ids([[3, 1], [], [9, 8, 7, 6, 5, 4]], 3)
    assert ids.tolist() == [[3, 1, -1, -1, -1], [-1] * 5, [9, 8, 7, 6, 5]]
    for wrong in (2, 4):
        with pytest.raises(ValueError, match="zip"):
            worker.ranked_ids([[1], [2], [3]], wrong)


def test_wrong_sizes_are_refused(small_dataset: datasets.Dataset, small_store: Store, tmp_path: Path) -> None:
    assert small_dataset.open(tmp_path).num_classes == 20
    wrong = replace(small_dataset, sizes={"classes": 21})
    with pytest.raises(OwlmineError, match="found 20 classes; wanted 21 for small"):
        wrong.open(tmp_path)
    with pytest.raises(OwlmineError, match="wanted --data-root FOLDER with a folder store in it"):
        small_dataset.open(None)


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_configurations_fit_together(name: str) -> None:
    dataset = datasets.Dataset.named(name)
    TrainOptions.of(**dataset.ours)
    known = {*datasets.OURS, *peers.all_peers()}
    assert {*dataset.tools, *dataset.left_out} <= known
    assert not set(dataset.tools) & set(dataset.left_out)
    assert set(dataset.sizes) == {"train_points", "test_points", "features", "classes"}


@pytest.mark.parametrize("name", peers.all_peers())
def test_peers_are_pinned(name: str) -> None:
    peer = peers.all_peers()[name]
    assert peer.worker.is_file()
    words = [word for call in peer.install for word in call if not word.startswith("--")]
    assert f"{peer.package}=={peer.version}" in words
    assert all("==" in word for word in words)


def test_tools_are_chosen_by_name() -> None:
    bibtex = datasets.Dataset.named("bibtex")
    assert study._chosen_tools(bibtex, None) == bibtex.tools
    assert study._chosen_tools(bibtex, "omikuji,ours") == ["omikuji", "ours"]
    with pytest.raises(OwlmineError, match="--tools names 'fast'; wanted some of ours, ours-bowl, pecos"):
        study._chosen_tools(bibtex, "fast")


@pytest.mark.parametrize(("others", "busy"), [(0.0, False), (1.0, True)])
def test_work_of_others_is_seen(others: float, busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    # Two seconds of the clock, in which we work for three and the others for ``others`` cores.
    stats = iter([0, round((3 + 2 * others) * ticks)])
    monkeypatch.setattr(contention, "_stat", lambda: f"cpu {next(stats)} 0 0 12345 99 0 0 0 0 0\ncpu0 7\n")
    own, clock = iter([5.0, 8.0]), iter([100.0, 102.0])
    monkeypatch.setattr(contention, "_own_cpu_seconds", lambda: next(own))
    monkeypatch.setattr(contention.time, "perf_counter", lambda: next(clock))
    with contention.Contention() as seen:
        pass
    assert seen.record["other_cores"] == others
    assert seen.record["busy"] is busy
    assert len(seen.record["load_before"]) == 3
