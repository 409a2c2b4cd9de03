"""What a model is put together from: how many models side by side, and whether linear classifiers re-rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from owlmine.train.options import TrainOptions

_BEST_HEADS = 3
_BEST_SHORTLIST = 50


@dataclass(frozen=True)
class Composition:
    """``heads`` models side by side; ``shortlist`` classes of each query are scored again (0: none)."""

    heads: int
    shortlist: int

    @property
    def is_single(self) -> bool:
        return self.heads == 1 and self.shortlist == 0


def composition(options: TrainOptions, *, device: torch.device, dense: bool, num_classes: int) -> Composition:
    """What the options ask for, and where they leave it open what suits the device.

    On a CPU three models would take three times as long, which the re-ranker alone mostly makes up for. Dense queries
    have no sparse classifiers.
    """
    best = options.recipe == "best"
    heads = options.heads or (_BEST_HEADS if best and device.type == "cuda" and options.kind == "embedding" else 1)
    if dense and options.shortlist:
        raise ValueError(f"shortlist is {options.shortlist}; wanted 0 with dense queries")
    shortlist = options.shortlist or (_BEST_SHORTLIST if best and not dense else 0)
    return Composition(heads, min(shortlist, num_classes))
