"""The paper's comparison on any dataset: every method at rates of its own, several seeds, one report."""
