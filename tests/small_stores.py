"""Datasets small enough for a training in a fraction of a second. A conftest imports the fixtures that it wants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from owlmine.data import Store, SyntheticOptions, convert, synthesize

from .conftest import write_points


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products: threads would cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """400 training points with two labels each, 60 classes, 140 features."""
    options = SyntheticOptions(
        num_classes=60,
        train_points=400,
        test_points=20,
        num_topics=30,
        relevant=5,
        labels_per_point=2,
        noise_vocabulary=50,
        noise_features=2,
    )
    return synthesize(tmp_path_factory.mktemp("train") / "store", options)


@pytest.fixture(scope="session")
def store_with_dev(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("with-dev")
    for name, num_points in (("train", 400), ("dev", 50), ("test", 20)):
        write_points(folder / f"{name}.txt", num_points)
    return convert(folder, folder / "store")


@pytest.fixture(scope="session")
def dense_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """400 vectors near 25 directions."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(25, 12))

    def points(count: int) -> tuple[np.ndarray, list[list[int]]]:
        labels = np.arange(count) % 25
        vectors = centres[labels] + 0.1 * rng.normal(size=(count, 12))
        return vectors.astype(np.float32), [[int(label)] for label in labels]

    out = tmp_path_factory.mktemp("dense") / "store"
    return convert({"train": points(400), "test": points(50)}, out)
