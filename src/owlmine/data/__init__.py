"""Data in every usual format, converted into one kind of store on disk."""

from owlmine.data.batches import Batches
from owlmine.data.convert import convert
from owlmine.data.datasets import open_dataset
from owlmine.data.describe import conversion_notes, describe, plot_description
from owlmine.data.features import stored_vectoriser
from owlmine.data.memory import MemoryDataset
from owlmine.data.options import ConvertOptions
from owlmine.data.python_data import dataset_from
from owlmine.data.rows import SparseRows
from owlmine.data.store import Batch, Dataset, Split, Store
from owlmine.data.synthetic import SyntheticOptions, Truth, synthesize
from owlmine.data.text import TextVectoriser

__all__ = [
    "Batch",
    "Batches",
    "ConvertOptions",
    "Dataset",
    "MemoryDataset",
    "SparseRows",
    "Split",
    "Store",
    "SyntheticOptions",
    "TextVectoriser",
    "Truth",
    "conversion_notes",
    "convert",
    "dataset_from",
    "describe",
    "open_dataset",
    "plot_description",
    "stored_vectoriser",
    "synthesize",
]
