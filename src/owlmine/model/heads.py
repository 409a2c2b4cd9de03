"""Several trained models side by side as one: its score is the mean of theirs.

Each model gives unit vectors. Those of a query beside each other, divided by the root of how many there are, are a unit
vector again, and the product with class vectors made likewise is the mean of the models' products:

    <[q1, q2] / √2, [c1, c2] / √2> = (<q1, c1> + <q2, c2>) / 2

So the best classes by the mean score are found like those of any model, exactly and in one search.

Shapes: K classes, F features, D dimension of one model, H models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from owlmine.model.retriever import Retriever


@torch.no_grad()
def join_models(models: Sequence[Retriever]) -> Retriever:
    """A model with a head for each of these, which have one shape. Their tensors are copied."""
    shape = models[0].shape
    if shape.kind != "embedding" or shape.heads != 1 or any(model.shape != shape for model in models):
        given = ", ".join(f"{m.shape.kind} of dimension {m.shape.dim}, {m.shape.heads} heads" for m in models)
        raise ValueError(f"models: given {given}; wanted embedding models with one head and the same shape")
    parts = [model.tensors() for model in models]
    tensors = {f"map.{i}": torch.cat([part[f"map.{i}"] for part in parts]) for i in range(shape.depth)}
    tensors["table"] = torch.cat([part["table"] for part in parts], dim=1)
    tensors["classes"] = torch.cat([part["classes"] for part in parts], dim=1).div_(math.sqrt(len(models)))
    joined = replace(shape, dim=shape.dim * len(models), heads=len(models))
    return Retriever.from_tensors(joined, tensors)
