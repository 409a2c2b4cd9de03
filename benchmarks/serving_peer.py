"""Another tool in the HTTP shell that its users would write: FastAPI and uvicorn. Used by serving.py.

    ENVIRONMENT/bin/python benchmarks/serving_peer.py TOOL MATRICES OPTIONS BODIES PORT

Runs in the tool's own environment, which has no owlmine. Trains on MATRICES, writes the test points as JSON bodies into
BODIES, and serves. A request runs in a thread of FastAPI's pool.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from scipy.sparse import csr_matrix, load_npz

K = 5
_QUERIES = 2000
Answer = Callable[[list[int], list[float]], list[tuple[int, float]]]


class Query(BaseModel):
    indices: list[int]
    values: list[float]


class Request(BaseModel):
    queries: list[Query]
    k: int = K


def omikuji_answer(folder: Path, options: dict[str, Any]) -> Answer:
    import omikuji

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "train.txt"
        _write_text_file(file, _matrix(folder, "X.train"), _matrix(folder, "Y.train"))
        parameters = omikuji.Model.default_hyper_param()
        for name, value in options.items():
            setattr(parameters, name, value)
        model = omikuji.Model.train_on_data(str(file), parameters)

    def answer(indices: list[int], values: list[float]) -> list[tuple[int, float]]:
        found = model.predict(list(zip(indices, values, strict=True)), top_k=K)
        return [(int(label), float(score)) for label, score in found]

    return answer


def pecos_answer(folder: Path, options: dict[str, Any]) -> Answer:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y = _matrix(folder, "X.train"), _matrix(folder, "Y.train")
    label_features = LabelEmbeddingFactory.create(Y, X, method=options["label_features"])
    tree = Indexer.gen(label_features, indexer_type="hierarchicalkmeans", nr_splits=options["nr_splits"])
    scheme = options["negative_sampling_scheme"]
    trained = XLinearModel.train(X, Y.tocsc(), C=tree, negative_sampling_scheme=scheme)
    with tempfile.TemporaryDirectory() as scratch:
        trained.save(scratch)
        model = XLinearModel.load(scratch, is_predict_only=True)  # its fast path for single queries
    width, beam, processor = X.shape[1], options["beam_size"], options["post_processor"]

    def answer(indices: list[int], values: list[float]) -> list[tuple[int, float]]:
        row = csr_matrix((np.array(values, np.float32), indices, [0, len(indices)]), shape=(1, width))
        row.sort_indices()
        found = model.predict(row, beam_size=beam, only_topk=K, post_processor=processor, threads=1)
        order = np.argsort(-found.data, kind="stable")
        return [(int(found.indices[place]), float(found.data[place])) for place in order]

    return answer


TOOLS = {"omikuji": omikuji_answer, "pecos": pecos_answer}


def _matrix(folder: Path, name: str) -> csr_matrix:
    return csr_matrix(load_npz(folder / f"{name}.npz"))


def _write_text_file(path: Path, X: csr_matrix, Y: csr_matrix) -> None:
    with path.open("w") as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
        for row in range(X.shape[0]):
            labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()))
            own = slice(X.indptr[row], X.indptr[row + 1])
            pairs = zip(X.indices[own].tolist(), X.data[own].tolist(), strict=True)
            file.write(labels + "".join(f" {feature}:{value:.9g}" for feature, value in pairs) + "\n")


def _write_bodies(folder: Path, file: Path) -> None:
    X = _matrix(folder, "X.test")[:_QUERIES]
    rows = (slice(start, stop) for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True))
    queries = ({"indices": X.indices[own].tolist(), "values": X.data[own].tolist()} for own in rows)
    file.write_text("".join(json.dumps({"queries": [query], "k": K}) + "\n" for query in queries))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("matrices", type=Path)
    parser.add_argument("options", type=json.loads)
    parser.add_argument("bodies", type=Path)
    parser.add_argument("port", type=int)
    given = parser.parse_args()
    answer = TOOLS[given.tool](given.matrices, given.options)
    _write_bodies(given.matrices, given.bodies)
    app = FastAPI()

    @app.get("/ready")
    def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/predict")
    def predict(request: Request) -> dict[str, Any]:
        found = [answer(query.indices, query.values) for query in request.queries]
        return {"predictions": [[{"key": key, "score": score} for key, score in classes] for classes in found]}

    uvicorn.run(app, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
