"""Step sizes tried out: trains a list of settings on one dataset and prints validation and test precision of each.

    python benchmarks/rates.py STORE --try "class_rate=0.1 top=1" --try "class_rate=0.3 top=16" [--set "epochs=5"]

Settings are chosen by the validation column; the test column is there to be reported, not to choose by.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from machine import machine, save_result
from settings import parsed

from owlmine.data import open_dataset
from owlmine.metrics import RankingMetrics
from owlmine.recipe.options import TrainOptions
from owlmine.run import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--try", dest="tries", action="append", required=True, help="options of one training")
    parser.add_argument("--set", dest="common", default="", help="options of all of them")
    parser.add_argument("--name", default="rates", help="of the file of results")
    arguments = parser.parse_args()
    store = open_dataset(arguments.data)
    results = []
    for text in arguments.tries:
        options = TrainOptions.of(**{"recipe": "single"} | parsed(arguments.common) | parsed(text))
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            model = train(store, Path(folder) / "model", options)
            seconds = time.perf_counter() - began
        metrics = RankingMetrics(store.num_classes, ks=(1, 3, 5))
        for batch in store["test"].blocks():
            metrics.update(model.answer(batch.queries, 5).ids_Nk, batch.labels)
        found = metrics.compute()
        curve = [round(record["P@1"], 2) for record in model.record.history]
        results.append({"try": text, "seconds": seconds, "validation": curve, "test": found})
        figures = " / ".join(f"{found[f'P@{k}']:.2f}" for k in (1, 3, 5))
        print(
            f"{text:60} {seconds:6.1f} s  validation {curve[-1]:.2f} (best {max(curve):.2f})  test {figures}",
            flush=True,
        )
    save_result(arguments.name, {"common": arguments.common, "results": results, "machine": machine()})


if __name__ == "__main__":
    main()
