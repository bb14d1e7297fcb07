"""Variational bounds: tight at the optimal critic, below the truth for any other, refused outside the domain."""

import math

import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.ratios.divergences import FAMILY, Gaussian, donsker_varadhan, estimate, f_bound, gaussian_divergence, get

P, Q = Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.2, 1.1, 2)
X_P, X_Q = P.sample(20_000, generator=rng.fork(0, "p")), Q.sample(20_000, generator=rng.fork(0, "q"))
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
