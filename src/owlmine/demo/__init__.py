"""The paper's main comparison in miniature, on the embedded sample, with one page to show for it."""
