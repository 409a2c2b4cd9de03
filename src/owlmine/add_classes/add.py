"""A model with more classes than it was trained with: the known ones stay as they are, new ones come behind them.

Shapes: K known classes, C new ones, D dimension, N queries, P pairs of an example and a new class of its.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import owlmine
from owlmine.data.arrays import StringTable
from owlmine.data.rows import Int64, SparseRows
from owlmine.dense.retriever import Retriever
from owlmine.errors import OwlmineError
from owlmine.model.class_index import ClassIndex
from owlmine.model.examples import Examples, ScoredQueries
from owlmine.model.left_out import left_out_ranks
from owlmine.model.new_classes import CAUTION, NAME_WEIGHT, QuerySpace
from owlmine.model.new_classifiers import FeatureEvidence, FeatureSpace
from owlmine.model.predictor import ClassWords, Predictor
from owlmine.model.wider_reranker import REACH, names_beside, wider

# Of new classes in a re-ranked model, on validation points of tibkat-gnd: which share of their score by vectors counts,
# and how much the features add, in standard deviations of that score.
_DENSE_SHARE = 0.8
_FEATURE_SHARE = 21.0

# What config.json says of the files beside it, which are written anew.
_OF_FILES = ("format", "version", "written_by", "shape", "num_points", "weighting", "sha256", "checksum", "reranker")


@dataclass(frozen=True)
class Addition:
    """What came of adding classes."""

    predictor: Predictor
    """The model with them."""
    keys: tuple[str, ...]
    """The classes that were added."""
    counts_C: Int64
    """Examples of each."""
    named_C: NDArray[np.bool_]
    """Whether a name has a part in its vector."""
    classes_P: Int64
    ranks_P: Int64
    """Of each example in turn, left out of its class; 0 where the class has no other. Beyond ``PLACES`` a rank only
    tells that it is."""
    unknown: tuple[str, ...]
    """Classes that were not added: the model knows no feature of their examples and no word of their names."""
    known_names: int
    """Names of classes that the model has, which were passed over."""

    def recall(self, k: int, classes_C: NDArray[np.bool_] | None = None) -> float:
        """Share of left-out examples with their class among the first ``k`` (``PLACES`` at most); NaN without any.

        ``classes_C`` marks the classes whose examples count.
        """
        judged_P = self.ranks_P > 0
        if classes_C is not None:
            judged_P &= classes_C[self.classes_P]
        return float((self.ranks_P[judged_P] <= k).mean()) if judged_P.any() else float("nan")


@torch.no_grad()
def add_classes(
    predictor: Predictor,
    examples: Examples | None,
    names: Mapping[str, str] | None = None,
    *,
    caution: float = CAUTION,
    source: str = "",
) -> Addition:
    """Gives new classes vectors, and in a re-ranked model classifiers, without training.

    ``predictor`` itself does not change. ``names`` by key: of classes with examples or, where the model takes text,
    without; there they have a part in what the class gets. Names of known classes do not count. ``source`` is for the
    record in ``config.json``.
    """
    evidence = _gather(predictor, examples, {} if names is None else names)
    known_C = evidence.sums_CD.any(dim=1).cpu().numpy()
    if not known_C.any():
        raise OwlmineError("the model knows no feature of any example and no word of any name of the new classes")
    # Only classes without a single pair are unknown, so every pair finds its class.
    classes_P = (np.cumsum(known_C) - 1)[evidence.classes_P]
    unknown = tuple(key for key, known in zip(evidence.keys, known_C.tolist(), strict=True) if not known)
    evidence = evidence.only(known_C, classes_P)
    keys, queries = evidence.keys, evidence.queries
    counts_C = np.bincount(classes_P, minlength=len(keys))
    space = _space(predictor, queries, caution)
    by_features = _by_features(predictor, evidence, space.length)
    if by_features is not None:
        space = replace(space, length=_DENSE_SHARE * space.length)
    told = {**({} if examples is None else examples.names), **({} if names is None else names)}
    # Where no class of the model has a name of its own, keys are names.
    unnamed = predictor.classes.goes_by_keys
    by_names = names_beside(predictor, [told.get(key, key if unnamed else "") for key in keys], queries)
    lift, reach = float(queries.lift_N.mean()), 1.0 if by_features is None else REACH
    ranks_P = left_out_ranks(
        space,
        queries.vectors_ND,
        evidence.rows_P,
        classes_P,
        evidence.sums_CD,
        queries.best_NT - lift,
        by_features=by_features,
        by_names=by_names,
        floor_N=queries.floor_N / reach,
    )
    words = [told.get(key, key) for key in keys]
    grown = _grown(predictor, reach * space.class_vectors(evidence.sums_CD), keys, words, counts_C)
    if predictor.reranker is not None:
        grown.reranker = wider(predictor.reranker, len(keys), lift, by_features, by_names)
    addition = Addition(grown, keys, counts_C, evidence.named_C, classes_P, ranks_P, unknown, evidence.known_names)
    grown.config["added"] = [*predictor.config.get("added", []), _record(addition, predictor, caution, source)]
    return addition


@dataclass(frozen=True)
class _Evidence:
    """What is known of the new classes."""

    keys: tuple[str, ...]
    queries: ScoredQueries
    """The examples; the names where there is no example."""
    rows_P: Int64
    classes_P: Int64
    sums_CD: Tensor
    named_C: NDArray[np.bool_]
    name_features: SparseRows | None
    """Of the classes that ``named_C`` marks, where the model has a re-ranker."""
    known_names: int

    def only(self, known_C: NDArray[np.bool_], classes_P: Int64) -> _Evidence:
        """Of the marked classes; ``classes_P``: the numbers that they have then."""
        keys = tuple(key for key, known in zip(self.keys, known_C.tolist(), strict=True) if known)
        sums_CD = self.sums_CD[torch.from_numpy(known_C).to(self.sums_CD.device)]
        return replace(self, keys=keys, classes_P=classes_P, sums_CD=sums_CD, named_C=self.named_C[known_C])


def _gather(predictor: Predictor, examples: Examples | None, names: Mapping[str, str]) -> _Evidence:
    index = ClassIndex(predictor.classes.keys)
    own = () if examples is None else examples.keys
    taken = set(own)
    new_names = [key for key in names if index.get(key) is None]
    keys = (*own, *(key for key in new_names if key not in taken))
    if not keys:
        raise OwlmineError(f"all {len(names):,} names are of classes that the model has; wanted new ones")
    if len(keys) > len(own) and not predictor.features.from_text:
        wanted = f"examples, since the model takes {predictor.takes}"
        raise OwlmineError(f"class {keys[len(own)]!r} has a name and no example; wanted {wanted}")
    sums_CD = predictor.retriever.classes.weight.new_zeros(len(keys), predictor.retriever.classes.dim)
    rows_P = classes_P = np.zeros(0, np.int64)
    queries: ScoredQueries | None = None
    name_features = None
    if examples is not None and len(examples.queries):
        queries, rows_P, classes_P = examples.queries, examples.rows_P, examples.classes_P
        places = torch.from_numpy(classes_P).to(sums_CD.device)
        sums_CD.index_add_(0, places, queries.vectors_ND[torch.from_numpy(rows_P).to(sums_CD.device)])
    named_C = np.array([key in names and predictor.features.from_text for key in keys], np.bool_)
    if named_C.any():
        texts = [names[key] for key, named in zip(keys, named_C.tolist(), strict=True) if named]
        scored, known = ScoredQueries.of(predictor, predictor.prepare(texts))
        named_C[np.flatnonzero(named_C)[~known]] = False
        places = torch.from_numpy(np.flatnonzero(named_C)).to(sums_CD.device)
        sums_CD.index_add_(0, places, scored.vectors_ND, alpha=NAME_WEIGHT)
        queries, name_features = scored if queries is None else queries, scored.features
    if queries is None:
        assert examples is not None
        queries = examples.queries
    return _Evidence(keys, queries, rows_P, classes_P, sums_CD, named_C, name_features, len(names) - len(new_names))


def _space(predictor: Predictor, queries: ScoredQueries, caution: float) -> QuerySpace:
    level = float(queries.level_N.mean())
    if not level > 0:
        found = f"the model scores its best classes {level:.3g} for these examples"
        raise OwlmineError(f"{found}; wanted a trained model, which scores them above 0")
    weight_KD = predictor.retriever.classes.weight
    counts_K = torch.from_numpy(np.array(predictor.classes.counts)).to(weight_KD)
    return QuerySpace.of(weight_KD, counts_K, queries.vectors_ND, level=level, caution=caution)


def _by_features(predictor: Predictor, evidence: _Evidence, length: float) -> FeatureEvidence | None:
    """None without a re-ranker in which features count."""
    reranker, features = predictor.reranker, evidence.queries.features
    if reranker is None or features is None or reranker.weight == 0:
        return None
    space = FeatureSpace.of(reranker.ranker, features, length=_FEATURE_SHARE * length)
    return FeatureEvidence.of(
        space,
        features,
        evidence.rows_P,
        evidence.classes_P,
        names=evidence.name_features,
        named_C=evidence.named_C,
        name_weight=NAME_WEIGHT,
    )


def _grown(
    predictor: Predictor, vectors_CD: Tensor, keys: tuple[str, ...], names: list[str], counts_C: Int64
) -> Predictor:
    """The model with the new classes, without a re-ranker."""
    old, classes = predictor.retriever, predictor.classes
    shape = replace(old.shape, num_classes=old.shape.num_classes + len(keys))
    tensors = old.tensors() | {"classes": torch.cat([old.classes.weight, vectors_CD.to(old.classes.weight.dtype)])}
    words = ClassWords(
        StringTable.of([*classes.keys, *keys]),
        StringTable.of([*classes.names, *names]),
        np.concatenate([classes.counts, counts_C]),
        classes.num_points,
    )
    config = {name: value for name, value in predictor.config.items() if name not in _OF_FILES}
    return Predictor(Retriever.from_tensors(shape, tensors), words, predictor.features, config)


def _record(addition: Addition, predictor: Predictor, caution: float, source: str) -> dict[str, Any]:
    """What ``config.json`` keeps."""
    judged = int((addition.ranks_P > 0).sum())
    record: dict[str, Any] = {
        "written_by": f"owlmine {owlmine.__version__}",
        "source": source,
        "first_class": predictor.retriever.shape.num_classes,
        "classes": len(addition.keys),
        "examples": int(addition.counts_C.sum()),
        "names": int(addition.named_C.sum()),
        "caution": caution,
        "left_out": judged,
    }
    if judged:
        record |= {f"R@{k}": round(100 * addition.recall(k), 2) for k in (1, 5)}
    return record
