"""The recipe: from a dataset to a model that answers queries, in memory.

    members         several dense models, each with a seed of its own
    joined          one model whose score is the mean of theirs
    index           finds its best classes without scoring all, if there are very many
    candidates      the best classes of a query, and classes that judges suggest
    judges          score candidates; they learn from the classes that the dense model confuses
    mix             how much each judge counts, fitted on validation points
    probabilities   a map from scores to probabilities, fitted on validation points

If validation points are few, a rehearsal comes first: the same on fewer training points, with mix and probabilities
fitted on the held-out points. Then everything else is trained again, on all points.

A long run adds ``Surroundings`` that save stages and find them again. The class here saves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from owlmine.data.batches import Batches
from owlmine.data.rows import SparseRows
from owlmine.data.store import Dataset, PointWords
from owlmine.dense.finite import require_workable_values
from owlmine.dense.loop import DenseFit, Watch, train_dense
from owlmine.dense.progress import Reporter, SilentReporter
from owlmine.dense.retriever import Retriever, join_models
from owlmine.dense.side_by_side import SideBySide, run_side_by_side
from owlmine.dense.validation import ValidationPart, cutoffs, precisions
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.index import ApproximateIndex, ExactIndex, Index
from owlmine.metrics import RankingMetrics
from owlmine.metrics.hits import find_hits
from owlmine.metrics.propensity import PropensityConstants, propensity_constants
from owlmine.rank import (
    JUDGES,
    Encoded,
    Evidence,
    Judge,
    Mix,
    Ranker,
    Training,
    choose_mix,
    default_mix,
)
from owlmine.rank.candidates import Suggests, find_candidates
from owlmine.rank.judge import Variant
from owlmine.rank.predictor import Predictor
from owlmine.rank.probabilities import DEPTH, Calibration
from owlmine.rank.record import Record
from owlmine.rank.words import ClassWords, FeatureWords
from owlmine.recipe.effort import ladder, plan_of_effort
from owlmine.recipe.estimate import Estimate, Estimator, fits
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Facts, Plan, suits_index

EncodedBatch = tuple[Encoded, SparseRows]
"""Validation points and their labels."""


class Surroundings:
    """The surroundings of a fit: progress, stopping, saved stages. This class saves nothing."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter or SilentReporter()

    def check(self, where: str) -> None:
        """Called where stopping loses nothing; may raise to stop."""

    def watch(self, stage: str, number: int) -> Watch:
        """Watches the training of one model. ``stage``: ``rehearsal`` or empty."""
        return Watch(self.reporter)

    def recall(self, stage: str) -> dict[str, Any] | None:
        """The outcome that ``remember`` saved for a finished stage."""
        return None

    def remember(self, stage: str, outcome: dict[str, Any]) -> None:
        """Saves the outcome of a stage, which is plain JSON."""


def fit(
    data: Dataset,
    options: TrainOptions | None = None,
    *,
    name: str = "data in memory",
    surroundings: Surroundings | None = None,
) -> Predictor:
    """Trains a model on a dataset. Raises OwlmineError if options and data do not fit each other.

    ``name``: of the data, for the record.
    """
    options = options or TrainOptions()
    plan = plan_for(data, options, name=name)
    return Fit(data, plan, options, surroundings or Surroundings(), name).run()


def plan_for(data: Dataset, options: TrainOptions, *, name: str) -> Plan:
    """The plan of these options for this data on this machine. Raises OwlmineError if there is none.

    With ``minutes``, it depends on the speed of the machine, so a run that is resumed must not ask again.
    """
    plans = plans_for(data, options, name=name)
    return plans[0] if options.run.minutes is None else choose_plan(data, options, plans)[0]


def plans_for(data: Dataset, options: TrainOptions, *, name: str) -> list[Plan]:
    """The plans that these options leave to choose from, the fastest first: one without ``minutes``."""
    require_workable_values(data, name=name)
    facts = Facts.of(data, choose_device(options.run.device))
    try:
        plans = [plan_of_effort(options, facts)] if options.run.minutes is None else ladder(options, facts)
        # Fails if nothing is left to learn from; all plans hold out the same points.
        plan = plans[0]
        held_out = ValidationPart(data, share=plan.rehearsal or plan.validation, block=plan.validation_block)
        Batches(data["train"], batch_size=1, seed=0, rows=held_out.train_rows)
    except ValueError as error:
        raise OwlmineError(str(error)) from error
    if options.model.keep_texts:
        _check_texts(data, plans, name)
    return plans


