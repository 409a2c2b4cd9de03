"""Trains in child processes that are killed at random moments and resumed until they are done.

    python killed_runs.py STORE FOLDER RUNS SEED single|composed

Leaves FOLDER/whole, a run that nobody disturbed, and FOLDER/0, FOLDER/1, ...; prints how often each was killed.
Children are forks of this process, so that each starts at once instead of importing torch for seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from owlmine.data import Store
from owlmine.train import TrainOptions, train

SINGLE = TrainOptions(
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
# A rehearsal, two models side by side and a re-ranker.
COMPOSED = replace(SINGLE, recipe="best", heads=2, shortlist=10, patience=0, epochs=1.0)
MOST_KILLS = 3


def start(store: Store, out: Path, options: TrainOptions) -> int:
    child = os.fork()
    if child:
        return child
    try:
        train(store, out, options, resume=(out / "run.json").exists())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child: int) -> bool:
    """Whether the child has finished its run; fails where it ended in an error."""
    gone, status = os.waitpid(child, os.WNOHANG)
    if gone and status:
        sys.exit(f"a run ended with status {status}")
    return bool(gone)


def newest_step(out: Path) -> int:
    return max((int(file.stem.removeprefix("step-")) for file in out.glob("checkpoints/step-*.json")), default=0)


def lives_until(child: int, out: Path, step: int, seconds: float) -> bool:
    """Waits for a checkpoint of that step or a later one, and then so long; whether the child is still at work."""
    while newest_step(out) < step:
        if ended(child):
            return False
        time.sleep(0.001)
    time.sleep(seconds)
    return not ended(child)


def killed_at_any_time(store: Store, out: Path, chance: random.Random, options: TrainOptions, seconds: float) -> int:
    """Kills a run at moments spread over the time that an undisturbed one takes."""
    for kills in range(chance.randint(1, MOST_KILLS)):
        child = start(store, out, options)
        if not lives_until(child, out, 0, chance.uniform(0, seconds)):
            return kills
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    finish(store, out, options)
    return kills + 1


def tortured(store: Store, out: Path, chance: random.Random, num_steps: int) -> int:
    """Kills a run at moments spread over all its steps, before the first checkpoint and while the model is written."""
    for kills in range(chance.randint(1, MOST_KILLS)):
        child = start(store, out, SINGLE)
        step = round(chance.uniform(-0.2, 1.05) * num_steps)
        # Where the last steps have no checkpoint, waiting for one of them would be waiting for the end.
        step = min(max(step, 0), num_steps - 10)
        if not lives_until(child, out, step, chance.uniform(0, 0.4 if step == 0 else 0.1)):
            return kills
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    finish(store, out, SINGLE)
    return kills + 1


def finish(store: Store, out: Path, options: TrainOptions) -> None:
    child = start(store, out, options)
    while not ended(child):
        time.sleep(0.005)


def main() -> None:
    torch.set_num_threads(1)
    store, folder, runs, seed = Store.open(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    composed, began = sys.argv[5] == "composed", time.monotonic()
    finish(store, folder / "whole", COMPOSED if composed else SINGLE)
    seconds = time.monotonic() - began
    num_steps = json.loads((folder / "whole" / "config.json").read_text())["history"][-1]["step"]
    chance = random.Random(seed)
    kills = []
    for out in (folder / str(number) for number in range(runs)):
        if composed:
            kills.append(killed_at_any_time(store, out, chance, COMPOSED, seconds))
        else:
            kills.append(tortured(store, out, chance, num_steps))
    print(json.dumps({"steps": num_steps, "kills": kills}))


if __name__ == "__main__":
    main()
