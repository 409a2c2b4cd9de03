"""Training points by the vectors that the dense model gives them.

Shapes: N queries, D dimension of the whole model, P training points, W dimension of its first head, n neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, SparseRows
from owlmine.mining import hardest


@dataclass(frozen=True, eq=False)
class DensePoints:
    """Unit vectors of the training points, [P, W].

    Of a model of several heads they are the first one's: all of them find hardly better neighbours, and are as many
    times larger.
    """

    vectors_PW: Tensor

    def __post_init__(self) -> None:
        if self.vectors_PW.ndim != 2 or not self.vectors_PW.dtype.is_floating_point:
            given = f"{self.vectors_PW.dtype} of the shape {list(self.vectors_PW.shape)}"
            raise ValueError(f"vectors of points are {given}; wanted floating-point [P, W]")

    def __len__(self) -> int:
        return len(self.vectors_PW)

    def on(self, device: torch.device) -> DensePoints:
        """Bfloat16 on a GPU; a CPU multiplies float32 faster."""
        return DensePoints(self.vectors_PW.to(device, torch.float32 if device.type == "cpu" else torch.bfloat16))

    def nearest(
        self, queries: SparseRows | None, vectors_ND: Tensor | None, count: int
    ) -> tuple[Float32, NDArray[np.int64]]:
        """Cosines and numbers [N, n] of the nearest points; ``queries`` is for points of another kind."""
        del queries
        assert vectors_ND is not None
        own_NW = first_head(vectors_ND, self.vectors_PW.shape[1])
        cosines_Nn, points_Nn = hardest(own_NW, self.vectors_PW, min(count, len(self)))
        return cosines_Nn.float().cpu().numpy(), points_Nn.cpu().numpy()

    def tensors(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors_PW.to("cpu", torch.bfloat16)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> DensePoints:
        return cls(tensors["vectors"])


def first_head(vectors_ND: Tensor, width: int) -> Tensor:
    """The unit vectors [N, width] of the first of the models that lie side by side in ``vectors_ND``."""
    assert vectors_ND.shape[1] % width == 0
    return torch.nn.functional.normalize(vectors_ND[:, :width].float(), dim=1)
