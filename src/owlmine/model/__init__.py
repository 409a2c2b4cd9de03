"""Encoder, class table, and the two together with what the classes are called."""

from owlmine.dense.encoder import Encoder, IdentityEncoder, QueryBatch, SparseBatch, query_batch
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.row_table import RowTable

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
