"""napkinXC: one probabilistic label tree. Runs in its own environment (see ``worker.py``)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from napkinxc.models import PLT
from worker import PLACES, Job


def main() -> None:
    job = Job(["napkinxc"])
    folder = job.out / "model"

    def train() -> Any:
        model = PLT(str(folder), **job.options)
        model.fit(job.X_train, job.Y_train)
        return model

    def save(model: Any, copy: Path) -> None:
        shutil.copytree(folder, copy / "model")  # it trains into a folder

    job.run(
        train,
        lambda model: model.predict(job.X_test, top_k=PLACES),
        save=save,
        predict_one=lambda model, row: model.predict(row, top_k=PLACES),
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
