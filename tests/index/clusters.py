"""Vectors that form clusters, as class vectors do."""

from __future__ import annotations

import torch
from torch import Tensor


def clustered(num_rows: int, dim: int, seed: int) -> Tensor:
    """Unit vectors [R, D] around 200 centres, which are the same for every seed."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(200, dim, generator=torch.Generator().manual_seed(0))
    chosen = torch.randint(200, (num_rows,), generator=generator)
    vectors = centres[chosen] + 0.5 * torch.randn(num_rows, dim, generator=generator)
    return torch.nn.functional.normalize(vectors, dim=1)
