"""From the features in files to those in the store: selected, renumbered, weighted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from owlmine.data.arrays import StringTable
from owlmine.data.class_keys import NumberCounts
from owlmine.data.formats.block import PointReader
from owlmine.data.ingest import RawSplit
from owlmine.data.options import ConvertOptions
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store import Dataset, Store
from owlmine.data.store_meta import damaged
from owlmine.data.store_writer import DatasetWriter
from owlmine.data.text import TextVectoriser, TfIdf, TokenCounter, TokenOptions, kept_tokens
from owlmine.errors import DataError

# The store has a document frequency for each feature: a gigabyte for this many.
_MAX_COUNTED = 1 << 27


@dataclass(frozen=True)
class FeaturePlan:
    """How every row of every split is processed."""

    queries: str
    """``sparse`` or ``dense``."""
    num_features: int
    weighting: dict[str, Any]
    """As in ``meta.json``."""
    tfidf: TfIdf | None = None
    renumber: Int64 | None = None
    """By raw feature: its final number, or -1 to leave it out."""
    shift: int = 0
    """Subtracted from every feature number (1 for svmlight files that count from 1)."""
    tokens: list[str] | None = None
    frequencies: Int64 | None = None
    """Training documents per feature, if the store needs them; 0 marks a hashed feature that is left out."""
    from_text: bool = False

    def apply(self, rows: SparseRows) -> SparseRows:
        """Final features: known, non-zero, ascending within each row, weighted."""
        assert rows.values is not None
        indices = rows.indices - self.shift
        if self.renumber is not None:
            indices = (
                self.renumber[np.minimum(indices, len(self.renumber) - 1)] if len(self.renumber) else indices * 0 - 1
            )
        rows = SparseRows(rows.offsets, indices, rows.values).select((indices >= 0) & (rows.values != 0))
        rows = _sorted(rows)
        return rows if self.tfidf is None else self.tfidf.apply(rows)

    def write(self, writer: DatasetWriter) -> None:
        if self.frequencies is not None:
            writer.whole_array("weighting.frequencies", self.frequencies)
        if self.tokens is not None:
            writer.strings("vocabulary", self.tokens)


def plan_features(
    train: PointReader,
    splits: Sequence[RawSplit],
    counter: TokenCounter | None,
    counts: NumberCounts,
    options: ConvertOptions,
) -> FeaturePlan:
    """Decides how features are processed, after all splits have been read."""
    if train.kind == "dense":
        if options.weighting == "tfidf":
            raise DataError(train.source, found="dense vectors", wanted="sparse counts or text for --weighting tfidf")
        assert train.num_features is not None
        return FeaturePlan("dense", train.num_features, {"kind": "none", "why": "dense vectors"})
    train_split = splits[0]
    num_documents = train_split.num_rows - len(train_split.notes.stray_rows)
    if counter is not None:
        return _plan_text(train, counter, counts, num_documents, options)
    return _plan_counts(train, splits, counts, num_documents, options)


def _plan_text(
    train: PointReader,
    counter: TokenCounter,
    counts: NumberCounts,
    num_documents: int,
    options: ConvertOptions,
) -> FeaturePlan:
    frequencies = np.zeros(counter.num_tokens, np.int64)
    frequencies[counts.numbers] = counts.counts
    kept = kept_tokens(frequencies, num_documents, min_df=options.min_df, max_df=options.max_df)
    if not len(kept):
        raise DataError(
            train.source,
            found=f"no token in at least {options.min_df:,} and at most {options.max_df:.0%} of {num_documents:,}"
            " documents",
            wanted="at least one (change --min-df and --max-df, in Python min_df and max_df of reading)",
        )
    tokens: list[str] | None = None
    renumber = np.full(len(frequencies), -1, np.int64)
    if options.hash_bits:
        renumber[kept] = kept
        frequencies = np.where(renumber >= 0, frequencies, 0)
    else:
        names = counter.tokens
        kept = np.array(sorted(kept.tolist(), key=names.__getitem__), np.int64)
        renumber[kept] = np.arange(len(kept))
        frequencies, tokens = frequencies[kept], [names[number] for number in kept.tolist()]
    weighting = {
        "text": {
            "ngrams": options.ngrams,
            "hash_bits": options.hash_bits,
            "min_df": options.min_df,
            "max_df": options.max_df,
        }
    }
    tfidf = None if options.weighting == "none" else TfIdf(frequencies, num_documents, 0)
    return FeaturePlan(
        "sparse",
        len(frequencies),
        _weighting(tfidf, "text", options) | weighting,
        tfidf,
        renumber,
        tokens=tokens,
        frequencies=frequencies,
        from_text=True,
    )


def _plan_counts(
    train: PointReader,
    splits: Sequence[RawSplit],
    counts: NumberCounts,
    num_documents: int,
    options: ConvertOptions,
) -> FeaturePlan:
    # Without a stated width the file is svmlight: features start at 1 unless a feature 0 occurs.
    stated = train.num_features is not None
    shift = 0 if stated or min(split.first_feature for split in splits) == 0 else 1
    width = max(split.last_feature for split in splits) + 1 - shift
    num_features = train.num_features if train.num_features is not None else max(width, 0)
    real = [split.name for split in splits if not split.are_counts]
    if options.weighting == "tfidf" and real:
        raise DataError(
            train.source,
            found=f"values that are not whole counts in {', '.join(real)}",
            wanted="counts for --weighting tfidf",
        )
    # Files that are read later must be interpreted in the same way.
    base: dict[str, Any] = {} if stated else {"first_feature": shift}
    if real or options.weighting == "none":
        return FeaturePlan("sparse", num_features, _weighting(None, "real values", options) | base, shift=shift)
    if num_features > _MAX_COUNTED:
        raise DataError(
            train.source,
            found=f"{num_features:,} features",
            wanted=f"at most {_MAX_COUNTED:,} for TF-IDF (or --weighting none)",
        )
    frequencies = np.zeros(num_features, np.int64)
    frequencies[counts.numbers - shift] = counts.counts
    tfidf = TfIdf(frequencies, num_documents, 1)
    weighting = _weighting(tfidf, "whole-number counts", options) | base
    return FeaturePlan("sparse", num_features, weighting, tfidf, shift=shift, frequencies=frequencies)


def _weighting(tfidf: TfIdf | None, why: str, options: ConvertOptions) -> dict[str, Any]:
    weighting: dict[str, Any] = {
        "kind": "none" if tfidf is None else "tfidf",
        "why": f"auto: {why}" if options.weighting == "auto" else "as asked",
    }
    if tfidf is not None:
        weighting |= {"documents": tfidf.num_documents, "df_offset": tfidf.df_offset}
    return weighting


def _sorted(rows: SparseRows) -> SparseRows:
    assert rows.values is not None
    row_ids = rows.row_ids
    steps = np.diff(rows.indices) > 0
    if (steps | (np.diff(row_ids) > 0)).all():
        return rows
    order = np.lexsort((rows.indices, row_ids))
    return SparseRows(rows.offsets, rows.indices[order], rows.values[order])


def stored_tfidf(store: Dataset) -> TfIdf | None:
    """The weighting of a store; None if values were stored as they are."""
    frequencies, weighting = store.array("weighting.frequencies"), store.meta["weighting"]
    if frequencies is None or weighting["kind"] != "tfidf":
        return None
    if len(frequencies) and not 0 <= frequencies.min() <= frequencies.max() <= weighting["documents"]:
        found = f"{frequencies.min()} to {frequencies.max()} documents"
        if not isinstance(store, Store):
            raise DataError("frequencies", found=found, wanted=f"0 to {weighting['documents']}")
        file = store.path / "weighting.frequencies.npy"
        raise damaged(file, found=found, wanted=f"0 to {weighting['documents']}")
    return TfIdf(frequencies, weighting["documents"], weighting["df_offset"])


def stored_vectoriser(store: Dataset) -> TextVectoriser | None:
    """Turns new texts into rows of this store's features; None if the features do not come from text."""
    return text_vectoriser(
        store.meta["weighting"], store.vocabulary, store.array("weighting.frequencies"), stored_tfidf(store)
    )


def text_vectoriser(
    weighting: Mapping[str, Any], vocabulary: StringTable | None, frequencies: Int64 | None, tfidf: TfIdf | None
) -> TextVectoriser | None:
    """The same from its parts."""
    text = weighting.get("text")
    if text is None:
        return None
    assert frequencies is not None
    tokens = None if vocabulary is None else list(vocabulary)
    return TextVectoriser(TokenOptions(text["ngrams"], text["hash_bits"]), tokens, tfidf, frequencies > 0)
