"""Least squares by network: the loss at the true ratio, the link, and a fit."""

import math

import pytest
import torch

from vestige.ratios import losses
from vestige.ratios.nets import LSIF, log_softplus


def normal(n, d=1, mean=0.0, seed=0):
    return mean + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_loss_is_least_at_the_true_ratio_where_it_is_minus_half_its_second_moment():
    x = torch.linspace(-9, 10, 801, dtype=torch.float64)
    p, q = torch.softmax(-x.square() / 2, 0)[None], torch.softmax(-(x - 1).square() / 2, 0)[None]
    r = (p / q).requires_grad_()
    loss = losses.least_squares(r, r, p, q)
    (slope,) = torch.autograd.grad(loss.sum(), r)
    assert float(slope.abs().max()) < 1e-12
    assert float(loss.detach()) == pytest.approx(-math.e / 2, rel=1e-4)  # E_q r^2 = exp(1) for a shift of one deviation


def test_the_link_is_one_at_zero_and_stays_finite_far_out():
    v = torch.tensor([-800.0, -30.0, -1.0, 0.0, 5.0, 400.0], dtype=torch.float64)
    expected = [-800.0, -30.0, *[math.log(math.log1p(math.exp(t))) for t in (-1, 0, 5)], math.log(400.0)]
    assert log_softplus(v).tolist() == pytest.approx(expected, abs=1e-8)
    assert float(LSIF()._read(torch.zeros(1, dtype=torch.float64))) == pytest.approx(0, abs=1e-12)


def test_reading_and_loss_use_one_link():
    # The ratio in the loss must be the exponential of what is read.
    v_p, v_q = normal(1, 4), normal(1, 5, seed=1)
    weights = torch.full((1, 4), 1 / 4).double(), torch.full((1, 5), 1 / 5).double()
    ratio = LSIF()
    by_read = losses.least_squares(ratio._read(v_p).exp(), ratio._read(v_q).exp(), *weights)
    torch.testing.assert_close(ratio._loss(4, 5)(v_p, v_q, *weights), by_read)


def test_it_finds_the_ratio_of_gaussians():
    p, q = normal(2000, 1, 0.0, 1), normal(2000, 1, 0.7, 2)
    x = normal(2000, 1, 0.35, 3)
    truth = ((x - 0.7).square() - x.square()).sum(1) / 2
    ratio = LSIF(hidden=(32,)).fit(p, q)
    assert float((ratio.log_ratio(x) - truth).square().mean()) < 0.06  # the variance of truth is 0.49
    assert ratio.report_["log_mean_ratio_q"] == pytest.approx(0, abs=0.1)
