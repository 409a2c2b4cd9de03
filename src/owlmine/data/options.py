"""The options of a conversion. The command line is generated from this class, so each default is stated once."""

from __future__ import annotations

from dataclasses import dataclass

from owlmine.data.formats.tables import Columns
from owlmine.data.sources import FORMATS
from owlmine.data.text import TokenOptions
from owlmine.options import option

WEIGHTINGS = ("auto", "tfidf", "none")


@dataclass(frozen=True)
class ConvertOptions:
    """How files become a store."""

    format: str = option("auto", f"Format of the files: {', '.join(FORMATS)}.")
    weighting: str = option(
        "auto",
        "Feature values: tfidf, none, or auto (tfidf for text and whole-number counts, none for real values).",
    )
    min_df: int = option(2, "Text: leave out tokens found in fewer training documents than this.")
    max_df: float = option(0.5, "Text: leave out tokens found in more than this share of the training documents.")
    ngrams: int = option(1, "Text: use sequences of up to this many words as tokens.")
    hash_bits: int = option(0, "Text: hash tokens into 2^n features instead of keeping a vocabulary (0: vocabulary).")
    text_column: str | None = option(None, "Tables: the text column; join several columns, separated by commas.")
    label_column: str | None = option(None, "Tables: the column with the labels.")
    label_separator: str = option(";", "Tables: the separator between labels in a text cell.")
    id_column: str = option("id", "Tables: the column with the id of each point, if there is one.")
    split_column: int = option(0, "Split-index files: the column with the split, counted from 0.")
    keep_empty: bool = option(
        False, "Keep test and dev points without a label or feature, and count them as 0 in every metric."
    )
    keep_texts: bool = option(False, "Keep the training texts in the store, for models that show them.")

    def __post_init__(self) -> None:
        checks = (
            ("format", self.format in FORMATS, f"one of {', '.join(FORMATS)}"),
            ("weighting", self.weighting in WEIGHTINGS, f"one of {', '.join(WEIGHTINGS)}"),
            ("min_df", self.min_df >= 1, "1 or more"),
            ("max_df", 0 < self.max_df <= 1, "a share above 0 and at most 1"),
            ("ngrams", 1 <= self.ngrams <= 5, "1 to 5"),
            ("hash_bits", 0 <= self.hash_bits <= 27, "0 to 27"),
            ("label_separator", bool(self.label_separator), "at least one character"),
            ("split_column", self.split_column >= 0, "0 or more"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")

    @property
    def columns(self) -> Columns:
        return Columns(self.text_column, self.label_column, self.label_separator, ids=self.id_column)

    @property
    def tokens(self) -> TokenOptions:
        return TokenOptions(self.ngrams, self.hash_bits)
