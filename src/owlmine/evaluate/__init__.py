"""How good a model is on labelled data: figures, tables, pictures."""
