"""Annif itself asks a running service for subjects: the five lines of docs/serving.md, run.

    python tests/serve/annif_check.py [FOLDER]

Installs Annif, and nothing of owlmine, into a virtual environment in FOLDER (by default a temporary one), trains a
small model whose classes are subjects of a vocabulary, serves it from this environment, and runs ``annif show-project``
and ``annif suggest``. Ends with status 0 if the suggestions are those of the model.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import owlmine

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from tests.serve.running import Service
from tests.small_models import TOPICS, text_point

ANNIF = "annif==1.4.3"
_BASE = "http://example.org/topics/"


def uri(key: str) -> str:
    return _BASE + key.removeprefix("c-")


def make_model(folder: Path) -> owlmine.Model:
    points = [text_point(number) for number in range(240)]
    labels = [[uri(f"c-{topic}") for topic in TOPICS if topic in str(point["text"])] for point in points]
    names = {uri(f"c-{topic}"): topic.title() for topic in TOPICS}
    options = {"recipe": "single", "dim": 16, "epochs": 4, "batch_size": 16, "validation": 0.4, "device": "cpu"}
    model = owlmine.fit([point["text"] for point in points], labels, class_names=names, options=options)
    model.save(folder / "topics")
    return model


def configuration(port: int) -> str:
    """As in docs/serving.md."""
    text = (Path(__file__).parent.parent.parent / "docs" / "serving.md").read_text()
    found = re.search(r"```ini\n(\[owlmine-en\]\n.*?)```", text, re.DOTALL)
    assert found is not None, "docs/serving.md has no projects.cfg"
    return found[1].replace("8080", str(port)).replace("my-model", "topics").replace("my-vocabulary", "topics")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        check(Path(sys.argv[1]) if sys.argv[1:] else Path(scratch) / "annif", Path(scratch))
    print("Annif and owlmine agree")


def check(environment: Path, work: Path) -> None:
    annif = environment / "bin" / "annif"
    if not annif.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", ANNIF], check=True)
    model = make_model(work)

    def run(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [str(annif), *arguments], cwd=work, input=text, capture_output=True, text=True, timeout=120, check=False
        )
        print(f"$ annif {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        assert done.returncode == 0
        return done.stdout

    subjects = "".join(f"<{uri(f'c-{topic}')}>\t{topic.title()}\n" for topic in TOPICS)
    (work / "topics.tsv").write_text(subjects)
    with Service(work / "topics") as service:
        (work / "projects.cfg").write_text(configuration(service.port))
        run("load-vocab", "--language", "en", "topics", "topics.tsv")
        assert re.search(r"Trained: +True", run("show-project", "owlmine-en"))
        query = str(text_point(1000)["text"])
        lines = [line.split("\t") for line in run("suggest", "--limit", "3", "owlmine-en", text=query).splitlines()]
        wanted = model.predict([query], k=3)[0]
        assert [line[0] for line in lines] == [f"<{one.key}>" for one in wanted]
        assert [line[1] for line in lines] == [one.name for one in wanted]
        for line, one in zip(lines, wanted, strict=True):
            assert abs(float(line[2]) - (one.probability or 0)) < 1e-3
        assert service.stop() == 0


if __name__ == "__main__":
    main()
