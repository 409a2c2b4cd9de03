"""Adds classes to a trained model: the known ones do not change, the new ones are appended.

Each new class gets a vector, and each judge is extended: by a ``NewJudgement`` if there is one for it, otherwise by
classes that score 0. As an offset, new classes get what judges add to known classes on average.

Shapes: K known classes, C new ones, D dimension, N queries, P pairs of an example and one of its new classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.add_classes.classifiers import FeatureJudgement, FeatureSpace
from owlmine.add_classes.examples import Examples, ScoredQueries
from owlmine.add_classes.names import NameJudgement
from owlmine.add_classes.vectors import CAUTION, NAME_WEIGHT, NewJudgement, QuerySpace, left_out_ranks
from owlmine.data.arrays import StringTable
from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.errors import OwlmineError
from owlmine.rank.class_index import ClassIndex
from owlmine.rank.linear import LinearJudge
from owlmine.rank.names import NameJudge
from owlmine.rank.predictor import Predictor
from owlmine.rank.ranker import Ranker
from owlmine.rank.words import ClassWords
from owlmine.version import __version__

# For new classes in a re-ranked model, chosen on validation points of tibkat-gnd: the share of their dense score that
# counts, and how much the features add, in standard deviations of that score.
_DENSE_SHARE = 0.8
_FEATURE_SHARE = 21.0
REACH = 1.5
"""How many times longer the vectors of new classes are than their share of the score, if features count too. Shortlists
come from vectors alone, and with shorter vectors many new classes would never be on one. Chosen on validation points of
tibkat-gnd."""
NAME_LEVEL = 1.7
"""The threshold for names, as a multiple of what names add to the known class ranked fifth: known classes then lose at
most 0.3 points. Chosen on the same points."""


@dataclass(frozen=True)
class Addition:
    """A model with added classes, and how well they are found."""

    predictor: Predictor
    """The model with the new classes."""
    keys: tuple[str, ...]
    """The classes that were added."""
    counts_C: Int64
    """The number of examples of each."""
    named_C: NDArray[np.bool_]
    """Whether a name is part of its vector."""
    classes_P: Int64
    ranks_P: Int64
    """The rank of each example's class when the example is left out; 0 if the class has no other example. Ranks beyond
    ``PLACES`` are not exact."""
    unknown: tuple[str, ...]
    """Classes that were not added: the model knows no feature of their examples and no word of their names."""
    known_names: int
    """The number of names ignored because the model already has their classes."""

    def recall(self, k: int, classes_C: NDArray[np.bool_] | None = None) -> float:
        """Share of left-out examples with their class among the first ``k`` (``PLACES`` at most); NaN without any.

        ``classes_C`` marks the classes whose examples count.
        """
        left_out_P = self.ranks_P > 0
        if classes_C is not None:
            left_out_P &= classes_C[self.classes_P]
        return float((self.ranks_P[left_out_P] <= k).mean()) if left_out_P.any() else float("nan")

    def record(self, *, first_class: int, caution: float, source: str) -> dict[str, Any]:
        """The entry in the record of the model."""
        num_left_out = int((self.ranks_P > 0).sum())
        entry: dict[str, Any] = {
            "written_by": f"owlmine {__version__}",
            "source": source,
            "first_class": first_class,
            "classes": len(self.keys),
            "examples": int(self.counts_C.sum()),
            "names": int(self.named_C.sum()),
            "caution": caution,
            "left_out": num_left_out,
        }
        return entry | ({f"R@{k}": round(100 * self.recall(k), 2) for k in (1, 5)} if num_left_out else {})


@torch.no_grad()
def add_classes(
    predictor: Predictor,
    examples: Examples | None,
    names: Mapping[str, str] | None = None,
    *,
    caution: float = CAUTION,
    source: str = "",
) -> Addition:
    """Computes vectors for new classes, and classifiers in a re-ranked model, without training.

    ``names``: by key. If the model takes text, a class may have a name and no examples, and names are part of the
    vectors. Names of known classes are ignored. ``source`` is for the record of the new model.
    """
    evidence = _gather(predictor, examples, names or {})
    if not evidence.keys:
        raise OwlmineError("the model knows none of the features of the examples and none of the words of the names")
    queries, num_new = evidence.queries, len(evidence.keys)
    names_by_key = {**({} if examples is None else examples.names), **(names or {})}
    space = _space(predictor, queries, caution)
    judgements = _judgements(predictor, evidence, names_by_key, space.length)
    reach = 1.0
    if LinearJudge.name in judgements:
        space, reach = replace(space, length=_DENSE_SHARE * space.length), REACH
    lift = float(queries.lift_N.mean())
    ranks_P = left_out_ranks(
        space,
        queries.vectors_ND,
        evidence.rows_P,
        evidence.classes_P,
        evidence.sums_CD,
        queries.best_NT - lift,
        judgements=list(judgements.values()),
        floor_N=queries.floor_N / reach,
    )
    counts_C = np.bincount(evidence.classes_P, minlength=num_new)
    vectors_CD = reach * space.class_vectors(evidence.sums_CD)
    dense = predictor.dense.with_classes(vectors_CD)
    larger = replace(
        predictor,
        dense=dense,
        index=predictor.index.of_larger(dense.rows),
        ranker=_with_judgements(predictor, judgements, num_new, lift, reach),
        classes=_with_words(predictor.classes, evidence.keys, names_by_key, counts_C),
    )
    addition = Addition(
        larger,
        evidence.keys,
        counts_C,
        evidence.named_C,
        evidence.classes_P,
        ranks_P,
        evidence.unknown,
        evidence.known_names,
    )
    entry = addition.record(first_class=predictor.dense.shape.num_classes, caution=caution, source=source)
    record = replace(predictor.record, added=(*predictor.record.added, entry))
    return replace(addition, predictor=replace(larger, record=record))


@dataclass(frozen=True)
class _Evidence:
    """The data of the new classes."""

    keys: tuple[str, ...]
    queries: ScoredQueries
    """The examples, or the names if there is no example."""
    rows_P: Int64
    classes_P: Int64
    sums_CD: Tensor
    named_C: NDArray[np.bool_]
    name_features: SparseRows | None
    """The names of the classes marked in ``named_C``, if the model has judges."""
    known_names: int
    unknown: tuple[str, ...] = ()

    def without_unknown(self) -> _Evidence:
        """Restricted to the classes with a vector."""
        known_C = self.sums_CD.any(dim=1).cpu().numpy()
        both = list(zip(self.keys, known_C.tolist(), strict=True))
        return replace(
            self,
            keys=tuple(key for key, known in both if known),
            unknown=tuple(key for key, known in both if not known),
            # Only classes without any pair are unknown, so every pair finds its class.
            classes_P=(np.cumsum(known_C) - 1)[self.classes_P],
            sums_CD=self.sums_CD[torch.from_numpy(known_C).to(self.sums_CD.device)],
            named_C=self.named_C[known_C],
        )


def _gather(predictor: Predictor, examples: Examples | None, names: Mapping[str, str]) -> _Evidence:
    index, takes_text = ClassIndex(predictor.classes.keys), predictor.features.from_text
    own = () if examples is None else examples.keys
    new_names = [key for key in names if index.get(key) is None]
    keys = tuple(dict.fromkeys((*own, *new_names)))
    if not keys:
        raise OwlmineError(f"all {len(names):,} names belong to classes that the model already has; wanted new ones")
    if len(keys) > len(own) and not takes_text:
        wanted = f"examples, since the model takes {predictor.takes}"
        raise OwlmineError(f"class {keys[len(own)]!r} has a name but no examples; wanted {wanted}")
    sums_CD = torch.zeros(len(keys), predictor.dense.shape.dim, device=predictor.dense.device)
    rows_P = classes_P = np.zeros(0, np.int64)
    queries = None if examples is None else examples.queries
    if examples is not None and len(examples.queries):
        rows_P, classes_P = examples.rows_P, examples.classes_P
        _add_rows(sums_CD, classes_P, examples.queries.vectors_ND[torch.from_numpy(rows_P).to(sums_CD.device)])
    named_C = np.array([key in names and takes_text for key in keys], np.bool_)
    name_features = None
    if named_C.any():
        texts = [names[key] for key, named in zip(keys, named_C.tolist(), strict=True) if named]
        scored, known = ScoredQueries.of(predictor, predictor.prepare(texts))
        named_C[np.flatnonzero(named_C)[~known]] = False
        _add_rows(sums_CD, np.flatnonzero(named_C), NAME_WEIGHT * scored.vectors_ND)
        name_features = scored.features
        queries = scored if queries is None or not len(queries) else queries
    assert queries is not None
    known_names = len(names) - len(new_names)
    evidence = _Evidence(keys, queries, rows_P, classes_P, sums_CD, named_C, name_features, known_names)
    return evidence.without_unknown()


def _add_rows(sums_CD: Tensor, classes: Int64, vectors: Tensor) -> None:
    sums_CD.index_add_(0, torch.from_numpy(classes).to(sums_CD.device), vectors)


def _space(predictor: Predictor, queries: ScoredQueries, caution: float) -> QuerySpace:
    level = float(queries.level_N.mean())
    if not level > 0:
        found = f"the model scores its best classes {level:.3g} for these examples"
        raise OwlmineError(f"{found}; wanted a trained model, which scores them above 0")
    counts_K = torch.from_numpy(np.array(predictor.classes.counts)).to(predictor.dense.device, torch.float32)
    return QuerySpace.of(predictor.dense.rows, counts_K, queries.vectors_ND, level=level, caution=caution)


def _judgements(
    predictor: Predictor, evidence: _Evidence, names: Mapping[str, str], length: float
) -> dict[str, NewJudgement]:
    """The judgements of the judges that can score new classes, by name. ``length``: t / z."""
    queries, judgements = evidence.queries, dict[str, NewJudgement]()
    judge, weight = predictor.ranker.judges.get(LinearJudge.name), predictor.ranker.mix.weights.get(LinearJudge.name)
    if isinstance(judge, LinearJudge) and weight:
        assert queries.features is not None
        judgements[judge.name] = FeatureJudgement.of(
            FeatureSpace.of(judge.weights, queries.features, length=_FEATURE_SHARE * length),
            queries.features,
            evidence.rows_P,
            evidence.classes_P,
            names=evidence.name_features,
            named_C=evidence.named_C,
            name_weight=NAME_WEIGHT,
        )
    if NameJudge.name in predictor.ranker.judges:
        assert queries.features is not None
        # If no class of the model has a name besides its key, keys serve as names.
        unnamed = predictor.classes.goes_by_keys
        words = [names.get(key, key if unnamed else "") for key in evidence.keys]
        dense_N, level = queries.dense_N.float().cpu().numpy(), NAME_LEVEL * float(queries.name_lift_N.mean())
        by_names = NameJudgement.of(predictor, words, queries.features, dense_N, level)
        if by_names is not None:
            judgements[NameJudge.name] = by_names
    return judgements


def _with_words(classes: ClassWords, keys: Sequence[str], names: Mapping[str, str], counts_C: Int64) -> ClassWords:
    return ClassWords(
        StringTable.of([*classes.keys, *keys]),
        StringTable.of([*classes.names, *(names.get(key, key) for key in keys)]),
        np.concatenate([classes.counts, counts_C]),
        classes.num_points,
    )


def _with_judgements(
    predictor: Predictor, judgements: Mapping[str, NewJudgement], num_new: int, lift: float, reach: float
) -> Ranker:
    """``lift`` is added to the scores of new classes, whose vectors are ``reach`` times too long."""
    ranker, num_classes = predictor.ranker, predictor.dense.shape.num_classes
    if not ranker.judges:
        return ranker
    judges = {
        name: judgements[name].extend(judge, ranker.mix.weights[name])
        if name in judgements
        else judge.with_classes(num_new)
        for name, judge in ranker.judges.items()
    }
    dense_weights_K, offsets_K = ranker.dense_weights_K, ranker.offsets_K
    if dense_weights_K is not None or reach != 1:
        dense_weights_K = _longer(dense_weights_K, num_classes, 1.0, np.full(num_new, 1 / reach, np.float32))
    offsets_C = np.full(num_new, lift, np.float32)
    for judgement in judgements.values():
        offsets_C += judgement.offsets
    return replace(
        ranker,
        judges=judges,
        num_trained=ranker.num_trained or num_classes,
        dense_weights_K=dense_weights_K,
        offsets_K=_longer(offsets_K, num_classes, 0.0, offsets_C),
    )


def _longer(of_known_K: Float32 | None, num_known: int, usual: float, of_new_C: Float32) -> Float32:
    known_K = np.full(num_known, usual, np.float32) if of_known_K is None else of_known_K
    return np.concatenate([known_K, of_new_C])
