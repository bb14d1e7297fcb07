"""Closed forms between Gaussians against numerical integration, known values and each other."""

import math

import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.ratios.divergences import FAMILY, Gaussian, gaussian_divergence, get
from vestige_papers.cdre.drifts import integrated_divergence

NAMES = [*FAMILY, "alpha(0.3)", "alpha(1.5)", "alpha(-0.5)"]
TILTED = Gaussian(torch.tensor([0.3, -0.2]), torch.tensor([[1.1, 0.2], [0.2, 0.9]]))
PLAIN = Gaussian(torch.tensor([0.0, 0.1]), torch.tensor([[1.0, -0.1], [-0.1, 1.0]]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("mean", "std"), [(0.4, 1.1), (-1.0, 0.9), (0.0, 1.0), (2.5, 1.0)])
def test_one_dimension_against_integration(name, mean, std):
    p, q = Gaussian.isotropic(0.0, 1.0, 1), Gaussian.isotropic(mean, std, 1)
    numeric = integrated_divergence(name, p.log_prob, q.log_prob, [-30.0], [30.0], points=60_001)
    assert gaussian_divergence(name, p, q) == pytest.approx(numeric, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_two_dimensions_with_full_covariances_against_integration(name):
    numeric = integrated_divergence(name, TILTED.log_prob, PLAIN.log_prob, [-12.0, -12.0], [12.0, 12.0], points=801)
    assert gaussian_divergence(name, TILTED, PLAIN) == pytest.approx(numeric, rel=2e-4, abs=1e-6)


def test_the_drift_of_the_paper_has_its_known_values():
    real = Gaussian.isotropic(0.0, 1.0, 2)
    assert gaussian_divergence("kl", real, Gaussian.isotropic(0.5, 0.5, 2)) == pytest.approx(2.614, abs=5e-4)
    wide, far = Gaussian.isotropic(0.0, 1.0, 100), Gaussian.isotropic(0.2, 0.8, 100)
    assert gaussian_divergence("kl", wide, far) == pytest.approx(8.936, abs=5e-4)


@pytest.mark.parametrize(("std", "finite"), [(0.72, True), (0.7072, True), (0.707, False), (0.5, False)])
def test_pearson_is_infinite_where_q_is_too_narrow(std, finite):
    p, q = Gaussian.isotropic(0.0, 1.0, 3), Gaussian.isotropic(0.1, std, 3)
    assert math.isfinite(gaussian_divergence("pearson_chi2", p, q)) == finite
    assert math.isfinite(gaussian_divergence("neyman_chi2", q, p)) == finite
    assert math.isfinite(gaussian_divergence("kl", p, q))


@pytest.mark.parametrize("name", NAMES)
def test_exchange_of_the_laws_is_the_reverse_divergence(name):
    there, back = gaussian_divergence(name, TILTED, PLAIN), gaussian_divergence(get(name).reverse, PLAIN, TILTED)
    assert there == pytest.approx(back, rel=1e-6)
    assert there > 0
    assert gaussian_divergence(name, TILTED, TILTED) == pytest.approx(0, abs=1e-9)


def test_equal_covariances_in_many_dimensions_reduce_to_one():
    # with a common covariance only the Mahalanobis distance counts
    many, one = Gaussian.isotropic(0.0, 2.0, 64), Gaussian.isotropic(0.0, 1.0, 1)
    moved_many, moved_one = Gaussian.isotropic(0.25, 2.0, 64), Gaussian.isotropic(1.0, 1.0, 1)
    for name in NAMES:
        value = gaussian_divergence(name, many, moved_many)
        assert value == pytest.approx(gaussian_divergence(name, one, moved_one), rel=1e-6)
    assert gaussian_divergence("total_variation", one, moved_one) == pytest.approx(math.erf(1 / (2 * math.sqrt(2))))


@pytest.mark.parametrize("gap", [1e-5, 1e-3, 0.1, 6.0])
def test_total_variation_of_a_shift_is_an_error_function_at_every_size(gap):
    p, q = Gaussian.isotropic(0.0, 1.0, 1), Gaussian.isotropic(gap, 1.0, 1)
    truth = math.erf(gap / (2 * math.sqrt(2)))
    assert gaussian_divergence("total_variation", p, q) == pytest.approx(truth, abs=1e-9)


def test_alpha_tends_to_kl_and_reverse_kl():
    assert gaussian_divergence("alpha(1.000001)", TILTED, PLAIN) == pytest.approx(
        gaussian_divergence("kl", TILTED, PLAIN), rel=1e-5
    )
    assert gaussian_divergence("alpha(0.000001)", TILTED, PLAIN) == pytest.approx(
        gaussian_divergence("reverse_kl", TILTED, PLAIN), rel=1e-5
    )
    assert gaussian_divergence("alpha(1)", TILTED, PLAIN) == gaussian_divergence("kl", TILTED, PLAIN)


def test_density_is_torch_s_and_samples_have_its_moments():
    x = TILTED.sample(50_000, generator=rng.fork(0, "x"))
    reference = torch.distributions.MultivariateNormal(TILTED.mean, TILTED.cov)
    torch.testing.assert_close(TILTED.log_prob(x), reference.log_prob(x))
    torch.testing.assert_close(x.mean(0), TILTED.mean, atol=0.02, rtol=0)
    torch.testing.assert_close(x.mT.cov(), TILTED.cov, atol=0.03, rtol=0)
    assert torch.equal(x, TILTED.sample(50_000, generator=rng.fork(0, "x")))


def test_bad_gaussians_are_refused():
    with pytest.raises(InputError, match="positive definite"):
        Gaussian(torch.zeros(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(InputError, match="symmetric"):
        Gaussian(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.0, 1.0]]))
    with pytest.raises(InputError, match="finite"):
        Gaussian(torch.tensor([math.nan]), torch.eye(1))
    with pytest.raises(InputError, match="as wide as 'p'"):
        gaussian_divergence("kl", TILTED, Gaussian.isotropic(0.0, 1.0, 3))
    with pytest.raises(InputError, match="'std'"):
        Gaussian.isotropic(0.0, 0.0, 1)
    with pytest.raises(InputError, match="one or two dimensions"):
        integrated_divergence("kl", TILTED.log_prob, TILTED.log_prob, [0.0] * 3, [1.0] * 3)
