"""Models judged on labelled data: figures, tables, pictures."""
