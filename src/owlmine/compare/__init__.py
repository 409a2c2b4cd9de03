"""The paper's comparison on any dataset: each method with its own tuned settings, several seeds, one report.

The demo is a preset of it: three methods at fixed settings on the sample, beside the model of ``owlmine train``.
"""
