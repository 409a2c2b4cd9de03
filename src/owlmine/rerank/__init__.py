"""A shortlist judged again: sparse linear classifiers that learn from what the dense model confuses, the nearest
training points, and the names of classes."""

from owlmine.rerank.dense_points import DensePoints
from owlmine.rerank.linear_ranker import LinearRanker
from owlmine.rerank.mined_pairs import MinedPairs
from owlmine.rerank.name_matches import NameMatches
from owlmine.rerank.neighbours import Neighbours
from owlmine.rerank.options import LinearOptions
from owlmine.rerank.reranker import Reranker
from owlmine.rerank.sparse_points import SparsePoints
from owlmine.rerank.training import train_linear

__all__ = [
    "DensePoints",
    "LinearOptions",
    "LinearRanker",
    "MinedPairs",
    "NameMatches",
    "Neighbours",
    "Reranker",
    "SparsePoints",
    "train_linear",
]
