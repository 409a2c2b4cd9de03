"""Where the paper's text says something else than what holds: one test per entry of docs/research/paper-notes.md."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch

from owlmine.losses import (
    Ramp,
    bowl,
    every_class,
    mined_loss,
    negative_sampling,
    powl,
    surrogate,
    theta_from_vartheta,
    top_k,
)
from owlmine.theory import (
    bayes_risk,
    calibration_at,
    calibration_condition,
    expected_loss,
    is_bayes_compatible,
    retrieval_factor,
    retrieval_risk,
    surrogate_verdict,
    theorem_4_applies,
    theta_norms,
)


def place_in_pool(num_classes: int, pool_size: int) -> np.ndarray:
    """[j, i]: the probability that the class of rank j + 1 is at place i + 1 of its pool, by counting all pools."""
    ranks = num_classes - 1
    counts = np.zeros((ranks, pool_size))
    for pool in combinations(range(ranks), pool_size):
        for place, rank in enumerate(pool):
            counts[rank, place] += 1
    return counts / counts.sum(axis=1, keepdims=True)


def as_row(*scores: float) -> torch.Tensor:
    return torch.tensor([scores], dtype=torch.float64)


FIRST = torch.tensor([0])


def test_theorem_1_proof_the_class_that_goes_wrong_is_short_by_a_kth_of_the_excess():
    """Excess ε = 0.2 for k = 2, and no retrieved class has α_i <= α_[k] - ε; one pair differs by ε/k."""
    alpha, retrieved = [0.3, 0.3, 0.2, 0.2], [2, 3]
    rows = torch.tensor([alpha], dtype=torch.float64)
    excess = float(retrieval_risk(rows, torch.tensor([retrieved])) - bayes_risk(rows, k=2))
    assert excess == pytest.approx(0.2)
    assert all(alpha[i] > 0.3 - excess for i in retrieved)
    assert max(alpha[i] - alpha[j] for i in (0, 1) for j in retrieved) >= excess / 2 - 1e-12


def test_theorem_3_binary_needs_a_convex_phi():
    scores = as_row(1.0, 1.5)
    assert bowl(scores, FIRST, theta=[1.0], phi=Ramp(1.0)).item() == 1.0
    assert retrieval_factor([1.0], k=1, kind="bowl", phi=Ramp(1.0)) == 1.0
    assert retrieval_factor([1.0], k=1, kind="bowl", phi="hinge") == 2.0


def test_theorem_3_proof_the_negative_enters_as_phi_of_minus_v():
    """As printed, with φ(v_y - v) in the binary loss, the first inequality of the proof is false."""
    own, rival, phi = as_row(5.0), as_row(1.0), surrogate("hinge")
    right_side = (phi(own) + phi(-rival)).item()
    assert (phi(own) + phi(own - rival)).item() < right_side
    assert bowl(as_row(5.0, 1.0), FIRST, theta=[1.0], phi="hinge").item() == right_side


def test_theorem_3_asks_for_equality_where_a_sum_is_enough():
    theta = theta_from_vartheta(top_k(1, pool_size=4, convention="paper", num_classes=20), num_classes=20)
    verdict = surrogate_verdict(theta, k=3)
    assert not verdict.as_theorem_3
    assert verdict.is_bound
    assert verdict.factor == pytest.approx(float(theta[:3].sum()))


def test_theorem_4_names_a_weight_that_does_not_exist():
    """Reading θ_K as 0 contradicts the paper's remark that equal weights always satisfy the condition."""
    alpha, k = [0.34, 0.33, 0.33], 1
    theta = every_class(3, k=k).theta.tolist()
    assert not alpha[k - 1] > sum(alpha[k:]) / (k * sum(theta[k:]))
    assert calibration_condition(alpha, theta, k=k).holds
    assert calibration_at(alpha, theta, k=k).calibrated


def test_theorem_4_at_m_equal_to_the_number_of_classes_asks_nothing_new():
    """With θ_k .. θ_{K-1} there, which is what the proof needs, m = K follows from m = K - 1."""
    generator, met = np.random.default_rng(0), 0
    for _ in range(300):
        num_classes = int(generator.integers(3, 8))
        k = int(generator.integers(1, num_classes - 1))
        alpha = np.sort(generator.dirichlet(np.ones(num_classes)))[::-1]
        theta = np.concatenate([np.full(k, 1 / k), np.sort(generator.random(num_classes - 1 - k))[::-1] / k])
        if alpha[k - 1] * k * theta[k:].sum() > alpha[k : num_classes - 1].sum():
            met += 1
            assert alpha[k - 1] * k * theta[k - 1 :].sum() > alpha[k:].sum()
    assert met > 30


