"""The two passes over class rows of a loss over many classes. The first computes the loss's sums. The second goes
through chunks of classes: each chunk adds its share to the queries' gradients, and then gets its own.

Losses whose slopes do not depend on the sums need only the second pass, which then gives the sums as well.

Memory in addition to the rows: N x C slopes, C x D gradients and, if the rows cannot be read as they are, C x D
operands; N x M sums, M = K / 128.

Shapes: N queries, K classes, C classes of a chunk, D dimension, M tiles of classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from owlmine.mining.kernels.class_slopes import class_slopes, set_known_slopes
from owlmine.mining.kernels.class_sums import class_sums, recount_without
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.negative_terms import NegativeTerms
from owlmine.mining.kernels.operands import is_operand, operand, product
from owlmine.mining.kernels.tile_scores import FLOAT32_TILING, Tiling


@dataclass(frozen=True)
class Passes:
    """Options of the passes over class rows."""

    chunk: int = 32_768
    """Classes whose slopes are in memory at a time: 64 MiB of them for 1,024 queries. Rounded up to whole tiles."""
    operands: torch.dtype = torch.bfloat16
    """Type of queries, classes and slopes in the products; float32 is close to exact and several times slower."""
    sums: Tiling | None = None
    slopes: Tiling | None = None
    """None: the default for the operands."""

    def tilings(self) -> tuple[Tiling, Tiling]:
        """Of the sums and of the slopes."""
        suited = FLOAT32_TILING if self.operands == torch.float32 else Tiling()
        return self.sums or suited, self.slopes or suited

    def whole_chunk(self, num_classes: int) -> int:
        """Of whole tiles, and not much wider than all classes."""
        tile_k = self.tilings()[0].tile_k
        return min(-(-self.chunk // tile_k) * tile_k, -(-num_classes // 16) * 16)


@dataclass(frozen=True, eq=False)
class KnownSlopes:
    """Where slopes are not those of negatives: at each query's positive (a negative number: nowhere), and at what it
    excludes, where they are 0."""

    positives_N: Tensor
    slopes_N: Tensor
    excluded: Exclusions | None


def pass_of_sums(
    queries_ND: Tensor,
    rows_KD: Tensor,
    terms: NegativeTerms,
    excluded: Exclusions | None,
    *,
    passes: Passes,
    but_for_N: Tensor | None = None,
    with_slopes: bool = False,
) -> tuple[Tensor, Tensor]:
    """The sums over all classes [N] (for softmax, their logarithm) and, ``with_slopes``, the sums of their slopes by x
    [N].

    The queries are operands already. Excluded classes do not count, except one of each query.
    """
    num_classes, tile_k = len(rows_KD), passes.tilings()[0].tile_k
    shape = 2 if with_slopes else 1, triton.cdiv(num_classes, tile_k), len(queries_ND)
    sums_2MN = torch.empty(shape, dtype=torch.float32, device=queries_ND.device)
    part = num_classes if is_operand(rows_KD, passes.operands) else triton.cdiv(passes.chunk, tile_k) * tile_k
    for first in range(0, num_classes, part):
        rows_CD = operand(rows_KD[first : first + part], passes.operands)
        tiles = slice(first // tile_k, triton.cdiv(first + len(rows_CD), tile_k))
        sums_MN, slope_sums_MN = sums_2MN[0, tiles], sums_2MN[1, tiles] if with_slopes else None
        class_sums(queries_ND, rows_CD, terms, sums_MN, tiling=passes.tilings()[0], slope_sums_MN=slope_sums_MN)
        if excluded is not None:
            recount_without(
                excluded,
                queries_ND,
                rows_CD,
                terms,
                sums_MN,
                first=first,
                tile_k=tile_k,
                but_for_N=but_for_N,
                slope_sums_MN=slope_sums_MN,
            )
    sums_N = torch.logsumexp(sums_2MN[0], dim=0) if terms.kind == "softmax" else sums_2MN[0].sum(dim=0)
    return sums_N, sums_2MN[-1].sum(dim=0) if with_slopes else sums_N


def pass_of_slopes(
    queries_ND: Tensor,
    rows_KD: Tensor,
    terms: NegativeTerms,
    weight: Tensor,
    known: KnownSlopes,
    move: Callable[[slice, Tensor], None],
    *,
    passes: Passes,
    counted: bool = False,
    but_for_N: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of the queries [N, D] and, where they are ``counted``, the sums as ``pass_of_sums`` gives them.

    ``weight``: of each negative, times the scale, as one float32 on the device. ``move`` gets the chunks and the
    gradients of their rows; the rows of a chunk are not read after that.
    """
    (num_queries, width), device = queries_ND.shape, queries_ND.device
    num_classes, tiling, chunk = len(rows_KD), passes.tilings()[1], passes.whole_chunk(len(rows_KD))
    slopes_NC = torch.empty(num_queries, chunk, dtype=passes.operands, device=device)
    gradients_ND = torch.zeros(num_queries, width, dtype=torch.float32, device=device)
    sums_N = torch.zeros(num_queries, dtype=torch.float32, device=device)
    for first in range(0, num_classes, chunk):
        here = slice(first, min(first + chunk, num_classes))
        rows_CD = operand(rows_KD[here], passes.operands)
        own_NC, sums_MN = slopes_NC[:, : len(rows_CD)], None
        if counted:
            tiles = triton.cdiv(len(rows_CD), tiling.tile_k)
            sums_MN = torch.empty(tiles, num_queries, dtype=torch.float32, device=device)
        class_slopes(queries_ND, rows_CD, terms, weight, own_NC, tiling=tiling, sums_MN=sums_MN)
        if sums_MN is not None:
            if known.excluded is not None:
                recount_without(
                    known.excluded,
                    queries_ND,
                    rows_CD,
                    terms,
                    sums_MN,
                    first=first,
                    tile_k=tiling.tile_k,
                    but_for_N=but_for_N,
                )
            sums_N += sums_MN.sum(dim=0)
        set_known_slopes(own_NC, known.positives_N, known.slopes_N, first=first, excluded=known.excluded)
        # Before the rows change: they may be the operand itself.
        gradients_ND += product(own_NC, rows_CD)
        move(here, product(own_NC.T, queries_ND))
    return gradients_ND, sums_N
