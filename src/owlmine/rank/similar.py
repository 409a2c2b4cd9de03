"""Classes with similar vectors in the dense model.

Shapes: K classes, D dimension, B classes of a block.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from owlmine.errors import DataError
from owlmine.rank.predictor import Predictor
from owlmine.rank.queries import checked_k, described

# Numbers of class vectors that are expanded at a time.
_BLOCK_NUMBERS = 1 << 22


@dataclass(frozen=True, slots=True)
class SimilarClass:
    """A class, and how similar its vector is to that of another one."""

    key: str
    name: str
    cosine: float
    examples: int
    """Its training points."""

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"cosine": float(f"{self.cosine:.7g}")}


@torch.no_grad()
def similar_classes(predictor: Predictor, key: str | int, k: int) -> list[SimilarClass]:
    """The ``k`` classes whose vectors have the largest cosine with that of a class, found by its key or name: the most
    similar first, ties by the smaller number. A class without a vector has the cosine 0."""
    if isinstance(key, bool) or not isinstance(key, str | int | np.integer):
        raise DataError("key", found=described(key), wanted="the key of one class")
    own, table_KD, words = int(predictor.finder.find([str(key)])[0]), predictor.dense.rows, predictor.classes
    k = checked_k(k, len(words) - 1)
    vector_D = torch.nn.functional.normalize(table_KD[own : own + 1].float())[0]
    best_cosines, best_ids = np.zeros(0, np.float32), np.zeros(0, np.int64)
    size = max(_BLOCK_NUMBERS // table_KD.shape[1], 1)
    for start in range(0, len(table_KD), size):
        rows_BD = torch.nn.functional.normalize(table_KD[start : start + size].float())
        cosines_B, ids_B = (rows_BD @ vector_D).cpu().numpy(), start + np.arange(len(rows_BD))
        cosines, ids = np.append(best_cosines, cosines_B[ids_B != own]), np.append(best_ids, ids_B[ids_B != own])
        # Only those as good as the k-th need sorting.
        good = cosines >= np.partition(cosines, -k)[-k] if len(cosines) > k else np.ones(len(cosines), np.bool_)
        order = np.lexsort((ids[good], -cosines[good]))[:k]
        best_cosines, best_ids = cosines[good][order], ids[good][order]
    return [
        SimilarClass(words.keys[number], words.names[number], cosine, int(words.counts[number]))
        for number, cosine in zip(best_ids.tolist(), best_cosines.clip(-1, 1).tolist(), strict=True)
    ]
