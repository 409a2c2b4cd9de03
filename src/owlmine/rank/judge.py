"""What a judge is. A judge scores candidates by something that the dense model does not know.

A new judge is one file: a class with the members of ``Judge``, and ``@register`` on it. From then on it is fitted,
weighed, saved and tested like the others.

Shapes: N queries, S places of a list of candidates, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeVar

import torch
from torch import Tensor

from owlmine.data.rows import Float32, SparseRows
from owlmine.dense.encoder import query_batch
from owlmine.dense.progress import Heartbeat
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.index.approximate import ApproximateIndex
from owlmine.rank.candidates import Candidates
from owlmine.rank.words import ClassWords, FeatureWords


@dataclass(frozen=True)
class JudgeSizes:
    """How large judges may be and among which forms they may be chosen; the plan decides."""

    shortlist: int
    """Best classes of the dense model that are judged; those that judges suggest come on top."""
    neighbours: int = 0
    """Nearest training points that vote for their labels and suggest them; 0: none."""
    neighbour_kinds: tuple[str, ...] = ("sparse",)
    """How neighbours may be found: by ``sparse`` features, by ``dense`` vectors. Each kind is a judge of its own."""
    names: bool = False
    """Whether the names of classes may count, and suggest classes."""
    costs: tuple[float, ...] = (1.0,)
    """Costs of the linear classifiers to choose from."""
    most_pairs_of_choice: int = 0
    """The cost is chosen only with at most this many pairs, as each takes a training of its own; else it is 1."""


@dataclass(frozen=True, eq=False)
class Training:
    """What judges learn from: training points, and the dense model that made their shortlists."""

    model: Retriever
    queries: SparseRows
    labels: SparseRows
    classes: ClassWords
    features: FeatureWords
    sizes: JudgeSizes
    seed: int
    index: ApproximateIndex | None = None
    """Of the model's classes, where shortlists are found by one."""
    message: Callable[[str], None] = field(default=lambda text: None)
    check: Callable[[str], None] = field(default=lambda where: None)
    """Called between blocks of work with a word for where it is; may raise to stop."""

    def blocks(self, what: str, num_rows: int = 4096) -> Iterator[slice]:
        """Training points a block at a time, with signs of life."""
        beat = Heartbeat(self.message, what, len(self.queries))
        for start in range(0, len(self.queries), num_rows):
            self.check(what)
            beat(start)
            yield slice(start, start + num_rows)

    def encode(self, block: slice) -> Tensor:
        """The vectors of some training points."""
        return self.model.encode(query_batch(self.queries[block], self.model.device))


Variant = Hashable
"""Names one form of a judge among those that may be chosen, such as a cost. Plain JSON: a number, a string or None."""


class Judge(Protocol):
    """One opinion about candidates."""

    name: ClassVar[str]
    """Its name in files, messages and explanations."""
    prior: ClassVar[float]
    """Where the fit of its weight begins, as a multiple of the dense score's; and the weight where nothing can be
    fitted, if it ``is_default``."""
    must_help: ClassVar[bool]
    """Whether it is kept only where it makes the loss on validation points smaller: it costs memory and time."""
    is_default: ClassVar[bool]
    """Whether it counts where there are no validation points to weigh it by."""
    default_variant: ClassVar[Variant]
    """Its usual form, where it has one."""

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        """The forms to choose from, or the ``chosen`` one alone; none where the data do not have what it needs."""

    @classmethod
    def scores_of_all(cls, forms: Mapping[Variant, Self], candidates: Candidates) -> dict[Variant, Float32]:
        """The scores of all forms at once: they may share work."""

    def scores(self, candidates: Candidates) -> Float32:
        """[N, S]. A score depends on the query and the class alone, and is finite; that of an empty place never
        counts."""

    def with_classes(self, num_new: int) -> Self:
        """With so many new classes behind the known ones, all of which score 0: nothing is known of them."""

    def on(self, device: torch.device) -> Self:
        """For query vectors that lie there."""

    def tensors(self) -> dict[str, Tensor]:
        """What a file keeps; they share memory with the judge where they can."""

    def settings(self) -> dict[str, Any]:
        """What ``tensors`` does not tell, as JSON has it."""

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        """Back from ``settings()`` and ``tensors()``, whoever wrote the file. ValueError where they cannot be what they
        should, or cannot judge the candidates of a model of that shape."""


JUDGES: dict[str, type[Judge]] = {}
"""All judges by name, in the order in which their scores are added."""

JudgeClass = TypeVar("JudgeClass", bound=type[Judge])


def register(judge: JudgeClass) -> JudgeClass:
    """Makes a judge part of every ranker that is fitted from now on. Files put a dot behind its name."""
    assert judge.name.isidentifier(), judge.name
    assert judge.name not in JUDGES, judge.name
    JUDGES[judge.name] = judge
    return judge


_WORDS = {int: "a whole number", float: "a number", str: "text"}


def check_settings(settings: Any, wanted: Mapping[str, type]) -> None:
    """ValueError unless a file has just these settings, each of its type."""
    if not isinstance(settings, Mapping) or set(settings) != set(wanted):
        raise ValueError(f"settings of a judge are {settings!r}; wanted {', '.join(wanted) or 'none'}")
    for name, kind in wanted.items():
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int | float if kind is float else kind):
            raise ValueError(f"{name} of a judge is {value!r}; wanted {_WORDS[kind]}")
