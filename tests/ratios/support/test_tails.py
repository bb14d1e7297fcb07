"""A tail that the other side cannot follow makes KL infinite, and is seen in one column of many."""

import itertools

import pytest
import torch
from scipy import stats

from vestige.ratios.support.tails import heavier, pareto_index, weibull_tail


def sample(law, n, seed):
    return torch.from_numpy(law.rvs(n, random_state=seed)).double()


@pytest.mark.parametrize(("law", "xi"), [(stats.pareto(2), 0.5), (stats.pareto(1), 1.0), (stats.expon(), 0.0)])
def test_the_pareto_index(law, xi):
    found = [pareto_index(sample(law, 20_000, seed))[0] for seed in range(5)]
    assert sum(found) / 5 == pytest.approx(xi, abs=0.1)


@pytest.mark.parametrize(
    ("law", "theta"), [(stats.expon(), 1.0), (stats.weibull_min(2), 0.5), (stats.weibull_min(0.5), 2.0)]
)
def test_the_weibull_tail(law, theta):
    found = [weibull_tail(sample(law, 20_000, seed)) for seed in range(5)]
    assert sum(found) / 5 == pytest.approx(theta, rel=0.1)


@pytest.mark.parametrize("d", [1, 8])
def test_student_t_of_two_degrees_against_a_normal(d):
    heavy = [sample(stats.t(2), 3000 * d, seed).reshape(3000, d) for seed in range(5)]
    light = [sample(stats.norm(), 3000 * d, seed + 9).reshape(3000, d) for seed in range(5)]
    assert sum(heavier(a, b) is not None for a, b in zip(heavy, light, strict=True)) >= 4
    assert all(heavier(b, a) is None for a, b in zip(heavy, light, strict=True))
    assert all(heavier(a, b) is None for a, b in itertools.pairwise(light))


def test_the_column_is_named():
    x, y = (sample(stats.norm(), 12_000, seed).reshape(3000, 4) for seed in (0, 1))
    x[:, 2] = -sample(stats.pareto(1.2), 3000, 2)
    found = heavier(x, y)
    assert found is not None
    assert found[0] == 2


def test_discrete_and_constant_columns_have_no_tail():
    x = torch.zeros(400, 2, dtype=torch.float64)
    x[:, 1] = torch.arange(400) % 2
    assert heavier(x, x) is None


def test_a_shape_within_the_range_of_the_other_is_no_tail():
    """A bounded column whose upper end thins out like a power, beside one that fills the same range."""
    a = sample(stats.pareto(1.5), 3000, 0).clamp_max(6)[:, None]
    b = 6 * sample(stats.uniform(), 3000, 1)[:, None]
    assert heavier(a, b) is None
