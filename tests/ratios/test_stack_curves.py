"""Gaussians a side against scipy, the additive logistic against its design written out, and the screening."""

import numpy as np
import torch
from scipy.stats import multivariate_normal

from vestige.ratios.newton import newton_logistic
from vestige.ratios.stack.curves import BEND, JITTER, additive_logistic, gaussian_pairs, hats


def draw(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_gaussian_pairs_are_the_difference_of_two_shrunk_log_densities():
    p, q = draw(60, 3) @ draw(3, 3, 5), 0.5 + draw(80, 3, 1)
    weights = torch.rand(1, 140, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    got = gaussian_pairs(torch.cat([p, q]), 60, weights)(p)[0]
    fits = []
    for x, w in ((p, weights[0, :60]), (q, weights[0, 60:])):
        share = (w / w.sum()).numpy()
        mean = share @ x.numpy()
        fits.append((mean, np.cov(x.numpy().T, aweights=share, bias=True), 1 / (share**2).sum()))
    pooled, logs = (fits[0][1] + fits[1][1]) / 2, []
    for mean, covariance, rows in fits:
        shrunk = (rows * covariance + 3 * pooled) / (rows + 3)
        shrunk += JITTER * np.diag(np.diag(shrunk))
        logs.append(multivariate_normal(mean, shrunk).logpdf(p.numpy()))
    np.testing.assert_allclose(got.numpy(), logs[0] - logs[1], rtol=1e-8)


def test_hats_add_up_to_one_and_interpolate():
    u = draw(50, 2)
    values = hats(u, 6).view(50, 2, 6)
    torch.testing.assert_close(values.sum(2), torch.ones(50, 2).double())
    at = torch.linspace(-BEND, BEND, 6, dtype=torch.float64)
    torch.testing.assert_close(values @ at, u.clamp(-BEND, BEND))


def test_the_additive_logistic_is_the_logistic_on_its_columns():
    u, trained = torch.cat([draw(150, 2), 0.4 + 0.8 * draw(150, 2, 1)]), torch.ones(1, 300, dtype=torch.float64)
    sign = torch.ones(300, dtype=torch.float64)
    sign[150:] = -1
    phi = torch.cat([torch.ones(300, 1).double(), u, u.square(), hats(u, 5)], 1)
    exact = phi @ newton_logistic(phi, sign, trained[0], ridge=0.1 * phi.shape[1]).head
    got = additive_logistic(u, 150, trained, knots=5, ridge=0.1)
    assert float(got.quadratics.matrix[0, 0, 1]) == 0  # the product does not differ, and is not there
    torch.testing.assert_close(got(u)[0], exact)


def test_products_that_differ_are_found_among_many_and_in_each_fold_by_its_own_rows():
    n, d = 1500, 30
    p, q = draw(n, d), draw(n, d, 1)
    p[:, 7] = 0.6 * p[:, 3] + 0.8 * p[:, 7]
    trained = torch.ones(2, 2 * n, dtype=torch.float64)
    trained[1, :n] = 0
    trained[1, : n // 100] = 1  # fifteen rows of p carry no product
    matrix = additive_logistic(torch.cat([p, q]), n, trained, knots=0, ridge=0.15).quadratics.matrix
    off = matrix - torch.diag_embed(matrix.diagonal(dim1=1, dim2=2))
    assert float(off[0, 3, 7]) > 0.4
    assert int((off[0] != 0).sum()) < 10  # of 435, at three standard errors
    assert int((off[1] != 0).sum()) <= 1
