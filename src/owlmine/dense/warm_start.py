"""A class vector starts as the direction of its training points: nearest centroid is already a fair model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from owlmine.data.rows import Int64
from owlmine.data.store import Split
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.dense.row_table import scale_to_unit

_BLOCK_ROWS = 4096


@torch.no_grad()
def warm_start(model: Retriever, split: Split, rows: Int64, *, between: Callable[[], None] = lambda: None) -> None:
    """Sets each class to the normalised sum of the vectors of its points; classes without points stay as they are.

    The sums are accumulated in the class table itself, without a second copy. ``rows`` are the points to use;
    ``between`` is called between blocks of them and may raise to stop it.
    """
    if model.shape.kind == "linear":
        return
    weight = model.classes.weight
    started_K = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
    for start in range(0, len(rows), _BLOCK_ROWS):
        between()
        batch = split.batch(rows[start : start + _BLOCK_ROWS])
        vectors_ND = model.encode(query_batch(batch.queries, model.device))
        ids = torch.from_numpy(batch.labels.indices.astype(np.int64)).to(weight.device)
        points = torch.from_numpy(batch.labels.row_ids).to(weight.device)
        ids_U, places = torch.unique(ids, return_inverse=True)
        sums_UD = vectors_ND.new_zeros(len(ids_U), weight.shape[1]).index_add_(0, places, vectors_ND[points])
        sums_UD += weight[ids_U] * started_K[ids_U, None]
        weight[ids_U] = sums_UD
        started_K[ids_U] = True
    scale_to_unit(weight)
