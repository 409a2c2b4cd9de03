"""The service under load: throughput, times of single queries, start, reloads, kills, connections and memory.

    python benchmarks/serving.py PART MODEL QUERIES [--clients 64] [--seconds 60] [--reloads 100] [--minutes 10]
                                 [--kills 20] [--connections 10000]
                                 [--tools pecos,omikuji --dataset NAME [--data-root FOLDER] [--work FOLDER]]

PART: load, peers, reloads, kills, connections or memory. QUERIES: a file of queries that the model takes, such as
test.jsonl. The service and the clients are processes of their own on this machine, and share its cores.

load     the start, one client, and --clients clients for --seconds seconds: requests, errors, percentiles, the ratio
         of both throughputs.
peers    the same queries, one client and many, for ours and for other tools, each in an HTTP shell of FastAPI and
         uvicorn (serving_peer.py) in an environment of its own. The tools get the features of the queries, where ours
         gets texts; they answer one request after the other, as their interfaces do.
reloads  the folder of the model is replaced --reloads times while clients ask: errors, and the slowest answers.
kills    the service is killed --kills times while clients ask, and started again: no answer may be wrong.
connections
         --connections connections at once, each with half a request: what they get, and when others are answered.
memory   resident memory under load for --minutes minutes.

Figures go to benchmarks/results/serving.json, by part and model, with the machine and the commit.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from machine import RESULTS, machine, save_result

sys.path.append(str(Path(__file__).parent / "paper"))
from contention import Contention
from dataset import DATASETS, Dataset, work_folder
from matrices import export
from peers import Peer, all_peers, environment, run_logged

import owlmine
from owlmine.data.rows import SparseRows
from owlmine.errors import OwlmineError
from owlmine.exchange.queries import open_queries

HERE = Path(__file__).parent
K = 5
_START_SECONDS = 600
_QUERIES = 2000
_ROUNDING = 1e-5
_SHELL = ["fastapi==0.162.4", "uvicorn==0.54.0"]
_SAMPLES_PER_MINUTE = 4


def bodies_of(model: owlmine.Model, queries: Path, file: Path) -> Path:
    """A JSON body on each line, of one query each."""
    singles = itertools.chain.from_iterable(_singles(block.queries) for block in open_queries(model, queries))
    lines = [json.dumps({"queries": [one], "k": K}) for one in itertools.islice(singles, _QUERIES)]
    file.write_text("\n".join(lines) + "\n")
    return file


def _singles(queries: Any) -> Iterator[Any]:
    for row in range(len(queries)):
        if isinstance(queries, SparseRows):
            one = queries[row : row + 1]
            values = np.ones(len(one.indices)) if one.values is None else one.values
            yield {"indices": one.indices.tolist(), "values": values.tolist()}
        else:
            yield queries[row] if isinstance(queries[row], str) else np.asarray(queries[row]).tolist()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, ready: str) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A server, and the seconds until it was ready. Ended by SIGTERM, with status 0."""
    began = time.perf_counter()
    clean = os.environ if command[0] == sys.executable else {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, str(port)], stderr=log, stdout=log, env=clean)
        try:
            while not _answers(f"http://127.0.0.1:{port}{ready}"):
                if process.poll() is not None or time.perf_counter() - began > _START_SECONDS:
                    log.seek(0)
                    raise OwlmineError(f"{command[0]} has not started:\n{log.read()[-2000:].decode()}")
                time.sleep(0.01)
            yield process, time.perf_counter() - began
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ours(model: Path) -> list[str]:
    return [sys.executable, "-m", "owlmine", "serve", f"model={model}", "--port"]


