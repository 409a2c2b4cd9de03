"""Losses over all classes, and a whole step of training with them, without the N x K scores.

softmax:     loss = log Σ_y exp(c s_y) - c s_p
one-vs-all:  loss = Σ_y log(1 + exp(c s_y)) - c s_p        (log(1 + e^x) - x = log(1 + e^-x) for the positive p)

with s_y = <query, row of class y>. The losses are those of ``owlmine.losses.softmax_loss`` and ``one_vs_all_loss``, of
operands rounded to ``Passes.operands``. A step takes two passes over the table: one for the sums, one that goes through
chunks of classes, each of which gives its share of the queries' gradients and is then moved by its own.

Memory beside the table: N x C slopes, C x D gradients and, where the table is not readable as it is, C x D operands;
N x M sums, M = K / 128.

Shapes: N queries, K classes, C classes of a chunk, D dimension, M tiles of classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import triton
from torch import Tensor
from torch.nn import functional

from owlmine.kernels.class_slopes import class_slopes, set_known_slopes
from owlmine.kernels.class_sums import FLOAT32_TILING, Tiling, class_sums, recount_without
from owlmine.kernels.exclusions import Exclusions
from owlmine.kernels.move_rows import move_rows

AllClassLoss = Literal["softmax", "one-vs-all"]
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Passes:
    """How the passes over the table are made."""

    chunk: int = 32_768
    """Classes whose slopes are in memory at a time: 64 MiB of them for 1,024 queries. Rounded up to whole tiles."""
    operands: torch.dtype = torch.bfloat16
    """Type of queries, classes and slopes in the products; float32 is close to exact and several times slower."""
    sums: Tiling | None = None
    slopes: Tiling | None = None
    """None: what suits the operands."""


DEFAULT_PASSES = Passes()


@torch.no_grad()
def all_class_losses(
    queries_ND: Tensor,
    classes_KD: Tensor,
    positives_N: Tensor,
    *,
    loss: AllClassLoss = "softmax",
    scale: float | Tensor = 1.0,
    excluded: Exclusions | None = None,
    passes: Passes = DEFAULT_PASSES,
) -> Tensor:
    """Losses [N], float32. ``positives_N``: int64, each a class (not checked: that would wait for the device).

    Classes that a query excludes do not count, but for its positive. ``scale`` may be a float32 on the device.
    """
    return _Batch(queries_ND, classes_KD, positives_N, loss, scale, excluded, passes).losses()[0]


@torch.no_grad()
def all_class_step(
    queries_ND: Tensor,
    classes_KD: Tensor,
    positives_N: Tensor,
    factor: Tensor,
    *,
    loss: AllClassLoss = "softmax",
    scale: float | Tensor = 1.0,
    excluded: Exclusions | None = None,
    copy_KD: Tensor | None = None,
    key: Tensor | None = None,
    passes: Passes = DEFAULT_PASSES,
) -> tuple[Tensor, Tensor]:
    """Losses [N] and their gradients with respect to the queries [N, D], both float32; moves the class table.

    Each row becomes row + factor * (gradient of the sum of losses), scaled back to length 1; a row with no gradient
    stays as it is. All gradients are of the rows before the step. ``factor``: a float32 on the device, minus the rate.
    A float32 table may have a ``copy_KD`` of type ``passes.operands``, which is then read in its place and kept equal
    to it; a bfloat16 table is rounded at random, up or down with the chances that keep the mean, and wants a ``key``
    (one int64 on the device) that differs from step to step.
    The derivative by the scale is <query, gradient> / scale, as scores count only by their product with it.
    """
    _check_table(classes_KD, copy_KD, factor, key, passes)
    source_KD = classes_KD if copy_KD is None else copy_KD
    batch = _Batch(queries_ND, source_KD, positives_N, loss, scale, excluded, passes)
    losses_N, sums_N, positive_slopes_N = batch.losses()
    num_queries, width = batch.queries_ND.shape
    num_classes, dim = classes_KD.shape
    chunk = min(batch.chunk, triton.cdiv(num_classes, 16) * 16)
    slopes_NC = torch.empty(num_queries, chunk, dtype=passes.operands, device=queries_ND.device)
    gradients_ND = torch.zeros(num_queries, width, dtype=torch.float32, device=queries_ND.device)
    for first in range(0, num_classes, chunk):
        here = slice(first, min(first + chunk, num_classes))
        rows_CD = _operand(source_KD[here], passes.operands)
        own_NC = slopes_NC[:, : len(rows_CD)]
        class_slopes(
            batch.queries_ND, rows_CD, sums_N, batch.scale, own_NC, softmax=batch.softmax, tiling=batch.slopes_tiling
        )
        set_known_slopes(own_NC, positives_N, positive_slopes_N, first=first, excluded=excluded)
        # Before the rows move: they may be the operand itself.
        gradients_ND += _product(own_NC, rows_CD)
        move_rows(
            classes_KD[here],
            _product(own_NC.T, batch.queries_ND),
            factor,
            copy_CD=None if copy_KD is None else copy_KD[here],
            key=key,
            first=first,
        )
    return losses_N, gradients_ND[:, :dim].contiguous()


class _Batch:
    """Queries as the products read them, the table, and the options of the loss."""

    def __init__(
        self,
        queries_ND: Tensor,
        classes_KD: Tensor,
        positives_N: Tensor,
        loss: AllClassLoss,
        scale: float | Tensor,
        excluded: Exclusions | None,
        passes: Passes,
    ) -> None:
        _check_batch(queries_ND, classes_KD, positives_N, loss, scale, excluded, passes)
        suited = FLOAT32_TILING if passes.operands == torch.float32 else Tiling()
        self.sums_tiling, self.slopes_tiling = passes.sums or suited, passes.slopes or suited
        self.chunk = triton.cdiv(passes.chunk, self.sums_tiling.tile_k) * self.sums_tiling.tile_k
        self.operands, self.softmax = passes.operands, loss == "softmax"
        self.queries_ND, self.classes_KD = _operand(queries_ND, self.operands), classes_KD
        self.positives_N, self.excluded = positives_N, excluded
        if isinstance(scale, Tensor):
            self.scale = scale.float().reshape(())
        else:
            self.scale = torch.full((), scale, dtype=torch.float32, device=queries_ND.device)

    def losses(self) -> tuple[Tensor, Tensor, Tensor]:
        """[N] each: the losses, what they add up over all classes, and the slopes of the positives."""
        rows_ND = _operand(self.classes_KD.index_select(0, self.positives_N), self.operands)
        logits_N = self.scale * (self.queries_ND.float() * rows_ND.float()).sum(dim=1)
        sums_N = self._sums()
        # Neither loss is negative; a difference of rounded numbers may be.
        losses_N = (sums_N - logits_N).clamp_(min=0)
        if self.softmax:
            return losses_N, sums_N, self.scale * torch.expm1(-losses_N)
        return losses_N, sums_N, -self.scale * torch.sigmoid(-logits_N)

    def _sums(self) -> Tensor:
        num_classes, tile_k = len(self.classes_KD), self.sums_tiling.tile_k
        shape = triton.cdiv(num_classes, tile_k), len(self.queries_ND)
        sums_MN = torch.empty(shape, dtype=torch.float32, device=self.queries_ND.device)
        part = num_classes if _is_operand(self.classes_KD, self.operands) else self.chunk
        for first in range(0, num_classes, part):
            rows_CD = _operand(self.classes_KD[first : first + part], self.operands)
            own_MN = sums_MN[first // tile_k : triton.cdiv(first + len(rows_CD), tile_k)]
            class_sums(self.queries_ND, rows_CD, self.scale, own_MN, softmax=self.softmax, tiling=self.sums_tiling)
            if self.excluded is not None:
                recount_without(
                    self.excluded,
                    self.queries_ND,
                    rows_CD,
                    self.positives_N,
                    self.scale,
                    own_MN,
                    first=first,
                    softmax=self.softmax,
                    tile_k=tile_k,
                )
        return torch.logsumexp(sums_MN, dim=0) if self.softmax else sums_MN.sum(dim=0)


def _is_operand(rows: Tensor, dtype: torch.dtype) -> bool:
    """Whether the bulk copy engine can read the rows as they are: of this type, each at a multiple of 16 bytes."""
    return rows.dtype == dtype and rows.shape[1] * dtype.itemsize % 16 == 0 and rows.data_ptr() % 16 == 0


def _operand(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows themselves where they can be read as they are, else a copy filled up with zeros."""
    if _is_operand(rows, dtype):
        return rows
    return functional.pad(rows.to(dtype), (0, -rows.shape[1] % (16 // dtype.itemsize)))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """In float32, whatever the type of the operands."""
    if left.is_cuda and left.dtype != torch.float32:
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.mm(left.float(), right.float())


def _check_batch(
    queries_ND: Tensor,
    classes_KD: Tensor,
    positives_N: Tensor,
    loss: AllClassLoss,
    scale: float | Tensor,
    excluded: Exclusions | None,
    passes: Passes,
) -> None:
    if loss not in get_args(AllClassLoss):
        raise ValueError(f"loss: given {loss!r}; wanted one of {', '.join(get_args(AllClassLoss))}")
    if passes.operands not in (torch.bfloat16, torch.float32) or passes.chunk < 1:
        raise ValueError(f"passes: given {passes}; wanted operands bfloat16 or float32, and a chunk of at least 1")
    for name, rows in (("queries", queries_ND), ("classes", classes_KD)):
        if rows.ndim != 2 or 0 in rows.shape or not rows.is_contiguous() or rows.dtype not in _TYPES:
            given = f"{rows.dtype} of shape {tuple(rows.shape)}, strides {rows.stride()}"
            raise ValueError(f"{name}: given {given}; wanted floats of up to 32 bits, contiguous, [rows, dimension]")
    devices = {str(tensor.device) for tensor in (queries_ND, classes_KD, positives_N)}
    if len(devices) > 1:
        raise ValueError(f"device: given {', '.join(sorted(devices))}; wanted queries, classes and positives on one")
    if queries_ND.shape[1] != classes_KD.shape[1]:
        raise ValueError(f"dimension: given {queries_ND.shape[1]} of queries, {classes_KD.shape[1]} of classes")
    if positives_N.shape != queries_ND.shape[:1] or positives_N.dtype != torch.int64:
        given = f"{positives_N.dtype} of shape {tuple(positives_N.shape)}"
        raise ValueError(f"positives: given {given}; wanted int64, one for each of {len(queries_ND)} queries")
    if excluded is not None and excluded.rows_N.shape != positives_N.shape:
        raise ValueError(
            f"excluded: given {len(excluded.rows_N)} rows; wanted one for each of {len(queries_ND)} queries"
        )
    if isinstance(scale, Tensor):
        if scale.numel() != 1 or scale.device != queries_ND.device:
            raise ValueError(f"scale: given {tuple(scale.shape)} on {scale.device}; wanted one number on the device")
    elif not 0 < scale < float("inf"):
        raise ValueError(f"scale: given {scale}; wanted a number above 0")


def _check_table(
    classes_KD: Tensor, copy_KD: Tensor | None, factor: Tensor, key: Tensor | None, passes: Passes
) -> None:
    if classes_KD.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"classes: given {classes_KD.dtype}; wanted float32 or bfloat16, which can be moved")
    if classes_KD.dtype == torch.bfloat16 and (key is None or copy_KD is not None):
        raise ValueError("classes: given bfloat16; wanted a key with it, and no copy")
    if copy_KD is not None and (
        copy_KD.shape != classes_KD.shape or copy_KD.dtype != passes.operands or not copy_KD.is_contiguous()
    ):
        given = f"{copy_KD.dtype} of shape {tuple(copy_KD.shape)}"
        raise ValueError(f"copy: given {given}; wanted {passes.operands}, contiguous, {tuple(classes_KD.shape)}")
    if factor.numel() != 1 or factor.dtype != torch.float32:
        raise ValueError(f"factor: given {factor.dtype} of shape {tuple(factor.shape)}; wanted one float32")
