"""Approximate candidates among all classes."""
