"""What a run in a folder adds to a fit: signals that stop it, checkpoints, metrics files, curves."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from owlmine.data.store import meta_checksum
from owlmine.dense.loop import Record, SavedSnapshot, Snapshot, Watch
from owlmine.dense.progress import Reporter
from owlmine.errors import OwlmineError
from owlmine.files import remove_unfinished, write_text
from owlmine.recipe.fit import Surroundings
from owlmine.run.checkpoints import BestWeights, Checkpoints
from owlmine.run.curves import FOLDER, EventFile
from owlmine.run.run_folder import MEMBERS, METRICS


class Stopped(OwlmineError):  # noqa: N818
    """The run was asked to stop and can be resumed."""

    def __init__(self, number: int, text: str) -> None:
        self.signal: int | None = number
        super().__init__(text)


class StopSignal:
    """``number``: the SIGINT or SIGTERM that arrived while this context was open; None if none has.

    One is open for a whole run, so that no signal falls between two of its parts. Where signals cannot be listened to
    (outside the main thread) nothing changes.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._came) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def check(self, where: str) -> None:
        """Raises Stopped if a signal has arrived. For points from which the run can be resumed."""
        if self.number is not None:
            raise Stopped(self.number, f"stopped {where}; continue with --resume")

    def _came(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.number = number


class FolderSurroundings(Surroundings):
    """Checkpoints and metrics of every model in the folder of the run. A context manager.

    ``alone``: whether the run is one dense model, whose files then lie in the folder itself.
    """

    def __init__(
        self,
        out: Path,
        reporter: Reporter,
        stop: StopSignal,
        *,
        alone: bool,
        resume: bool,
        checkpoint_minutes: float,
        tensorboard: bool,
    ) -> None:
        super().__init__(reporter)
        self._out, self._stop, self._alone, self._resume = out, stop, alone, resume
        self._checkpoint_seconds, self._tensorboard = 60 * checkpoint_minutes, tensorboard
        self._open_files = ExitStack()
        # Finished models are written while the next ones train. A run that is killed meanwhile trains those again.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="owlmine-writer")
        self._written: list[Future[None]] = []

    def __enter__(self) -> FolderSurroundings:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._writer.shutdown()
        self._open_files.close()
        for written in self._written if error is None else ():
            written.result()

    def check(self, where: str) -> None:
        self._stop.check(where)

    def watch(self, stage: str, number: int) -> Watch:
        place = self._out if self._alone else self._out / MEMBERS / stage / str(number)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OwlmineError(f"{place}: cannot be written: {error.strerror}") from error
        curves = self._out / FOLDER if self._alone else self._out / FOLDER / stage / f"model-{number + 1}"
        watch = FolderWatch(
            place,
            number,
            self.reporter,
            self._stop,
            lambda write: self._written.append(self._writer.submit(write)),
            checkpoint_seconds=self._checkpoint_seconds,
            curves=curves if self._tensorboard else None,
            # A member of an ensemble that had not started when the process was killed has no checkpoint, and needs
            # none.
            expects_checkpoint=self._resume and self._alone,
        )
        self._open_files.callback(watch.close)
        return watch

    def recall(self, stage: str) -> dict[str, Any] | None:
        try:
            record = json.loads(self._outcome_file(stage).read_text("utf-8"))
            if record["checksum"] != meta_checksum(record):
                raise ValueError("its content has changed")
            outcome: dict[str, Any] = record["outcome"]
            return outcome
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self.reporter.message(f"{self._outcome_file(stage)}: is damaged; the {stage} is repeated")
            return None

    def remember(self, stage: str, outcome: dict[str, Any]) -> None:
        record = {"outcome": outcome}
        try:
            write_text(self._outcome_file(stage), json.dumps(record | {"checksum": meta_checksum(record)}) + "\n")
        except OSError as error:
            self.reporter.message(f"{self._outcome_file(stage)}: not written: {error.strerror}; training continues")

    def _outcome_file(self, stage: str) -> Path:
        return self._out / MEMBERS / f"{stage}.json"


class FolderWatch(Watch):
    """The training of one model, with a folder for its checkpoints."""

    def __init__(
        self,
        place: Path,
        number: int,
        reporter: Reporter,
        stop: StopSignal,
        later: Callable[[Callable[[], None]], None],
        *,
        checkpoint_seconds: float,
        curves: Path | None,
        expects_checkpoint: bool,
    ) -> None:
        super().__init__(reporter)
        self.best = BestWeights(place / "best.safetensors")
        self._place, self._number, self._stop, self._curves = place, number, stop, curves
        self._later = later
        self._checkpoints, self._expects = Checkpoints(place / "checkpoints"), expects_checkpoint
        self._checkpoint_seconds, self._saved_at = checkpoint_seconds, time.monotonic()
        self._events: EventFile | None = None
        self._first_step = 0
        self._complained = False

    def restore(self) -> SavedSnapshot | None:
        checkpoint, complaints = self._checkpoints.newest()
        for complaint in complaints:
            self.reporter.message(complaint)
        with suppress(OSError):  # leftovers are removed with the other working files
            remove_unfinished(self._place)
        if checkpoint is None:
            if self._expects or complaints:
                self.reporter.message("no checkpoint to resume from; starting from the beginning")
            self.epoch_ended([])
            return None
        self._first_step = checkpoint.step
        self.epoch_ended(checkpoint.state["history"])  # epochs after the checkpoint will come again
        return checkpoint

    @property
    def stopping(self) -> bool:
        return self._stop.number is not None

    def stop(self, where: str) -> None:
        self._stop.check(where)

    def due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._checkpoint_seconds

    def save(self, take: Callable[[], Snapshot], *, is_last: bool) -> None:
        snapshot = take()
        if is_last:
            self._later(partial(self._write, snapshot))
        else:
            self._write(snapshot)
        self._saved_at = time.monotonic()

    def _write(self, snapshot: Snapshot) -> None:
        try:
            self._checkpoints.save(snapshot)
        except OwlmineError as error:
            self.reporter.message(f"{error}; training continues, and the previous checkpoint is kept")
            return
        try:
            self._checkpoints.remove_old()
        except OSError as error:
            if not self._complained:
                folder = self._place / "checkpoints"
                self.reporter.message(
                    f"{folder}: old checkpoints cannot be removed: {error.strerror}; training continues"
                )
            self._complained = True

    def epoch_ended(self, history: list[Record]) -> None:
        """Writes the whole file each time: it is small, and stays correct after a resume or a full disk."""
        write_metrics(self._place, [{"model": self._number + 1, **line} for line in history], self.reporter)

    def figures(self, step: int, figures: dict[str, float]) -> None:
        if self._curves is None:
            return
        if self._events is None:
            self._events = EventFile(self._curves, after_step=self._first_step, complain=self.reporter.message)
        self._events.write(step, figures)

    def advice(self) -> str:
        folder = self._place / "checkpoints"
        return f"; earlier checkpoints are in {folder}" if any(folder.glob("*.json")) else ""

    def close(self) -> None:
        if self._events is not None:
            self._events.close()


def write_metrics(folder: Path, history: list[Record], reporter: Reporter) -> None:
    """Writes a line per epoch. A write error does not end the run."""
    try:
        write_text(folder / METRICS, "".join(json.dumps(line) + "\n" for line in history))
    except OSError as error:
        reporter.message(f"{folder / METRICS}: not written: {error.strerror}; training continues")
