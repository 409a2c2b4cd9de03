"""Kills trainings at random moments, resumes them until they are done, and compares what they leave with a run that
nobody disturbed, bit for bit.

    python -m tests.torture.killed_runs [--kills 100] [--recipe best|single] [--seed 0] [--folder FOLDER]

Prints a line of JSON: the runs, the kills, and the last thing that a run said before each. Ends with status 1 at the
first run that differs; its folder and FOLDER/whole then stay. Children are forks of this process, so that each starts
at once instead of importing torch for seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from owlmine.data import Store, SyntheticOptions, convert, synthesize
from owlmine.folder.model_folder import verify_model
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

from ..run.runs import contents
from ..small_models import TOPICS, text_point, write_jsonl

SINGLE = TrainOptions.of(
    recipe="single",
    dim=32,
    pool=100,
    epochs=4.0,
    batch_size=32,
    feature_rate=1.0,
    optimiser="adaptive",
    loss="sampled-softmax",
    scale=8.0,
    learn_scale=True,
    class_rate=0.01,
    validation=0.1,
    patience=2,
    device="cpu",
    checkpoint_minutes=0.0005,
)
# A rehearsal, two models, every judge.
BEST = TrainOptions.of(
    recipe="best",
    heads=2,
    dim=16,
    pool=11,
    epochs=8.0,
    batch_size=16,
    shortlist=6,
    neighbours=5,
    device="cpu",
    checkpoint_minutes=0.0005,
)
MOST_KILLS_OF_A_RUN = 3


@dataclass(frozen=True)
class Task:
    """What is trained, and how long an undisturbed run takes and how much it says."""

    store: Store
    options: TrainOptions
    seconds: float = 0.0
    num_lines: int = 0


class Log:
    """A reporter whose lines outlive the process."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a")

    def progress(self, progress: Any) -> None:
        del progress

    def message(self, text: str) -> None:
        self._file.write(text.replace("\n", " ") + "\n")
        self._file.flush()


class Child:
    """A process that trains in a folder, and says beside it how far it is."""

    def __init__(self, task: Task, out: Path) -> None:
        self.log, self._out = log_of(out), out
        self.lines_before = len(lines_of(self.log))
        self.number = os.fork()
        if self.number:
            return
        try:
            train(task.store, out, task.options, resume=(out / "run.json").exists(), reporter=Log(self.log))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def ended(self) -> bool:
        """Whether it has finished its run; fails where it ended in an error."""
        gone, status = os.waitpid(self.number, os.WNOHANG)
        if gone and status:
            sys.exit(f"a run ended with status {status}")
        return bool(gone)

    def finish(self) -> None:
        while not self.ended():
            time.sleep(0.002)

    def killed_after(self, seconds: float, *, line: int = 0) -> str | None:
        """Kills it so long after it has said so many lines. Back comes the last one, None where it ended before."""
        while len(lines_of(self.log)) < self.lines_before + line:
            if self.ended():
                return None
            time.sleep(0.0002)
        time.sleep(seconds)
        if self.ended():
            return None
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)
        return self._moment()

    def _moment(self) -> str:
        """How far it had come, without numbers."""
        if (self._out / "config.json").exists():
            return "tidying up"
        if (self._out / "weights.safetensors").exists():
            return "saving"
        lines = lines_of(self.log)[self.lines_before :]
        return re.sub(r"\d[\d,.]*", "N", lines[-1].partition(":")[0]) if lines else "before it said anything"


def log_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.log")


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def task_of(recipe: str, folder: Path) -> Task:
    """With data of its own, made in the folder."""
    if recipe == "single":
        options = SyntheticOptions(num_classes=300, train_points=800, test_points=10, num_topics=100, relevant=5)
        return Task(synthesize(folder / "store", options), SINGLE)
    texts = folder / "texts"
    texts.mkdir()
    write_jsonl(texts / "train.jsonl", [text_point(number) for number in range(240)])
    (texts / "labels.tsv").write_text("".join(f"c-{topic}\t{topic.title()}\n" for topic in TOPICS))
    return Task(convert(texts, folder / "store"), BEST)


def measured(task: Task, out: Path) -> Task:
    """With the time and the lines of a run that nobody disturbs."""
    # Whatever this process has imported need not be imported by its children.
    train(task.store, out.with_name("warm"), task.options)
    began = time.monotonic()
    Child(task, out).finish()
    return Task(task.store, task.options, time.monotonic() - began, len(lines_of(log_of(out))))


def torture(task: Task, out: Path, chance: random.Random, most_kills: int) -> list[str]:
    """Kills a run up to so often: at moments spread over its time, or soon after something that it says, as stages that
    matter may be short. Then it may end."""
    moments: list[str] = []
    while len(moments) < most_kills:
        child = Child(task, out)
        if chance.random() < 0.5:
            moment = child.killed_after(chance.uniform(0, task.seconds))
        else:
            moment = child.killed_after(10 ** chance.uniform(-4, -1), line=chance.randint(0, task.num_lines))
        if moment is None:
            return moments
        moments.append(moment)
    Child(task, out).finish()
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill trainings, resume them, compare what they leave.")
    parser.add_argument("--kills", type=int, default=100, help="How many processes are killed.")
    parser.add_argument("--recipe", choices=("best", "single"), default="best")
    parser.add_argument("--seed", type=int, default=0, help="Of the moments.")
    parser.add_argument("--folder", type=Path, help="Where runs are made (default: a temporary folder).")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="owlmine-killed-"))
    folder.mkdir(exist_ok=True)
    task = measured(task_of(given.recipe, folder), folder / "whole")
    expected, chance = contents(folder / "whole"), random.Random(given.seed)
    moments: Counter[str] = Counter()
    num_runs = 0
    while (left := given.kills - moments.total()) > 0:
        out = folder / str(num_runs)
        num_runs += 1
        own = torture(task, out, chance, min(chance.randint(1, MOST_KILLS_OF_A_RUN), left))
        moments.update(own)
        found = contents(out)
        if found != expected or verify_model(out):
            differing = [name for name in expected if found.get(name) != expected[name]]
            sys.exit(f"{out}: differs from {folder / 'whole'} in {', '.join(differing)}; killed after {own}")
        shutil.rmtree(out)
        log_of(out).unlink()
    summary = {"runs": num_runs, "kills": moments.total(), "seconds": round(task.seconds, 2), "moments": moments}
    print(json.dumps(summary))
    if given.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
