"""Bad inputs: each is refused with what was given and what was wanted."""

import math

import pytest
import torch

from owlmine.losses import bowl, mined_loss, mined_loss_from, mined_loss_from_matrix, ordered_loss, powl, top_k

SCORES, POSITIVES = torch.zeros(2, 5), torch.tensor([0, 4])
POSITIVE_SCORES, POOL = torch.zeros(2), torch.zeros(2, 3)
WEIGHTS = top_k(1, pool_size=3)
NAN = torch.tensor([[0.0, math.nan, 0, 0, 0]] * 2)


def ordered(scores=SCORES, positives=POSITIVES, **options):
    return powl(scores, positives, **{"theta": [1.0], **options})


def mined(positive=POSITIVE_SCORES, pool=POOL, mask=None, **options):
    return mined_loss(positive, pool, mask, **{"weights": WEIGHTS, **options})


def matrix(scores=SCORES, positives=POSITIVES, pool=((1, 2, 3), (1, 2, 3)), mask=None):
    pool = torch.tensor(pool)
    return mined_loss_from_matrix(scores, positives, pool, mask, weights=WEIGHTS)


def on_demand(score_fn=lambda ids: torch.zeros(ids.shape), positives=POSITIVES):
    return mined_loss_from(score_fn, positives, torch.tensor([[1, 2, 3]] * 2), weights=WEIGHTS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ordered(theta=[1.0, -0.5]), "theta: given a weight that is negative"),
        (lambda: ordered(theta=[math.nan]), "theta: given a weight that is negative, infinite or NaN"),
        (lambda: ordered(theta=[math.inf]), "infinite"),
        (lambda: ordered(theta=[1.0] * 5), r"theta: given shape \(5,\); wanted up to 4 weights"),
        (lambda: ordered(theta=[[1.0]]), r"theta: given shape \(1, 1\)"),
        (lambda: ordered(SCORES.long()), "scores: given dtype torch.int64; wanted floating point"),
        (lambda: ordered(SCORES[0]), r"scores: given shape \(5,\); wanted 2 dim"),
        (lambda: ordered(SCORES[:0], POSITIVES[:0]), "given an empty batch"),
        (lambda: ordered(SCORES[:, :1], POSITIVES * 0), r"given 1 class\(es\); wanted at least 2"),
        (lambda: ordered(NAN), "scores: given NaN"),
        (lambda: ordered(positives=torch.tensor([0, 5])), "class ids from 0 to 5; wanted 0 to 4"),
        (lambda: ordered(positives=torch.tensor([-1, 0])), "class ids from -1 to 0; wanted 0 to 4"),
        (lambda: ordered(positives=torch.tensor([0.0, 1.0])), "dtype torch.float32; wanted integers"),
        (lambda: ordered(positives=torch.tensor([0])), r"shape \(1,\); wanted \(2,\)"),
        (lambda: ordered(scale=0.0), "scale: given 0.0; wanted a positive"),
        (lambda: ordered(scale=-1), "scale: given -1"),
        (lambda: ordered(scale=math.nan), "scale: given nan"),
        (lambda: ordered(scale=torch.tensor(-2.0)), "scale: given -2.0"),
        (lambda: ordered(scale=torch.ones(2)), r"shape \(2,\); wanted one floating-point number"),
        (lambda: ordered(scale=torch.tensor(2)), "scale: given torch.int64"),
        (lambda: ordered(phi="huber"), "phi: given 'huber'"),
        (lambda: ordered(reduction="max"), "reduction: given 'max'; wanted one of mean, sum, none"),
        (
            lambda: ordered_loss(SCORES, POSITIVES, theta=[1.0], kind="both"),
            "kind: given 'both'; wanted one of powl, bowl",
        ),
        (lambda: mined(pool=torch.zeros(2, 4)), r"given shape \(2, 4\); wanted \(2, 3\)"),
        (lambda: mined(pool=torch.zeros(1, 3)), r"given shape \(1, 3\); wanted \(2, 3\)"),
        (lambda: mined(pool=POOL.int()), "pool_scores: given dtype torch.int32"),
        (lambda: mined(pool=NAN[:, :3]), "pool_scores: given NaN"),
        (lambda: mined(positive=torch.tensor([0.0, math.nan])), "positive_scores: given NaN"),
        (lambda: mined(POSITIVE_SCORES[:0], POOL[:0]), "positive_scores: given an empty batch"),
        (lambda: mined(mask=torch.zeros(2, 3)), "mask: given torch.float32"),
        (lambda: mined(mask=torch.zeros(2, 2).bool()), r"wanted bool of shape \(2, 3\)"),
        (
            lambda: mined(pool=torch.zeros(2, 4), mask=torch.zeros(2, 4).bool()),
            "leaves 4 entries; wanted at most 3",
        ),
        (lambda: mined(pool=torch.zeros(2, 2), mask=torch.zeros(2, 2).bool()), "at least 3 wide"),
        (lambda: mined(scale=0.0), "scale: given 0.0"),
        (lambda: mined(kind="x"), "kind: given 'x'"),
        (lambda: matrix(pool=((1, 2, 5), (1, 2, 3))), "pool: given class ids from 1 to 5"),
        (lambda: matrix(pool=((1, 2), (1, 2))), r"pool: given shape \(2, 2\); wanted \(2, 3\)"),
        (lambda: matrix(positives=torch.tensor([0, 9])), "positives: given class ids from 0 to 9"),
        (lambda: on_demand(positives=POSITIVES[:1]), "given 2 rows of pool scores; wanted 1"),
        (lambda: on_demand(positives=POSITIVES[:0]), "wanted one class id per point, at least one"),
        (lambda: on_demand(positives=POSITIVES.float()), "positives: given torch.float32"),
        (lambda: on_demand(lambda ids: torch.zeros(2, 3)), "wanted one score per id"),
        (
            lambda: mined_loss_from(
                lambda ids: torch.zeros(ids.shape), POSITIVES, torch.zeros(2, 4).long(), weights=WEIGHTS
            ),
            r"pool_scores: given shape \(2, 4\)",
        ),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_values_are_not_looked_at_when_told_so():
    assert bowl(NAN, POSITIVES, theta=[1.0], validate=False).isnan()
    assert mined(positive=torch.tensor([0.0, math.nan]), validate=False).isnan()


def test_values_are_not_looked_at_off_the_cpu_unless_told_so():
    scores, positives = SCORES.to("meta"), POSITIVES.to("meta")
    assert powl(scores, positives, theta=[1.0, 0.5]).shape == ()
    with pytest.raises((RuntimeError, NotImplementedError)):
        # The meta device has no values; asking for them shows that validate=True does look.
        powl(scores, positives, theta=[1.0, 0.5], validate=True)


def test_a_smaller_integer_type_is_fine():
    assert torch.equal(ordered(positives=POSITIVES.to(torch.int32)), ordered())
