"""Encoder and class table: scores, and the best classes of a query.

Shapes: N points, K classes, D dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from owlmine.dense.encoder import Encoder, IdentityEncoder, QueryBatch
from owlmine.dense.row_table import RowTable, random_rows
from owlmine.mining import hardest
from owlmine.mining.coded_rows import CodedRows, Table


@dataclass(frozen=True)
class ModelShape:
    """The shape of a model: the paper's is ``dim=512, depth=1, kind="embedding"``."""

    num_features: int
    num_classes: int
    dense: bool = False
    """Whether queries are dense vectors."""
    kind: str = "embedding"
    """``embedding``: unit vectors of queries and classes. ``linear``: scores linear in the query, no hidden layer."""
    dim: int = 512
    depth: int = 1
    """Linear maps after the table."""
    heads: int = 1
    """Models in the ensemble, each with its share of the dimension (``join_models``)."""
    coded: bool = False
    """Whether the rows of both tables are bytes (``CodedRows``), which are not trained."""

    def __post_init__(self) -> None:
        for name in ("num_features", "num_classes", "dim", "depth", "heads"):
            if type(getattr(self, name)) is not int:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted a whole number")
        checks = (
            ("dense", isinstance(self.dense, bool), "true or false"),
            ("coded", isinstance(self.coded, bool), "true or false"),
            ("num_features", self.num_features >= 1, "1 or more"),
            ("num_classes", self.num_classes >= 2, "2 or more"),
            ("kind", self.kind in ("embedding", "linear"), "embedding or linear"),
            ("dim", self.dim >= 1, "1 or more"),
            ("depth", 0 <= self.depth <= 8, "0 to 8"),
            ("heads", self.heads >= 1 and self.dim % self.heads == 0, "1 or more, a divisor of dim"),
            ("heads", self.heads == 1 or self.kind == "embedding", "1 for a linear model"),
            ("coded", not self.coded or self.kind == "embedding", "false for a linear model"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")

    @property
    def num_parameters(self) -> int:
        if self.kind == "linear":
            return self.num_classes * self.num_features
        return self.dim * (self.num_features + self.depth * self.dim // self.heads + self.num_classes)

    @property
    def tensor_shapes(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """The types and shapes of ``Retriever.tensors`` for such a model."""
        if self.kind == "linear":
            return {"classes": (torch.float32, (self.num_classes, self.num_features))}
        shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            f"map.{number}": (torch.float32, (self.dim, self.dim // self.heads)) for number in range(self.depth)
        }
        for name, num_rows in (("table", self.num_features), ("classes", self.num_classes)):
            if self.coded:
                shapes[f"{name}.codes"] = torch.int8, (num_rows, self.dim)
                shapes[f"{name}.scales"] = torch.float32, (num_rows,)
            else:
                shapes[name] = torch.float32, (num_rows, self.dim)
        return shapes

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Retriever(nn.Module):
    """v_y(x) = <encoder(x), c_y>."""

    encoder: Encoder | IdentityEncoder

    def __init__(self, shape: ModelShape, encoder: Encoder | IdentityEncoder, classes_KD: Table) -> None:
        super().__init__()
        self.shape, self.encoder, self.rows = shape, encoder, classes_KD

    @cached_property
    def classes(self) -> RowTable:
        """The class vectors for training. Coded rows are not trained."""
        assert isinstance(self.rows, Tensor)
        return RowTable(self.rows, unit_rows=self.shape.kind == "embedding")

    @classmethod
    def new(cls, shape: ModelShape, *, seed: int, device: torch.device | str = "cpu") -> Retriever:
        """Random unit vectors (embedding), or a class table of zeros (linear: the problem is convex)."""
        if shape.heads > 1:
            raise ValueError(f"heads is {shape.heads}; wanted 1: models are trained one by one and then joined")
        device = torch.device(device)
        generator = torch.Generator(device).manual_seed(seed)
        if shape.kind == "linear":
            table = torch.zeros(shape.num_classes, shape.num_features, device=device)
            return cls(shape, IdentityEncoder(shape.num_features), table)
        encoder = Encoder.new(
            num_features=shape.num_features,
            dim=shape.dim,
            depth=shape.depth,
            dense=shape.dense,
            generator=generator,
            device=device,
        )
        classes_KD = random_rows(
            shape.num_classes, shape.dim, std=1.0, unit_rows=True, generator=generator, device=device
        )
        return cls(shape, encoder, classes_KD)

    @classmethod
    def from_tensors(cls, shape: ModelShape, tensors: dict[str, Tensor]) -> Retriever:
        """Builds a model from the result of ``tensors``, on their device. Raises ValueError for invalid codes."""
        if shape.kind == "linear":
            return cls(shape, IdentityEncoder(shape.num_features), tensors["classes"])
        table, classes = (
            _served(CodedRows.from_tensors({part: tensors[f"{name}.{part}"] for part in ("codes", "scales")}))
            if shape.coded
            else tensors[name]
            for name in ("table", "classes")
        )
        encoder = Encoder(
            num_features=shape.num_features,
            dim=shape.dim,
            depth=shape.depth,
            dense=shape.dense,
            heads=shape.heads,
            table=table,
        )
        for number, matrix in enumerate(encoder.maps):
            matrix.data = tensors[f"map.{number}"]
        return cls(shape, encoder, classes)

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is learned, by name; the model's own memory, not copies, where the device has it in this
        form."""
        tensors = self.encoder.map_tensors()
        for name, rows in (self.encoder.tables() | {"classes": self.rows}).items():
            if self.shape.coded:
                codes = rows if isinstance(rows, CodedRows) else CodedRows.of(rows)
                tensors |= {f"{name}.{part}": tensor for part, tensor in codes.tensors().items()}
            else:
                assert isinstance(rows, Tensor)
                tensors[name] = rows
        return tensors

    def with_classes(self, vectors_CD: Tensor) -> Retriever:
        """With classes appended. The known ones keep their bits."""
        shape = replace(self.shape, num_classes=len(self.rows) + len(vectors_CD))
        if isinstance(self.rows, CodedRows):
            return Retriever(shape, self.encoder, CodedRows.joined([self.rows, CodedRows.of(vectors_CD)]))
        if shape.coded:
            vectors_CD = CodedRows.of(vectors_CD).expanded()
        return Retriever(shape, self.encoder, torch.cat([self.rows, vectors_CD.to(self.rows.dtype)]))

    @torch.no_grad()
    def encode(self, queries: QueryBatch) -> Tensor:
        vectors: Tensor = self.encoder(queries)
        return vectors

    def top(self, queries: QueryBatch, k: int) -> tuple[Tensor, Tensor]:
        """The ``k`` best classes of each query: scores and ids [N, k], best first."""
        return hardest(self.encode(queries), self.rows, k)


def _served(rows: CodedRows) -> Table:
    """A CPU expands only the rows that it needs; the kernels of a GPU multiply numbers."""
    return rows if rows.device.type == "cpu" else rows.expanded()


# An ensemble as one model, whose score is the mean of its members' scores.
#
# Each member produces unit vectors. The concatenated vectors of a query, divided by the root of their number, are again
# a unit vector. Its product with class vectors built the same way is the mean of the members' products:
#
#     <[q1, q2] / √2, [c1, c2] / √2> = (<q1, c1> + <q2, c2>) / 2
#
# So one exact search finds the best classes by the mean score, as for any model.


@torch.no_grad()
def join_models(models: Sequence[Retriever], *, coded: bool = False) -> Retriever:
    """A model with a head for each of these models of the same shape. Their tensors are copied.

    ``coded``: round the rows of both tables to bytes.
    """
    shape = models[0].shape
    if shape.kind != "embedding" or shape.coded or shape.heads != 1 or any(model.shape != shape for model in models):
        given = ", ".join(f"{m.shape.kind} of dimension {m.shape.dim}, {m.shape.heads} heads" for m in models)
        raise ValueError(f"models: given {given}; wanted embedding models with one head and the same shape")
    parts = [model.tensors() for model in models]
    tensors = {f"map.{i}": torch.cat([part[f"map.{i}"] for part in parts]) for i in range(shape.depth)}
    for name, divisor in (("table", 1.0), ("classes", math.sqrt(len(models)))):
        if coded:
            blocks = range(0, len(parts[0][name]), _BLOCK_ROWS)
            rows = CodedRows.joined([CodedRows.of(_joined(parts, name, divisor, start)) for start in blocks])
            tensors |= {f"{name}.{part}": tensor for part, tensor in rows.tensors().items()}
        else:
            tensors[name] = _joined(parts, name, divisor)
    joined = replace(shape, dim=shape.dim * len(models), heads=len(models), coded=coded)
    return Retriever.from_tensors(joined, tensors)


_BLOCK_ROWS = 1 << 16


def _joined(parts: Sequence[Mapping[str, Tensor]], name: str, divisor: float, start: int | None = None) -> Tensor:
    """The rows of all members beside each other: all of them, or a block."""
    some = slice(None) if start is None else slice(start, start + _BLOCK_ROWS)
    return torch.cat([part[name][some] for part in parts], dim=1).div_(divisor)
