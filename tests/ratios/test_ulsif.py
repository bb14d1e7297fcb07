import math

import numpy as np
import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError, NotFitted
from vestige.ratios.kernels import gaussian
from vestige.ratios.least_squares import RULSIF, ULSIF


def normal(n, mean, scale, name, d=2):
    noise = torch.randn(n, d, generator=rng.fork(0, name), dtype=torch.float64)
    return torch.tensor(mean, dtype=torch.float64) + scale * noise


def log_density(x, mean, scale):
    z = (x - torch.tensor(mean, dtype=torch.float64)) / scale
    return -z.square().sum(1) / 2 - x.shape[1] * math.log(scale)


P, Q = ([0.0, 0.0], 1.0), ([0.5, 0.5], 1.2)


def fitted(estimator, n=2000, p=P, q=Q, **options):
    return estimator.fit(normal(n, *p, "p"), normal(n, *q, "q"), **options)


def error(fit, p=P, q=Q):
    x = torch.cat([normal(2000, *p, "test p"), normal(2000, *q, "test q")])
    return float((fit.log_ratio(x) - log_density(x, *p) + log_density(x, *q)).square().mean())


@pytest.mark.parametrize(
    ("estimator", "bound"), [(ULSIF(), 0.06), (RULSIF(0.1), 0.06), (RULSIF(0.5), 0.03)], ids=["ulsif", "0.1", "0.5"]
)
def test_log_ratio_of_two_gaussians(estimator, bound):
    fit = fitted(estimator)
    assert error(fit) < bound  # E[(log r)^2] itself is 0.4
    assert fit.report_["converged"]


def test_p_wider_than_q_where_a_positive_fit_fails():
    wide, narrow = ([0.5, 0.0], 1.2), ([0.0, 0.0], 1.0)
    assert error(fitted(ULSIF(), p=wide, q=narrow), wide, narrow) < 0.15


def test_the_chosen_pair_is_the_best_of_single_fits():
    """Cross-validation over a grid picks what the scores of one-candidate fits say."""
    grid = {(m, r): fitted(ULSIF(bandwidths=(m,), lambdas=(r,)), 300) for m in (0.3, 1.0) for r in (1e-4, 1e-1)}
    best = min(grid, key=lambda key: grid[key].report_["loo_score"])
    fit = fitted(ULSIF(bandwidths=(0.3, 1.0), lambdas=(1e-4, 1e-1)), 300)
    assert fit.report_["lambda"] == best[1]
    assert fit.report_["sigma"] == pytest.approx(best[0] * fit.report_["median_distance"])
    x = normal(50, [0.0, 0.0], 1.0, "x")
    torch.testing.assert_close(fit.log_ratio(x), grid[best].log_ratio(x))


def test_theta_solves_the_normal_equations_of_the_stored_kernels():
    p, q = normal(400, *P, "p"), normal(300, *Q, "q")
    fit = ULSIF(normalise=False).fit(p, q)
    phi_p, phi_q = (gaussian(fit.kernels_.squared_distances(x), fit.sigma_) for x in (p, q))
    left = phi_q.T @ (phi_q @ fit.theta_) / 300 + fit.report_["lambda"] * fit.theta_
    torch.testing.assert_close(left, phi_p.mean(0), atol=1e-9, rtol=1e-7)
    high = phi_q @ fit.theta_ > 0.03  # above the floor log r is the logarithm of the fit and nothing else
    torch.testing.assert_close(fit.log_ratio(q)[high], (phi_q @ fit.theta_)[high].log())


