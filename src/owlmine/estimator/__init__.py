"""The library as a scikit-learn classifier, in memory."""

from owlmine.estimator.classifier import OwlmineClassifier

__all__ = ["OwlmineClassifier"]
