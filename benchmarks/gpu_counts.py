"""Operations and bytes of what ``gpu.py`` times.

Operations are those of the algorithm: scores that are worked out twice count twice. Bytes are the fewest that go
through memory: what stays in the cache between two kernels, such as a chunk of slopes, does not count.

Shapes: N points, W classes of a pool, K classes, D dimension, P features of a point.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32, BFLOAT16 = 4, 2


@dataclass(frozen=True)
class Work:
    tflop: float = 0.0
    gigabytes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.tflop + other.tflop, self.gigabytes + other.gigabytes)

    def times(self, count: float) -> Work:
        return Work(count * self.tflop, count * self.gigabytes)

    def as_options(self) -> dict[str, float]:
        """As ``Table.add`` takes them."""
        return {"tflop": self.tflop, "gigabytes": self.gigabytes}


def scores(num_queries: int, num_classes: int, dim: int) -> Work:
    """One product of queries and classes in bfloat16, nothing written."""
    rows = (num_queries + num_classes) * dim * BFLOAT16
    return Work(2 * num_queries * num_classes * dim / 1e12, rows / 1e9)


def written_scores(num_queries: int, num_classes: int, dim: int) -> Work:
    return scores(num_queries, num_classes, dim) + Work(gigabytes=num_queries * num_classes * BFLOAT16 / 1e9)


def pool_gather(width: int, dim: int, *, table_bytes: int) -> Work:
    """Rows read from the table and written in bfloat16."""
    return Work(gigabytes=width * dim * (table_bytes + BFLOAT16) / 1e9)


def encoder(num_queries: int, per_point: float, dim: int) -> Work:
    """Rows of features read, and read and written once more as they move; one linear map, there and back."""
    entries = num_queries * per_point * dim
    return Work((4 * entries + 6 * num_queries * dim * dim) / 1e12, 3 * entries * FLOAT32 / 1e9)


def kept_rows(num_queries: int, kept: int, dim: int) -> Work:
    """The positive and the kept negatives: scores and two gradients, rows read and moved (float32)."""
    numbers = num_queries * (kept + 1) * dim
    return Work(6 * numbers / 1e12, 3 * numbers * FLOAT32 / 1e9)


def mined_step(num_queries: int, num_scored: int, kept: int, *, per_point: float, dim: int, gathered: bool) -> Work:
    """A step on the hardest of a pool that is gathered, or of all classes, of which there is a copy in bfloat16."""
    work = encoder(num_queries, per_point, dim) + scores(num_queries, num_scored, dim)
    work += kept_rows(num_queries, kept, dim)
    return work + pool_gather(num_scored, dim, table_bytes=FLOAT32) if gathered else work


def dense_products(num_queries: int, num_classes: int, dim: int, *, passes: int, table_bytes: int) -> Work:
    """Every class carries gradient: scores in each pass, two gradients; rows are read in each pass, and written."""
    one = 2 * num_queries * num_classes * dim / 1e12
    return Work((passes + 2) * one, (passes + 1) * num_classes * dim * table_bytes / 1e9)


def pool_step(num_queries: int, width: int, *, per_point: float, dim: int, passes: int) -> Work:
    """A step on a whole pool: gathered, read in bfloat16, its float32 rows read and written as they move."""
    work = encoder(num_queries, per_point, dim) + pool_gather(width, dim, table_bytes=FLOAT32)
    work += Work(gigabytes=2 * width * dim * FLOAT32 / 1e9)
    products = dense_products(num_queries, width, dim, passes=passes, table_bytes=0)
    return work + products + Work(gigabytes=passes * width * dim * BFLOAT16 / 1e9)
