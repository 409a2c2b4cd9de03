"""Figures of a run for TensorBoard.

Written directly, without ``SummaryWriter``: its thread ends in an uncatchable traceback when the disk is full, and it
names files by the clock, which a resumed run cannot rely on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from owlmine.errors import OwlmineError, how_to_install

FOLDER = "tensorboard"
_NAME = "events.out.tfevents."


def require_tensorboard() -> None:
    """Raises OwlmineError if TensorBoard is not installed."""
    _modules()


def _modules() -> tuple[ModuleType, ModuleType, ModuleType]:
    """The messages of event files, the record format around them, and summaries."""
    try:
        events = import_module("tensorboard.compat.proto.event_pb2")
        return events, import_module("torch.utils.tensorboard"), import_module("torch.utils.tensorboard.summary")
    except ImportError as error:
        wanted = f"TensorBoard needs a package that is not installed; {how_to_install('tensorboard')}"
        raise OwlmineError(f"{wanted} ({error})") from error


class EventFile:
    """The points that one process adds to the curves of a model.

    ``after_step`` is the step at which the process resumes: figures of later steps, left by a killed process, come
    again and are hidden. If the disk is full, ``complain`` is called and nothing more is written.
    """

    def __init__(self, folder: Path, *, after_step: int, complain: Callable[[str], None]) -> None:
        self._folder, self._complain = folder, complain
        self._file: BinaryIO | None = None
        self._events, board, self._summaries = _modules()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            earlier = [int(file.suffix[1:]) for file in folder.glob(f"{_NAME}*") if file.suffix[1:].isdigit()]
            # TensorBoard reads the files of a folder in the order of their names.
            number = max(earlier, default=0) + 1
            self._file = (folder / f"{_NAME}{number:010d}").open("xb")
        except OSError as error:
            self._give_up(error)
            return
        self._records = board.RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        if number > 1:
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._add(step=after_step + 1, session_log=start)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """A point of each curve."""
        for name, figure in figures.items():
            self._add(step=step, summary=self._summaries.scalar(name, figure))

    def _add(self, **content: object) -> None:
        if self._file is None:
            return
        try:
            self._records.write(self._events.Event(wall_time=time.time(), **content).SerializeToString())
            # If the process is killed, its curves are complete up to here.
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        self._complain(f"{self._folder}: not written: {error.strerror}; training continues")
