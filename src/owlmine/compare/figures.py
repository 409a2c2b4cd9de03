"""The figures of a comparison, and the paper's own."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

KS = (1, 3, 5)
NAMES = tuple(f"{letter}@{k}" for letter in "RP" for k in KS)


def ratios(figures: dict[str, float], baseline: dict[str, float]) -> dict[str, float | None]:
    """Each figure divided by the baseline's, as in the paper's Table 2; None if the baseline is 0."""
    return {name: figures[name] / baseline[name] if baseline[name] else None for name in NAMES}


def ratio_text(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


# Table 2: figures divided by those of negative sampling. Recall and precision at 1, 3 and 5 for each dataset.
_TABLE_2 = {
    "AmazonCat-13K": {
        "top-1": (2.59, 1.98, 2.58, 2.33, 2.40, 2.39),
        "top-16": (2.02, 1.97, 1.96, 1.99, 1.97, 1.92),
        "top-64": (1.65, 1.63, 1.60, 1.66, 1.65, 1.61),
        "top-256": (1.32, 1.32, 1.29, 1.30, 1.30, 1.30),
    },
    "WikiLSHTC-325K": {
        "top-1": (2.53, 2.71, 2.64, 2.56, 2.70, 2.59),
        "top-16": (2.35, 2.46, 2.37, 2.36, 2.46, 2.37),
        "top-64": (2.13, 2.18, 2.14, 2.17, 2.18, 2.17),
        "top-256": (1.87, 1.86, 1.83, 1.89, 1.90, 1.87),
    },
    "Amazon-670K": {
        "top-1": (1.23, 1.28, 1.32, 1.25, 1.27, 1.33),
        "top-16": (1.17, 1.23, 1.24, 1.21, 1.22, 1.34),
        "top-64": (1.13, 1.17, 1.18, 1.16, 1.18, 1.23),
        "top-256": (1.11, 1.15, 1.15, 1.13, 1.14, 1.18),
    },
    "Amazon-3M": {
        "top-1": (2.60, 2.92, 3.01, 2.73, 2.95, 3.07),
        "top-16": (2.56, 2.72, 2.80, 2.57, 2.80, 2.89),
        "top-64": (2.30, 2.42, 2.51, 2.34, 2.47, 2.57),
        "top-256": (1.93, 2.05, 2.13, 1.96, 2.13, 2.11),
    },
}
TABLE_2 = {
    dataset: {method: dict(zip(NAMES, figures, strict=True)) for method, figures in methods.items()}
    for dataset, methods in _TABLE_2.items()
}
# Table 1.
PAPER_CLASSES = {"AmazonCat-13K": 13_330, "WikiLSHTC-325K": 325_056, "Amazon-670K": 670_091, "Amazon-3M": 2_812_281}


def paper_figures(name: str, num_classes: int, methods: Collection[str]) -> dict[str, Any]:
    """The paper's ratios of these methods for this dataset, or for the one with the closest number of classes."""
    nearest = min(PAPER_CLASSES, key=lambda dataset: abs(math.log(PAPER_CLASSES[dataset] / num_classes)))
    dataset = next((known for known in PAPER_CLASSES if name.lower().startswith(known.lower())), nearest)
    return {
        "dataset": dataset,
        "ratios": {method: figures for method, figures in TABLE_2[dataset].items() if method in methods},
    }
