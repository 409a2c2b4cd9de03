"""Omikuji: a forest of balanced label trees. Runs in its own environment (see ``worker.py``).

It trains on a text file only, so one is written first, outside the clock; that it reads the file is its own time. It
predicts one point at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import omikuji
from worker import PLACES, Job


def main() -> None:
    job = Job(["omikuji"])
    text = job.out / "train.txt"
    write_text_file(text, job)

    def train() -> Any:
        parameters = omikuji.Model.default_hyper_param()
        for name, value in job.options.items():
            setattr(parameters, name, value)
        return omikuji.Model.train_on_data(str(text), parameters)

    def predict(model: Any) -> list[list[int]]:
        X = job.X_test
        return [answer(model, X, start, stop) for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True)]

    def answer(model: Any, X: Any, start: int, stop: int) -> list[int]:
        pairs = list(zip(X.indices[start:stop].tolist(), X.data[start:stop].tolist(), strict=True))
        return [label for label, _ in model.predict(pairs, top_k=PLACES)]

    job.run(
        train,
        predict,
        save=lambda model, folder: model.save(str(folder / "model")),
        predict_one=lambda model, row: answer(model, row, 0, row.nnz),
    )
    text.unlink()


def write_text_file(path: Path, job: Job) -> None:
    """The repository's format; nine digits give every float32 back as it was."""
    X, Y = job.X_train, job.Y_train
    with path.open("w") as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
        for row in range(X.shape[0]):
            labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()
            own = slice(X.indptr[row], X.indptr[row + 1])
            features = zip(X.indices[own].tolist(), X.data[own].tolist(), strict=True)
            file.write(",".join(map(str, labels)) + "".join(f" {f}:{v:.9g}" for f, v in features) + "\n")


if __name__ == "__main__":
    main()
