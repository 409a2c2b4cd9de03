"""Where a run was made: without it, seconds say nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import owlmine


def machine(device: torch.device) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "owlmine": owlmine.__version__,
    }


def machine_text(told: dict[str, Any]) -> str:
    """On one line, for people."""
    place = f"{told['cpu']}, {told['threads']} threads"
    if told["device"] != "cpu":
        place = f"{told['device']} ({place})"
    return f"{place}; Python {told['python']}, torch {told['torch']}, NumPy {told['numpy']}"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
