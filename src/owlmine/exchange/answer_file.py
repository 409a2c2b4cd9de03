"""A file of queries answered into a file of answers: in constant memory, and resumed after a kill.

A task reads its input from the start, in the same blocks each time, so that a block gets the same answers, bit for
bit, whoever answers it. A resumed task passes over the blocks that have been answered: reading takes a small part of
the time that answers take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from owlmine.data.store import Store, is_store
from owlmine.errors import OwlmineError
from owlmine.exchange.answer_forms import AnswerForm, id_kind, write_parquet
from owlmine.exchange.answers import Answer, ArrayBlock, answer_in_arrays
from owlmine.exchange.part_folder import PartFolder, Tally
from owlmine.exchange.queries import QueryBlock, QueryOptions, open_queries, standard_input
from owlmine.files import KnownChecksums
from owlmine.folder.model_folder import model_checksum
from owlmine.index import Filter
from owlmine.rank.predictor import Predictor
from owlmine.version import __version__

# A part of the answers, which is flushed to disk, ends after so many blocks or bytes: a kill costs at most that.
_PART_BLOCKS, _PART_BYTES = 16, 8 << 20

Progress = Callable[[Tally, float], None]
"""Called with what has been answered, and how much of the input has been read, 0 to 1."""


@dataclass(frozen=True, eq=False)
class AnswerTask:
    """What is answered, and how: see ``answer_in_arrays`` and ``open_queries``."""

    model: Path
    """The folder of the predictor."""
    source: Path | BinaryIO
    """A file, a store, or standard input, which cannot be resumed."""
    k: int
    split: str | None = None
    options: QueryOptions = field(default_factory=QueryOptions)
    only: Filter | None = None
    at_least: float = 0.0
    tail: float = 0.0

    def queries(self, predictor: Predictor) -> Iterator[QueryBlock]:
        if isinstance(self.source, Path):
            return open_queries(predictor, self.source, options=self.options, split=self.split)
        return standard_input(predictor, self.source, options=self.options)

    def description(self, predictor: Predictor, form: AnswerForm) -> dict[str, Any]:
        """Everything that the answers depend on."""
        return {
            "owlmine": __version__,
            "model": model_checksum(self.model),
            "index": type(predictor.index).__name__,
            "device": predictor.dense.device.type,
            "input": _checksum_of(self.source) if isinstance(self.source, Path) else None,
            "split": self.split,
            **asdict(self.options),
            "k": self.k,
            "at_least": self.at_least,
            "tail": self.tail,
            "filter": None if self.only is None else self.only.checksum(),
            "format": form.name,
            "compression": form.compression,
        }


def answer_into_file(
    predictor: Predictor,
    task: AnswerTask,
    out: Path,
    form: AnswerForm,
    *,
    resume: bool = False,
    progress: Progress = lambda tally, share: None,
) -> Tally:
    """Answers all queries; the file appears once it has all answers.

    Until then they are in the folder ``FILE.part``, whose work goes on with ``resume``. The file then has the same
    bytes as that of a process that nobody killed. Raises OwlmineError if the folder has the answers of another task.
    """
    form.check(out)
    queries = task.queries(predictor)
    with PartFolder(out, task.description(predictor, form), resume=resume) as folder:
        if folder.tally.finished is None:
            blocks = answer_in_arrays(
                predictor,
                queries,
                task.k,
                only=task.only,
                at_least=task.at_least,
                tail=task.tail,
                skip=folder.tally.queries,
            )
            _append(folder, blocks, predictor, form, progress)

        def convert(encoded: IO[bytes], file: IO[bytes]) -> None:
            write_parquet(encoded, file, predictor, folder.tally.id_kinds)

        folder.publish(convert if form.is_converted else None)
        return folder.tally


def _append(
    folder: PartFolder, blocks: Iterator[ArrayBlock], predictor: Predictor, form: AnswerForm, progress: Progress
) -> None:
    encode, tally, num_blocks = form.encoder(predictor), folder.tally, 0
    pending = [] if tally.queries else [form.head(predictor)]
    for block in blocks:
        pending.append(encode(block))
        tally, num_blocks = _with(tally, block), num_blocks + 1
        if num_blocks == _PART_BLOCKS or sum(map(len, pending)) >= _PART_BYTES:
            folder.append(form.compressed(b"".join(pending)), tally)
            pending, num_blocks = [], 0
        progress(tally, block.progress)
    if num_blocks or not folder.tally.queries:
        folder.append(form.compressed(b"".join(pending)), tally)


def _with(tally: Tally, block: ArrayBlock) -> Tally:
    counts_N = (block.found.ids_Nk >= 0).sum(axis=1)
    kinds = {kind for name in block.ids or () if (kind := id_kind(name)) is not None}
    return replace(
        tally,
        queries=tally.queries + len(block),
        unknown=tally.unknown + int(np.count_nonzero(~block.known_N)),
        without_class=tally.without_class + int(np.count_nonzero(block.known_N & (counts_N == 0))),
        predictions=tally.predictions + int(counts_N.sum()),
        id_kinds=tuple(sorted({*tally.id_kinds, *kinds})),
    )


def with_answers(tally: Tally, answers: Sequence[Answer]) -> Tally:
    """The same for answers as objects."""
    return replace(
        tally,
        queries=tally.queries + len(answers),
        unknown=tally.unknown + sum(not answer.known for answer in answers),
        without_class=tally.without_class + sum(answer.known and not answer.classes for answer in answers),
        predictions=tally.predictions + sum(len(answer.classes) for answer in answers),
    )


def _checksum_of(source: Path) -> str:
    if is_store(source):
        checksum: str = Store.open(source).meta["checksum"]
        return checksum
    try:
        return KnownChecksums().of(source)
    except OSError as error:
        raise OwlmineError(f"{source}: cannot be read: {error.strerror}") from error
