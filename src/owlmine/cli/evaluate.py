"""``owlmine evaluate``."""
