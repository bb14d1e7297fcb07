"""Variational estimators: each row of the table against its divergence, conjugates by brute force, and fits."""

import math

import numpy as np
import pytest
import torch

from vestige.core.errors import UnknownName
from vestige.ratios.losses import VARIATIONAL
from vestige.ratios.nets import FGANRatio

# f of each divergence D_f(p || q) = E_q f(p/q), and its value for N(0, 1) against N(1/2, 1).
F = {
    "kl": (lambda r: r * r.log(), 0.125),
    "reverse_kl": (lambda r: -r.log(), 0.125),
    "js": (lambda r: (r * r.log() - (1 + r) * ((1 + r) / 2).log()) / 2, None),
    "hellinger": (lambda r: (r.sqrt() - 1).square() / 2, 1 - math.exp(-0.25 / 8)),
    "pearson": (lambda r: (r - 1).square(), math.exp(0.25) - 1),
}


def normal(n, mean=0.0, seed=0):
    return mean + torch.randn(n, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", F)
def test_the_ratio_is_the_inverse_of_f_prime_at_the_activation(name):
    v = torch.linspace(-1.5, 3, 40, dtype=torch.float64)
    row = VARIATIONAL[name]
    r = row.ratio(v).exp().requires_grad_()
    (slope,) = torch.autograd.grad(F[name][0](r).sum(), r)
    torch.testing.assert_close(row.activation(v), slope)


@pytest.mark.parametrize("name", F)
def test_the_conjugate_is_the_supremum(name):
    v = torch.linspace(-1.5, 2, 15, dtype=torch.float64)
    row = VARIATIONAL[name]
    u = torch.logspace(-8, 4, 200001, dtype=torch.float64)  # f*(t) = sup over u of u t - f(u)
    brute = torch.stack([(u * t - F[name][0](u)).max() for t in row.activation(v)])
    torch.testing.assert_close(row.conjugate(v), brute, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", F)
def test_at_the_optimum_the_bound_is_the_divergence_and_the_ratio_is_exact(name):
    x = torch.linspace(-9, 10, 2001, dtype=torch.float64)
    p, q = torch.softmax(-x.square() / 2, 0), torch.softmax(-(x - 0.5).square() / 2, 0)
    log_ratio = p.log() - q.log()
    # The output v at which T = f'(p/q), found by bisection on the monotone activation.
    r = log_ratio.exp().requires_grad_()
    (best,) = torch.autograd.grad(F[name][0](r).sum(), r)
    low, high = torch.full_like(x, -60.0), torch.full_like(x, 200.0)
    for _ in range(200):
        middle = (low + high) / 2
        below = VARIATIONAL[name].activation(middle) < best
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    v = (low + high) / 2
    estimator = FGANRatio(name, ratio_floor=1e-12)
    bound = -estimator._loss(1, 1)(v[None], v[None], p[None], q[None])
    exact = (q * F[name][0](log_ratio.exp())).sum()
    torch.testing.assert_close(bound[0], exact, atol=1e-9, rtol=1e-7)
    if F[name][1] is not None:
        assert float(exact) == pytest.approx(F[name][1], rel=1e-4)
    inside = log_ratio.abs() < 3
    torch.testing.assert_close(estimator._read(v)[inside], log_ratio[inside], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("name", F)
def test_every_divergence_finds_the_ratio_of_gaussians(name):
    p, q = normal(2000, 0.0, 1), normal(2000, 0.5, 2)
    x = normal(1500, 0.25, 3)
    truth = ((x - 0.5).square() - x.square()).sum(1) / 2
    ratio = FGANRatio(name, hidden=(16,), steps=300).fit(p, q)
    assert float((ratio.log_ratio(x) - truth).square().mean()) < 0.06  # the variance of truth is 0.25
    value = F[name][1] or 0.0303  # js by numerical integration
    assert ratio.report_["bound"] == pytest.approx(value, abs=0.5 * value)


def test_pearson_s_negative_ratios_are_floored_and_counted():
    p, q = normal(300, 0.0, 1), normal(300, 3.0, 2)
    ratio = FGANRatio("pearson", hidden=(16,), steps=100, ratio_floor=0.05, tolerance=1.0)
    log_ratio = ratio.fit(p, q).log_ratio(q)
    assert float(log_ratio.min()) == pytest.approx(math.log(0.05))
    assert 0.05 < ratio.report_["ratio_floor_share"] < 1
    assert np.isfinite(log_ratio.numpy()).all()


def test_an_unknown_divergence_is_refused():
    with pytest.raises(UnknownName, match="Did you mean 'hellinger'"):
        FGANRatio("helinger").fit(normal(9), normal(9))