def test_the_floor_and_the_least_are_counted_and_bind():
    p, q = normal(300, [0.0, 0.0], 0.3, "p"), normal(300, [2.0, 2.0], 1.0, "q")
    fit = ULSIF(normalise=False, floor=0.05, least=1e-3).fit(p, q)
    both = torch.cat([p, q])
    phi = gaussian(fit.kernels_.squared_distances(both), fit.sigma_)
    raw, positive = phi @ fit.theta_, phi @ fit.positive_
    log_r = fit.log_ratio(both)
    assert fit.report_["clips"]["floor"] == int((raw < positive.clamp(1e-3, 0.05)).sum()) > 0
    assert fit.report_["clips"]["least"] == int((log_r <= math.log(1e-3) + 1e-12).sum()) > 0
    assert float(log_r.min()) == pytest.approx(math.log(1e-3))
    torch.testing.assert_close(log_r, torch.maximum(raw, positive.clamp(1e-3, 0.05)).log())


@pytest.mark.parametrize("estimator", [ULSIF(), RULSIF(0.3)], ids=["ulsif", "rulsif"])
def test_the_mean_over_q_is_one_under_its_weights(estimator):
    p, q = normal(300, *P, "p"), normal(400, *Q, "q")
    weights = torch.rand(400, generator=rng.fork(0, "w"), dtype=torch.float64)
    fit = estimator.fit(p, q, q_weights=weights)
    assert float((weights * fit.log_ratio(q).exp()).sum() / weights.sum()) == pytest.approx(1, abs=1e-9)


def test_rulsif_inverts_the_relative_ratio():
    fit = fitted(RULSIF(0.25, normalise=False), 500)
    x = normal(100, [0.2, 0.2], 1.0, "x")
    r, g = fit.log_ratio(x).exp(), fit.relative(x)
    torch.testing.assert_close(g, r / (0.25 * r + 0.75))
    phi = gaussian(fit.kernels_.squared_distances(x), fit.sigma_)
    high = (phi @ fit.theta_ > 0.03) & (phi @ fit.theta_ < 0.999 / 0.25)
    torch.testing.assert_close(g[high], (phi @ fit.theta_)[high])
    assert isinstance(fit.relative(x.numpy()), np.ndarray)


def test_rulsif_of_alpha_zero_is_ulsif():
    x = normal(50, [0.0, 0.0], 1.0, "x")
    assert torch.equal(fitted(RULSIF(0.0), 300).log_ratio(x), fitted(ULSIF(), 300).log_ratio(x))


def test_rulsif_is_capped_where_q_has_no_mass_and_says_so():
    p, q = normal(300, [4.0, 0.0], 0.5, "p"), normal(300, [0.0, 0.0], 1.0, "q")
    fit = RULSIF(0.5, cap=0.9, normalise=False).fit(p, q)
    highest = float(fit.log_ratio(torch.cat([p, q])).max())
    assert highest == pytest.approx(math.log(0.9 / 0.1), abs=1e-9)  # (1 - alpha) g / (1 - alpha g) at alpha g = 0.9
    assert fit.report_["clips"]["cap"] > 0
    assert fit.report_["bounds"] == {"floor": 0.03, "least": 1e-12, "cap": 0.9}


def test_weights_of_p_select_samples():
    p, q = normal(600, *P, "p"), normal(600, *Q, "q")
    shifted = torch.cat([p, p + 3.0])
    weights = torch.cat([torch.ones(600), torch.zeros(600)])
    x = normal(50, [0.0, 0.0], 1.0, "x")
    plain, selected = ULSIF().fit(p, q), ULSIF().fit(shifted, q, p_weights=weights)
    torch.testing.assert_close(selected.log_ratio(x), plain.log_ratio(x), atol=1e-4, rtol=1e-4)


def test_weights_of_q_shift_the_ratio():
    """Weights proportional to p/q turn q into p: the ratio becomes one."""
    p, q = normal(3000, *P, "p"), normal(3000, *Q, "q")
    weights = (log_density(q, *P) - log_density(q, *Q)).exp()
    fit = ULSIF().fit(p, q, q_weights=weights)
    assert float(fit.log_ratio(normal(500, *P, "x")).abs().mean()) < 0.08
    assert float(ULSIF().fit(p, q).log_ratio(normal(500, *P, "x")).abs().mean()) > 0.2