def test_theorem_4_the_other_form_in_the_appendix_is_too_weak():
    """With θ_k .. θ_{m-1} for every m the condition holds here, and yet second and third score tie."""
    alpha, theta, k = [0.361, 0.287, 0.2713, 0.0807], [0.5, 0.5, 0.1401], 2
    for m in (3, 4):
        assert alpha[k - 1] > sum(alpha[k:m]) / (k * sum(theta[k - 1 : m - 1]))
    assert not calibration_condition(alpha, theta, k=k).holds
    told = calibration_at(alpha, theta, k=k, kind="powl", phi="logistic")
    assert not told.calibrated
    assert told.scores[1] == pytest.approx(told.scores[2], abs=1e-6)


def test_theorem_4_nothing_over_nothing_counts_as_nothing():
    """At most M = k relevant classes and θ_j = 0 beyond: the paper's own prescription reads 0 / 0."""
    alpha, theta = [0.6, 0.4, 0.0, 0.0], [0.5, 0.5]
    assert calibration_condition(alpha, theta, k=2).holds
    assert calibration_at(alpha, theta, k=2).calibrated


def test_theorem_4_does_not_reach_the_hinge():
    """The condition holds for any unique Bayes set when θ_j = 1/k, but the hinge has minimisers that tie."""
    for kind, alpha in (("powl", [0.38, 0.37, 0.25]), ("bowl", [0.4, 0.3, 0.3])):
        theta = every_class(3, k=1).theta
        assert calibration_condition(alpha, theta, k=1).holds
        assert not theorem_4_applies(alpha, theta, k=1, kind=kind, phi="hinge")
        assert not calibration_at(alpha, theta, k=1, kind=kind, phi="hinge").calibrated
        assert calibration_at(alpha, theta, k=1, kind=kind, phi="logistic").calibrated


def test_theorem_4_hinge_bowl_is_calibrated_where_a_threshold_parts_the_classes():
    """Equal weights 1/k: each class alone decides for v = 1 or -1 by D > 1/(k + 1)."""
    for alpha, k, expected in (
        ([0.4, 0.36, 0.14, 0.1], 2, True),
        ([0.4, 0.32, 0.18, 0.1], 2, False),
        ([0.6, 0.2, 0.2, 0.0], 1, True),
    ):
        told = calibration_at(alpha, every_class(4, k=k).theta, k=k, kind="bowl", phi="hinge")
        assert told.calibrated is expected


def test_theorem_4_a_minimiser_need_not_exist():
    """A class of probability 0 is pushed down for ever; the proof starts from a minimiser."""
    near, far = (calibration_at([0.7, 0.3, 0.0], [1.0, 1.0], k=1, box=box) for box in (5.0, 10.0))
    assert far.risk < near.risk - 1e-4
    assert near.scores[1] - near.scores[2] == pytest.approx(5.0)


def test_theorem_4_is_sufficient_and_not_necessary():
    alpha, theta = [0.45, 0.275, 0.275], [1.0, 0.5]
    assert calibration_condition(alpha, theta, k=1).worst_m == 2
    assert not calibration_condition(alpha, theta, k=1).holds
    for kind in ("powl", "bowl"):
        assert calibration_at(alpha, theta, k=1, kind=kind, phi="logistic").calibrated


def test_lemma_6_proof_the_derivative_as_it_should_read():
    """α_k Σ_{j=k..k+q-1} θ_j stands where α_k Σ α_l is printed; checked against a difference quotient."""
    alpha, theta, k, q = np.array([0.3, 0.25, 0.2, 0.15, 0.1]), np.array([0.5, 0.5, 0.3, 0.2]), 2, 2
    level, step = 0.4, 1e-6
    scores = np.array([1.3, level, level, level, -0.7])
    beta = 1 / (k * theta[k : k + q].sum())
    direction = np.array([0.0, 1.0, -beta, -beta, 0.0])

    def slope(u: float) -> float:
        return -1 / (math.log(2) * (1 + math.exp(u)))

    mass = alpha[k : k + q].sum()
    first_two = (alpha[k - 1] - beta * mass) * slope(level) + beta * slope(-level) * (
        alpha[k - 1] * theta[k - 1 : k + q - 1].sum() - theta[k + q - 1] * mass
    )
    third = sum(alpha[: k - 1]) * slope(-level) * (beta * theta[k - 1 : k + q - 1].sum() - 1 / k)
    moved = [expected_loss(alpha, scores + t * direction, theta, kind="bowl") for t in (0.0, step)]
    assert (moved[1] - moved[0]) / step == pytest.approx(first_two + third, rel=1e-5)
    printed = (alpha[k - 1] - beta * mass) * slope(level) + q * beta * slope(-level) * (
        alpha[k - 1] * mass - theta[k + q - 1] * mass
    )
    assert abs(printed - first_two) > 0.01


