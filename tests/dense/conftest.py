"""Small datasets."""

from ..small_stores import dense_store, one_thread, store, store_with_dev

__all__ = ["dense_store", "one_thread", "store", "store_with_dev"]