@pytest.mark.parametrize("estimator", [ULSIF(), RULSIF(0.2)], ids=["ulsif", "rulsif"])
def test_save_and_load_give_the_same_ratio(estimator, tmp_path):
    fit = fitted(estimator, 200)
    again = type(estimator).load(fit.save(tmp_path / "ratio.json"))
    x = normal(50, [0.0, 0.0], 1.0, "x")
    assert torch.equal(again.log_ratio(x), fit.log_ratio(x))
    assert again.report_ == fit.report_


def test_nothing_stored_is_a_row_of_p():
    p, q = normal(300, *P, "p"), normal(300, *Q, "q")
    fit = ULSIF().fit(p, q)
    kernels = fit.kernels_
    rows = kernels.centres * kernels.standardise.scale + kernels.standardise.shift
    distance = [(rows[:, None] - x).square().sum(2).sqrt() for x in (p, q)]
    assert distance[0].min() > 1e-6
    assert distance[1].amin(1).max() < 1e-12
    assert "median distance" in fit.report_["kept_of_p"]


def test_same_seed_same_bits_and_rows_do_not_see_each_other():
    one, two = fitted(ULSIF(), 300, seed=5), fitted(ULSIF(), 300, seed=5)
    x = normal(70, [0.0, 0.0], 1.0, "x")
    assert torch.equal(one.log_ratio(x), two.log_ratio(x))
    assert not torch.equal(one.log_ratio(x), fitted(ULSIF(), 300, seed=6).log_ratio(x))
    torch.testing.assert_close(one.log_ratio(x[:1]), one.log_ratio(x)[:1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("estimator", [ULSIF(), RULSIF(0.1)], ids=["ulsif", "rulsif"])
@pytest.mark.parametrize(
    ("p", "q"),
    [
        (torch.zeros(20, 2), torch.zeros(20, 2)),  # one point on both sides
        (torch.ones(20, 2), torch.randn(20, 2, generator=rng.fork(0, "q"))),
        (torch.randn(20, 2, generator=rng.fork(0, "p")), torch.ones(20, 2)),
        (torch.randn(2, 5, generator=rng.fork(0, "p")), torch.randn(3, 5, generator=rng.fork(0, "q"))),  # n < d
        (torch.randn(50, 2, generator=rng.fork(0, "p")) + 1e4, torch.randn(50, 2, generator=rng.fork(0, "q"))),
        (torch.arange(20)[:, None] % 3, torch.arange(30)[:, None] % 4),  # whole numbers with many ties
    ],
    ids=["constant", "constant p", "constant q", "n < d", "far apart", "ties"],
)
def test_degenerate_samples_give_finite_answers(estimator, p, q):
    fit = estimator.fit(p, q)
    assert bool(torch.isfinite(fit.log_ratio(torch.cat([p, q]).double())).all())
    if (p.shape == q.shape) and bool((p == q).all()):
        torch.testing.assert_close(fit.log_ratio(q.double()), torch.zeros(len(q)).double())


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (ULSIF(max_centres=0), "max_centres"),
        (ULSIF(bandwidths=()), "bandwidths"),
        (ULSIF(lambdas=(0.0,)), "lambdas"),
        (ULSIF(least=0.0), "least"),
        (ULSIF(floor=2.0), "floor"),
        (RULSIF(1.0), "alpha"),
        (RULSIF(-0.1), "alpha"),
        (RULSIF(0.1, cap=1.0), "cap"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_settings_that_cannot_be_used_are_refused(estimator, name):
    with pytest.raises(InputError, match=f"The '{name}' of .* must be"):
        fitted(estimator, 20)


def test_a_weight_on_one_sample_alone_is_refused():
    one = torch.zeros(20)
    one[3] = 1.0
    with pytest.raises(InputError, match=r"The .p_weights. of ULSIF\.fit must be spread over at least 2 samples"):
        fitted(ULSIF(), 20, p_weights=one)


def test_relative_before_fit():
    with pytest.raises(NotFitted):
        RULSIF(0.1).relative(torch.zeros(3, 2))
