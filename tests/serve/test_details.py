"""Models, classes, reasons and pictures over HTTP."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import owlmine
from owlmine.data.store import Store

from ..small_models import calibrated_model, dense_store, sparse_model, text_point
from .conftest import NASTY_NAMES
from .running import Service
from .test_answers import SCORES

QUERIES: dict[str, Any] = {
    "text": str(text_point(1000)["text"]),
    "sparse": {"indices": [1, 3, 8], "values": [1, 2, 1]},
    "nasty": "river castle violin",
}


def test_models(service: Service) -> None:
    models = service.ask("GET", "/v1/models").json()["models"]
    kinds = {"text": "text", "sparse": "sparse vectors", "dense": "dense vectors", "nasty": "text"}
    assert {entry["name"]: entry["takes"] for entry in models} == kinds
    assert all(entry["ready"] and entry["problem"] is None and len(entry["version"]) == 12 for entry in models)


def test_a_model(service: Service) -> None:
    model, path = owlmine.load(calibrated_model()), calibrated_model()
    found = service.ask("GET", "/v1/models/text").json()
    assert found["name"] == "text"
    assert found["classes"] == len(model.classes)
    assert found["features"] == model.dense.shape.num_features
    assert found["points"] == model.classes.num_points
    assert found["figures"] == pytest.approx(dict(model.record.figures))
    assert found["card"] == (path / "README.md").read_text("utf-8")
    assert found["record"]["data"] == found["data"] == model.record.data
    assert model.record.calibration is not None
    assert found["thresholds"] == [entry.to_dict() for entry in model.record.calibration.thresholds]
    assert found["index"] is None
    assert found["pictures"] == []
    for example in found["examples"]:
        assert service.predict("text", example)[0]["known"]


def test_a_class(service: Service) -> None:
    model = owlmine.load(calibrated_model())
    found = service.ask("GET", "/v1/models/text/class?key=c-river").json()
    assert (found["key"], found["name"]) == ("c-river", "River")
    wanted = model.similar_classes("c-river")
    assert [one["key"] for one in found["similar"]] == [one.key for one in wanted]
    assert [one["cosine"] for one in found["similar"]] == pytest.approx([one.cosine for one in wanted], **SCORES)
    # By its name, and with a name that tries to leave its place.
    assert service.ask("GET", "/v1/models/text/class?key=River").json() == found
    nasty = service.ask("GET", f"/v1/models/nasty/class?key={quote(NASTY_NAMES['c-castle'])}").json()
    assert nasty["name"] == NASTY_NAMES["c-castle"]


@pytest.mark.parametrize("name", ["text", "sparse", "dense", "nasty"])
def test_reasons(service: Service, name: str) -> None:
    """Those of the model, for each class of the answer; their parts sum to the score."""
    query = QUERIES.get(name)
    if query is None:
        query = np.asarray(Store.open(dense_store())["test"].batch(np.arange(1)).queries)[0].tolist()
    [plain] = service.predict(name, query, k=4)
    [answer] = service.predict(name, query, k=4, reasons=True)
    for found, shown in zip(answer["classes"], plain["classes"], strict=True):
        why = found.pop("reasons")
        assert found == shown
        assert (why["key"], why["name"]) == (found["key"], found["name"])
        assert why["score"] == pytest.approx(found["score"], **SCORES)
        assert sum(part["score"] for part in why["parts"]) == pytest.approx(found["score"], rel=1e-5, abs=1e-5)
        assert why["examples"] == found["examples"]


def test_reasons_are_those_of_the_model(service: Service) -> None:
    model, query = owlmine.load(calibrated_model()), QUERIES["text"]
    [answer] = service.predict("text", query, k=3, reasons=True)
    for found, wanted in zip(answer["classes"], model.explain(query, 3), strict=True):
        words = [(one["word"], one["dense"]) for one in found["reasons"]["words"]]
        assert [word for word, _ in words] == [one.word for one in wanted.words]
        assert [effect for _, effect in words] == pytest.approx(
            [one.effects["dense"] for one in wanted.words], **SCORES
        )


def test_reasons_with_a_filter_and_a_threshold(service: Service) -> None:
    query = {"text": QUERIES["text"], "allowed": ["c-river", "c-castle", "c-violin"]}
    [answer] = service.predict("text", query, "?", k=3, reasons=True)[:1]
    assert {found["reasons"]["key"] for found in answer["classes"]} == set(query["allowed"])
    whole, unknown = service.predict("text", QUERIES["text"], "?", k=12, threshold=0.3, reasons=True)
    assert 0 < len(whole["classes"]) < 12
    assert all(found["reasons"]["key"] == found["key"] for found in whole["classes"])
    assert unknown["classes"] == []


def test_pictures(tmp_path: Path) -> None:
    """Only pictures, and only of the folder itself."""
    model = tmp_path / "text"
    shutil.copytree(sparse_model(), model)
    (model / "evaluation.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (model / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    (model / "notes.txt").write_text("not a picture")
    (model / "..png").write_text("not a name")
    (tmp_path / "secret.png").write_text("secret")
    (model / "linked.png").symlink_to(tmp_path / "secret.png")
    with Service(model) as service:
        assert service.ask("GET", "/v1/models/text").json()["pictures"] == ["curve.svg", "evaluation.png"]
        for name, kind in (("evaluation.png", "image/png"), ("curve.svg", "image/svg+xml")):
            response = service.ask("GET", f"/v1/models/text/pictures/{name}")
            assert response.status == 200
            assert response.headers["content-type"] == kind
            assert response.body == (model / name).read_bytes()
            assert "sandbox" in response.headers["content-security-policy"]
        for name in ("notes.txt", "..png", "linked.png", "config.json", "%2e%2e%2fsecret.png", "../secret.png"):
            assert service.ask("GET", f"/v1/models/text/pictures/{name}").status == 404


def test_annif(service: Service) -> None:
    """As its http backend asks; tests/serve/annif_check.py asks with Annif itself."""
    project = service.ask("GET", "/v1/projects/text").json()
    assert project["is_trained"] is True
    assert project["modification_time"].endswith("+00:00")
    form = "application/x-www-form-urlencoded"
    text = QUERIES["text"].replace(" ", "+")
    body = f"text={text}&limit=3&metadata_title=x&project=y".encode()
    results = service.ask("POST", "/v1/projects/text/suggest", body, kind=form).json()["results"]
    [wanted] = service.predict("text", QUERIES["text"], k=3)
    assert [one["uri"] for one in results] == [found["key"] for found in wanted["classes"]]
    assert [one["label"] for one in results] == [found["name"] for found in wanted["classes"]]
    assert [one["score"] for one in results] == pytest.approx([found["probability"] for found in wanted["classes"]])
    for body, path in (
        (b"text=a&limit=0", "text"),
        (b"text=a&limit=x", "text"),
        (b"limit=5", "text"),
        (b"text=a", "dense"),
    ):
        assert service.ask("POST", f"/v1/projects/{path}/suggest", body, kind=form).status == 422
