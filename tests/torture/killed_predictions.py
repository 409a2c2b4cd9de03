"""Kills predictions into files, resumes them until they are done, and compares the files with those of predictions that
nobody disturbed, bit for bit.

    python -m tests.torture.killed_predictions [--kills 100] [--seed 0] [--every-step] [--folder FOLDER]

Kills at random moments, or with --every-step before each system call that opens, renames, links, removes or flushes
something, one after the other. Prints a line of JSON: how many were killed, by how many answers they had left. Children
are forks of this process, so that each starts at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import owlmine
from owlmine.errors import OwlmineError
from owlmine.exchange import answer_file, answers, queries
from owlmine.exchange.answer_file import AnswerTask, answer_into_file
from owlmine.exchange.answer_forms import form_of
from owlmine.exchange.part_folder import num_unfinished, part_folder_of

from ..small_models import calibrated_model, text_point, write_jsonl

NAMES = ("answers.csv.gz", "answers.parquet")
NUM_QUERIES = 72
# Small parts, so that there are many.
answers._BLOCK_ROWS, queries._BLOCK_ROWS, answer_file._PART_BLOCKS = 8, 24, 3
STEPS = ("open", "os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "fsync")


class Killer:
    """Kills this process before the step with that number, from 1, in the folder. Counts them in a file beside it."""

    def __init__(self, number: int) -> None:
        self.number, self.count = number, 0
        sys.addaudithook(self)
        self._fsync, os.fsync = os.fsync, self.fsync

    def fsync(self, handle: int) -> None:
        self("fsync", ())
        self._fsync(handle)

    def __call__(self, event: str, given: Any) -> None:
        is_ours = event == "fsync" or any(".part" in str(part) or "answers." in str(part) for part in given)
        if event in STEPS and is_ours:
            self.count += 1
            if self.count == self.number:
                os.kill(os.getpid(), signal.SIGKILL)


class Task:
    def __init__(self, folder: Path) -> None:
        self.model = calibrated_model()
        self.predictor = owlmine.load(self.model)
        self.source = write_jsonl(folder / "queries.jsonl", [text_point(number) for number in range(NUM_QUERIES)])

    def run(self, out: Path) -> None:
        task = AnswerTask(self.model, self.source, 3, at_least=0.1)
        answer_into_file(self.predictor, task, out, form_of(None, out), resume=True)

    def child(self, out: Path, step: int = 0) -> int:
        """The process number of a process that answers."""
        if number := os.fork():
            return number
        try:
            if step:
                Killer(step)
            self.run(out)
            os._exit(0)
        except OwlmineError as error:
            print(error, file=sys.stderr)
            os._exit(1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)


def was_killed(number: int, *, may_fail: bool = False) -> bool:
    """Waits for its end; fails if that was an error."""
    _, status = os.waitpid(number, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.waitstatus_to_exitcode(status) and not may_fail:
        sys.exit("a prediction ended in an error")
    return False


def check(out: Path, expected: bytes) -> None:
    """What a finished process leaves."""
    if out.read_bytes() != expected:
        sys.exit(f"{out}: differs from the file of an undisturbed prediction")
    if left := sorted(path.name for path in out.parent.iterdir() if path != out):
        sys.exit(f"{out.parent}: has leftovers: {', '.join(left)}")


def left_by(out: Path, expected: bytes) -> str:
    """What a killed process leaves; anything but the whole file must be invisible under its name."""
    if out.exists() and out.read_bytes() != expected:
        sys.exit(f"{out}: appeared before it was whole")
    answered = num_unfinished(out)
    return "the file" if out.exists() else "nothing" if not answered else "some" if answered < NUM_QUERIES else "all"


def at_every_step(task: Task, folder: Path, expected: dict[str, bytes]) -> Iterator[str]:
    """A prediction is killed before each of its steps, and after it is resumed before the second and the third."""
    for name, bytes_ in expected.items():
        step = 0
        while True:
            step += 1
            out = folder / f"{name}.{step}" / name
            out.parent.mkdir()
            if not was_killed(task.child(out, step)):
                break
            yield left_by(out, bytes_)
            for again in (2, 3):
                if not out.exists() and was_killed(task.child(out, again)):
                    yield left_by(out, bytes_)
            finish(task, out, bytes_)
        check(out, bytes_)


def at_random(task: Task, folder: Path, expected: dict[str, bytes], kills: int, seed: int) -> Iterator[str]:
    chance, number, killed = random.Random(seed), 0, 0
    began = time.monotonic()
    was_killed(task.child(folder / "timed.jsonl"))
    seconds = time.monotonic() - began
    while killed < kills:
        name = chance.choice(list(expected))
        out = folder / str(number) / name
        out.parent.mkdir()
        number += 1
        for _ in range(chance.randint(1, 4)):
            child = task.child(out)
            time.sleep(chance.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            if not was_killed(child):
                break
            killed += 1
            yield left_by(out, expected[name])
            if out.exists():
                break
        finish(task, out, expected[name])


def finish(task: Task, out: Path, expected: bytes) -> None:
    """As a user who resumes as long as there is a folder of unfinished answers. Killed before it removed the empty
    folder, a prediction has nothing to resume: the file exists."""
    folder = part_folder_of(out)
    if folder.exists() or not out.exists():
        is_only_the_folder_left = out.exists() and not any(folder.iterdir())
        was_killed(task.child(out), may_fail=is_only_the_folder_left)
    check(out, expected)
    shutil.rmtree(out.parent)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill predictions, resume them, compare what they write.")
    parser.add_argument("--kills", type=int, default=100, help="How many processes are killed.")
    parser.add_argument("--seed", type=int, default=0, help="Of the moments.")
    parser.add_argument("--every-step", action="store_true", help="Before each system call instead.")
    parser.add_argument("--folder", type=Path, help="Where files are written (default: a temporary folder).")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="owlmine-killed-"))
    folder.mkdir(exist_ok=True)
    task, expected = Task(folder), {}
    for name in NAMES:
        task.run(folder / name)
        expected[name] = (folder / name).read_bytes()
    if given.every_step:
        left = at_every_step(task, folder, expected)
    else:
        left = at_random(task, folder, expected, given.kills, given.seed)
    counts = Counter(left)
    print(json.dumps({"kills": counts.total(), "left": counts}))
    if given.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
