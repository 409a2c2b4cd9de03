"""The best classes of a query, found exactly."""

from owlmine.retrieve.exact import exact_top

__all__ = ["exact_top"]
