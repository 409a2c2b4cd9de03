"""What answers look like, for the OpenAPI description alone: answers are written as JSON directly."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    status: int
    message: str
    request_id: str


class Error(BaseModel):
    """Every error."""

    error: ErrorDetail


class FoundClass(BaseModel):
    """A class for a query."""

    key: str
    name: str
    score: float
    probability: float | None
    """None if the model has no probabilities."""
    examples: int
    """Its training points."""
    reasons: dict[str, Any] | None = None
    """Only if they were asked for."""


class Prediction(BaseModel):
    """The classes for a query, best first."""

    id: str | int | None
    known: bool
    """Whether the model knows any word or feature of the query."""
    classes: list[FoundClass]


class Predictions(BaseModel):
    """One prediction for each query, in the order of the queries."""

    model: str
    version: str
    predictions: list[Prediction]


class ModelEntry(BaseModel):
    name: str
    takes: str | None
    classes: int | None
    version: str | None
    ready: bool
    problem: str | None
    """Why the newest folder of the model was refused."""


class ModelList(BaseModel):
    models: list[ModelEntry]


class ModelDetail(BaseModel):
    name: str
    takes: str
    version: str
    classes: int
    features: int
    points: int
    data: str
    figures: dict[str, float]
    probabilities: bool
    thresholds: list[dict[str, float]]
    judges: list[dict[str, Any]]
    index: dict[str, Any] | None
    record: dict[str, Any]
    card: str
    pictures: list[str]
    examples: list[Any]


class SimilarClass(BaseModel):
    key: str
    name: str
    cosine: float
    examples: int


class ClassDetail(BaseModel):
    key: str
    name: str
    examples: int
    similar: list[SimilarClass]


class Health(BaseModel):
    status: str


class Project(BaseModel):
    project_id: str
    name: str
    language: str
    backend: dict[str, str]
    is_trained: bool
    modification_time: str


class Subject(BaseModel):
    uri: str
    label: str
    score: float


class Suggestions(BaseModel):
    results: list[Subject]
