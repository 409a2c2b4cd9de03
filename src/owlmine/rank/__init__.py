"""A shortlist judged again: sparse linear classifiers that learn from what the dense model confuses, the nearest
training points, and the names of classes."""

from owlmine.rank.linear import LinearRanker
from owlmine.rank.linear_training import LinearOptions, MinedPairs, train_linear
from owlmine.rank.names import NameMatches
from owlmine.rank.neighbours import Neighbours
from owlmine.rank.points import DensePoints, SparsePoints
from owlmine.rank.reranker import Reranker

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
