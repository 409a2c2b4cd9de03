"""The mix: which judges count, and with what weight. It is fitted to rank validation points best.

    final score = dense score + Σ weight of a judge * its score

The weights come from a convex fit, a softmax of each label of a point against its non-labels:

    loss(u) = (1/N) Σ_n a_n Σ_(s label of n) log(1 + Σ_(t no label of n) exp(<u, f_nt> - <u, f_ns>))
              + (strength / N) Σ_j (u_j / prior_j - 1)²,        u >= 0

f_ns holds the scores of place s: the dense score, then those of the judges. a_n = min(l, 3) / l for a point with l
labels in its list, because the goal is precision at 1, 3 and 5, where a point with thirty labels counts no more than
one with five. The loss is convex, so the optimum is unique. It varies little between sets of validation points, because
every place of every list counts; precision depends only on the few classes that change places. The second sum matters
if points are few.

Shapes: N validation points, S places of a list of candidates, J scores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from owlmine.data.rows import Float32, SparseRows
from owlmine.dense.validation import cutoffs
from owlmine.metrics.hits import find_hits
from owlmine.rank.candidates import Candidates
from owlmine.rank.judge import JUDGES, Judge, Variant

Float64 = NDArray[np.float64]

# The prior of the dense score's own weight in the softmax: about right for most datasets.
_SCALE = 10.0
# With this many points, precision is reliable enough to adjust the weights by it, in steps of this factor.
_POINTS_TO_CLIMB = 2_000
_STEP = 1.3
# Far above any fitted weight, and far from overflow.
_HIGHEST_WEIGHT = 1e9
# The first step from a weight of 0.
_FIRST_STEP = 0.02
# Judges that cost memory and time must reduce the loss by this share.
_LEAST_GAIN = 0.002


@dataclass(frozen=True)
class Mix:
    """``weights``: of the judges that count, by name, in the order in which scores are added. ``variants``: one for
    each."""

    weights: Mapping[str, float] = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if set(self.weights) != set(self.variants):
            raise ValueError(
                f"weights of {sorted(self.weights)} and variants of {sorted(self.variants)}; wanted the same"
            )
        for name, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= _HIGHEST_WEIGHT:
                raise ValueError(f"the weight of {name} is {weight!r}; wanted 0 to {_HIGHEST_WEIGHT:g}")
        for name, variant in self.variants.items():
            if not isinstance(variant, str | int | float | None):
                raise ValueError(f"the variant of {name} is {variant!r}; wanted a number, text or nothing")

    def final_scores(self, dense_NS: Float32, scores: Mapping[str, Float32]) -> Float32:
        """The final scores [N, S], which order the candidates. ``scores``: of every judge that counts."""
        return total([dense_NS, *(part_NS for _, part_NS in self.parts(scores))])

    def parts(self, scores: Mapping[str, Float32]) -> Iterator[tuple[str, Float32]]:
        """What each judge that counts adds to the final scores [N, S], in the order in which it is added."""
        for name, weight in self.weights.items():
            if weight:
                yield name, np.float32(weight) * scores[name]

    def __str__(self) -> str:
        parts = []
        for name, weight in self.weights.items():
            variant = self.variants[name]
            parts.append(f"{name} {weight:g}" + ("" if variant is None else f" ({variant})"))
        return "weights relative to the dense score: " + ", ".join(parts or ["none"])

    def to_dict(self) -> dict[str, Any]:
        return {"weights": dict(self.weights), "variants": dict(self.variants)}

    @classmethod
    def from_dict(cls, record: Any) -> Mix:
        """The inverse of ``to_dict``, perhaps through JSON. Raises ValueError for anything else."""
        if not isinstance(record, dict) or set(record) != {"weights", "variants"}:
            raise ValueError(f"the mix is {record!r}; wanted weights and variants")
        if not all(isinstance(part, dict) for part in record.values()):
            raise ValueError(f"the mix is {record!r}; wanted weights and variants by judge")
        weights, variants = record["weights"], record["variants"]
        if unknown := [name for name in weights if name not in JUDGES]:
            raise ValueError(f"the mix has a weight of {unknown[0]!r}; wanted some of {', '.join(JUDGES)}")
        # The order matters: sums in another order round differently.
        return cls({name: weights[name] for name in JUDGES if name in weights}, variants)


def total(parts: Iterable[Float32]) -> Float32:
    """The sum of all parts, one after the other: the only place where a final score is added up."""
    return reduce(np.add, parts)


def default_mix() -> Mix:
    """The mix without validation points."""
    judges = {name: judge for name, judge in JUDGES.items() if judge.is_default}
    return Mix(
        {name: judge.prior for name, judge in judges.items()},
        {name: judge.default_variant for name, judge in judges.items()},
    )


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores of validation points: of the dense model and of every variant of every judge."""

    dense_NS: Float32
    hits_NS: NDArray[np.bool_]
    """Which places hold a label."""
    scores: Mapping[str, Mapping[Variant, Float32]]
    num_listed: int
    """The number of places of the dense model, which come first."""
    suggested: tuple[str, ...] = ()
    """The judges whose suggestions follow them."""

    @classmethod
    def of(
        cls, candidates: Candidates, labels: SparseRows, judges: Mapping[str, Mapping[Variant, Judge]], num_classes: int
    ) -> Evidence:
        depth = candidates.ids_NS.shape[1]
        hits_NS = find_hits(candidates.ids_NS, labels, depth=depth, num_classes=num_classes).mask(depth)
        scores = {
            name: {variant: judge.scores(candidates) for variant, judge in variants.items()}
            for name, variants in judges.items()
        }
        return cls(candidates.dense_NS, hits_NS, scores, candidates.num_listed, candidates.suggested)

    @classmethod
    def joined(cls, parts: Sequence[Evidence]) -> Evidence:
        """The evidence of several blocks of points, one after the other."""
        first = parts[0]
        scores = {
            name: {variant: np.concatenate([part.scores[name][variant] for part in parts]) for variant in variants}
            for name, variants in first.scores.items()
        }
        return cls(
            np.concatenate([part.dense_NS for part in parts]),
            np.concatenate([part.hits_NS for part in parts]),
            scores,
            first.num_listed,
            first.suggested,
        )

    def __len__(self) -> int:
        return len(self.dense_NS)

    def precision(self, mix: Mix) -> float:
        """The mean of P@1, P@3 and P@5 in percent; shorter lists have fewer of them."""
        chosen = {name: self.scores[name][variant] for name, variant in mix.variants.items()}
        final_NS = mix.final_scores(self.dense_NS, chosen).copy()
        ks, points_N = cutoffs(final_NS.shape[1]), np.arange(len(final_NS))
        hits_kN = np.zeros((ks[-1], len(final_NS)), np.bool_)
        # The best few, one after the other: several times faster than sorting.
        for hits_N in hits_kN:
            best_N = final_NS.argmax(axis=1)
            hits_N[:] = self.hits_NS[points_N, best_N] & (final_NS[points_N, best_N] > -np.inf)
            final_NS[points_N, best_N] = -np.inf
        return 100 * float(np.mean([hits_kN[:k].mean() for k in ks]))

    def fit_weights(self, variants: Mapping[str, Variant]) -> tuple[Mix, float]:
        """The best weights of these variants, and their loss."""
        names = [name for name in JUDGES if name in variants]
        priors_J = _SCALE * np.array([1.0, *(JUDGES[name].prior for name in names)])
        scores = [self.dense_NS, *(self.scores[name][variants[name]] for name in names)]
        u_J, loss = MixLoss(scores, self.hits_NS, priors_J).smallest()
        # Validation points support no more than three digits, and three are easy to read.
        weights = {name: float(f"{u / u_J[0]:.3g}") for name, u in zip(names, u_J[1:], strict=True)}
        return Mix(weights, {name: variants[name] for name in names}), loss


