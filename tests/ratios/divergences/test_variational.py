"""Variational bounds: tight at the optimal critic, below the truth for any other, refused outside the domain.

Bregman losses against the formulas of LSIF, KLIEP and logistic regression, and against the divergence itself.
"""

import math

import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError, UnknownName
from vestige.ratios.divergences import (
    BREGMAN,
    FAMILY,
    Gaussian,
    bregman_divergence,
    bregman_loss,
    donsker_varadhan,
    estimate,
    f_bound,
    gaussian_divergence,
    get,
)

P, Q = Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.2, 1.1, 2)
X_P, X_Q = P.sample(40_000, generator=rng.fork(0, "p")), Q.sample(40_000, generator=rng.fork(0, "q"))
LOG_P, LOG_Q = P.log_prob(X_P) - Q.log_prob(X_P), P.log_prob(X_Q) - Q.log_prob(X_Q)
NAMES = [*FAMILY, "alpha(0.3)", "alpha(1.5)", "alpha(-0.5)"]


@pytest.mark.parametrize("name", NAMES)
def test_the_slope_is_the_best_critic(name):
    div, truth = get(name), gaussian_divergence(name, P, Q)
    tight = f_bound(name, div.slope(LOG_P), div.slope(LOG_Q))
    assert abs(tight.value - truth) < 3.5 * tight.std_error
    wrong = f_bound(name, div.slope(0.3 * LOG_P - 0.4), div.slope(0.3 * LOG_Q - 0.4))
    assert wrong.value < truth - 3 * wrong.std_error


def test_kl_by_hand():
    found = f_bound("kl", LOG_P, LOG_Q)
    assert found.value == pytest.approx(float(LOG_P.mean() - (LOG_Q - 1).exp().mean()))


def test_donsker_varadhan_is_tight_shift_free_and_above_nguyen_wainwright_jordan():
    bound = donsker_varadhan(LOG_P + 900, LOG_Q + 900)
    assert abs(bound.value - gaussian_divergence("kl", P, Q)) < 3.5 * bound.std_error
    assert bound.value == pytest.approx(float(LOG_P.mean() - LOG_Q.exp().mean().log()))
    assert bound.std_error == pytest.approx(estimate("kl", LOG_Q, LOG_P, normalise=True).std_error)
    for scale in (0.3, 0.8, 1.5):
        assert donsker_varadhan(scale * LOG_P, scale * LOG_Q).value >= f_bound("kl", scale * LOG_P, scale * LOG_Q).value


def test_weights_stand_in_for_repeats():
    few_p, few_q = LOG_P[:50], LOG_Q[:50]
    weights = torch.arange(1, 51)
    repeated = donsker_varadhan(few_p, few_q.repeat_interleave(weights))
    assert donsker_varadhan(few_p, few_q, q_weights=weights).value == pytest.approx(repeated.value)
    repeated = f_bound("kl", few_p.repeat_interleave(weights), few_q)
    assert f_bound("kl", few_p, few_q, p_weights=weights).value == pytest.approx(repeated.value)


def test_bad_critics_are_refused():
    with pytest.raises(InputError, match="below 0 for reverse_kl"):
        f_bound("reverse_kl", [-1.0, -2.0], [-1.0, 0.5])
    with pytest.raises(InputError, match=r"below 0\.3466 for js"):
        f_bound("js", [0.1, 0.6], [0.1, 0.2])
    with pytest.raises(InputError, match="finite"):
        donsker_varadhan([0.0, math.nan], [0.0, 0.0])


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
    h = {
        "squared": lambda r: (r - 1) ** 2 / 2,
        "kl": lambda r: r * r.log() - r,
        "binary_kl": lambda r: r * r.log() - (1 + r) * (1 + r).log(),
    }[name]
    x, step = torch.linspace(-3, 3, 50, dtype=torch.float64), 1e-6
    r, maps = x.exp(), BREGMAN[name]
    torch.testing.assert_close(maps.slope(x), (h(r + step) - h(r - step)) / (2 * step), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(maps.rest(x), maps.slope(x) * r - h(r))
    model = 0.5 * x
    by_definition = (h(r) - h(model.exp()) - maps.slope(model) * (r - model.exp())).mean()
    assert bregman_divergence(name, x, model) == pytest.approx(float(by_definition), rel=1e-9)


@pytest.mark.parametrize("name", BREGMAN)
def test_loss_is_the_divergence_up_to_a_constant_and_least_at_the_true_ratio(name):
    def model(log_r):
        return 0.6 * log_r + 0.3

    excess = bregman_loss(name, model(LOG_P), model(LOG_Q)) - bregman_loss(name, LOG_P, LOG_Q)
    exact = bregman_divergence(name, LOG_Q, model(LOG_Q))
    assert exact > 0
    assert float(excess) == pytest.approx(exact, rel=0.15)
    assert bregman_divergence(name, LOG_Q, LOG_Q) == 0


def test_weights_and_gradients_of_a_bregman_loss():
    a, b = LOG_P[:50].clone().requires_grad_(), LOG_Q[:50]
    weights = torch.arange(1, 51).double()
    weighted = bregman_loss("kl", a, b, q_weights=weights)
    torch.testing.assert_close(weighted, bregman_loss("kl", a, b.repeat_interleave(weights.long())))
    (slope,) = torch.autograd.grad(weighted, a)
    torch.testing.assert_close(slope, torch.full_like(slope, -1 / 50))


def test_bad_bregman_input_is_refused():
    with pytest.raises(UnknownName, match="Did you mean 'squared'"):
        bregman_loss("square", LOG_P, LOG_Q)
    with pytest.raises(InputError, match="2 long"):
        bregman_divergence("kl", [0.0, 0.0], [0.0])
    with pytest.raises(InputError, match="finite"):
        bregman_divergence("kl", [0.0, math.inf], [0.0, 0.0])
