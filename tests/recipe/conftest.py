"""Small datasets for fits."""

from ..small_stores import dense_store, one_thread, store, store_with_dev
from .named_texts import labelled_store, text_folder, text_store, text_store_without_dev

__all__ = [
    "dense_store",
    "labelled_store",
    "one_thread",
    "store",
    "store_with_dev",
    "text_folder",
    "text_store",
    "text_store_without_dev",
]