Gather = Callable[[Collection[str]], Evidence]
"""The evidence with only these judges. Judges that suggest classes make the lists longer."""


def choose_mix(gather: Gather, judges: Collection[str]) -> tuple[Mix, float]:
    """The best mix of some of these judges, and the mean of its P@1, P@3 and P@5.

    First come the judges that suggest classes: if one does not help, its classes leave the lists and the search starts
    again. Then the other judges that must help join if they do, and variants change one at a time for as long as the
    loss falls. All weights are fitted again each time. With many points, single steps then change the weights for as
    long as precision rises, from the fit of each variant of the judges that must help: precision has many peaks.
    """
    evidence = gather(judges)

    @cache
    def fit(*chosen: tuple[str, Variant]) -> tuple[Mix, float]:
        return evidence.fit_weights(dict(chosen))

    def best_with(name: str, chosen: Mapping[str, Variant]) -> tuple[Mix, float]:
        """By the variant of this judge."""
        return min((fit(*sorted({**chosen, name: v}.items())) for v in evidence.scores[name]), key=_loss)

    chosen = {n: _usual_variant(evidence, n) for n in evidence.scores if not JUDGES[n].must_help}
    for name in evidence.suggested:
        if not _is_better(best_with(name, chosen)[1], fit(*sorted(chosen.items()))[1]):
            return choose_mix(gather, [other for other in judges if other != name])
        chosen = {**chosen, name: _usual_variant(evidence, name)}
    mix, loss = _with_best_variants(chosen, fit(*sorted(chosen.items())), best_with)
    for name in evidence.scores:
        if name not in mix.variants and _is_better((joined := best_with(name, mix.variants))[1], loss):
            mix, loss = joined
    mix, _ = _with_best_variants(mix.variants, (mix, loss), best_with)
    for name in evidence.suggested:
        if not mix.weights[name]:
            # It helped only with other variants, so its classes must leave the lists.
            return choose_mix(gather, [other for other in judges if other != name])
    if len(evidence) < _POINTS_TO_CLIMB:
        return mix, evidence.precision(mix)
    others = [
        fit(*sorted({**mix.variants, name: variant}.items()))[0]
        for name in mix.variants
        if JUDGES[name].must_help
        for variant in evidence.scores[name]
        if variant != mix.variants[name]
    ]
    starts = [mix, *(other for other in others if all(other.weights[name] for name in evidence.suggested))]
    precision = _Precision(evidence)
    return max((_climb(precision, start) for start in starts), key=lambda climbed: climbed[1])


