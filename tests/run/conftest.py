"""Small datasets for runs."""

from ..recipe.named_texts import text_folder, text_store
from ..small_stores import dense_store, one_thread, store, store_with_dev

__all__ = ["dense_store", "one_thread", "store", "store_with_dev", "text_folder", "text_store"]
