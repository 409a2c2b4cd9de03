"""A shortlist judged again: sparse linear classifiers that learn from what the dense model confuses."""

from owlmine.rerank.linear_ranker import LinearRanker
from owlmine.rerank.mined_pairs import MinedPairs
from owlmine.rerank.options import LinearOptions
from owlmine.rerank.reranker import Reranker
from owlmine.rerank.training import train_linear

__all__ = ["LinearOptions", "LinearRanker", "MinedPairs", "Reranker", "train_linear"]