def _with_best_variants(
    names: Collection[str],
    fitted: tuple[Mix, float],
    best_with: Callable[[str, Mapping[str, Variant]], tuple[Mix, float]],
) -> tuple[Mix, float]:
    """Changes variants until no single change reduces the loss."""
    while True:
        before = fitted
        for name in names:
            fitted = min(fitted, best_with(name, fitted[0].variants), key=_loss)
        if fitted[1] == before[1]:
            return fitted


class _Precision:
    """``Evidence.precision``, with a memory: climbs from different starts meet."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._known: dict[str, float] = {}

    def __call__(self, mix: Mix) -> float:
        key = repr(mix.to_dict())
        if key not in self._known:
            self._known[key] = self.evidence.precision(mix)
        return self._known[key]


def _climb(precision: _Precision, mix: Mix) -> tuple[Mix, float]:
    """Takes the best single step until none is better."""
    highest = precision(mix)
    while True:
        near = _next_to(mix, precision.evidence)
        precisions = [precision(other) for other in near]
        best = int(np.argmax(precisions))
        if precisions[best] <= highest:
            return mix, highest
        mix, highest = near[best], precisions[best]


def _next_to(mix: Mix, evidence: Evidence) -> list[Mix]:
    """The mixes with one weight a step higher or lower, or with another variant of a judge that must help."""
    near = []
    for name, weight in mix.weights.items():
        # Judges that must help stay at a weight of 0.
        steps = (weight * _STEP, weight / _STEP) if weight else () if JUDGES[name].must_help else (_FIRST_STEP,)
        near += [replace(mix, weights={**mix.weights, name: float(f"{step:.3g}")}) for step in steps]
    for name, variant in mix.variants.items():
        if JUDGES[name].must_help:
            others = [other for other in evidence.scores[name] if other != variant]
            near += [replace(mix, variants={**mix.variants, name: other}) for other in others]
    return near


def _usual_variant(evidence: Evidence, name: str) -> Variant:
    variants, usual = evidence.scores[name], JUDGES[name].default_variant
    return usual if usual in variants else next(iter(variants))


def _is_better(loss: float, other: float) -> bool:
    return loss < (1 - _LEAST_GAIN) * other


def _loss(fitted: tuple[Mix, float]) -> float:
    return fitted[1]


_PRIOR_STRENGTH = 0.5
_MOST_LABELS = 3
# The dense weight stays above this share of its prior, because the other weights are multiples of it.
_LEAST_SHARE = 0.1


class MixLoss:
    """The loss on validation points as a function of u. It ignores points without a label in their list, points with
    only labels in their list, and empty places (score -inf).

    With L labels, one at a time:  b = level of the rivals - score of the label,  level = log Σ_t exp(<u, f_t>)
    d, the slope of b, is the mean of the rivals' f by softmax, minus the label's f. The loss has the slope Σ a σ(b) d,
    and the curvature Σ a (σ'(b) d dᵀ + σ(b) V), V being the variance of the rivals' f by softmax.
    """

    def __init__(self, scores: Sequence[Float32], hits_NS: NDArray[np.bool_], prior_J: Float64) -> None:
        """``scores``: J arrays [N, S], the first one with -inf for empty places."""
        self._num_points, self._prior_J = len(hits_NS), prior_J
        empty_NS = ~np.isfinite(scores[0])
        counts_N = hits_NS.any(axis=1) & ~(hits_NS | empty_NS).all(axis=1)
        hits_NS, empty_NS = hits_NS[counts_N], empty_NS[counts_N]
        self._scores_NSJ = np.stack([part[counts_N] for part in scores], axis=2).astype(np.float64)
        self._scores_NSJ[empty_NS] = 0.0
        # Added to a score, this leaves rivals alone.
        self._bars_NS = np.where(hits_NS | empty_NS, -np.inf, 0.0)
        self._points_L, self._places_L = np.nonzero(hits_NS)
        num_labels_N = hits_NS.sum(axis=1)
        self._shares_L = (np.minimum(num_labels_N, _MOST_LABELS) / num_labels_N)[self._points_L]

    def __call__(self, u_J: Float64) -> tuple[float, Float64, Float64]:
        """The loss, its slope [J], and its curvature [J, J]."""
        scores_NSJ, points_L = self._scores_NSJ, self._points_L
        mixed_NS = scores_NSJ @ u_J
        shares_NS = mixed_NS + self._bars_NS
        highest_N1 = shares_NS.max(axis=1, keepdims=True, initial=-np.inf)
        np.exp(np.subtract(shares_NS, highest_N1, out=shares_NS), out=shares_NS)
        totals_N1 = shares_NS.sum(axis=1, keepdims=True)
        shares_NS /= totals_N1
        level_N = (highest_N1 + np.log(totals_N1))[:, 0]
        means_NJ = np.matmul(shares_NS[:, None, :], scores_NSJ)[:, 0]
        behind_L = level_N[points_L] - mixed_NS[points_L, self._places_L]
        pulls_L = self._shares_L * expit(behind_L)
        slopes_LJ = means_NJ[points_L] - scores_NSJ[points_L, self._places_L]
        pulls_N = np.bincount(points_L, pulls_L, minlength=len(means_NJ))

        shares_NS *= pulls_N[:, None]
        scores_EJ = scores_NSJ.reshape(-1, len(u_J))
        spread_JJ = (scores_EJ * shares_NS.reshape(-1, 1)).T @ scores_EJ - (means_NJ * pulls_N[:, None]).T @ means_NJ
        bends_L1 = (pulls_L * expit(-behind_L))[:, None]
        strain_J = u_J / self._prior_J - 1
        loss = _PRIOR_STRENGTH * float(strain_J @ strain_J) + float(self._shares_L @ np.logaddexp(0.0, behind_L))
        slope_J = 2 * _PRIOR_STRENGTH * strain_J / self._prior_J + slopes_LJ.T @ pulls_L
        curvature_JJ = (
            np.diag(2 * _PRIOR_STRENGTH / self._prior_J**2) + spread_JJ + (slopes_LJ * bends_L1).T @ slopes_LJ
        )
        return loss / self._num_points, slope_J / self._num_points, curvature_JJ / self._num_points

    def smallest(self) -> tuple[Float64, float]:
        """The best u, and its loss: Newton's method, each step to the smallest value of the parabola within bounds."""
        least_J = np.where(np.arange(len(self._prior_J)) == 0, _LEAST_SHARE, 0.0) * self._prior_J
        u_J = self._prior_J
        loss, slope_J, curvature_JJ = self(u_J)
        for _ in range(_MOST_STEPS):
            step_J = _lowest_of_parabola(slope_J, curvature_JJ, least_J - u_J)
            promised = -float(slope_J @ step_J)
            if promised <= _LEAST_PROMISE:
                break
            found, size = self(u_J + step_J), 1.0
            while found[0] > loss - _PART_OF_PROMISE * size * promised and size > _LEAST_SIZE:
                size /= 2
                found = self(u_J + size * step_J)
            if found[0] >= loss:
                break  # what is left is rounding
            u_J, (loss, slope_J, curvature_JJ) = np.maximum(u_J + size * step_J, least_J), found
        return u_J, loss


_MOST_STEPS, _LEAST_PROMISE, _PART_OF_PROMISE, _LEAST_SIZE = 100, 1e-13, 1e-4, 1e-9


def _lowest_of_parabola(slope_J: Float64, curvature_JJ: Float64, least_J: Float64) -> Float64:
    """The step x >= least with the smallest <slope, x> + <x, curvature x> / 2. The curvature is positive definite.

    With curvature = R Rᵀ and x = least + y, that is the y >= 0 with the smallest
    |Rᵀ y + R⁻¹ (slope + curvature least)|.
    """
    # Only fitting needs these, and importing them takes as long as answering a hundred queries.
    from scipy.linalg import solve_triangular
    from scipy.optimize import nnls

    root_JJ = np.linalg.cholesky(curvature_JJ)
    target_J = solve_triangular(root_JJ, slope_J + curvature_JJ @ least_J, lower=True)
    step_J: Float64 = least_J + nnls(root_JJ.T, -target_J)[0]
    return step_J
