"""Bregman losses against the formulas of LSIF, KLIEP and logistic regression, and against the divergence itself."""

import math

import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError, UnknownName
from vestige.ratios.divergences import BREGMAN, Gaussian, bregman_divergence, bregman_loss

P, Q = Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.2, 1.1, 2)
X_P, X_Q = P.sample(40_000, generator=rng.fork(0, "p")), Q.sample(40_000, generator=rng.fork(0, "q"))
LOG_P, LOG_Q = P.log_prob(X_P) - Q.log_prob(X_P), P.log_prob(X_Q) - Q.log_prob(X_Q)


def test_losses_are_those_of_the_estimators():
    a, b = LOG_P[:100], LOG_Q[:80]
    r_p, r_q = a.exp(), b.exp()
    lsif = (r_q**2).mean() / 2 - r_p.mean() + 0.5  # with the constants of h = (r - 1)^2 / 2
    torch.testing.assert_close(bregman_loss("squared", a, b), lsif)
    torch.testing.assert_close(bregman_loss("kl", a, b), r_q.mean() - a.mean())
    logits = torch.cat([a, b])
    labels = torch.cat([torch.ones(100), torch.zeros(80)]).double()
    balance = torch.cat([torch.full((100,), 1 / 100), torch.full((80,), 1 / 80)]).double()
    cross = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, weight=balance, reduction="sum")
    torch.testing.assert_close(bregman_loss("binary_kl", a, b), cross)


@pytest.mark.parametrize("name", BREGMAN)
def test_h_and_its_derivatives_fit_together(name):
    h, x = BREGMAN[name], torch.linspace(-3, 3, 50, dtype=torch.float64)
    r, step = x.exp(), 1e-6
    numeric = (h.h((r + step).log()) - h.h((r - step).log())) / (2 * step)
    torch.testing.assert_close(h.slope(x), numeric, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(h.on_p(x), -h.slope(x))
    torch.testing.assert_close(h.on_q(x), h.slope(x) * r - h.h(x))


@pytest.mark.parametrize("name", BREGMAN)
def test_loss_is_the_divergence_up_to_a_constant_and_least_at_the_true_ratio(name):
    def model(log_r):
        return 0.6 * log_r + 0.3

    excess = bregman_loss(name, model(LOG_P), model(LOG_Q)) - bregman_loss(name, LOG_P, LOG_Q)
    exact = bregman_divergence(name, LOG_Q, model(LOG_Q))
    assert exact > 0
    assert float(excess) == pytest.approx(exact, rel=0.15)
    assert bregman_divergence(name, LOG_Q, LOG_Q) == 0


def test_weights_and_gradients():
    a, b = LOG_P[:50].clone().requires_grad_(), LOG_Q[:50]
    weights = torch.arange(1, 51).double()
    weighted = bregman_loss("kl", a, b, q_weights=weights)
    torch.testing.assert_close(weighted, bregman_loss("kl", a, b.repeat_interleave(weights.long())))
    (slope,) = torch.autograd.grad(weighted, a)
    torch.testing.assert_close(slope, torch.full_like(slope, -1 / 50))


def test_bad_input_is_refused():
    with pytest.raises(UnknownName, match="Did you mean 'squared'"):
        bregman_loss("square", LOG_P, LOG_Q)
    with pytest.raises(InputError, match="2 long"):
        bregman_divergence("kl", [0.0, 0.0], [0.0])
    with pytest.raises(InputError, match="finite"):
        bregman_divergence("kl", [0.0, math.inf], [0.0, 0.0])
