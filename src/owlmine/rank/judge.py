"""What a judge is. A judge scores candidates by something that the dense model does not know.

To add a judge, write one file with a class that has the members of ``Judge`` and the decorator ``@register``, and
import it in ``rank/__init__.py``. It is then fitted, weighted, saved and tested like the others.

Shapes: N queries, S places of a list of candidates, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.dense.encoder import query_batch
from owlmine.dense.progress import Heartbeat
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.index import Index
from owlmine.rank.candidates import Candidates, Encoded
from owlmine.rank.words import ClassWords, FeatureWords


@dataclass(frozen=True)
class JudgeSizes:
    """How large judges may be, and which variants they may choose from; the plan decides."""

    shortlist: int
    """How many of the dense model's best classes are judged; suggested classes are added to them."""
    confusable: int = 100
    """Best classes of each training point that its linear classifiers learn to tell apart from its labels."""
    neighbours: int = 0
    """Nearest training points that vote for their labels and suggest them; 0: none."""
    neighbour_kinds: tuple[str, ...] = ("sparse",)
    """How neighbours are found: by ``sparse`` features, by ``dense`` vectors. Each kind is a judge of its own."""
    names: bool = False
    """Whether class names may count, and suggest classes."""
    costs: tuple[float, ...] = (1.0,)
    """Costs of the linear classifiers to choose from."""
    most_pairs_of_choice: int = 0
    """With more pairs the cost is 1: trying one cost takes a whole training of the classifiers."""


@dataclass(frozen=True, eq=False)
class Training:
    """What judges learn from: the training points, and the dense model that makes their shortlists."""

    model: Retriever
    queries: SparseRows
    labels: SparseRows
    classes: ClassWords
    features: FeatureWords
    sizes: JudgeSizes
    seed: int
    index: Index
    """Searches the model's classes."""
    message: Callable[[str], None] = field(default=lambda text: None)
    check: Callable[[str], None] = field(default=lambda where: None)
    """Called between blocks of work with the name of the current step; may raise to stop."""

    def blocks(self, what: str, num_rows: int = 4096) -> Iterator[slice]:
        """The training points in blocks, with progress messages."""
        beat = Heartbeat(self.message, what, len(self.queries))
        for start in range(0, len(self.queries), num_rows):
            self.check(what)
            beat(start)
            yield slice(start, start + num_rows)

    def encode(self, block: slice) -> Tensor:
        """The vectors of some training points."""
        return self.model.encode(query_batch(self.queries[block], self.model.device))


Variant = Hashable
"""Names one variant of a judge to choose from, such as a cost. Plain JSON: a number, a string or None."""


class Judge(Protocol):
    """Scores candidates by one kind of evidence."""

    name: ClassVar[str]
    """Its name in files and messages."""
    title: ClassVar[str]
    """What it counts, in a few words, for reports."""
    prior: ClassVar[float]
    """The prior of its weight, as a multiple of the dense score's. Without validation points it is the weight itself,
    if the judge ``is_default``."""
    must_help: ClassVar[bool]
    """Whether it is kept only if it reduces the loss on validation points, because it costs memory and time."""
    is_default: ClassVar[bool]
    """Whether it counts without validation points."""
    default_variant: ClassVar[Variant]
    """Its default variant, if it has one."""

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        """The variants to choose from, or only the ``chosen`` one; empty if the data lack what it needs."""

    def scores(self, candidates: Candidates) -> Float32:
        """Finite scores [N, S], each of its query and class alone; that of an empty place never counts."""

    def with_classes(self, num_new: int) -> Self:
        """With ``num_new`` classes appended. They score 0, because nothing is known about them."""

    def on(self, device: torch.device) -> Self:
        """On that device."""

    def tensors(self) -> dict[str, Tensor]:
        """What a file stores; the tensors share memory with the judge where possible."""

    def settings(self) -> dict[str, Any]:
        """Everything that ``tensors`` does not contain, as JSON."""

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        """The inverse of ``settings`` and ``tensors``, for files from any source.

        Raises ValueError if they are invalid, or cannot judge the candidates of a model of that shape.
        """


@runtime_checkable
class ByFeatures(Protocol):
    """A judge whose score is a sum over the features of the query, and so can say what each word adds."""

    effect: ClassVar[str]
    """What this is called in reasons."""

    def effects(self, candidates: Candidates, query: SparseRows) -> Float32:
        """[S, E] what each feature adds to the scores of the classes. ``candidates``: of one query, without empty
        places. ``query``: its features, ascending and distinct, with values."""

    def biases(self, ids_S: Int64) -> Float32:
        """[S] what is added to the score of each class whatever the query."""


@runtime_checkable
class ByVotes(Protocol):
    """A judge whose score is a sum of votes of training points."""

    @property
    def num_points(self) -> int:
        """Training points, which are numbered from 0."""

    def voters(self, encoded: Encoded, class_id: int) -> tuple[Int64, Float32, NDArray[np.float64]]:
        """The points [V] that vote for a class: their numbers, cosines and shares, which sum to its score."""


JUDGES: dict[str, type[Judge]] = {}
"""All judges by name, in the order in which their scores are added."""

JudgeClass = TypeVar("JudgeClass", bound=type[Judge])


def register(judge: JudgeClass) -> JudgeClass:
    """Makes a judge part of every ranker that is fitted from now on. In files, a dot follows its name."""
    assert judge.name.isidentifier(), judge.name
    assert judge.name not in JUDGES, judge.name
    JUDGES[judge.name] = judge
    return judge


_WORDS = {int: "a whole number", float: "a number", str: "text"}


def check_settings(settings: Any, wanted: Mapping[str, type]) -> None:
    """Raises ValueError unless a file has exactly these settings, each of its type."""
    if not isinstance(settings, Mapping) or set(settings) != set(wanted):
        raise ValueError(f"settings of a judge are {settings!r}; wanted {', '.join(wanted) or 'none'}")
    for name, kind in wanted.items():
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int | float if kind is float else kind):
            raise ValueError(f"{name} of a judge is {value!r}; wanted {_WORDS[kind]}")
