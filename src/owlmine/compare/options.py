"""The choices of a comparison: what all methods share. The command line is made from this class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from owlmine.compare.methods import METHODS, Method, Setting, parse_methods
from owlmine.options import option
from owlmine.recipe.options import TrainOptions

_fair = partial(option, group="What all methods share")
_search = partial(option, group="Search and seeds")


@dataclass(frozen=True)
class CompareOptions:
    """By default the paper's recipe: class vectors that start at random, known labels left in the pools."""

    methods: str = option("", f"Some of {', '.join(METHODS)}, parted by commas (default: all that suit the data).")
    epochs: float = _fair(15.0, "Visits to each training point, for each method and seed.")
    dim: int = _fair(512, "Dimension of query and class vectors.")
    batch_size: int = _fair(256, "Points per step.")
    pool: int = _fair(0, "Classes drawn for each batch (0: what suits the device, at most 32,767).")
    warm_start: bool = _fair(False, "Start class vectors from the mean vector of their points (the paper does not).")
    exclude_known: bool = _fair(False, "Do not count the other labels of a point as negatives (the paper does).")
    validation: float = _fair(0.05, "Share of train to validate on, where there is no dev split; 5,000 at most.")
    validation_block: int = _fair(1, "Neighbouring points of train that are cut off together.")
    device: str = _fair("auto", "cpu, cuda, or auto.")
    search_runs: int = _search(12, "Settings tried for each method, at most.")
    search_share: float = _search(0.25, "Epochs of a run of the search, as a share of --epochs.")
    seeds: int = _search(3, "Runs of each method with the setting it chose.")
    seed: int = _search(0, "First seed; it is also the seed of the search.")
    keep_models: bool = option(False, "Keep the models of the final runs.")

    def __post_init__(self) -> None:
        parse_methods(self.methods)
        checks = (
            ("epochs", self.epochs > 0, "above 0"),
            ("dim", self.dim >= 1, "1 or more"),
            ("search_runs", self.search_runs >= 1, "1 or more"),
            ("search_share", 0 < self.search_share <= 1, "above 0, at most 1"),
            ("seeds", self.seeds >= 1, "1 or more"),
            ("seed", 0 <= self.seed <= 2**32 - self.seeds, "0 to 2^32 - seeds"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")
        self._shared(epochs=self.epochs, seed=self.seed)  # raises ValueError for the others

    def search_options(self, method: Method, setting: Setting) -> TrainOptions:
        """A run that helps to choose a setting."""
        return self._of(method, setting, epochs=self.epochs * self.search_share, seed=self.seed)

    def final_options(self, method: Method, setting: Setting, *, seed: int) -> TrainOptions:
        """A run that is judged on the test split."""
        return self._of(method, setting, epochs=self.epochs, seed=seed)

    def _of(self, method: Method, setting: Setting, *, epochs: float, seed: int) -> TrainOptions:
        return self._shared(
            epochs=epochs * method.epochs_share,
            seed=seed,
            loss=method.loss,
            top=method.top,
            class_rate=setting.class_rate,
            feature_rate=setting.feature_rate,
            map_rate=setting.map_rate,
            scale=setting.scale,
            **dict(method.own),
        )

    def _shared(self, *, epochs: float, seed: int, **own: Any) -> TrainOptions:
        shared: dict[str, Any] = {
            "recipe": "single",
            "dim": self.dim,
            "batch_size": self.batch_size,
            "pool": self.pool,
            "warm_start": self.warm_start,
            "exclude_known": self.exclude_known,
            "validation": self.validation,
            "validation_block": self.validation_block,
            "device": self.device,
        }
        return TrainOptions(epochs=epochs, seed=seed, **(shared | own))
