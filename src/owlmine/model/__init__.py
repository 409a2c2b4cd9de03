"""Encoder, class table, and the two together with what the classes are called."""

from owlmine.model.encoder import Encoder, IdentityEncoder, QueryBatch, SparseBatch, query_batch
from owlmine.model.retriever import ModelShape, Retriever
from owlmine.model.row_table import RowTable

__all__ = [
    "Encoder",
    "IdentityEncoder",
    "ModelShape",
    "QueryBatch",
    "Retriever",
    "RowTable",
    "SparseBatch",
    "query_batch",
]
