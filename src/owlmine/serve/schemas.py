"""What requests look like. FastAPI checks them, and writes the OpenAPI description from them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

# Strict: "5" is no number, and true is no 1. NaN and infinities are no numbers either.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

Key = Annotated[str, Field(min_length=1, description="The key of a class, or its name if no other class has it.")]
# Lists end at their first wrong item: a million of them, in one body, would be described one by one.
Keys = Annotated[list[Key], Field(min_length=1, fail_fast=True)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Vector = Annotated[list[Number], Field(min_length=1, fail_fast=True)]
Id = Annotated[str, Field(max_length=1000)] | int


class _Limited(BaseModel):
    model_config = _STRICT

    id: Id | None = Field(None, description="Comes back with the answer.")
    allowed: Keys | None = Field(None, description="The only classes to choose from, for this query.")
    forbidden: Keys | None = Field(None, description="Classes to leave out, for this query.")


class TextQuery(_Limited):
    """A text, for a model that takes text."""

    text: str


class SparseQuery(_Limited):
    """Features by number, from 0, for a model that takes sparse vectors. Without values, each feature counts 1."""

    indices: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(fail_fast=True)]
    values: Annotated[list[Number], Field(fail_fast=True)] | None = None


class DenseQuery(_Limited):
    """A vector, for a model that takes dense vectors."""

    vector: Vector


_OBJECTS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("text", "text object", TextQuery),
    ("indices", "sparse object", SparseQuery),
    ("vector", "vector object", DenseQuery),
)


def _kind(query: Any) -> str | None:
    if isinstance(query, str):
        return "text"
    if isinstance(query, list):
        return "vector"
    for name, kind, model in _OBJECTS:
        if isinstance(query, model) or (isinstance(query, dict) and name in query):
            return kind
    return None


Query = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[TextQuery, Tag("text object")]
    | Annotated[SparseQuery, Tag("sparse object")]
    | Annotated[Vector, Tag("vector")]
    | Annotated[DenseQuery, Tag("vector object")],
    Discriminator(
        _kind,
        custom_error_type="query",
        custom_error_message='wanted a text, a list of numbers, or an object with "text", "indices" or "vector"',
    ),
]


class PredictRequest(BaseModel):
    """Queries, and how to answer them."""

    model_config = _STRICT

    queries: Annotated[list[Query], Field(min_length=1, fail_fast=True)]
    k: Annotated[int, Field(ge=1)] = Field(5, description="How many classes to retrieve per query.")
    allowed: Keys | None = Field(None, description="The only classes to choose from.")
    forbidden: Keys | None = Field(None, description="Classes to leave out.")
    threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Leaves out classes with a lower probability."
    )
    precision: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Leaves out the least probable classes, so that this share of the rest is correct."
    )
    tail: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Favours rare classes: 0 is best for P@k, higher values for propensity-scored P@k."
    )
    reasons: bool = Field(False, description="Adds why each class was chosen.")
