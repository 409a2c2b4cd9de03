"""Candidates among all classes, approximately."""