def clients(url: str, bodies: Path, count: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "http_load.py"), url, str(bodies), str(count), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outcome(load: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = load.communicate()
    if load.returncode:
        raise OwlmineError("the clients failed")
    figures: dict[str, Any] = json.loads(output)
    return figures


def compared(url: str, bodies: Path, count: int, seconds: float) -> dict[str, Any]:
    """One client, and many."""
    one, many = (outcome(clients(url, bodies, number, part)) for number, part in ((1, seconds / 4), (count, seconds)))
    return {"one client": one, "many clients": many, "ratio": round(many["per_second"] / one["per_second"], 2)}


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1/models/model/predict"


def load_part(arguments: argparse.Namespace, bodies: Path) -> dict[str, Any]:
    port = free_port()
    with running(ours(arguments.model), port, "/ready") as (process, start):
        figures = {
            "start_seconds": round(start, 2),
            **compared(url_of(port), bodies, arguments.clients, arguments.seconds),
        }
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    sums = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}
    mean = sums["owlmine_batch_size_sum"] / sums["owlmine_batch_size_count"]
    return figures | {"queries_per_batch": round(mean, 2), "exit_status": process.returncode}


def peers_part(arguments: argparse.Namespace, bodies: Path) -> dict[str, Any]:
    figures = {"owlmine": load_part(arguments, bodies)}
    store, work = Dataset.named(arguments.dataset).open(arguments.data_root), work_folder(arguments.work)
    matrices = work / "matrices" / arguments.dataset
    export(store, matrices)
    for name in arguments.tools.split(","):
        peer = all_peers()[name]
        python = _with_shell(peer, work)
        port = free_port()
        command = [str(python), str(HERE / "serving_peer.py"), name, str(matrices), json.dumps(peer.options)]
        sparse = bodies.with_name(f"{name}.jsonl")
        with running([*command, str(sparse)], port, "/ready"):
            own = compared(f"http://127.0.0.1:{port}/predict", sparse, arguments.clients, arguments.seconds)
        figures[name] = {"version": peer.version, **own}
    return figures


def _with_shell(peer: Peer, work: Path) -> Path:
    """The Python of the peer's environment, with FastAPI and uvicorn in it."""
    python = environment(peer, work)
    run_logged([str(python), "-m", "pip", "install", *_SHELL], work / "logs" / f"shell-{peer.name}.log")
    return python


def reloads_part(arguments: argparse.Namespace, bodies: Path) -> dict[str, Any]:
    port, count, folder = free_port(), arguments.reloads, bodies.parent
    served = folder / "served"
    shutil.copytree(arguments.model, served)
    with running(ours(served), port, "/ready"):
        load = clients(url_of(port), bodies, 8, 3600)
        versions = 0
        for number in range(count):
            shutil.copytree(arguments.model, folder / "new")
            served.rename(folder / "old")
            (folder / "new").rename(served)
            shutil.rmtree(folder / "old")
            versions = _wait_for_reloads(port, number + 1)
        load.send_signal(signal.SIGINT)
        return {"reloads": versions, **outcome(load)}


def _wait_for_reloads(port: int, count: int) -> int:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        found = [
            line
            for line in text.splitlines()
            if line.startswith('owlmine_model_loads_total{model="model",outcome="rel')
        ]
        if found and float(found[0].split()[-1]) >= count:
            return int(float(found[0].split()[-1]))
        time.sleep(0.05)
    raise OwlmineError(f"reload {count} has not happened")


def kills_part(arguments: argparse.Namespace, bodies: Path) -> dict[str, Any]:
    port, lines = free_port(), bodies.read_bytes().splitlines()[:50]
    with running(ours(arguments.model), port, "/ready"):
        expected = [_ask(port, line)[1] for line in lines]
    counts, lock, stop = Counter[str](), threading.Lock(), threading.Event()

    def client(seed: int) -> None:
        for number in itertools.islice(itertools.cycle(range(len(lines))), seed, None):
            if stop.is_set():
                return
            try:
                status, answer = _ask(port, lines[number])
            except (OSError, HTTPException):
                what = "without an answer"
                time.sleep(0.01)
            else:
                # 503: the model is still being loaded.
                right = status == 200 and _is_same(answer, expected[number])
                what = {200: "right" if right else "wrong", 503: "not ready"}.get(status, "error")
            with lock:
                counts[what] += 1

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    chance = random.Random(0)
    for _ in range(arguments.kills):
        with running(ours(arguments.model), port, "/ready") as (process, _):
            time.sleep(chance.uniform(0.2, 1.0))
            process.kill()
    stop.set()
    for thread in threads:
        thread.join()
    return {"kills": arguments.kills, "answers": dict(sorted(counts.items()))}


