"""Time and memory of answers to a file of queries.

    python benchmarks/batch_predict.py MODEL [--rows 10000,1000000] [--forms jsonl,parquet] [--chars 80]

MODEL answers the texts of the embedded sample, cut to --chars characters and repeated, from a jsonl file with ids: it
is trained by `owlmine train sample`. Each run is a process of its own: into a file of each form, which can be resumed,
and into a pipe, which encodes answers one by one. Prints seconds and the peak memory of the process; and the seconds
that passing over all queries takes, as a resumed run does. Figures go to benchmarks/results/batch_predict.json, with
the machine and the commit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from machine import machine, save_result

import owlmine
from owlmine.exchange.queries import open_queries


def write_queries(path: Path, num_rows: int, num_chars: int) -> None:
    with lzma.open(str(files("owlmine.data.sample") / "test.jsonl.xz"), "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"][:num_chars] for line in file]
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(itertools.islice(itertools.cycle(texts), num_rows)):
            file.write(json.dumps({"id": f"q{number}", "text": text}) + "\n")


def predict(model: Path, queries: Path, out: Path, *, piped: bool) -> dict[str, float]:
    """Seconds and peak memory of one command."""
    command = [sys.executable, "-m", "owlmine", "predict", str(model), str(queries)]
    began = time.perf_counter()
    with out.open("wb") if piped else open(os.devnull, "wb") as output:
        process = subprocess.Popen(command if piped else [*command, "--out", str(out)], stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"owlmine predict ended with status {process.returncode}")
    return {
        "seconds": round(seconds, 2),
        "peak_mib": round(usage.ru_maxrss / 1024, 1),
        "output_mib": round(out.stat().st_size / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", default="10000,1000000")
    parser.add_argument("--forms", default="jsonl,parquet")
    parser.add_argument("--chars", type=int, default=80, help="characters of each text")
    arguments = parser.parse_args()
    rows = [int(number) for number in arguments.rows.split(",")]
    model, results = owlmine.load(arguments.model), dict[str, Any]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for num_rows in rows:
            queries = folder / f"{num_rows}.jsonl"
            write_queries(queries, num_rows, arguments.chars)
            began = time.perf_counter()
            for _ in open_queries(model, queries):
                pass
            own: dict[str, Any] = {"passing_over_seconds": round(time.perf_counter() - began, 2)}
            for form in arguments.forms.split(","):
                own[form] = predict(arguments.model, queries, folder / f"{num_rows}.answers.{form}", piped=False)
            if num_rows == min(rows):
                own["pipe"] = predict(arguments.model, queries, folder / "piped", piped=True)
            results[f"{num_rows}"] = own
            print(num_rows, json.dumps(own))
    save_result("batch_predict", {"chars": arguments.chars, "rows": results, "machine": machine()})


if __name__ == "__main__":
    main()
