"""The hardest classes with kernels: block maxima, the relevant blocks, their scores again, and the best of those.

Why the blocks suffice: let x be one of the k best allowed scores of a query that excludes e classes. A block with a
larger maximum than that of x's block contains a better allowed score (there are at most k - 1) or an excluded one (at
most e). So x lies in one of the k + e blocks with the largest maxima.

Shapes: N queries, K classes (or rows of a pool), D dimension, T blocks that can matter, G classes of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from owlmine.mining.kernels.best_first import best_first
from owlmine.mining.kernels.block_maxima import TILE_K, block_maxima
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.hardest_one import hardest_one
from owlmine.mining.kernels.pool_rows import gather_rows
from owlmine.mining.kernels.rescore import rescore
from owlmine.mining.kernels.select_largest import MAX_WIDTH, select_largest
from owlmine.mining.kernels.split_rows import mined_queries, mined_rows
from owlmine.mining.known import Known

# Queries and classes of one pass: bounds the maxima held at once, and the width of a row of them.
_QUERIES = 4096
_CLASSES = MAX_WIDTH * TILE_K
# Classes whose float32 rows are split into parts at a time: 0.8 GB of parts for 512 dimensions.
_SPLIT_CLASSES = 1 << 18
# Blocks of finer maxima, which narrow down the relevant tiles before their rows are scored again.
_FINE = 16
MAX_CHOSEN = MAX_WIDTH // _FINE
"""The most classes that a query may keep and exclude together, if it keeps more than one."""
# The rows of a pool stay in the cache, so small blocks cost nothing, and all its scores may be written out. This holds
# for pools of up to MAX_WIDTH such blocks; larger ones are searched like all classes.
_POOL_BLOCK = 32
_KEPT_SCORES_BLOCK = 8


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows to choose from. ``ids``: their classes, if these are not simply all classes. ``exact_RD``: the rows for the
    final scores, if ``rows_RD`` are what ``mined_rows`` made of them."""

    rows_RD: Tensor
    ids: Tensor | None = None
    exact_RD: Tensor | None = None

    @property
    def source(self) -> Tensor:
        return self.rows_RD if self.exact_RD is None else self.exact_RD

    def is_pool_of(self, block: int) -> bool:
        """Whether these are rows of a pool, and few enough to be searched in blocks of this size."""
        return self.ids is not None and len(self.rows_RD) <= MAX_WIDTH * block


def hardest_by_kernels(
    queries_ND: Tensor, class_table_KD: Tensor, k: int, *, pool: Tensor | None, exclude: Exclusions | None
) -> tuple[Tensor, Tensor]:
    """Does what ``owlmine.mining.hardest`` promises, for inputs that ``may_choose`` accepts."""
    parts = []
    for start in range(0, len(queries_ND), _QUERIES):
        own = None if exclude is None else exclude.part(start, start + _QUERIES)
        parts.append(_of_some_queries(queries_ND[start : start + _QUERIES], class_table_KD, k, pool, own))
    return torch.cat([scores for scores, _ in parts]), torch.cat([ids for _, ids in parts])


def _of_some_queries(
    queries_ND: Tensor, table_KD: Tensor, k: int, pool: Tensor | None, exclude: Exclusions | None
) -> tuple[Tensor, Tensor]:
    choices = len(table_KD) if pool is None else len(pool)
    part = _CLASSES if table_KD.dtype.itemsize == 2 else min(_SPLIT_CLASSES, _CLASSES)
    parts = []
    for start in range(0, choices, part):
        if pool is None:
            exact_RD = table_KD[start : start + part]
            ids = None if choices <= part else torch.arange(start, start + len(exact_RD), device=table_KD.device)
        else:
            ids = pool[start : start + part]
            exact_RD = gather_rows(table_KD, ids, dtype=table_KD.dtype)
        rows_RD = mined_rows(exact_RD)
        scored = Scored(rows_RD, ids, None if rows_RD is exact_RD else exact_RD)
        parts.append(hardest_scored(queries_ND, scored, min(k, len(rows_RD)), exclude=exclude))
    if len(parts) == 1:
        return parts[0]
    scores, order = torch.cat([scores for scores, _ in parts], dim=1).sort(dim=1, descending=True, stable=True)
    return scores[:, :k], torch.cat([ids for _, ids in parts], dim=1).gather(1, order)[:, :k]


def hardest_scored(queries_ND: Tensor, scored: Scored, k: int, *, exclude: Exclusions | None) -> tuple[Tensor, Tensor]:
    """Scores (float32) and ids [N, k], hardest first. Nothing here waits for the device."""
    mined_ND = mined_queries(queries_ND, scored.source.dtype)
    if k == 1 and scored.exact_RD is None:
        block = _POOL_BLOCK if scored.is_pool_of(_POOL_BLOCK) else TILE_K
        found = block_maxima(mined_ND, scored.rows_RD, block=block)
        scores_N, ids_N = hardest_one(
            found.maxima_NM, mined_ND, scored.rows_RD, block=block, ids=scored.ids, exclude=exclude
        )
        return scores_N[:, None], ids_N[:, None]
    # Two ways to compute a score differ in the last digits, so a block may be ranked slightly too low.
    spare = 0 if scored.exact_RD is None else 8 + k // 4
    blocks_NT, block, known_NK = _blocks_that_matter(mined_ND, scored, k + spare, exclude)
    final_ND = mined_ND if scored.exact_RD is None else queries_ND.to(torch.float32).contiguous()
    scores = rescore(
        blocks_NT, final_ND, scored.source, block=block, ids=scored.ids, exclude=exclude, known_NK=known_NK
    )
    return best_first(scores, select_largest(scores, k), blocks_NT, block=block, ids=scored.ids)


def _blocks_that_matter(
    queries_ND: Tensor, scored: Scored, k: int, exclude: Exclusions | None
) -> tuple[Tensor, int, Tensor | None]:
    """Blocks [N, T] in ascending order, their size, and all scores if those were kept."""
    if scored.exact_RD is None and scored.is_pool_of(_KEPT_SCORES_BLOCK):
        found = block_maxima(queries_ND, scored.rows_RD, block=_KEPT_SCORES_BLOCK, keep_scores=True)
        return select_largest(found.maxima_NM, k, exclude=exclude), _KEPT_SCORES_BLOCK, found.scores_NK
    found = block_maxima(queries_ND, scored.rows_RD, block=TILE_K, fine_block=_FINE)
    assert found.fine_NF is not None
    tiles_NT = select_largest(found.maxima_NM, k, exclude=exclude)
    blocks_NT = select_largest(found.fine_NF, k, exclude=exclude, blocks_NC=tiles_NT, block=TILE_K // _FINE)
    return blocks_NT, _FINE, None


def kernel_exclusions(exclude: Known | None) -> Exclusions | None:
    """Exclusions in the form that kernels read; None if there are none."""
    if exclude is None:
        return None
    made = Exclusions.of_padded(exclude) if isinstance(exclude, Tensor) else Exclusions.of_rows(*exclude)
    return made if made.most else None


def may_choose(k: int, exclude: Exclusions | None) -> bool:
    """Whether the kernels can search enough blocks."""
    spare = 8 + k // 4
    return k + spare + (0 if exclude is None else exclude.most) <= MAX_CHOSEN
