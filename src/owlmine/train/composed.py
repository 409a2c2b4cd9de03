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
from owlmine.errors import OwlmineError
from owlmine.model.folder import save_model
from owlmine.model.heads import join_models
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.model.whole_files import remove_unfinished, write_text
from owlmine.rerank import Reranker
from owlmine.train.calibrate import fit_calibration, precision_of, rank_points
from owlmine.train.card import model_card
from owlmine.train.choose_mix import Mix
from owlmine.train.composition import Composition
from owlmine.train.event_file import FOLDER
from owlmine.train.fit_reranker import RerankerFit
from owlmine.train.options import TrainOptions
from owlmine.train.progress import Reporter
from owlmine.train.run_folder import (
    MEMBERS,
    is_run_of,
    recipe,
    remove_working_files,
    run_description,
    working_in,
)
from owlmine.train.stopping import Stopped, StopSignal
from owlmine.train.validate import ValidationPart, validation_part


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

    def run(self, *, resume: bool) -> Predictor:
        with working_in(self.out):
            self._start(resume=resume)
            predictor = self._rehearsed() if self.parts.rehearsal else self._assembled(self.options)[0]
            predictor.config["options"] = recipe(self.options)
            self._keep_curves(predictor)
            save_model(self.out, predictor, model_card(predictor, self.store, self.options))
            # Only now: a run killed before this line goes on from what is removed here.
            remove_working_files(self.out)
            return predictor

    def _rehearsed(self) -> Predictor:
        """What to choose is chosen on points that a first model has left out; the model itself learns from all."""
        share = self.parts.rehearsal
        self.reporter.message(f"a rehearsal, which leaves out {share:.0%} of the training points to choose on")
        first, mix = self._assembled(replace(self.options, validation=share), stage="rehearsal")
        self.reporter.message("and now from all of them")
        predictor, _ = self._assembled(replace(self.options, validation=0.0), mix=mix)
        told = ("kept", "calibration", "history")
        predictor.config |= {name: first.config[name] for name in told if name in first.config}
        predictor.config["rehearsal"] = share
        return predictor

    def _assembled(
        self, options: TrainOptions, *, stage: str = "", mix: Mix | None = None
    ) -> tuple[Predictor, Mix | None]:
        """The members, side by side and re-ranked. ``mix`` where it is chosen already; back comes what was."""
        members = [self._member(number, options, self.out / MEMBERS / stage) for number in range(self.parts.heads)]
        predictor, part = self._joined(members), validation_part(self.store, options)
        if self.parts.shortlist:
            predictor.reranker, mix = self._reranker(predictor, part, mix)
        ranked = rank_points(predictor, part)
        predictor.config["kept"] = precision_of(ranked, num_classes=self.store.num_classes)
        if (calibration := fit_calibration(ranked, num_classes=self.store.num_classes)) is not None:
            predictor.config["calibration"] = calibration.to_dict()
        return predictor, mix

    def _start(self, *, resume: bool) -> None:
        run_file = self.out / "run.json"
        if resume:
            if not is_run_of(self.out, self.store, self.options):
                raise OwlmineError(f"{run_file}: tells of other options or data; resume with the same, or train anew")
            return
        try:
            remove_unfinished(self.out)
            write_text(run_file, run_description(self.store, self.options))
        except OSError as error:
            raise OwlmineError(f"{self.out}: cannot be written: {error.strerror}") from error

    def _member(self, number: int, options: TrainOptions, place: Path) -> Predictor:
        from owlmine.train import train  # which takes this module for runs like this

        heads, folder = self.parts.heads, place / str(number)
        # Seeds of their own, which no member of a run with another seed has.
        seed = (options.seed * heads + number) % 2**32
        own = replace(options, recipe="single", heads=0, shortlist=0, neighbours=0, seed=seed)
        if heads > 1:
            self.reporter.message(f"model {number + 1} of {heads}")
        return train(
            self.store,
            folder,
            own,
            resume=(folder / "run.json").exists(),
            reporter=self.reporter,
            data_name=self._data_name,
        )

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
            for events in sorted((self.out / MEMBERS).glob(f"*/{FOLDER}")):
                (self.out / FOLDER).mkdir(exist_ok=True)
                events.replace(self.out / FOLDER / f"model-{int(events.parent.name) + 1}")
        except OSError as error:
            self.reporter.message(f"{self.out}: metrics or curves are not kept: {error.strerror}")

    def _reranker(self, predictor: Predictor, part: ValidationPart, mix: Mix | None) -> tuple[Reranker, Mix]:
        with StopSignal() as stop:

            def check(where: str) -> None:
                if stop.number is not None:
                    raise Stopped(stop.number, f"stopped at the re-ranker ({where}); go on with --resume")

            fit = RerankerFit(
                predictor,
                self.store["train"],
                part,
                self.parts,
                seed=self.options.seed,
                tell=self.reporter.message,
                check=check,
            )
            return fit.fit(mix)
