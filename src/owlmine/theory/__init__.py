"""What the paper proves, as functions that can be asked with numbers."""

from owlmine.theory.bayes import bayes_risk, bayes_top_k, is_bayes_compatible, retrieval_risk
from owlmine.theory.bounds import BoundTerms, Complexities, Sample, generalization_terms, margin_terms
from owlmine.theory.calibration import CalibrationCondition, calibration_condition, theorem_4_applies
from owlmine.theory.comparison import Compared, Setting, compare
from owlmine.theory.complexity import (
    Estimate,
    completed_complexity_bound,
    completed_gaussian_complexity,
    complexity_bound,
    gaussian_complexity,
    rademacher_complexity,
    worst_rademacher_bound,
)
from owlmine.theory.curves import plot_theta
from owlmine.theory.excess_risk import Calibration, calibration_at, expected_loss
from owlmine.theory.lipschitz import LipschitzConstants, lipschitz_constants
from owlmine.theory.margins import margin_risk, margins, ramp_risk
from owlmine.theory.norms import ThetaNorms, l2_bound_from_pool, theta_norms
from owlmine.theory.surrogate import SurrogateVerdict, retrieval_factor, surrogate_verdict

__all__ = [
    "BoundTerms",
    "Calibration",
    "CalibrationCondition",
    "Compared",
    "Complexities",
    "Estimate",
    "LipschitzConstants",
    "Sample",
    "Setting",
    "SurrogateVerdict",
    "ThetaNorms",
    "bayes_risk",
    "bayes_top_k",
    "calibration_at",
    "calibration_condition",
    "compare",
    "completed_complexity_bound",
    "completed_gaussian_complexity",
    "complexity_bound",
    "expected_loss",
    "gaussian_complexity",
    "generalization_terms",
    "is_bayes_compatible",
    "l2_bound_from_pool",
    "lipschitz_constants",
    "margin_risk",
    "margin_terms",
    "margins",
    "plot_theta",
    "rademacher_complexity",
    "ramp_risk",
    "retrieval_factor",
    "retrieval_risk",
    "surrogate_verdict",
    "theorem_4_applies",
    "theta_norms",
    "worst_rademacher_bound",
]
