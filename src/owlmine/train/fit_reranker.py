"""A re-ranker for a trained model: classifiers for what it confuses on its training points, neighbours that vote, names
of classes, and how much each of them counts.

Shapes: N points, S places of a shortlist, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.data.store import Split
from owlmine.dense.encoder import query_batch
from owlmine.index.rough import RoughSearch
from owlmine.model.predictor import Predictor
from owlmine.rank import (
    DensePoints,
    LinearOptions,
    LinearRanker,
    MinedPairs,
    NameMatches,
    Neighbours,
    Reranker,
    SparsePoints,
    train_linear,
)
from owlmine.rank.neighbours import Points
from owlmine.rank.points import first_head
from owlmine.train.choose_mix import Evidence, Mix, choose_mix, usual_mix
from owlmine.train.composition import Composition
from owlmine.train.heartbeat import Heartbeat
from owlmine.train.judges import Judges, rarities_of
from owlmine.train.validate import ValidationPart

# Pairs of a point and a class that it was confused with: what memory and patience allow. Within these bounds longer
# shortlists make better classifiers, as they then have seen more of what they must tell apart.
_MOST_PAIRS = 30_000_000
_SHORTEST, _LONGEST = 10, 100
_BLOCK_ROWS = 4096
_POWERS = (2.0, 4.0, 16.0)
# Vectors of training points beyond this are not kept.
_MOST_VECTOR_BYTES = 4 << 30
# Names of classes, or words, beyond which they are not compared: a million of two words takes a minute or two, 4 GiB.
_MOST_NAMES = 2_000_000

Tell = Callable[[str], None]


class RerankerFit:
    """Fits a re-ranker to ``predictor`` on the rows of train that ``part`` leaves to learn from.

    ``tell`` is told what goes on; ``check`` is called between blocks of work and may raise to stop it.
    """

    def __init__(
        self,
        predictor: Predictor,
        split: Split,
        part: ValidationPart,
        parts: Composition,
        *,
        seed: int,
        tell: Tell,
        check: Tell,
    ) -> None:
        self._predictor, self._part, self._parts = predictor, part, parts
        self._seed, self._tell, self._check = seed, tell, check
        train = split.batch(part.train_rows)
        assert isinstance(train.queries, SparseRows)
        self._queries, self._labels = train.queries, train.labels

    def fit(self, mix: Mix | None = None) -> tuple[Reranker, Mix]:
        """``mix`` as it was chosen elsewhere; without it the best on validation points, or where there are none what
        mostly is good."""
        pairs = self._pairs()
        if mix is not None or not len(self._part):
            names = self._names() if mix is None or mix.name_weight else None
            if mix is None:
                mix = usual_mix(names=names is not None)
                self._tell(f"{mix.told}, as there are no validation points to choose by")
            ranker = self._classifiers(pairs, mix.cost)
            points = None if mix.kind is None else self._points(mix.kind)
        else:
            few = len(pairs) <= self._parts.most_pairs_of_a_choice
            costs = self._parts.costs if few else (1.0,)
            rankers = {cost: self._classifiers(pairs, cost) for cost in costs}
            witnesses = {kind: self._points(kind) for kind in self._kinds()}
            names = self._names()
            mix = self._chosen(rankers, witnesses, names)
            ranker, points = rankers[mix.cost], None if mix.kind is None else witnesses[mix.kind]
        neighbours = None if points is None else self._neighbours(points, mix.power)
        offsets_K = np.float32(mix.lift) * rarities_of(self._predictor)
        reranker = Reranker(ranker, mix.weight, self._parts.shortlist, offsets_K, neighbours, mix.vote_weight)
        if mix.name_weight:
            reranker = replace(reranker, names=names, name_weight=mix.name_weight)
        return reranker, mix

    def _pairs(self) -> MinedPairs:
        retriever, num_points = self._predictor.retriever, len(self._labels)
        shape = retriever.shape
        length = min(max(_MOST_PAIRS // num_points, _SHORTEST), _LONGEST, shape.num_classes)
        self._tell(f"the {length} best classes of each training point, for what the model confuses")
        ranked_NS = np.empty((num_points, length), np.int32)
        if shape.kind == "linear":
            for block in self._blocks("shortlists"):
                ranked_NS[block] = self._predictor.shortlist(self._queries[block], length)[1]
        else:
            # Which classes are confused need not be known to the last bit.
            search = RoughSearch(retriever.classes.weight)
            for block in self._blocks("shortlists"):
                ranked_NS[block] = search(self._encoded(block), length).cpu().numpy()
        return MinedPairs.of(ranked_NS, self._labels, num_classes=shape.num_classes)

    def _blocks(self, what: str) -> Iterator[slice]:
        beat = Heartbeat(self._tell, what, len(self._queries))
        for start in range(0, len(self._queries), _BLOCK_ROWS):
            self._check(what)
            beat(start)
            yield slice(start, start + _BLOCK_ROWS)

    def _encoded(self, block: slice) -> Tensor:
        retriever = self._predictor.retriever
        return retriever.encode(query_batch(self._queries[block], retriever.device))

    def _classifiers(self, pairs: MinedPairs, cost: float) -> LinearRanker:
        shape = self._predictor.retriever.shape
        self._tell(
            f"a linear classifier for each of {shape.num_classes:,} classes, from {len(pairs):,} pairs, cost {cost:g}"
        )
        beat = Heartbeat(self._tell, "classifiers", shape.num_classes)

        def progress(done: int, total: int) -> None:
            self._check(f"{done} of {total}")
            beat(done)

        return train_linear(
            self._queries,
            pairs,
            num_features=shape.num_features,
            options=LinearOptions(cost=cost),
            seed=self._seed,
            progress=progress,
        )

    def _kinds(self) -> list[str]:
        """Of neighbours that may vote here."""
        if not self._parts.neighbours:
            return []
        shape = self._predictor.retriever.shape
        vector_bytes = 2 * len(self._labels) * shape.dim // shape.heads
        fits = shape.kind == "embedding" and vector_bytes <= _MOST_VECTOR_BYTES
        return ["sparse", "dense"] if fits and self._parts.dense_neighbours else ["sparse"]

    def _points(self, kind: str) -> Points:
        shape, retriever = self._predictor.retriever.shape, self._predictor.retriever
        self._tell(
            f"training points by their {'features' if kind == 'sparse' else 'vectors'}, for neighbours that vote"
        )
        if kind == "sparse":
            return SparsePoints.of(self._queries, num_features=shape.num_features)
        vectors_PW = torch.empty(
            len(self._queries), shape.dim // shape.heads, dtype=torch.bfloat16, device=retriever.device
        )
        for block in self._blocks("vectors of training points"):
            vectors_PW[block] = first_head(self._encoded(block), vectors_PW.shape[1]).to(torch.bfloat16)
        return DensePoints(vectors_PW).on(retriever.device)

    def _neighbours(self, points: Points, power: float) -> Neighbours:
        num_classes = self._predictor.retriever.shape.num_classes
        return Neighbours(points, self._labels, self._parts.neighbours, power, num_classes)

    def _names(self) -> NameMatches | None:
        """None where there are no words to compare them with, or too many of either."""
        words, classes = self._predictor.features, self._predictor.classes
        if not self._parts.names or words.vocabulary is None or words.frequencies is None:
            return None
        if max(len(words.vocabulary), len(classes.names)) > _MOST_NAMES:
            self._tell(f"names do not count: more than {_MOST_NAMES:,} of them, or of words")
            return None
        self._tell(f"{len(classes.names):,} names of classes, beside {len(words.vocabulary):,} words of queries")
        names = NameMatches.of(
            list(words.vocabulary),
            words.rarities(classes.num_points),
            list(classes.names),
            between=lambda: self._check("names"),
        )
        return names or None

    def _chosen(
        self, rankers: Mapping[float, LinearRanker], witnesses: Mapping[str, Points], names: NameMatches | None
    ) -> Mix:
        """By the validation points."""
        voters = {kind: [self._neighbours(points, power) for power in _POWERS] for kind, points in witnesses.items()}
        judges = Judges(self._predictor, self._parts.shortlist, rankers, voters, names)
        heard = []
        for batch in self._part.batches():
            self._check("validation")
            heard.append(judges.evidence(batch))
        mix, figure = choose_mix(Evidence.joined(heard))
        self._tell(f"{mix.told}: mean of P@1, P@3 and P@5 {figure:.2f} on validation points")
        return mix