def test_lemma_2_proof_single_ranks_are_not_monotone_but_the_ranks_dominate():
    places = place_in_pool(8, 3)
    # The hardest class is never second in its pool; the second hardest may be.
    assert places[0, 1] == 0 < places[1, 1]
    reached = np.cumsum(places, axis=1)
    assert np.all(reached[1:] <= reached[:-1] + 1e-12)
    weights = top_k(2, pool_size=3, convention="paper", num_classes=8)
    theta = places @ weights.dense().numpy() * 3 / 7
    np.testing.assert_allclose(theta, theta_from_vartheta(weights, num_classes=8), rtol=1e-12)


def test_lemma_2_theta_may_be_0_and_need_not_fall():
    theta = theta_from_vartheta(top_k(2, pool_size=3, convention="paper", num_classes=7), num_classes=7)
    assert theta[5] == 0
    flat = theta_from_vartheta(negative_sampling(pool_size=3), num_classes=7)
    assert torch.allclose(flat, torch.full((6,), 1 / 6, dtype=torch.float64))


def test_lemma_2_convexity_needs_a_convex_phi():
    bent = [powl(as_row(u, 0.0), FIRST, theta=[1.0], phi=Ramp(1.0)).item() for u in (-1.0, 0.0, 1.0)]
    assert bent[1] > (bent[0] + bent[2]) / 2


def test_lemma_2_footnote_a_small_weight_does_not_bring_calibration_back():
    """ε > 0 for every rank of the pool makes θ positive; the condition on the distribution still fails."""
    weights = top_k(2, pool_size=4, convention="paper", num_classes=6).with_tail(0.01)
    theta = theta_from_vartheta(weights, num_classes=6)
    alpha = [0.25, 0.2, 0.17, 0.14, 0.12, 0.12]
    assert torch.all(theta > 0)
    assert not calibration_condition(alpha, theta, k=2).holds
    for kind in ("powl", "bowl"):
        assert not calibration_at(alpha, theta, k=2, kind=kind, phi="logistic").calibrated


def test_after_lemma_2_the_loss_is_more_than_the_average_of_the_hardest():
    """(K - 1)/B times the average, which for the binary kind is another loss and not another step."""
    own, pool = torch.tensor([0.2]), torch.tensor([[0.9, 0.1, 0.4, -0.3]])
    paper = top_k(2, pool_size=4, convention="paper", num_classes=41)
    average = top_k(2, pool_size=4)
    options = {"phi": "hinge"}
    ratio = mined_loss(own, pool, weights=paper, kind="powl", **options) / mined_loss(
        own, pool, weights=average, kind="powl", **options
    )
    assert ratio.item() == pytest.approx(40 / 4)
    positive = surrogate("hinge")(own).item()
    parts = [mined_loss(own, pool, weights=w, kind="bowl", **options).item() - positive for w in (paper, average)]
    assert parts[0] == pytest.approx(10 * parts[1])


def test_the_average_scale_gives_up_the_bound_and_keeps_calibration():
    num_classes, pool_size, k = 41, 4, 2
    theta = theta_from_vartheta(top_k(k, pool_size=pool_size), num_classes=num_classes)
    for kind, promised in (("powl", 1.0), ("bowl", 2.0)):
        verdict = surrogate_verdict(theta, k=k, kind=kind, phi="hinge")
        assert not verdict.is_bound
        assert verdict.factor == pytest.approx(promised * pool_size / (num_classes - 1))
    alpha = [0.4, 0.3, 0.15, 0.1, 0.05]
    weights = {"pool_size": 3, "num_classes": 5, "convention": "paper"}
    paper = theta_from_vartheta(top_k(2, **weights), num_classes=5)
    average = theta_from_vartheta(top_k(2, pool_size=3), num_classes=5)
    slacks = [calibration_condition(alpha, theta, k=2).slack for theta in (paper, average)]
    assert slacks[0] == pytest.approx(slacks[1])


def test_top_k_prime_below_k_is_outside_theorem_4():
    """Top-1 mining judged at k = 2: a valid bound, but its minimiser ties the second class with the third."""
    weights = top_k(1, pool_size=2, convention="paper", num_classes=4)
    theta = theta_from_vartheta(weights, num_classes=4)
    alpha = [0.48, 0.28, 0.13, 0.11]
    assert surrogate_verdict(theta, k=2).is_bound
    with pytest.raises(ValueError, match="wanted one positive weight for the first 2"):
        calibration_condition(alpha, theta, k=2)
    assert not calibration_at(alpha, theta, k=2, phi="logistic").calibrated
    assert calibration_at(alpha, every_class(4, k=2).theta, k=2, phi="logistic").calibrated


