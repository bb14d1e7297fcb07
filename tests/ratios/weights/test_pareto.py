"""The Pareto tail against draws of known shape and against arviz-stats, an independent implementation."""

import math

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from scipy.special import logsumexp
from scipy.stats import genpareto

from vestige.ratios import weights
from vestige.ratios.weights.diagnosis import gpd_fit


@pytest.mark.parametrize("shape", [-0.4, 0.2, 0.6, 1.2])
def test_fit_finds_the_shape_and_scale_of_a_generalised_pareto(shape):
    draws = genpareto.rvs(shape, scale=2.5, size=20000, random_state=3)
    k, sigma = gpd_fit(torch.tensor(np.sort(draws)))
    assert k == pytest.approx(shape, abs=4 * max(1 + shape, 0.5) / math.sqrt(20000))
    assert sigma == pytest.approx(2.5, rel=0.05)


@pytest.mark.parametrize("shape", [0.3, 0.7, 1.5])
def test_tail_index_of_pareto_weights(shape):
    log_w = -shape * np.log(np.random.default_rng(4).uniform(size=100_000))  # w = u^-k has tail index k
    assert weights.tail_index(torch.tensor(log_w)) == pytest.approx(shape, abs=0.15)


@pytest.mark.parametrize(("seed", "n", "spread"), [(0, 30, 1.0), (1, 500, 1.0), (2, 4000, 2.0), (3, 1001, 0.1)])
def test_smoothing_agrees_with_arviz(seed, n, spread):
    log_w = np.random.default_rng(seed).normal(size=n) * spread
    theirs, k = array_stats.psislw(-log_w)  # they take log-likelihoods
    ours = weights.pareto_smooth(log_w)
    assert ours.k == pytest.approx(float(k), abs=1e-9)
    np.testing.assert_allclose(ours.log_weights - logsumexp(ours.log_weights), theirs, atol=1e-9)


def test_smoothing_keeps_the_scale_the_order_and_the_largest_raw_weight():
    log_w = np.random.default_rng(5).standard_t(2, size=1000)
    out, k = weights.pareto_smooth(log_w + 5000.0)
    assert k == pytest.approx(weights.pareto_smooth(log_w).k)
    assert out.max() <= log_w.max() + 5000.0 + 1e-9
    np.testing.assert_array_equal(np.argsort(out, kind="stable"), np.argsort(log_w, kind="stable"))
    assert np.sum(out != log_w + 5000.0) == int(3 * math.sqrt(1000))  # the body is untouched


def test_smoothing_lowers_the_error_of_a_heavy_mean():
    # r of two Gaussians, q narrower: mean one, infinite variance
    rng = np.random.default_rng(6)
    raw, smooth = [], []
    for _ in range(200):
        x = rng.normal(size=1000) * 0.65
        log_w = -(x**2) / 2 + x**2 / (2 * 0.65**2) + math.log(0.65)
        raw.append(np.exp(log_w).mean() - 1)
        smooth.append(np.exp(weights.pareto_smooth(log_w).log_weights).mean() - 1)
    assert np.std(smooth) < 0.8 * np.std(raw)


def test_short_flat_and_extreme_inputs():
    assert weights.pareto_smooth([0.0] * 1000) == ([0.0] * 1000, None)
    assert weights.pareto_smooth([0.0, 1.0, 2.0]) == ([0.0, 1.0, 2.0], None)
    one_giant = [0.0] * 99 + [5000.0]
    assert weights.pareto_smooth(one_giant) == (one_giant, math.inf)
    zeros = np.full(2000, -np.inf)
    zeros[::5] = np.random.default_rng(7).normal(size=400)
    out, k = weights.pareto_smooth(zeros)
    alone, k_alone = weights.pareto_smooth(zeros[::5])
    assert k == k_alone
    np.testing.assert_array_equal(out[::5], alone)


@pytest.mark.parametrize(("largest", "heavy"), [(1.2, False), (1e6, True)])
def test_a_few_values_above_ties_are_heavy_only_where_they_are_much_of_the_sum(largest, heavy):
    """Weights of a law on few points: 2000 rows on three of them, and three rows on a fourth."""
    x = np.concatenate([np.repeat([0.9, 1.0, 1.05], [500, 500, 1000]), np.full(3, largest)])
    assert weights.tail_index(torch.from_numpy(np.log(x))) == (math.inf if heavy else None)
