"""The ranker: the same object is fitted on validation points and served. It sums the scores and orders by them.

Shapes: N queries, S places of a list of candidates, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from owlmine.data.rows import Float32, Int64
from owlmine.dense.retriever import Retriever
from owlmine.index import Filter, Index
from owlmine.rank.candidates import Candidates, Encoded, Suggests, find_candidates
from owlmine.rank.judge import JUDGES, ByVotes, Judge
from owlmine.rank.mix import Mix, total
from owlmine.rank.points import as_arrays, as_tensors

DENSE, OFFSET = "dense", "offset"
"""Names of the parts of a score that are not from judges."""

# Fields of the ranker that are stored as tensors, with a number for each class.
_OF_CLASSES = {"dense_weights": "dense_weights_K", "offsets": "offsets_K"}
_RECORD = ("shortlist", "num_trained", "mix", "judges")


@dataclass(frozen=True, eq=False)
class Ranker:
    """Judges, and how much each counts. Without judges the dense score is the final score."""

    judges: Mapping[str, Judge] = field(default_factory=dict)
    mix: Mix = field(default_factory=Mix)
    shortlist: int = 0
    """How many of the dense model's best classes are judged, at least."""
    num_trained: int | None = None
    """The number of trained classes, if others were appended."""
    dense_weights_K: Float32 | None = None
    """Factors of the dense scores, if classes were added. Added classes have long vectors, so that they are listed; the
    factor then reduces their scores."""
    offsets_K: Float32 | None = None
    """Offsets of the scores, if classes were added. Most judges know nothing about added classes, so these get what
    judges add to known classes on average."""

    def __post_init__(self) -> None:
        if set(self.judges) != set(self.mix.weights):
            raise ValueError(f"judges {sorted(self.judges)} and weights of {sorted(self.mix.weights)}; wanted the same")
        if self.shortlist < (1 if self.judges else 0):
            raise ValueError(f"the shortlist is {self.shortlist!r}; wanted 1 or more with judges, 0 or more without")
        if self.num_trained is not None and self.num_trained < 1:
            raise ValueError(f"num_trained is {self.num_trained!r}; wanted 1 or more")
        weights_K, offsets_K = self.dense_weights_K, self.offsets_K
        if weights_K is not None and not (np.isfinite(weights_K) & (weights_K > 0)).all():
            raise ValueError("a dense weight is not a finite number above 0")
        if offsets_K is not None and not np.isfinite(offsets_K).all():
            raise ValueError("an offset is not finite")

    def candidates(
        self,
        model: Retriever,
        encoded: Encoded,
        k: int,
        *,
        index: Index,
        only: Filter | None = None,
    ) -> Candidates:
        """The lists to judge for the best ``k`` classes, of all or of those that a filter allows."""
        most = model.shape.num_classes if only is None else max(k, only.most)
        return find_candidates(
            model,
            encoded,
            min(max(k, self.shortlist), most),
            only=only,
            suggesters=self.suggesters,
            num_trained=self.num_trained,
            index=index,
        )

    @cached_property
    def suggesters(self) -> tuple[Suggests, ...]:
        """The judges that add classes to lists."""
        return tuple(judge for judge in self.judges.values() if isinstance(judge, Suggests))

    @property
    def num_voters(self) -> int:
        """Training points that may vote."""
        return max((judge.num_points for judge in self.judges.values() if isinstance(judge, ByVotes)), default=0)

    def scores(self, candidates: Candidates) -> Float32:
        """Final scores [N, S]; -inf in empty places, and not finite where float32 overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            return total(part_NS for _, part_NS in self.parts(candidates))

    def parts(self, candidates: Candidates) -> Iterator[tuple[str, Float32]]:
        """What is added up to the final scores [N, S], in this order: the dense score, the offset of added classes, and
        what each judge that counts adds."""
        dense_NS = candidates.dense_NS
        if self.dense_weights_K is not None:
            dense_NS = dense_NS * self.dense_weights_K[candidates.lookup_ids]
        yield DENSE, dense_NS
        if self.offsets_K is not None:
            yield OFFSET, self.offsets_K[candidates.lookup_ids]
        counted = (name for name, weight in self.mix.weights.items() if weight)
        yield from self.mix.parts({name: self.judges[name].scores(candidates) for name in counted})

    def order(self, candidates: Candidates) -> tuple[Float32, Int64]:
        """Scores and ids [N, S], best first; empty places come last."""
        scores_NS, ids_NS = self.scores(candidates), candidates.ids_NS
        if scores_NS is candidates.dense_NS:
            return scores_NS, ids_NS
        order_NS = np.argsort(-scores_NS, axis=1, kind="stable")
        return np.take_along_axis(scores_NS, order_NS, axis=1), np.take_along_axis(ids_NS, order_NS, axis=1)

    def on(self, device: torch.device) -> Ranker:
        """On that device."""
        return replace(self, judges={name: judge.on(device) for name, judge in self.judges.items()})

    def tensors(self) -> dict[str, Tensor]:
        tensors = {
            f"{name}.{part}": tensor for name, judge in self.judges.items() for part, tensor in judge.tensors().items()
        }
        of_classes = {name: getattr(self, attribute) for name, attribute in _OF_CLASSES.items()}
        return tensors | as_tensors({name: array for name, array in of_classes.items() if array is not None})

    def to_dict(self) -> dict[str, Any]:
        """Everything that ``tensors`` does not contain."""
        return {
            "shortlist": self.shortlist,
            "num_trained": self.num_trained,
            "mix": self.mix.to_dict(),
            "judges": {name: judge.settings() for name, judge in self.judges.items()},
        }

    @classmethod
    def load(cls, record: Mapping[str, Any], tensors: Mapping[str, Tensor], model: Retriever) -> Ranker:
        """The inverse of ``to_dict`` and ``tensors``. Raises ValueError if they do not fit each other or the model."""
        if not isinstance(record, Mapping) or set(record) != set(_RECORD):
            raise ValueError(f"the ranker has {record!r}; wanted {', '.join(_RECORD)}")
        if not isinstance(record["judges"], Mapping):
            raise ValueError(f"judges are {record['judges']!r}; wanted settings by judge")
        for name in ("shortlist", "num_trained"):
            _check_count(name, record[name], model.shape.num_classes, optional=name == "num_trained")
        judges = {name: _load_judge(name, settings, tensors, model) for name, settings in record["judges"].items()}
        prefixes = tuple(f"{name}." for name in judges)
        if extra := sorted(name for name in tensors if name not in _OF_CLASSES and not name.startswith(prefixes)):
            raise ValueError(f"unknown tensors {', '.join(extra)}; wanted those of {', '.join(judges) or 'no judge'}")
        arrays = {
            field: _load_numbers(name, tensors[name], model.shape.num_classes)
            for name, field in _OF_CLASSES.items()
            if name in tensors
        }
        return cls(judges, Mix.from_dict(record["mix"]), record["shortlist"], record["num_trained"], **arrays)


def _load_judge(name: Any, settings: Any, tensors: Mapping[str, Tensor], model: Retriever) -> Judge:
    """A judge from its settings and tensors, on the device of the model."""
    if name not in JUDGES:
        raise ValueError(f"unknown judge {name!r}; wanted some of {', '.join(JUDGES)}")
    own = {part.removeprefix(f"{name}."): tensor for part, tensor in tensors.items() if part.startswith(f"{name}.")}
    return JUDGES[name].load(settings, own, model.shape).on(model.device)


def _load_numbers(name: str, tensor: Tensor, num_classes: int) -> Float32:
    array = as_arrays({name: tensor}, {name: torch.float32})[name]
    if len(array) != num_classes:
        raise ValueError(f"{name} has {len(array)} numbers; wanted one for each of {num_classes} classes")
    return array


def _check_count(name: str, value: Any, most: int, *, optional: bool) -> None:
    if not (value is None and optional) and (type(value) is not int or not 0 <= value <= most):
        raise ValueError(f"{name} is {value!r}; wanted a whole number of at most {most}")
