"""Triton kernels. Not imported without Triton: ``owlmine.mining.hardest`` is the entry point."""
