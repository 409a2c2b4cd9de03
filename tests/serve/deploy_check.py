"""The steps of deploy/Dockerfile, run in a plain folder; and the unit for systemd, checked by systemd itself.

    python tests/serve/deploy_check.py MODEL

Builds what the image would have under /opt/owlmine in a temporary folder, by the Dockerfile's own lines, starts its
entry point as it is written there, and waits until its health check succeeds. What needs an image is left out: packages
of the system, the user, and the copy between stages.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_PORT = 8097


def main() -> None:
    [model] = sys.argv[1:]
    lines = re.sub(r"\\\n", "", (ROOT / "deploy" / "Dockerfile").read_text()).splitlines()
    with tempfile.TemporaryDirectory() as scratch:
        build(lines, Path(scratch))
        serve(lines, Path(scratch), Path(model).resolve())
    if systemd := shutil.which("systemd-analyze"):
        check_unit(systemd)
    print("the container's steps work in a plain folder")


def build(lines: list[str], scratch: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        target = scratch / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    (scratch / "opt").mkdir()
    steps = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ") and "apt-get" not in line]
    assert len(steps) == 2, steps
    for step in steps:
        here = step.replace("/opt/", f"{scratch}/opt/").replace("/source", f"{scratch}/source")
        # This machine takes its torch from where it takes everything else.
        here = re.sub(r" --extra-index-url \S+", "", here)
        subprocess.run(["sh", "-euc", here.replace("python -m venv", f"{sys.executable} -m venv")], check=True)


def serve(lines: list[str], scratch: Path, model: Path) -> None:
    entry = json.loads(next(line for line in lines if line.startswith("ENTRYPOINT ")).removeprefix("ENTRYPOINT "))
    health = next(line for line in lines if line.startswith("HEALTHCHECK ")).partition("CMD ")[2]
    variables = shlex.split(next(line for line in lines if line.startswith("ENV ")).removeprefix("ENV "))
    settings = dict(variable.split("=", 1) for variable in variables)
    environment = {
        name: value.replace("/opt/", f"{scratch}/opt/")
        .replace("/home/", f"{scratch}/home/")
        .replace("$PATH", os.defpath)
        for name, value in settings.items()
    }
    # Another port, since this machine may use that one; and no network beyond it.
    command = [word.replace("8080", str(_PORT)).replace("0.0.0.0", "127.0.0.1") for word in entry]
    check = [word.replace("8080", str(_PORT)) for word in json.loads(health)]
    command[0] = str(scratch / "opt" / "owlmine" / "bin" / command[0])
    process = subprocess.Popen([*command, str(model)], env=environment, cwd="/")
    try:
        ends = time.monotonic() + 60
        while subprocess.run(check, env=environment, capture_output=True, check=False).returncode:
            assert time.monotonic() < ends, "the health check does not succeed"
            assert process.poll() is None, "the service has ended"
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def check_unit(systemd: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        unit = Path(scratch) / "owlmine.service"
        # Its program is not installed here.
        unit.write_text(
            (ROOT / "deploy" / "owlmine.service").read_text().replace("/opt/owlmine/bin/owlmine", "/bin/true")
        )
        subprocess.run([systemd, "verify", str(unit)], check=True)


if __name__ == "__main__":
    main()
