"""The paper's own figures to set beside ours."""

from __future__ import annotations

from owlmine.demo.figures import NAMES

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
    dataset: {method: dict(zip(NAMES, ratios, strict=True)) for method, ratios in methods.items()}
    for dataset, methods in _TABLE_2.items()
}
# Table 1.
PAPER_CLASSES = {"AmazonCat-13K": 13_330, "WikiLSHTC-325K": 325_056, "Amazon-670K": 670_091, "Amazon-3M": 2_812_281}

# The dataset with the demo's pool (B = 1,024) and the number of classes nearest to the sample's.
PAPER_DATASET = "AmazonCat-13K"
PAPER_RATIOS = TABLE_2[PAPER_DATASET]
