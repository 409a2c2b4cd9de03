"""Losses over all classes, and a complete training step with them, without the N x K scores.

softmax:     loss = log Σ_y exp(c s_y) - c s_p
one-vs-all:  loss = Σ_y log(1 + exp(c s_y)) - c s_p        (log(1 + e^x) - x = log(1 + e^-x) for the positive p)

with s_y = <query, row of class y>. The losses are those of ``owlmine.losses.softmax_loss`` and ``one_vs_all_loss``,
with operands rounded to ``Passes.operands``. A softmax step makes both passes of ``class_passes`` over the table, a
one-vs-all step only the second.

Shapes: N queries, K classes, D dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from owlmine.mining.kernels.class_passes import KnownSlopes, Passes, pass_of_slopes, pass_of_sums
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.move_rows import move_rows
from owlmine.mining.kernels.negative_terms import NegativeTerms
from owlmine.mining.kernels.operands import operand

AllClassLoss = Literal["softmax", "one-vs-all"]
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_DEFAULT_PASSES = Passes()


@torch.no_grad()
def all_class_losses(
    queries_ND: Tensor,
    classes_KD: Tensor,
    positives_N: Tensor,
    *,
    loss: AllClassLoss = "softmax",
    scale: float | Tensor = 1.0,
    excluded: Exclusions | None = None,
    passes: Passes = _DEFAULT_PASSES,
) -> Tensor:
    """Losses [N], float32. ``positives_N``: int64, each a class (not checked: that would wait for the device).

    Classes that a query excludes do not count, except its positive. ``scale`` may be a float32 on the device.
    """
    batch = _Batch(queries_ND, classes_KD, positives_N, loss, scale, excluded, passes)
    return batch.losses(batch.sums())


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
    passes: Passes = _DEFAULT_PASSES,
) -> tuple[Tensor, Tensor]:
    """Losses [N] and their gradients with respect to the queries [N, D], both float32; updates the class table.

    Each row becomes row + factor * (gradient of the sum of losses), scaled back to length 1; a row with no gradient
    stays as it is. All gradients are of the rows before the step. ``factor``: a float32 on the device, minus the rate.
    A float32 table may have a ``copy_KD`` of type ``passes.operands``, which is then read in its place and kept equal
    to it. A bfloat16 table is rounded stochastically, so that the mean is kept, and needs a ``key`` (one int64 on the
    device) that differs from step to step. The derivative by the scale is <query, gradient> / scale, because scores
    count only multiplied by it.
    """
    _check_table(classes_KD, copy_KD, factor, key, passes)
    source_KD = classes_KD if copy_KD is None else copy_KD
    batch = _Batch(queries_ND, source_KD, positives_N, loss, scale, excluded, passes)

    def move(here: slice, gradients_CD: Tensor) -> None:
        copy_CD = None if copy_KD is None else copy_KD[here]
        move_rows(classes_KD[here], gradients_CD, factor, copy_KD=copy_CD, key=key, first=here.start)

    if loss == "softmax":
        sums_N = batch.sums()
        losses_N = batch.losses(sums_N)
        gradients_ND, _ = batch.slopes(batch.scale * torch.expm1(-losses_N), move, offsets_N=sums_N)
    else:
        gradients_ND, sums_N = batch.slopes(-batch.scale * torch.sigmoid(-batch.logits_N), move)
        losses_N = batch.losses(sums_N)
    return losses_N, gradients_ND[:, : classes_KD.shape[1]].contiguous()


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
        self._passes, self._softmax = passes, loss == "softmax"
        self._queries_ND, self._classes_KD = operand(queries_ND, passes.operands), classes_KD
        self._positives_N, self._excluded = positives_N, excluded
        if isinstance(scale, Tensor):
            self.scale = scale.float().reshape(())
        else:
            self.scale = torch.full((), scale, dtype=torch.float32, device=queries_ND.device)
        rows_ND = operand(classes_KD.index_select(0, positives_N), passes.operands)
        self.logits_N = self.scale * (self._queries_ND.float() * rows_ND.float()).sum(dim=1)

    def sums(self) -> Tensor:
        """The sums of the loss over all classes, including the positive [N]."""
        return pass_of_sums(
            self._queries_ND,
            self._classes_KD,
            self._terms(None),
            self._excluded,
            passes=self._passes,
            but_for_N=self._positives_N,
        )[0]

    def losses(self, sums_N: Tensor) -> Tensor:
        # The losses are never negative, but a difference of rounded numbers may be.
        return (sums_N - self.logits_N).clamp_(min=0)

    def slopes(
        self, positive_slopes_N: Tensor, move: Callable[[slice, Tensor], None], *, offsets_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the queries [N, D], and without offsets the sums [N]."""
        return pass_of_slopes(
            self._queries_ND,
            self._classes_KD,
            self._terms(offsets_N),
            self.scale,
            KnownSlopes(self._positives_N, positive_slopes_N, self._excluded),
            move,
            passes=self._passes,
            counted=offsets_N is None,
            but_for_N=self._positives_N,
        )

    def _terms(self, offsets_N: Tensor | None) -> NegativeTerms:
        return NegativeTerms("softmax" if self._softmax else "logistic", self.scale, offsets_N)


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
