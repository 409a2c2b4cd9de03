"""A model of several: trained one after the other, put side by side, and given a re-ranker.

Each is an ordinary run in a folder of its own under ``members``, with its own checkpoints, so an interrupted run goes
on where it was: finished members are not trained again. They go when the whole model is written.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from owlmine.data.store import Store
from owlmine.dense.retriever import join_models
from owlmine.errors import OwlmineError
from owlmine.files import remove_unfinished, write_text
from owlmine.model.folder import save_model
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.rank import Reranker
from owlmine.recipe.options import TrainOptions
from owlmine.train.calibrate import fit_calibration, precision_of, rank_points
from owlmine.train.card import model_card
from owlmine.train.choose_mix import Mix
from owlmine.train.composition import Composition
from owlmine.train.event_file import FOLDER
from owlmine.train.fit_reranker import RerankerFit
from owlmine.train.progress import Reporter
from owlmine.train.reporters import SilentReporter
from owlmine.train.run_folder import (
    MEMBERS,
    check_folder,
    finished_before,
    recipe,
    remove_working_files,
    require_run_of,
    run_description,
    running_in,
)
from owlmine.train.stopping import StopSignal
from owlmine.train.trainer import Trainer
from owlmine.train.validate import ValidationPart, validation_part

# The folder, among members and among curves, of those that learn from fewer points first.
_REHEARSAL = "rehearsal"


class ComposedRun:
    """Trains what ``Composition`` says, in one folder."""

    def __init__(
        self,
        store: Store,
        out: Path,
        options: TrainOptions,
        parts: Composition,
        reporter: Reporter,
        *,
        data_name: str,
    ) -> None:
        self.store, self.out, self.options, self.parts, self.reporter = store, out, options, parts, reporter
        self._data_name = data_name
        self._check()

    def _check(self) -> None:
        """Raises ValueError, before there is a folder, where no member could be trained: by making one of a single
        dimension, which costs next to nothing (a linear model has no dimension, and is made as it is)."""
        share = self.parts.rehearsal or self.options.validation
        own = replace(self._own(0, self.options), validation=share, dim=1, kernels=False)
        Trainer(self.store, self.out, own, SilentReporter(), data_name=self._data_name)

    def run(self, *, resume: bool, stop: StopSignal) -> Predictor:
        with running_in(self.out, resume=resume):
            self._start(resume=resume)
            predictor = self._rehearsed(stop) if self.parts.rehearsal else self._assembled(self.options, stop)[0]
            predictor.config["options"] = recipe(self.options)
            stop.check("before the model was saved")
            self._keep_curves(predictor)
            save_model(self.out, predictor, model_card(predictor, self.store, self.options))
            # Only now: a run killed before this line goes on from what is removed here.
            remove_working_files(self.out, self.reporter.message)
            return predictor

    def _rehearsed(self, stop: StopSignal) -> Predictor:
        """What to choose is chosen on points that a first model has left out; the model itself learns from all."""
        share = self.parts.rehearsal
        self.reporter.message(f"a rehearsal, which leaves out {share:.0%} of the training points to choose on")
        first, mix = self._assembled(replace(self.options, validation=share), stop, stage=_REHEARSAL)
        told = {n: first.config[n] for n in first.config if n in ("kept", "calibration", "history")}
        del first  # which has done its work, and takes memory
        self.reporter.message("and now from all of them")
        predictor, _ = self._assembled(replace(self.options, validation=0.0), stop, mix=mix)
        predictor.config |= told
        predictor.config["rehearsal"] = share
        return predictor

    def _assembled(
        self, options: TrainOptions, stop: StopSignal, *, stage: str = "", mix: Mix | None = None
    ) -> tuple[Predictor, Mix | None]:
        """The members, side by side and re-ranked. ``mix`` where it is chosen already; back comes what was."""
        place, heads = self.out / MEMBERS / stage, range(self.parts.heads)
        # Members have no name here: once they are joined, none takes memory.
        predictor = self._joined([self._member(number, options, place, stop) for number in heads])
        part = validation_part(self.store, options)
        if self.parts.shortlist:
            predictor.reranker, mix = self._reranker(predictor, part, mix, stop)
        ranked = rank_points(predictor, part, between=lambda: stop.check("at the calibration"))
        predictor.config["kept"] = precision_of(ranked, num_classes=self.store.num_classes)
        if (calibration := fit_calibration(ranked, num_classes=self.store.num_classes)) is not None:
            predictor.config["calibration"] = calibration.to_dict()
        return predictor, mix

    def _start(self, *, resume: bool) -> None:
        run_file = self.out / "run.json"
        if resume:
            require_run_of(self.out, self.store, self.options)
            return
        try:
            remove_unfinished(self.out)
            write_text(run_file, run_description(self.store, self.options))
        except OSError as error:
            raise OwlmineError(f"{self.out}: cannot be written: {error.strerror}") from error

    def _member(self, number: int, options: TrainOptions, place: Path, stop: StopSignal) -> Predictor:
        folder, own = place / str(number), self._own(number, options)
        stop.check(f"before model {number + 1} of {self.parts.heads}")
        if self.parts.heads > 1:
            self.reporter.message(f"model {number + 1} of {self.parts.heads}")
        resume = (folder / "run.json").exists()
        check_folder(folder, resume=resume)
        if (folder / "config.json").exists():
            return finished_before(self.store, folder, own, self.reporter.message)
        trainer = Trainer(self.store, folder, own, self.reporter, data_name=self._data_name)
        return trainer.run(resume=resume, stop=stop)

    def _own(self, number: int, options: TrainOptions) -> TrainOptions:
        """Of a member. It has a seed of its own, which no member of a run with another seed has."""
        seed = (options.seed * self.parts.heads + number) % 2**32
        return replace(options, recipe="single", heads=0, shortlist=0, neighbours=0, seed=seed)

    def _joined(self, members: list[Predictor]) -> Predictor:
        retriever = members[0].retriever
        if len(members) > 1:
            retriever = join_models([member.retriever for member in members])
        history = [
            {"model": number + 1, **record}
            for number, member in enumerate(members)
            for record in member.config["history"]
        ]
        config: dict[str, Any] = {
            "data": {"name": self._data_name, "checksum": self.store.meta["checksum"]},
            "history": history,
        }
        return Predictor(retriever, ClassWords.of(self.store), FeatureWords.of(self.store), config)

    def _keep_curves(self, predictor: Predictor) -> None:
        """Metrics of all members in one file, and their event files, before the members go."""
        lines = [json.dumps(record) + "\n" for record in predictor.config["history"]]
        try:
            write_text(self.out / "metrics.jsonl", "".join(lines))
            for stage in ("", _REHEARSAL):
                for events in sorted((self.out / MEMBERS / stage).glob(f"[0-9]*/{FOLDER}")):
                    place = self.out / FOLDER / stage / f"model-{int(events.parent.name) + 1}"
                    place.parent.mkdir(parents=True, exist_ok=True)
                    events.replace(place)
        except OSError as error:
            self.reporter.message(f"{self.out}: metrics or curves are not kept: {error.strerror}")

    def _reranker(
        self, predictor: Predictor, part: ValidationPart, mix: Mix | None, stop: StopSignal
    ) -> tuple[Reranker, Mix]:
        fit = RerankerFit(
            predictor,
            self.store["train"],
            part,
            self.parts,
            seed=self.options.seed,
            tell=self.reporter.message,
            check=lambda where: stop.check(f"at the re-ranker ({where})"),
        )
        return fit.fit(mix)
