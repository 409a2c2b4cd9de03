"""What the demo compares, and at which rates."""

from __future__ import annotations

from dataclasses import dataclass

from owlmine.recipe.options import TrainOptions

POOL = 1024  # B of the paper's smallest dataset, the one nearest to the sample in size
BASELINE = "negative-sampling"


@dataclass(frozen=True)
class Rates:
    """Step sizes; none is shared between methods, since their gradients differ by orders of magnitude."""

    class_rate: float
    feature_rate: float
    map_rate: float


@dataclass(frozen=True)
class Method:
    """One row of the comparison. ``folder`` names it in files, ``title`` for people."""

    folder: str
    title: str
    loss: str
    top: int
    rates: Rates

    def options(self, *, epochs: float, dim: int, seed: int, rates: Rates | None = None) -> TrainOptions:
        """The same budget, pool, model, data order and start for every method; only loss and rates differ."""
        chosen = rates or self.rates
        return TrainOptions(
            recipe="single",
            loss=self.loss,
            top=self.top,
            pool=POOL,
            exclude_known=True,  # the hardest of a pool would often be another true answer
            epochs=epochs,
            class_rate=chosen.class_rate,
            feature_rate=chosen.feature_rate,
            map_rate=chosen.map_rate,
            dim=dim,
            validation=0.05,  # 2,274 points: enough for curves that differ by more than their noise
            seed=seed,
            checkpoint_minutes=1.0,
        )


# Rates: highest P@1 of a search with the demo's own budget on points cut from train; the test split took no part.
# benchmarks/demo_rates.py does the search again.
METHODS = (
    Method("top-1", "Top-1 SNM", "bowl", 1, Rates(0.3, 3.0, 0.003)),
    Method("top-16", "Top-16 SNM", "bowl", 16, Rates(0.3, 3.0, 0.003)),
    Method(BASELINE, "Negative sampling", "negative-sampling-bowl", 1, Rates(0.003, 3.0, 1e-6)),
)