def _check_texts(data: Dataset, plans: Sequence[Plan], name: str) -> None:
    """Raises OwlmineError unless there are texts to keep, and a use for them."""
    if not data.meta["weighting"].get("text"):
        raise OwlmineError(f"keep_texts is True; wanted False, since {name} has {data.meta['queries']} vectors")
    if not any(plan.judges.neighbours for plan in plans):
        raise OwlmineError("keep_texts is True; wanted False where no training points vote (see neighbours)")
    if data["train"].words.texts is None:
        raise OwlmineError(
            f"{name}: has no texts to keep; convert the data again with: owlmine data convert --keep-texts"
        )


def choose_plan(data: Dataset, options: TrainOptions, plans: Sequence[Plan]) -> tuple[Plan, Estimate]:
    """The last of these plans that fits into the time and memory, or the first if none does; and what it takes."""
    device = choose_device(options.run.device)
    estimator = Estimator(data, Facts.of(data, device), device, checkpoint_seconds=60 * options.run.checkpoint_minutes)
    chosen = plans[0], estimator(plans[0])
    for plan in plans[1:]:
        estimate = estimator(plan)
        if not fits(estimate, minutes=options.run.minutes):
            break
        chosen = plan, estimate
    return chosen


@dataclass(frozen=True)
class Choice:
    """What was fitted on validation points."""

    mix: Mix
    figures: dict[str, float]
    calibration: Calibration | None
    history: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        calibration = None if self.calibration is None else self.calibration.to_dict()
        return {
            "mix": self.mix.to_dict(),
            "figures": self.figures,
            "calibration": calibration,
            "history": self.history,
        }

    @classmethod
    def from_dict(cls, choice: dict[str, Any]) -> Choice:
        calibration = None if choice["calibration"] is None else Calibration.from_dict(choice["calibration"])
        return cls(Mix.from_dict(choice["mix"]), choice["figures"], calibration, choice["history"])


