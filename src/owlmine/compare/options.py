"""The options of a comparison, shared by all methods. The command line is generated from this class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from owlmine.compare.methods import METHODS, Method, Setting, parse_methods
from owlmine.data.store import Dataset
from owlmine.dense.validation import ValidationPart
from owlmine.options import option
from owlmine.recipe.options import TrainOptions

_fair = partial(option, group="Shared by all methods")
_search = partial(option, group="Search and seeds")


@dataclass(frozen=True)
class CompareOptions:
    """The default is the paper's recipe: random initial class vectors, known labels allowed as negatives."""

    methods: str = option("", f"Some of {', '.join(METHODS)}, separated by commas (default: all that fit the data).")
    epochs: float = _fair(15.0, "Visits to each training point, for each method and seed.")
    dim: int = _fair(512, "Dimension of query and class vectors.")
    batch_size: int = _fair(256, "Points per step.")
    pool: int | None = _fair(None, "Classes drawn for each batch (default: depends on the data and the device).")
    warm_start: bool = _fair(
        False, "Start class vectors at the mean vector of their training points (the paper starts at random)."
    )
    exclude_known: bool = _fair(False, "Do not count a point's other labels as negatives (the paper does).")
    validation: float = _fair(
        0.05, "Share of the training data to validate on, if there is no dev split; at most 5,000 points."
    )
    validation_block: int = _fair(1, "Neighbouring training points to hold out together.")
    device: str = _fair("auto", "cpu, cuda, or auto.")
    search_runs: int = _search(12, "Maximum number of settings to try for each method.")
    search_share: float = _search(0.25, "Length of a search run, as a share of --epochs.")
    seeds: int = _search(3, "Runs of each method at its best setting.")
    seed: int = _search(0, "First seed, and the seed of the search.")
    keep_models: bool = option(False, "Save the models of the final runs.")

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
        self._shared(epochs=self.epochs, seed=self.seed)  # raises ValueError for the other fields

    def validation_part(self, data: Dataset) -> ValidationPart:
        """The validation points for choosing settings, the same for all methods and seeds."""
        return ValidationPart(data, share=self.validation, block=self.validation_block)

    def search_options(self, method: Method, setting: Setting) -> TrainOptions:
        """The options of a search run."""
        return self._of(method, setting, epochs=self.epochs * self.search_share, seed=self.seed)

    def final_options(self, method: Method, setting: Setting, *, seed: int) -> TrainOptions:
        """The options of a run that is evaluated on the test split."""
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
        return TrainOptions.of(epochs=epochs, seed=seed, **(shared | own))
