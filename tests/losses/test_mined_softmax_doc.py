"""The table in docs/mined-softmax.md is what the program beside it prints."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "mined-softmax.md"


def test_the_table_is_what_the_program_prints():
    page = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    numbers = page.split("## Numbers")[1]
    table = re.findall(r"^\| (?!estimator).*\|$", numbers.split("```python")[0], flags=re.MULTILINE)
    assert done.stdout.splitlines() == table
    assert len(table) == 10
