"""Dot products with rows of a table, row updates, and updates of small dense tensors, in C.

Nothing is copied, and small jobs wake up no threads, which would take longer than the job.

Shapes: R rows of the table, U distinct rows of a step, D dimension, N points, T rows of each, E entries of all.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from owlmine.extensions import load_extension


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.dense._rows")


def is_compiled_for(*tensors: Tensor) -> bool:
    """Whether the extension is available, and takes tables, vectors and values of these types."""
    return compiled_module() is not None and all(
        tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous() for tensor in tensors
    )


def compiled_dots(weight_RD: Tensor, queries_ND: Tensor, ids_NT: Tensor) -> Tensor:
    """[N, T]: <query n, row ids[n, t]>."""
    extension = compiled_module()
    assert extension is not None
    assert queries_ND.shape == (len(ids_NT), weight_RD.shape[1])
    dots_NT = torch.empty(ids_NT.shape, dtype=torch.float32)
    extension.dot_rows(
        weight_RD.numpy(),
        weight_RD.shape[1],
        queries_ND.detach().numpy(),
        _as_ids(ids_NT),
        dots_NT.numpy(),
        torch.get_num_threads(),
    )
    return dots_NT


def compiled_unit_vectors(vectors_ND: Tensor, out_ND: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """[N, D] vectors scaled to length 1, and [N, 1] their lengths. ``out_ND``: memory for the vectors."""
    extension = compiled_module()
    assert extension is not None
    unit_ND = torch.empty_like(vectors_ND) if out_ND is None else out_ND
    lengths_N1 = vectors_ND.new_empty(len(vectors_ND), 1)
    extension.unit_vectors(
        vectors_ND.detach().numpy(), vectors_ND.shape[1], unit_ND.numpy(), lengths_N1.numpy(), torch.get_num_threads()
    )
    return unit_ND, lengths_N1


def compiled_unit_gradient(
    gradient_ND: Tensor, unit_ND: Tensor, lengths_N1: Tensor, out_ND: Tensor | None = None
) -> Tensor:
    """[N, D]: the backward pass of ``compiled_unit_vectors``. ``out_ND``: memory for it."""
    extension = compiled_module()
    assert extension is not None
    result_ND = torch.empty_like(gradient_ND) if out_ND is None else out_ND
    extension.unit_gradient(
        gradient_ND.numpy(),
        gradient_ND.shape[1],
        unit_ND.detach().numpy(),
        lengths_N1.numpy(),
        result_ND.numpy(),
        torch.get_num_threads(),
    )
    return result_ND


def compiled_move(
    weight_RD: Tensor,
    ids_U: Tensor,
    starts_U: Tensor,
    entries: tuple[Tensor, Tensor, Tensor],
    *,
    factor: float,
    unit_rows: bool,
) -> None:
    """row += factor * sum of value * vector over the row's entries; then to length 1 for ``unit_rows``.

    ``entries``: the points [E], values [E] and vectors of points [N, D]; those of row u begin at ``starts_U``. Ids
    ascend. The sums do not depend on the number of threads.
    """
    extension = compiled_module()
    assert extension is not None
    points_E, values_E, vectors_ND = entries
    dim = weight_RD.shape[1]
    assert vectors_ND.shape[1] == dim
    extension.move_rows(
        weight_RD.numpy(),
        _as_ids(ids_U),
        _as_ids(starts_U),
        _as_ids(points_E),
        values_E.numpy(),
        vectors_ND.numpy(),
        dim,
        factor,
        unit_rows,
        torch.get_num_threads(),
    )


def compiled_momentum_step(
    parameter: Tensor, velocity: Tensor, gradient: Tensor, *, momentum: float, rate: float
) -> None:
    """velocity = momentum * velocity + gradient; parameter -= rate * velocity, in one pass."""
    extension = compiled_module()
    assert extension is not None
    extension.momentum_step(
        parameter.detach().numpy(), velocity.numpy(), gradient.numpy(), momentum, rate, torch.get_num_threads()
    )


def _as_ids(ids: Tensor) -> object:
    """The extension checks ranges and sizes, but cannot check that numbers are int64."""
    return ids.to(torch.int64).contiguous().numpy()