def _is_same(answer: Any, expected: Any) -> bool:
    """The same classes. Scores may differ by rounding: queries of several clients are computed together."""
    (one,), (other,) = answer, expected
    pairs = list(zip(one["classes"], other["classes"], strict=True))
    return all(
        found["key"] == wanted["key"] and abs(found["score"] - wanted["score"]) < _ROUNDING for found, wanted in pairs
    )


def _ask(port: int, body: bytes) -> tuple[int, Any]:
    """The status, and the predictions."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", urlsplit(url_of(port)).path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = json.loads(answer.read())
        return answer.status, content.get("predictions")
    finally:
        connection.close()


def connections_part(arguments: argparse.Namespace, bodies: Path) -> dict[str, Any]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, line = free_port(), bodies.read_bytes().splitlines()[0]
    with running(ours(arguments.model), port, "/ready") as (process, _):
        before = _ask(port, line)
        began = time.perf_counter()
        held = asyncio.run(_hold(port, arguments.connections))
        ended = time.perf_counter()
        while (after := _ask(port, line))[0] != 200 and time.perf_counter() - ended < 60:
            time.sleep(0.05)
        answered = time.perf_counter()
    assert after == before, (after, before)
    return {
        "connections": arguments.connections,
        "ended_by": held,
        "seconds_until_all_ended": round(ended - began, 1),
        "seconds_until_others_are_answered": round(answered - ended, 2),
        "exit_status": process.returncode,
    }


async def _hold(port: int, count: int) -> dict[str, int]:
    """Connections that send half a request and wait for their end: how many ended with which status."""

    async def one() -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/models/model/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            head = await reader.read(1 << 16)
            writer.close()
        except OSError as error:
            return type(error).__name__
        return head.split(b" ", 2)[1].decode() if head else "closed"

    return dict(sorted(Counter(await asyncio.gather(*(one() for _ in range(count)))).items()))


def memory_part(arguments: argparse.Namespace, bodies: Path) -> dict[str, Any]:
    port, samples = free_port(), []
    with running(ours(arguments.model), port, "/ready") as (process, _):
        load = clients(url_of(port), bodies, arguments.clients, 60 * arguments.minutes)
        for _ in range(int(arguments.minutes * _SAMPLES_PER_MINUTE)):
            time.sleep(60 / _SAMPLES_PER_MINUTE)
            samples.append(_resident_mib(process.pid))
        figures = outcome(load)
    # The first minute fills caches.
    later = samples[_SAMPLES_PER_MINUTE:]
    slope = np.polyfit(np.arange(len(later)) / _SAMPLES_PER_MINUTE, later, 1)[0]
    return {
        "minutes": arguments.minutes,
        "resident_mib": [round(sample, 1) for sample in samples],
        "mib_per_minute": round(float(slope), 3),
        **figures,
    }


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS: this needs Linux")


PARTS = {
    "load": load_part,
    "peers": peers_part,
    "reloads": reloads_part,
    "kills": kills_part,
    "connections": connections_part,
    "memory": memory_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("model", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--reloads", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--tools", default="pecos,omikuji", help="peers: tools, separated by commas")
    parser.add_argument("--dataset", choices=DATASETS, default="debian-depends", help="peers: what they learn from")
    parser.add_argument("--data-root", type=Path, help="folder with one subfolder per dataset")
    parser.add_argument("--work", type=Path, help="for environments and matrices of the tools; default: the cache")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, Contention() as contention:
        bodies = bodies_of(owlmine.load(arguments.model), arguments.queries, Path(scratch) / "bodies.jsonl")
        figures = PARTS[arguments.part](arguments, bodies)
    figures |= {**contention.record, "machine": machine()}
    print(json.dumps(figures, indent=1))
    stored = RESULTS / "serving.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    results.setdefault(arguments.part, {})[arguments.model.name] = figures
    save_result("serving", results)


if __name__ == "__main__":
    main()
