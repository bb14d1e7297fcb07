"""Errors over members and episodes against closed forms and brute force; spreads and intervals are told apart."""

import math

import pytest
import torch
from scipy import stats

from vestige.policy.estimators import (
    MEMBERS,
    Simulated,
    error_of,
    from_simulated,
    reach_of,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_one_error_has_students_interval():
    x = normal(1, 12)
    parts = error_of(x)
    assert parts == [(pytest.approx(float(x.var()) / 12), 11)]
    low, _ = stats.t.interval(0.95, 11, loc=float(x.mean()), scale=stats.sem(x[0].numpy()))
    assert float(x.mean()) - reach_of(parts) == pytest.approx(low)


def test_two_errors_have_the_freedom_of_welch():
    """As scipy's test of two means with unequal variances."""
    a, b = normal(7, seed=1).numpy(), 3 * normal(30, seed=2).numpy()
    parts = [(a.var(ddof=1) / 7, 6), (b.var(ddof=1) / 30, 29)]
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
    assert reach_of(parts, 0.9) == pytest.approx((high - low) / 2)
    assert reach_of([(0.0, 4), (0.0, 9)]) == 0


def test_members_and_episodes_are_crossed():
    """Columns that differ, rows that differ: each part sees its own alone."""
    across = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
    (members, df), (episodes, _) = error_of(across.expand(3, 5))
    assert (members, df) == (pytest.approx(MEMBERS * 7.0), 2)
    assert episodes == 0
    (members, _), (episodes, df) = error_of(torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64).expand(4, 3))
    assert members == 0
    assert (episodes, df) == (pytest.approx(7.0 / 3), 2)


@pytest.mark.parametrize("starts", [8, 20])
def test_the_error_of_two_means_that_share_episodes(starts):
    """Brute force: 20 episodes drawn anew 4000 times, a mean over `starts` of them plus one over all."""
    g = torch.Generator().manual_seed(0)
    begin = torch.randn(4000, 20, dtype=torch.float64, generator=g)
    more = begin + 0.5 * torch.randn(4000, 20, dtype=torch.float64, generator=g)
    x = -0.8 * begin[:, :starts] + 0.2 * torch.randn(4000, starts, dtype=torch.float64, generator=g)
    true = float((x.mean(1) + more.mean(1)).var())
    at = torch.arange(starts)
    found = [error_of(a[None], b, at)[0][0] for a, b in zip(x[:400], more[:400], strict=True)]
    assert sum(found) / 400 == pytest.approx(true, rel=0.1)
    apart = float(x.mean(1).var() + more.mean(1).var())
    assert abs(apart - true) > 0.3 * true  # or the covariance would say nothing


def test_what_is_corrected():
    """Two members, three starts, four logged episodes, by hand."""
    evaluated = torch.tensor([[3.0, 5.0, 7.0, 100.0], [4.0, 6.0, 8.0, 100.0]], dtype=torch.float64)
    behaviour = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 5.0]], dtype=torch.float64)
    logged = torch.tensor([10.0, 0.0, 20.0, 30.0], dtype=torch.float64)
    starts = torch.tensor([0, 2, 3])
    estimates, gap = from_simulated(Simulated(evaluated, behaviour, starts, logged))
    assert estimates["model"].value == pytest.approx(233 / 8)  # with the start of the episode that is too short
    assert estimates["corrected"].value == pytest.approx(5.5 - 2.5 + 15)
    assert gap.value == pytest.approx(2.5 - 15)
    parts = error_of(evaluated[:, :3] - behaviour, logged, starts)
    assert estimates["corrected"].std_error == pytest.approx(math.sqrt(sum(v for v, _ in parts)))
    assert estimates["corrected"].high - estimates["corrected"].value == pytest.approx(reach_of(parts))
    assert gap.std_error == pytest.approx(math.sqrt(sum(v for v, _ in error_of(behaviour, -logged, starts))))


def test_a_single_member_promises_nothing():
    found, _ = from_simulated(Simulated(normal(1, 9), normal(1, 9, seed=1), torch.arange(9), normal(9, seed=2)))
    assert found["corrected"].verdict == "spread"
    assert found["corrected"].std_error > 0


def test_nothing_to_compare_with_is_refused():
    x = normal(2, 5)
    found, gap = from_simulated(Simulated(x, x[:, :1], torch.tensor([0]), normal(1)))
    assert found["corrected"].reason == gap.reason == "no two logged episodes are as long as the horizon"
    assert found["model"].value == pytest.approx(float(x.mean()))
