"""Ratio matching: generators against autograd, and the special cases that carry other names."""

import pytest
import torch

from vestige.core.errors import UnknownName
from vestige.ratios import losses
from vestige.ratios.nets import Bregman

# The convex functions themselves; the table holds only what follows from them.
F = {
    "squared": lambda r: (r - 1).square() / 2,
    "kl": lambda r: r * r.log() - r,
    "logistic": lambda r: r * r.log() - (1 + r) * (1 + r).log(),
    "exponential": lambda r: -2 * r.sqrt(),
    "power": lambda r: (r**1.3 - r) / 0.3,
}


def normal(n, d=1, mean=0.0, seed=0):
    return mean + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def generator(name):
    return losses.power_generator(0.3) if name == "power" else losses.GENERATORS[name]


@pytest.mark.parametrize("name", F)
def test_slope_and_rest_follow_from_the_convex_function(name):
    r = torch.linspace(0.05, 8, 50, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F[name](r).sum(), r)
    r = r.detach()
    torch.testing.assert_close(generator(name).slope(r.log()), slope)
    # f(1) may differ by a constant, which no optimum sees: both terms are pinned up to that.
    gap = generator(name).rest(r.log()) - (slope * r - F[name](r))
    torch.testing.assert_close(gap, gap[0].expand(50), atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", F)
def test_the_loss_is_the_bregman_divergence_to_the_true_ratio_up_to_a_constant(name):
    x = torch.linspace(-8, 9, 601, dtype=torch.float64)
    p, q = torch.softmax(-x.square() / 2, 0)[None], torch.softmax(-(x - 0.6).square() / 2, 0)[None]
    true = (p / q).log()

    def divergence(psi):
        r, r_true = psi.exp(), true.exp()
        return (q * (F[name](r_true) - F[name](r) - generator(name).slope(psi) * (r_true - r))).sum()

    def loss(psi):
        return losses.bregman(psi, psi, p, q, generator=generator(name)).sum()

    other = 0.4 * torch.sin(x)[None]
    torch.testing.assert_close(loss(other) - loss(true), divergence(other), atol=1e-8, rtol=1e-6)
    assert float(divergence(other)) > 1e-3
    psi = true.clone().requires_grad_()
    assert float(torch.autograd.grad(loss(psi), psi)[0].abs().max()) < 1e-10


def slope_of(loss, out_p, out_q):
    out_p, out_q = out_p.clone().requires_grad_(), out_q.clone().requires_grad_()
    weights = torch.full((1, 4), 1 / 4).double(), torch.full((1, 6), 1 / 6).double()
    value = loss(out_p, out_q, *weights).sum()
    return value.detach(), torch.cat(torch.autograd.grad(value, [out_p, out_q]), 1)


def kliep_unnormalised(out_p, out_q, w_p, w_q):
    return (w_q * out_q.exp()).sum(1) - (w_p * out_p).sum(1)


@pytest.mark.parametrize(
    ("name", "twin", "factor", "constant"),
    [
        ("squared", lambda p, q, w, v: losses.least_squares(p.exp(), q.exp(), w, v), 1.0, 0.5),
        ("kl", kliep_unnormalised, 1.0, 0.0),
        ("logistic", losses.logistic, 2.0, 0.0),
    ],
)
def test_special_cases_are_the_losses_of_those_names(name, twin, factor, constant):
    out_p, out_q = normal(1, 4), normal(1, 6, seed=1)
    value, slope = slope_of(lambda *a: losses.bregman(*a, generator=losses.GENERATORS[name]), out_p, out_q)
    other, other_slope = slope_of(twin, out_p, out_q)
    torch.testing.assert_close(value, factor * other + constant)
    torch.testing.assert_close(slope, factor * other_slope)


def test_the_unnormalised_case_is_kliep_where_the_mean_ratio_is_one():
    out_p, out_q = normal(1, 4), normal(1, 6, seed=1)
    shift = torch.logsumexp(out_q, 1) - torch.tensor(6.0).log()
    _, slope = slope_of(kliep_unnormalised, out_p - shift, out_q - shift)
    _, kliep = slope_of(losses.kliep, out_p, out_q)
    torch.testing.assert_close(slope, kliep)


def test_power_lies_between_kl_and_squared():
    out_p, out_q = normal(1, 4), normal(1, 6, seed=1)
    near, kl = (
        slope_of(lambda *a, g=g: losses.bregman(*a, generator=g), out_p, out_q)[1]
        for g in (losses.power_generator(1e-6), losses.GENERATORS["kl"])
    )
    torch.testing.assert_close(near, kl, atol=1e-5, rtol=1e-4)
    one, squared = (
        slope_of(lambda *a, g=g: losses.bregman(*a, generator=g), out_p, out_q)[1]
        for g in (losses.power_generator(1.0), losses.GENERATORS["squared"])
    )
    torch.testing.assert_close(one, 2 * squared)


@pytest.mark.parametrize("name", F)
def test_every_generator_finds_the_ratio_of_gaussians(name):
    p, q = normal(1500, 1, 0.0, 1), normal(1500, 1, 0.6, 2)
    x = normal(1500, 1, 0.3, 3)
    truth = ((x - 0.6).square() - x.square()).sum(1) / 2
    ratio = Bregman(name, hidden=(16,), steps=300).fit(p, q)
    assert float((ratio.log_ratio(x) - truth).square().mean()) < 0.06  # the variance of truth is 0.36


def test_an_unknown_generator_is_refused():
    with pytest.raises(UnknownName, match="Did you mean 'squared'"):
        Bregman("square").fit(normal(9), normal(9))
