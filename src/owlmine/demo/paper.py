"""The paper's own figures to set beside ours."""

from __future__ import annotations

# Table 2, AmazonCat-13K: the dataset with the same pool (B = 1,024) and the nearest number of classes (13,330).
# Each figure is divided by that of negative sampling.
PAPER_DATASET = "AmazonCat-13K"
PAPER_RATIOS = {
    "top-1": {"R@1": 2.59, "R@3": 1.98, "R@5": 2.58, "P@1": 2.33, "P@3": 2.40, "P@5": 2.39},
    "top-16": {"R@1": 2.02, "R@3": 1.97, "R@5": 1.96, "P@1": 1.99, "P@3": 1.97, "P@5": 1.92},
}
