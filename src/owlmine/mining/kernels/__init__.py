"""Triton kernels. Nothing here is imported where Triton is missing: see ``owlmine.mining.hardest`` for the door."""
