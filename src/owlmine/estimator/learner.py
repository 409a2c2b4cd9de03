"""A model under training in memory: what ``fit`` and ``partial_fit`` share, and how it survives a pickle."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from owlmine.data.batches import Batches
from owlmine.data.rows import SparseRows
from owlmine.data.store import SparseTable, Split
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.step import TrainingStep
from owlmine.device import choose_device
from owlmine.estimator.queries import QueryForm
from owlmine.recipe.options import TrainOptions
from owlmine.train.warm_start import warm_start


class Learner:
    """A retriever, the state of its optimisers, and how many steps it has made."""

    def __init__(self, retriever: Retriever, options: TrainOptions, form: QueryForm) -> None:
        self.retriever, self.options, self.form = retriever, options, form
        self._learn = TrainingStep(retriever, options)
        self.num_steps = self.num_calls = self.num_points = self.num_labels = 0
        self.class_counts = np.zeros(retriever.shape.num_classes, np.int64)

    @classmethod
    def new(cls, options: TrainOptions, form: QueryForm, *, num_classes: int) -> Learner:
        shape = ModelShape(
            num_features=form.num_features,
            num_classes=num_classes,
            dense=form.dense,
            kind=options.kind,
            dim=options.dim,
            depth=options.depth,
        )
        device = choose_device(options.device)
        return cls(Retriever.new(shape, seed=options.seed, device=device), options, form)

    def learn(
        self, queries: SparseTable | NDArray[np.float32], labels: SparseRows, *, epochs: float, falling: bool
    ) -> list[float]:
        """Learns from these points and returns the mean loss of each epoch.

        ``falling``: step sizes follow the schedule over this call; else they stay where the schedule begins, since
        nobody knows how many calls will follow.
        """
        split = Split("y", queries, SparseTable(labels.offsets, labels.indices, None), None)
        # Each call has an order of its own, made from the same seed.
        seed = (self.options.seed + self.num_calls) % 2**32
        batches = Batches(split, batch_size=self.options.batch_size, seed=seed)
        if self.options.warm_start:
            self._start_new_classes(split, labels)
        self._count(labels)
        num_steps, losses = max(round(epochs * len(batches)), 1), []
        sums, first = torch.zeros((), device=self.retriever.device), 0
        for step in range(num_steps):
            _, batch = batches.next()
            progress = step / num_steps if falling else 0.0
            sums += self._learn(batch, number=self.num_steps, progress=progress)
            self.num_steps += 1
            if (step + 1) % len(batches) == 0 or step + 1 == num_steps:
                losses.append(float(sums) / (step + 1 - first))
                sums, first = torch.zeros_like(sums), step + 1
                if not np.isfinite(losses[-1]):
                    rates = "class_rate, feature_rate, map_rate"
                    raise ValueError(f"the loss of epoch {len(losses)} is not a number; wanted lower rates ({rates})")
        self.num_calls += 1
        return losses

    def _start_new_classes(self, split: Split, labels: SparseRows) -> None:
        """Classes that have had no point so far begin at the mean of theirs."""
        fresh = labels.select(self.class_counts[labels.indices] == 0)
        rows = np.flatnonzero(fresh.counts)
        if len(rows):
            table = SparseTable(fresh.offsets, fresh.indices, None)
            warm_start(self.retriever, Split("y", split.queries, table, None), rows)

    def _count(self, labels: SparseRows) -> None:
        self.class_counts += np.bincount(labels.indices, minlength=len(self.class_counts))
        self.num_points += int((labels.counts > 0).sum())
        self.num_labels += len(labels.indices)

    def __getstate__(self) -> dict[str, object]:
        """Plain arrays: tensors that share memory would come back apart, and a GPU may be missing elsewhere."""
        kept = {name: value for name, value in vars(self).items() if name not in ("retriever", "_learn")}
        tensors = {"model": self.retriever.tensors(), "step": self._learn.state_tensors()}
        arrays = {part: {k: t.detach().cpu().numpy() for k, t in named.items()} for part, named in tensors.items()}
        return {"kept": kept, "shape": self.retriever.shape, "arrays": arrays}

    def __setstate__(self, state: dict[str, object]) -> None:
        kept, shape, arrays = state["kept"], state["shape"], state["arrays"]
        assert isinstance(kept, dict)
        assert isinstance(shape, ModelShape)
        assert isinstance(arrays, dict)
        vars(self).update(kept)
        wanted = self.options.device
        device = torch.device("cpu") if wanted == "cuda" and not torch.cuda.is_available() else choose_device(wanted)
        tensors = {
            part: {k: torch.tensor(a, device=device) for k, a in named.items()} for part, named in arrays.items()
        }
        self.retriever = Retriever.from_tensors(shape, tensors["model"])
        self._learn = TrainingStep(self.retriever, self.options)
        self._learn.load_state_tensors(tensors["step"])