class Fit:
    """One fit of the recipe."""

    def __init__(self, data: Dataset, plan: Plan, options: TrainOptions, surroundings: Surroundings, name: str) -> None:
        self._data, self._plan, self._options, self._around, self._name = data, plan, options, surroundings, name
        self._device = choose_device(options.run.device)
        self._facts = Facts.of(data, self._device)
        self._classes, self._features = ClassWords.of(data), FeatureWords.of(data)
        self._say = surroundings.reporter.message

    def run(self) -> Predictor:
        if not self._plan.index and suits_index(self._options, self._facts):
            self._say("without faiss, every class is compared with each query; faster with: pip install '.[index]'")
        if not self._plan.rehearsal:
            uncalibrated, choice = self._fit(self._plan)
        else:
            choice = self._rehearse(self._plan.rehearsal)
            self._say("now training on all points")
            uncalibrated, _ = self._fit(self._plan.holding_out(0.0), mix=choice.mix)
        return replace(uncalibrated, record=self._record(choice))

    def _rehearse(self, share: float) -> Choice:
        """A first fit, for the mix and probabilities of the held-out points."""
        if (outcome := self._around.recall("rehearsal")) is not None:
            return Choice.from_dict(outcome)
        self._say(f"a rehearsal, with {share:.0%} of the training points held out")
        choice = self._fit(self._plan.holding_out(share), stage="rehearsal")[1]
        self._around.remember("rehearsal", choice.to_dict())
        return choice

    def _fit(self, plan: Plan, *, stage: str = "", mix: Mix | None = None) -> tuple[Predictor, Choice]:
        """Members, joined, index, judges, mix, probabilities. ``mix``: if it is already chosen."""
        held_out = ValidationPart(self._data, share=plan.validation, block=plan.validation_block)
        members = self._train_members(plan, stage, held_out)
        history = _history(members, marks_best=plan.model.patience > 0 and len(held_out) > 0)
        models = [member.model for member in members]
        # Rounded before anything is fitted on it: judges, mix and probabilities belong to the model that is served.
        model = join_models(models, coded=plan.coded) if plan.coded or len(models) > 1 else models[0]
        del members, models  # they take as much memory as the joined model
        index = self._index(model, plan)
        ranker, encoded = Ranker(), list[EncodedBatch]()
        if plan.judges.shortlist:
            # What judges look up for validation points is kept here: probabilities need it again.
            encoded = [(Encoded.of(model, batch.queries), batch.labels) for batch in held_out.batches()]
            ranker = self._fit_ranker(model, index, plan, held_out, encoded, mix).on(model.device)
        points, record = self._points(ranker, held_out), Record(self._name, None)
        uncalibrated = Predictor(model, ranker, self._classes, self._features, record, index, points)
        figures, calibration = self._calibrate(uncalibrated, held_out, encoded)
        return uncalibrated, Choice(ranker.mix, figures, calibration, history)

    def _train_members(self, plan: Plan, stage: str, held_out: ValidationPart) -> list[DenseFit]:
        if not plan.trains_side_by_side(self._facts):
            return [self._train_member(plan, number, stage, held_out) for number in range(plan.heads)]
        self._around.check(f"before the {plan.heads} models")
        self._say(f"{plan.heads} models, side by side")
        joined = SideBySide(self._around.reporter)
        watches = [self._around.watch(stage, number) for number in range(plan.heads)]
        for number, watch in enumerate(watches):
            watch.reporter = joined.reporter_of(number)

        def cancel() -> None:
            for watch in watches:
                watch.cancelled = True

        return run_side_by_side(
            [partial(self._train, plan, number, held_out, watch) for number, watch in enumerate(watches)],
            cancel,
            device=self._device,
        )

    def _train_member(self, plan: Plan, number: int, stage: str, held_out: ValidationPart) -> DenseFit:
        self._around.check(f"before model {number + 1} of {plan.heads}")
        if plan.heads > 1:
            self._say(f"model {number + 1} of {plan.heads}")
        return self._train(plan, number, held_out, self._around.watch(stage, number))

    def _train(self, plan: Plan, number: int, held_out: ValidationPart, watch: Watch) -> DenseFit:
        return train_dense(
            self._data["train"],
            plan.shape(self._facts),
            plan.member(number),
            held_out,
            device=self._device,
            watch=watch,
        )

    def _index(self, model: Retriever, plan: Plan) -> Index:
        if not plan.index:
            return ExactIndex(model.rows)
        self._around.check("before the index")
        self._say(f"an index of {model.shape.num_classes:,} classes")
        return ApproximateIndex.build(model.rows, seed=self._plan.model.seed)

    def _fit_ranker(
        self,
        model: Retriever,
        index: Index,
        plan: Plan,
        held_out: ValidationPart,
        encoded: Sequence[EncodedBatch],
        mix: Mix | None,
    ) -> Ranker:
        points = self._data["train"].batch(held_out.train_rows)
        assert isinstance(points.queries, SparseRows)
        training = Training(
            model,
            points.queries,
            points.labels,
            self._classes,
            self._features,
            plan.judges,
            plan.model.seed,
            index,
            message=self._say,
            check=lambda where: self._around.check(f"while fitting the judges ({where})"),
        )
        if mix is None and encoded:
            return self._choose_ranker(training, encoded)
        if mix is None:
            mix = default_mix()
            self._say(f"{mix}: default weights, because there are no validation points")
        judges = {name: JUDGES[name].fit(training, variant) for name, variant in mix.variants.items()}
        return _ranker(judges, mix, plan.judges.shortlist)

    def _choose_ranker(self, training: Training, encoded: Sequence[EncodedBatch]) -> Ranker:
        """Tries every variant of every judge on the validation points."""
        judges = {name: judge.fit(training, None) for name, judge in JUDGES.items()}
        judges = {name: variants for name, variants in judges.items() if variants}
        num_classes = training.model.shape.num_classes
        # Lists as long as those of answers with probabilities: the order fitted is the order served.
        length = min(max(DEPTH, training.sizes.shortlist), num_classes)

        def gather(names: Collection[str]) -> Evidence:
            some = {name: variants for name, variants in judges.items() if name in names}
            # All variants of a judge suggest the same classes.
            first = [next(iter(variants.values())) for variants in some.values()]
            suggesters = [judge for judge in first if isinstance(judge, Suggests)]
            parts = []
            for queries, labels in encoded:
                self._around.check("while fitting the judges (validation)")
                candidates = find_candidates(
                    training.model, queries, length, index=training.index, suggesters=suggesters
                )
                parts.append(Evidence.of(candidates, labels, some, num_classes))
            return Evidence.joined(parts)

        mix, precision = choose_mix(gather, judges)
        self._say(f"{mix}: mean of P@1, P@3 and P@5 {precision:.2f} on validation points")
        return _ranker(judges, mix, training.sizes.shortlist)

    def _points(self, ranker: Ranker, held_out: ValidationPart) -> PointWords:
        """What the model keeps of the points that vote."""
        keep_texts = self._options.model.keep_texts
        if not ranker.num_voters:
            if keep_texts:
                self._say("no training points vote, so their texts are not kept")
            return PointWords()
        train = self._data["train"]
        words = train.words if keep_texts else replace(train.words, texts=None)
        return words.take(held_out.train_rows, len(train))

    def _calibrate(
        self, predictor: Predictor, held_out: ValidationPart, encoded: Sequence[EncodedBatch]
    ) -> tuple[dict[str, float], Calibration | None]:
        """P@1, P@3 and P@5 on validation points, and the map from scores to probabilities. ``encoded``: these points,
        if they have been encoded."""
        if not len(held_out):
            return {}, None
        num_classes = len(self._classes)
        metrics, depth = RankingMetrics(num_classes, ks=cutoffs(num_classes)), min(DEPTH, num_classes)
        scores, hits = [], []
        for number, batch in enumerate(held_out.batches()):
            self._around.check("while fitting the probabilities")
            answers = (
                predictor.answer_with_lists(encoded[number][0], depth)[0]
                if encoded
                else predictor.answer(batch.queries, depth)
            )
            metrics.update(answers.ids_Nk, batch.labels)
            scores.append(answers.scores_Nk)
            hits.append(find_hits(answers.ids_Nk, batch.labels, depth=depth, num_classes=num_classes).mask(depth))
        return precisions(metrics), Calibration.fit(np.concatenate(scores), np.concatenate(hits))

    def _record(self, choice: Choice) -> Record:
        return Record(
            data=self._name,
            checksum=self._data.meta["checksum"],
            options=self._options.binding(),
            plan=self._plan.to_dict(),
            history=tuple(choice.history),
            figures=choice.figures,
            rehearsal=self._plan.rehearsal or None,
            calibration=choice.calibration,
            propensity=known_constants(self._name),
        )


def _ranker(judges: Mapping[str, Mapping[Variant, Judge]], mix: Mix, shortlist: int) -> Ranker:
    """The ranker with the variants that the mix names. A judge that finds nothing in the data, such as names without
    words, is left out."""
    chosen: dict[str, Judge] = {}
    for name, variant in mix.variants.items():
        if variant in judges[name]:
            chosen[name] = judges[name][variant]
    there = Mix({n: mix.weights[n] for n in chosen}, {n: mix.variants[n] for n in chosen})
    return Ranker(chosen, there, shortlist)


def _history(members: Sequence[DenseFit], *, marks_best: bool) -> list[dict[str, Any]]:
    """A line per epoch and model. ``marks_best``: mark the epoch whose weights a model has."""
    return [
        {"model": number, **line} | ({"best": True} if marks_best and line == member.best else {})
        for number, member in enumerate(members, 1)
        for line in member.history
    ]


def known_constants(data_name: str) -> PropensityConstants:
    """The constants of the dataset with this name; a store or folder may be called NAME or NAME.store."""
    usual = PropensityConstants()
    for spelling in (data_name, data_name.rpartition(".")[0]):
        if (constants := propensity_constants(spelling)) != usual:
            return constants
    return usual
