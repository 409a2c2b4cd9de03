"""Files of queries answered into files: forms, resuming, refusals, and nothing left behind."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import owlmine
from owlmine.cli.answer_progress import AnswerProgress
from owlmine.data.streams import ByteSource
from owlmine.errors import OwlmineError
from owlmine.exchange import answer_file, answer_forms, queries
from owlmine.exchange import answers as answers_module
from owlmine.exchange.answer_file import AnswerTask, answer_into_file
from owlmine.exchange.answer_forms import form_of, id_kind, shown_numbers
from owlmine.exchange.answers import answer, csv_lines, json_lines, shown_probability, shown_score
from owlmine.exchange.choices import chosen_classes
from owlmine.exchange.part_folder import num_unfinished, part_folder_of
from owlmine.exchange.queries import QueryOptions
from owlmine.rank.predictor import Predictor
from tests.tiny_disk import tiny_disk_at

from ..small_models import (
    calibrated_model,
    dense_data,
    dense_model,
    run,
    sparse_data,
    sparse_model,
    sparse_store,
    text_model,
    text_point,
    text_store,
    write_jsonl,
)

ROWS = [text_point(number) for number in range(60)]
ROWS[7]["text"], ROWS[8]["allowed"], ROWS[9]["forbidden"] = "?", ["c-river", "c-saddle"], ["c-castle"]


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "_BLOCK_ROWS", 8)
    monkeypatch.setattr(queries, "_BLOCK_ROWS", 24)
    monkeypatch.setattr(answer_file, "_PART_BLOCKS", 2)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "queries.jsonl", ROWS)


class KilledError(RuntimeError):
    """In the place of a signal."""


def killed_after(num_queries: int) -> Any:
    def progress(tally: Any, share: float) -> None:
        assert 0 <= share <= 1
        if tally.queries >= num_queries:
            raise KilledError

    return progress


def into(out: Path, source: Path, *, model: Path | None = None, at: int | None = None, **options: Any) -> Any:
    model = model or calibrated_model()
    resume, k = options.pop("resume", False), options.pop("k", 3)
    watch = {} if at is None else {"progress": killed_after(at)}
    task = AnswerTask(model, source, k, **options)
    return answer_into_file(owlmine.load(model), task, out, form_of(None, out), resume=resume, **watch)


def as_objects(source: Path, predictor: Predictor, **options: Any) -> list[Any]:
    """The plain way: an object for each answer."""
    blocks = answer(predictor, AnswerTask(Path(), source, 3).queries(predictor), 3, **options)
    return [one for block in blocks for one in block.answers]


def content(out: Path) -> bytes:
    with ByteSource(out) as file:
        return file.read(1 << 24)


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("options", [{}, {"at_least": 0.3}, {"tail": 0.7}])
def test_lines_are_those_of_objects(source: Path, tmp_path: Path, compression: str, options: dict[str, Any]) -> None:
    predictor = owlmine.load(calibrated_model())
    expected = as_objects(source, predictor, **options)
    for name, lines in (("jsonl", json_lines(expected)), ("csv", csv_lines(expected, probabilities=True))):
        out = tmp_path / f"answers.{name}{compression}"
        tally = into(out, source, **options)
        assert content(out).decode() == lines
        assert tally.queries == 60
        assert tally.unknown == 1
        assert tally.predictions == sum(len(one.classes) for one in expected)
        assert tally.without_class == sum(one.known and not one.classes for one in expected)


def test_other_programs_read_compressed_files(source: Path, tmp_path: Path) -> None:
    for suffix, opened in ((".gz", gzip.open), (".xz", lzma.open)):
        into(tmp_path / f"answers.jsonl{suffix}", source)
        with opened(tmp_path / f"answers.jsonl{suffix}", "rt") as file:
            assert [json.loads(line)["query"] for line in file] == list(range(60))


@pytest.mark.parametrize("has_probabilities", [True, False])
def test_parquet(source: Path, tmp_path: Path, has_probabilities: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_forms, "_GROUP_ROWS", 20)
    model, out = calibrated_model() if has_probabilities else text_model(), tmp_path / "answers.parquet"
    into(out, source, model=model)
    with pq.ParquetFile(out) as file:
        assert file.metadata.num_row_groups == 3
        table = file.read()
    assert table.schema.names == ["query", "id", "classes"]
    assert table.schema.field("id").type == pa.string()
    members = [field.name for field in table.schema.field("classes").type.value_type]
    assert members == ["key", "name", "score", *(["probability"] if has_probabilities else [])]
    rows, expected = table.to_pylist(), as_objects(source, owlmine.load(model))
    assert [(row["query"], row["id"]) for row in rows] == [(one.number, one.id) for one in expected]
    for row, one in zip(rows, expected, strict=True):
        assert [(c["key"], c["name"], c["score"], c.get("probability")) for c in row["classes"]] == [
            (c.key, c.name, c.score, c.probability) for c in one.classes
        ]


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([3, None, -(2**63)], pa.int64()),
        ([0.5, 2.0, None], pa.float64()),
        ([True, False, None], pa.bool_()),
        (["a", None, '"'], pa.string()),
        ([None, None, None], pa.string()),
        ([1, "1", 2.5], pa.string()),
        ([2**63, 1, None], pa.string()),
    ],
)
def test_ids_of_one_kind_keep_it(ids: list[Any], kind: Any, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "q.jsonl", [{"id": name, "text": "the river"} for name in ids])
    into(tmp_path / "a.parquet", source)
    column = pq.read_table(tmp_path / "a.parquet")["id"]
    assert column.type == kind
    wanted = (
        ids if kind != pa.string() else [one if one is None or isinstance(one, str) else json.dumps(one) for one in ids]
    )
    assert column.to_pylist() == wanted


def test_kinds_of_ids() -> None:
    assert [id_kind(one) for one in (None, True, 1, 2**63, 0.5, "a")] == [None, "bool", "int", "str", "float", "str"]


def test_numbers_are_spelled_as_json_spells_them() -> None:
    draw = np.random.default_rng(0)
    numbers = (draw.normal(size=3000) * 10.0 ** draw.integers(-12, 12, 3000)).astype(np.float32)
    numbers[:8] = [0, 1, -1, 0.1, 1e-5, 1234567, 12345678, 1e20]
    for digits, shown in ((7, shown_score), (4, shown_probability)):
        assert list(shown_numbers(numbers, digits)) == [json.dumps(shown(float(number))) for number in numbers]
    assert list(shown_numbers(numbers[:0], 7)) == []


def sources(folder: Path) -> Iterator[tuple[Path, Path, dict[str, Any]]]:
    """A model, a file that it answers, and how it is read: every form of input."""
    texts = [str(row["text"]) for row in ROWS]
    lines = folder / "lines.txt"
    lines.write_text("\n".join(texts) + "\n")
    yield calibrated_model(), lines, {}
    write_jsonl(folder / "q.jsonl", ROWS)
    (folder / "q.jsonl.gz").write_bytes(gzip.compress((folder / "q.jsonl").read_bytes()))
    yield calibrated_model(), folder / "q.jsonl.gz", {}
    with (folder / "q.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([f"{n}\n", text] for n, text in enumerate(texts))])
    yield calibrated_model(), folder / "q.csv", {}
    pq.write_table(pa.table({"id": range(60), "text": texts}), folder / "q.parquet", row_group_size=7)
    yield calibrated_model(), folder / "q.parquet", {}
    yield calibrated_model(), text_store(), {"split": "train"}
    yield dense_model(), dense_data() / "train.npy", {}
    yield sparse_model(), sparse_data() / "train.txt", {}
    yield sparse_model(), sparse_store(), {}
    width = owlmine.load(sparse_model()).dense.shape.num_features
    matrix = sparse.random_array((60, width), density=0.1, rng=np.random.default_rng(0), format="csr")
    matrix.data[:] = 2
    sparse.save_npz(folder / "q.npz", sparse.csr_matrix(matrix))
    yield sparse_model(), folder / "q.npz", {}
    points = (f"0 {' '.join(f'{c + 1}:{v:g}' for c, v in zip(row.indices, row.data, strict=True))}" for row in matrix)
    (folder / "q.svm").write_text("".join(f"{point}\n" for point in points if ":" in point))
    yield sparse_model(), folder / "q.svm", {"options": QueryOptions(first_feature="1")}


def test_resumed_from_every_form_of_input(tmp_path: Path) -> None:
    for number, (model, source, options) in enumerate(sources(tmp_path)):
        for form in ("jsonl", "parquet"):
            whole, out = tmp_path / f"whole{number}.{form}", tmp_path / f"out{number}.{form}"
            num_queries = into(whole, source, model=model, **options).queries
            with pytest.raises(KilledError):
                into(out, source, model=model, at=30, **options)
            assert 0 < num_unfinished(out) < num_queries
            with pytest.raises(KilledError):
                into(out, source, model=model, at=35, resume=True, **options)
            into(out, source, model=model, resume=True, **options)
            assert out.read_bytes() == whole.read_bytes()
            assert not part_folder_of(out).exists()


def test_answered_queries_are_not_answered_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "answers.jsonl"
    with pytest.raises(KilledError):
        into(out, source, at=36)
    answered = num_unfinished(out)
    seen: list[int] = []
    before = Predictor.answer

    def answer(model: Predictor, features: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(len(features))
        return before(model, features, *arguments, **options)

    monkeypatch.setattr(Predictor, "answer", answer)
    into(out, source, resume=True)
    assert answered == 32
    assert sum(seen) == 60 - answered


def test_a_resumed_command_must_be_the_same(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    with pytest.raises(KilledError):
        into(out, source, at=40)
    part = {path.name: path.read_bytes() for path in part_folder_of(out).iterdir()}
    predictor = owlmine.load(calibrated_model())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"k": 4}, "k is 4, was 3"),
        ({"at_least": 0.5}, "at_least is 0.5, was 0.0"),
        ({"tail": 1.0}, "tail is 1.0, was 0.0"),
        ({"model": text_model()}, "model is "),
        ({"options": QueryOptions(id_column="text")}, "id_column is text, was id"),
        ({"only": chosen_classes(predictor, ["c-river,c-castle,c-saddle"], None, None)}, "filter is "),
    ]
    for options, message in cases:
        with pytest.raises(OwlmineError, match="belongs to another task") as caught:
            into(out, source, resume=True, **options)
        assert message in str(caught.value)
        assert ";" not in str(caught.value).partition("(")[2].partition(")")[0], "nothing else differs"
    with pytest.raises(OwlmineError, match=r"answers.jsonl.part: has unfinished answers; continue with --resume"):
        into(out, source)
    changed = source.read_text().replace("river", "liver", 1)
    source.write_text(changed)
    with pytest.raises(OwlmineError, match="input is "):
        into(out, source, resume=True)
    assert {path.name: path.read_bytes() for path in part_folder_of(out).iterdir()} == part


def test_only_one_process_writes_a_file(source: Path, tmp_path: Path) -> None:
    out, refusals = tmp_path / "answers.jsonl", []

    def second(tally: Any, share: float) -> None:
        with pytest.raises(OwlmineError, match="another process is writing these answers") as caught:
            into(out, source, resume=True)
        refusals.append(caught)

    task = AnswerTask(calibrated_model(), source, 3)
    answer_into_file(owlmine.load(calibrated_model()), task, out, form_of(None, out), progress=second)
    assert refusals
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.jsonl", "queries.jsonl"]


def test_damaged_parts_are_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    with pytest.raises(KilledError):
        into(out, source, at=40)
    folder, copy = part_folder_of(out), tmp_path / "copy"
    shutil.copytree(folder, copy)
    log = (copy / "answers").read_bytes()
    cases = [
        ("answers", b"x" + log[1:], "found other answers than journal.json counts"),
        ("answers", log[:100], "found other answers than journal.json counts"),
        ("journal.json", b"{}", "found content that cannot be read"),
        ("journal.json", (copy / "journal.json").read_bytes().replace(b'"k": 3', b'"k": 4'), "its content has changed"),
    ]
    for name, damage, message in cases:
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        (folder / name).write_bytes(damage)
        with pytest.raises(OwlmineError, match=message):
            into(out, source, resume=True)
    # Bytes that a killed process appended and did not count are no damage.
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    (folder / "answers").write_bytes(log + b"half a li")
    into(out, source, resume=True)
    into(tmp_path / "whole.jsonl", source)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_folder_of_somebody_else_stays(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    part_folder_of(out).mkdir()
    (part_folder_of(out) / "letter.txt").write_text("dear")
    with pytest.raises(OwlmineError, match="has other contents; the folder is needed for unfinished answers"):
        into(out, source, resume=True)
    assert (part_folder_of(out) / "letter.txt").read_text() == "dear"
    shutil.rmtree(part_folder_of(out))
    other = tmp_path / "other"
    other.mkdir()
    part_folder_of(out).symlink_to(other)
    with pytest.raises(OwlmineError):
        into(out, source, resume=True)
    assert list(other.iterdir()) == []


def test_a_file_that_appears_meanwhile_stays(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"

    def appear(tally: Any, share: float) -> None:
        out.write_text("mine")

    task = AnswerTask(calibrated_model(), source, 3)
    with pytest.raises(OwlmineError, match="appeared while the answers were being written; move it away"):
        answer_into_file(owlmine.load(calibrated_model()), task, out, form_of(None, out), progress=appear)
    assert out.read_text() == "mine"
    out.unlink()
    into(out, source, resume=True)
    assert len(out.read_text().splitlines()) == 60
    assert not part_folder_of(out).exists()


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_empty_inputs(name: str, tmp_path: Path) -> None:
    source, out = tmp_path / "none.jsonl", tmp_path / name
    source.write_text("")
    assert into(out, source).queries == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "none.jsonl"])
    if name == "a.parquet":
        assert pq.read_table(out).num_rows == 0
    else:
        assert content(out).decode() == ("query,id,rank,key,name,score,probability\n" if name == "a.csv" else "")


def test_answers_of_a_bad_input_wait_only_if_there_are_some(source: Path, tmp_path: Path) -> None:
    for num_good, is_left in ((3, False), (50, True)):
        lines = source.read_text().splitlines()
        bad, out = tmp_path / "bad.jsonl", tmp_path / f"answers{num_good}.jsonl"
        bad.write_text("\n".join([*lines[:num_good], "no json"]))
        with pytest.raises(OwlmineError, match=f"line {num_good + 1}: found 'no json'"):
            into(out, bad)
        assert part_folder_of(out).exists() == is_left == bool(num_unfinished(out))
        assert not out.exists()


def test_a_full_disk_is_an_error_after_which_the_work_goes_on(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "q.jsonl", [text_point(number) for number in range(1200)])
    into(tmp_path / "whole.jsonl", source, k=12)
    with tiny_disk_at(tmp_path / "disk", "400k") as disk:
        out = disk / "answers.jsonl"
        with pytest.raises(OwlmineError, match=r"answers.jsonl: cannot be written: No space left on device"):
            into(out, source, k=12)
        assert 0 < num_unfinished(out) < 1200
        assert not out.exists()
        # To a larger disk.
        shutil.copytree(part_folder_of(out), tmp_path / "answers.jsonl.part")
    into(tmp_path / "answers.jsonl", source, k=12, resume=True)
    assert (tmp_path / "answers.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_standard_input_leaves_nothing_to_resume(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    lines = b"".join(f"{row['text']}\n".encode() for row in ROWS)
    task = AnswerTask(calibrated_model(), io.BytesIO(lines), 3)
    with pytest.raises(KilledError):
        answer_into_file(owlmine.load(calibrated_model()), task, out, form_of(None, out), progress=killed_after(40))
    assert list(tmp_path.iterdir()) == []


def test_the_command(source: Path, tmp_path: Path) -> None:
    model, out = calibrated_model(), tmp_path / "answers.csv"
    done = run("predict", model, source, "--out", out, "-k", "3")
    assert done.exit_code == 0, done.exception
    assert "1 of 60 queries have no feature" in done.output
    plain = run("predict", model, source, "--format", "csv", "-k", "3").stdout
    assert out.read_text() == plain
    cases: list[tuple[tuple[Any, ...], str]] = [
        (("--out", out), "answers.csv: already exists"),
        (("--out", out, "--resume"), "answers.csv: already exists"),
        (("--resume",), "--resume: an answer without --out FILE cannot be resumed"),
        (("--out", tmp_path / "t", "--format", "table", "--resume"), "--resume: a table cannot be resumed"),
        (("--format", "parquet"), "--format parquet needs --out FILE"),
        (("--out", tmp_path / "a.parquet", "--explain"), "--explain has no place in this form of file"),
        (("--out", tmp_path / "a.jsonl", "--explain", "--resume"), "--resume: an answer with --explain cannot be"),
        (("--out", tmp_path / "a.parquet.gz"), "parquet is compressed inside the file"),
        (("--out", tmp_path / "no" / "a.csv"), "a.csv: cannot be written"),
    ]
    for options, message in cases:
        assert message in str(run("predict", model, source, *options).exception), options
    refused = run("predict", model, "-", "--out", tmp_path / "x", "--resume", input="a\n")
    assert "--resume: standard input cannot be resumed" in str(refused.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "queries.jsonl"]


def test_an_interrupted_command_says_how_to_go_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    out = tmp_path / "answers.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(AnswerProgress, "__call__", lambda self, *given: killed_after(40)(*given))
        done = run("predict", calibrated_model(), source, "--out", out)
    assert isinstance(done.exception, KilledError)
    assert "32 queries have been answered; continue with --resume" in done.output
    done = run("predict", calibrated_model(), source, "--out", out, "--resume")
    assert done.exit_code == 0, done.exception
    assert len(out.read_text().splitlines()) == 60
    assert os.listdir(tmp_path).count("answers.jsonl.part") == 0


def test_parquet_without_pyarrow_is_an_error(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for name, what in (("a.parquet", "parquet"), ("a.jsonl.zst", "zstd")):
        with pytest.raises(OwlmineError, match=f"{name}: {what} needs pyarrow; in a checkout"):
            into(tmp_path / name, source)
    assert list(tmp_path.iterdir()) == [source]
