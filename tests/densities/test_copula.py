"""The copula on laws that are Gaussian copulas, where every number is known."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm, spearmanr

from vestige import densities
from vestige.densities.copula import GaussianCopula, correlations, mean_scores

G = np.random.default_rng(0)
R = np.array([[1.0, 0.8, -0.5], [0.8, 1.0, -0.2], [-0.5, -0.2, 1.0]])


def gaussian(n, seed=0):
    return np.random.default_rng(seed).multivariate_normal(np.zeros(3), R, n)


def test_scores_are_the_means_of_a_normal_between_quantiles():
    z = np.sort(norm.ppf((np.arange(200_000) + 0.5) / 200_000))
    share = np.array([0.1, 0.25, 0.0005, 0.6495])
    ends = (np.cumsum(share) * 200_000).round().astype(int)
    theirs = [part.mean() for part in np.split(z, ends[:-1])]
    np.testing.assert_allclose(mean_scores(share), theirs, atol=1e-3)
    assert float(mean_scores(share) @ share) == pytest.approx(0, abs=1e-12)


def test_correlations_are_over_rows_that_have_both_and_shrink_to_zero():
    z = gaussian(5000)
    np.testing.assert_allclose(correlations(z, 0.0), np.corrcoef(z.T), atol=0.01 / len(z) ** 0.5)
    np.testing.assert_allclose(correlations(z, 5000.0)[0, 1], np.corrcoef(z.T)[0, 1] / 2, atol=0.01 / len(z) ** 0.5)
    gone = z.copy()
    gone[G.random(5000) < 0.4, 1] = np.nan
    np.testing.assert_allclose(correlations(gone, 0.0), R, atol=0.05)


def test_correlations_of_different_rows_are_made_those_of_a_distribution():
    z = np.full((300, 3), np.nan)  # three pairs that no three columns can have
    a = G.normal(size=100)
    z[:100, 0] = z[:100, 1] = z[100:200, 1] = z[100:200, 2] = a
    z[200:, 0], z[200:, 2] = a, -a
    found = correlations(z, 0.0)
    assert np.linalg.eigvalsh(found).min() > 0
    np.testing.assert_allclose(found.diagonal(), 1)
    np.testing.assert_allclose(np.abs(found[np.triu_indices(3, 1)]), 0.5, atol=0.01)


def test_draws_have_the_rank_correlations_of_the_rows_whatever_the_margins():
    z = gaussian(6000)
    x = np.stack([np.exp(2 * z[:, 0]), np.floor(3 * z[:, 1]), norm.cdf(z[:, 2])], 1)
    drawn = densities.build("copula").fit(x).draw(20_000, seed=1).numpy()
    np.testing.assert_allclose(spearmanr(drawn).statistic, spearmanr(x).statistic, atol=0.03)
    assert (drawn[:, 1] % 1 == 0).all()


def test_what_is_missing_goes_with_the_column_that_decides_it():
    z = gaussian(6000)
    x = z.copy()
    x[z[:, 0] > 1.0, 2] = np.nan
    drawn = densities.build("copula").fit(x).draw(20_000, seed=1).numpy()
    gone = np.isnan(drawn[:, 2])
    assert gone.mean() == pytest.approx(norm.sf(1.0), abs=0.02)
    assert drawn[gone, 0].mean() > 1.0
    assert abs(np.corrcoef(drawn[~gone][:, :2].T)[0, 1] - np.corrcoef(x[z[:, 0] <= 1][:, :2].T)[0, 1]) < 0.06


def test_the_log_density_of_two_normal_columns_is_that_of_scipy():
    rng = np.random.default_rng(0)
    covariance = [[1.0, 0.6], [0.6, 1.0]]
    x = rng.multivariate_normal([0, 0], covariance, 40_000)
    density = GaussianCopula(pseudo_rows=0.0).fit(x)
    near = x[(np.abs(x) < 1.5).all(1)][:2000]
    found = density.log_density(near).numpy()
    theirs = multivariate_normal([0, 0], covariance).logpdf(near)
    assert np.abs(found - theirs).mean() < 0.1  # what 128 bins a column cost
    assert abs((found - theirs).mean()) < 0.02


def test_the_log_density_of_cells_is_the_chance_of_a_draw_with_missing_values_too():
    rng = np.random.default_rng(1)
    z = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], 20_000)
    cells = np.stack([(z[:, 0] > 0.3), np.digitize(z[:, 1], [-0.5, 0.5])], 1).astype(float)
    cells[rng.random(20_000) < 0.2, 0] = np.nan
    density = GaussianCopula().fit(cells, ("category", "category"))
    every = torch.tensor([[a, b] for a in (0.0, 1.0, math.nan) for b in (0.0, 1.0, 2.0)], dtype=torch.float64)
    chance = density.log_density(every).exp()
    assert float(chance.sum()) == pytest.approx(1, abs=0.02)
    drawn = density.draw(100_000, seed=2)
    for row, expected in zip(every, chance, strict=True):
        held = ((drawn == row) | (drawn.isnan() & row.isnan())).all(1).double().mean()
        assert float(held) == pytest.approx(float(expected), abs=0.01)