def test_theorem_5_the_range_of_the_binary_loss_includes_the_positive():
    """Scores in [-1, 1], hinge: Φ = 2. The loss reaches (1 + ‖θ‖₁) Φ, more than the ‖θ‖₁ Φ of the paper."""
    theta, phi_bound = [0.5, 0.5], 2.0
    worst = bowl(as_row(-1.0, 1.0, 1.0), FIRST, theta=theta, phi="hinge").item()
    assert worst == (1 + sum(theta)) * phi_bound > sum(theta) * phi_bound


def test_theorem_5_phi_must_be_bounded_at_minus_the_scores_too():
    """Scores in [2, 3]: φ(h) and φ(h - h') stay within 2, φ(-h) does not, and the loss passes (1 + ‖θ‖₁) Φ."""
    phi = surrogate("hinge")
    scores = torch.linspace(2, 3, 11, dtype=torch.float64)
    bound = max(float(phi(scores).max()), float(phi(scores[:, None] - scores).max()))
    assert bound == 2.0
    theta = [1.0, 1.0, 1.0]
    assert bowl(as_row(2.0, 3.0, 3.0, 3.0), FIRST, theta=theta, phi=phi).item() > (1 + sum(theta)) * bound


def test_after_theorem_5_the_weights_end_at_k_and_not_at_the_pool():
    """ϑ_j = 0 "for j > B" is no condition; left at (K - 1)/(kB) up to B the weights are negative sampling's."""
    num_classes, pool_size, k = 101, 20, 5
    options = {"pool_size": pool_size, "convention": "paper", "num_classes": num_classes}
    mined = theta_norms(theta_from_vartheta(top_k(k, **options), num_classes=num_classes))
    literal = theta_norms(theta_from_vartheta(top_k(pool_size, **options, k=k), num_classes=num_classes))
    assert mined.l1 == pytest.approx(100 / pool_size)
    assert mined.l2 <= math.sqrt(100 / (k * pool_size))
    assert literal.l1 == pytest.approx(100 / k)
    sampled = theta_from_vartheta(negative_sampling(**options, k=k), num_classes=num_classes)
    assert literal == theta_norms(sampled)


def test_lemma_7_proof_takes_the_wrong_hoelder_exponent():
    """p = 1, not ∞: ‖θ‖_∞ ‖Δ‖_1 can exceed the ‖θ‖_1 ‖Δ‖_∞ that is claimed, so it does not prove it."""
    theta, moved = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    claimed = np.abs(theta).sum() * np.abs(moved).max()
    assert np.abs(theta).max() * np.abs(moved).sum() > claimed
    assert abs(theta @ moved) <= claimed


def test_experiments_the_hinge_never_bends_on_cosine_scores():
    """Scores in [-1, 1] make the binary hinge loss linear in them: 1 - v_y + Σ θ_j (1 + v_[j])."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(50, 6, generator=generator, dtype=torch.float64) * 2 - 1
    theta = torch.tensor([1.0, 0.5, 0.25, 0.0, 0.0], dtype=torch.float64)
    ranked = scores[:, 1:].sort(dim=1, descending=True).values
    linear = 1 - scores[:, 0] + ((1 + ranked) * theta).sum(dim=1)
    positives = torch.zeros(50, dtype=torch.int64)
    losses = bowl(scores, positives, theta=theta, phi="hinge", reduction="none")
    torch.testing.assert_close(losses, linear)


@pytest.mark.parametrize(
    ("per_class", "per_point", "num_classes", "train", "test", "counts_test"),
    [
        (448.57, 5.04, 13_330, 1_186_239, 306_782, False),
        (17.46, 3.19, 325_056, 1_778_351, 587_084, False),
        (3.99, 5.45, 670_091, 490_449, 153_025, False),
        (31.64, 36.17, 2_812_281, 1_717_899, 742_507, True),
    ],
)
def test_table_1_counts_points_per_label_of_amazon_3m_over_train_and_test(
    per_class, per_point, num_classes, train, test, counts_test
):
    """Label entries counted both ways; three rows agree over the training points, the fourth over all points."""
    points = per_class * num_classes / per_point
    assert points == pytest.approx(train + test if counts_test else train, rel=0.003)


def test_definition_1_ties_decide_whether_scores_are_bayes_compatible():
    """ "Breaking ties arbitrarily" leaves it open; here a tie across the k-th place is not compatible."""
    alpha = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    assert not is_bayes_compatible(as_row(1.0, 1.0, 0.0), alpha, k=1).item()
    assert is_bayes_compatible(as_row(1.0, 1.0, 0.0), alpha, k=2).item()
