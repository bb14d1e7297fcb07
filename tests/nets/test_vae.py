"""The two terms of the loss against torch's own distributions and a brute-force density; the network's shape."""

import math

import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from vestige.nets.vae import VAENet, gaussian_kl, gaussian_nll


def draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_kl_is_that_of_two_diagonal_gaussians():
    mean, log_var, prior_mean, prior_log_var = (draws(7, 4, seed=i) for i in range(4))
    expected = [
        kl_divergence(
            MultivariateNormal(mean[i], torch.diag(log_var[i].exp())),
            MultivariateNormal(prior_mean[i], torch.diag(prior_log_var[i].exp())),
        )
        for i in range(7)
    ]
    torch.testing.assert_close(gaussian_kl(mean, log_var, prior_mean, prior_log_var).sum(1), torch.stack(expected))


def test_kl_is_the_mean_of_a_log_ratio_of_densities():
    """By sampling: E_q [log q - log prior], within five standard errors."""
    mean, log_var, prior_mean, prior_log_var = (0.5 * draws(1, 3, seed=i) for i in range(4))
    q = Independent(Normal(mean[0], (0.5 * log_var[0]).exp()), 1)
    prior = Independent(Normal(prior_mean[0], (0.5 * prior_log_var[0]).exp()), 1)
    z = mean + draws(200_000, 3, seed=9) * (0.5 * log_var).exp()
    terms = q.log_prob(z) - prior.log_prob(z)
    error = float(terms.std()) / math.sqrt(len(z))
    assert abs(float(terms.mean() - gaussian_kl(mean, log_var, prior_mean, prior_log_var).sum())) < 5 * error


def test_kl_is_zero_to_itself_and_positive_else():
    mean, log_var = draws(5, 3), draws(5, 3, seed=1)
    assert float(gaussian_kl(mean, log_var, mean, log_var).abs().max()) == 0
    assert float(gaussian_kl(mean, log_var, mean + 0.1, log_var - 0.1).min()) > 0


def test_nll_is_the_density_of_an_isotropic_gaussian():
    x, mean = draws(6, 5), draws(6, 5, seed=1)
    expected = -Independent(Normal(mean, math.sqrt(0.1)), 1).log_prob(x)
    torch.testing.assert_close(gaussian_nll(x, mean, 0.1), expected)


def test_the_network_has_the_layers_of_the_appendix():
    """784-512-256-(64 + 64) and 64-256-256-784, with biases; counted by hand."""
    net = VAENet(784, 64, (512, 256), (256, 256), seed=0)
    encoder = (784 * 512 + 512) + (512 * 256 + 256) + (256 * 128 + 128)
    decoder = (64 * 256 + 256) + (256 * 256 + 256) + (256 * 784 + 784)
    assert sum(p.numel() for p in net.parameters()) == encoder + decoder == 850_064
    mean, log_var = net.encode(torch.rand(3, 784))
    assert mean.shape == log_var.shape == (3, 64)
    assert net.decode(mean).shape == (3, 784)


def test_a_draw_is_mean_plus_deviation_times_noise():
    net = VAENet(6, 2, (5,), (5,), seed=0)
    x, noise = torch.rand(4, 6), torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    decoded, mean, log_var = net(x, noise)
    assert torch.equal(torch.stack(net.encode(x)), torch.stack([mean, log_var]))
    torch.testing.assert_close(decoded, net.decode(mean + noise * log_var.exp().sqrt()))


def test_initialisation_follows_the_seed_alone():
    state = torch.random.get_rng_state()
    one, two, other = (VAENet(6, 2, (5,), (5,), seed=s).encoder[0].weight for s in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())
