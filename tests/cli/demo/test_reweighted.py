"""The third part: the sets are what they are said to be, and weights that saw no label bring the shares back."""

import pytest
import torch

from vestige import data
from vestige.cli.demo.jobs import SKEW, reweight, sets


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def test_the_sets_share_no_row_and_one_is_skewed(digits):
    (p, p_digits), (q, q_digits) = sets(digits, 0.5, seed=0)
    assert len(p) + len(sets(digits, 1.0, seed=0)[1][0]) == len(digits.train_x) + len(digits.test_x)
    counts = torch.bincount(q_digits, minlength=10)
    rest = len(p) / 10
    assert counts[0] == pytest.approx(rest, rel=0.25)
    assert counts[3] == pytest.approx(rest / 8, abs=9)
    assert torch.bincount(p_digits).min() > 0.7 * rest
    assert (torch.cdist(q, p).min(1).values > 0).float().mean() > 0.99  # but for twins in the data


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_weighted_shares_are_nearer(digits, seed):
    found = reweight(digits, seed=seed)
    before, after = found.misplaced
    assert after < 0.75 * before
    assert float(found.weighted.sum()) == pytest.approx(1)
    assert 1 < found.weighing.final.ess < len(found.weighing.weights)


def test_shares_are_sums_of_weights(digits):
    found = reweight(digits, seed=3)
    _, (_, labels) = sets(digits, SKEW, seed=3)
    w = found.weighing.weights / found.weighing.weights.sum()
    by_hand = [float(w[labels == j].sum()) for j in range(10)]
    assert found.weighted.tolist() == pytest.approx(by_hand)
    assert found.mean_digit[2] == pytest.approx(float(w @ labels.double()))
    assert found.misplaced[1] == pytest.approx(
        sum(max(b - t, 0) for b, t in zip(by_hand, found.target.tolist(), strict=True))
    )
