"""Mean-field layers against drawn weights, torch's own KL, and their own promises."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from vestige import rng
from vestige.nets.bayes import BayesMLP, MeanFieldConv2d, MeanFieldLinear, gaussian_kl


def normal(*shape, name="x"):
    return torch.randn(*shape, generator=rng.fork(0, name), dtype=torch.float64)


def test_the_kl_is_that_of_torch():
    mean, log_var, prior_mean, prior_log_var = (normal(4, 3, name=n) for n in "abcd")
    mine = gaussian_kl(mean, log_var, prior_mean, prior_log_var)
    theirs = kl_divergence(Normal(mean, (log_var / 2).exp()), Normal(prior_mean, (prior_log_var / 2).exp())).sum()
    torch.testing.assert_close(mine, theirs)


def test_draws_of_outputs_have_the_law_of_drawn_weights():
    """Mean and variance over many draws of x W' + b, W and b drawn one by one."""
    layer = MeanFieldLinear(normal(3, 5), normal(3, name="b"), log_var=-1.0, prior_std=1.0).double()
    layer.weight_log_var.data += normal(3, 5, name="v") / 3
    x, draws = normal(4, 5, name="in"), 40_000
    w = layer.weight + (layer.weight_log_var / 2).exp() * normal(draws, 3, 5, name="w")
    b = layer.bias + (layer.bias_log_var / 2).exp() * normal(draws, 3, name="bias")
    slow = torch.einsum("ni,soi->sno", x, w) + b[:, None]
    fast = layer(x, draws, rng.fork(1, "noise"))
    assert fast.shape == slow.shape
    torch.testing.assert_close(fast.mean(0), slow.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(fast.var(0), slow.var(0), atol=0, rtol=0.06)


def test_an_input_with_samples_gets_one_draw_each():
    layer = MeanFieldLinear(normal(3, 5), normal(3, name="b"), log_var=-1.0, prior_std=1.0).double()
    x = normal(7, 4, 5, name="in")
    assert layer(x, 7, rng.fork(1, "noise")).shape == (7, 4, 3)


def test_a_convolution_has_the_moments_of_drawn_kernels_at_every_pixel():
    layer = MeanFieldConv2d(normal(2, 3, 3, 3), normal(2, name="b"), log_var=-1.0, prior_std=1.0, padding=1).double()
    x, draws = normal(2, 3, 4, 4, name="in"), 4000
    fast = layer(x, draws, rng.fork(1, "noise"))
    mean = functional.conv2d(x, layer.weight, layer.bias, padding=1)
    w = layer.weight + (layer.weight_log_var / 2).exp() * normal(2000, 2, 3, 3, 3, name="w")
    b = layer.bias + (layer.bias_log_var / 2).exp() * normal(2000, 2, name="bias")
    slow = torch.stack([functional.conv2d(x, wi, bi, padding=1) for wi, bi in zip(w, b, strict=True)])
    torch.testing.assert_close(fast.mean(0), mean, atol=0.15, rtol=0)
    torch.testing.assert_close(fast.var(0), slow.var(0), atol=0, rtol=0.2)
    again = layer(fast[:5, :, :1].expand(-1, -1, 3, -1, -1), 5, rng.fork(1, "noise"))
    assert again.shape == (5, 2, 2, 4, 4)


def test_the_posterior_becomes_the_prior_of_the_rows_that_trained():
    net = BayesMLP((2, 3), (4,), 5, seed=0)
    rows = torch.tensor([0, 2])
    assert float(net.kl().detach()) > 0
    net.advance(rows)
    assert float(net.kl(rows).detach()) == 0
    assert float(net.kl().detach()) == pytest.approx(float(net.head.kl(torch.tensor([1, 3, 4])).detach()))
    net.forget_prior()
    fresh = BayesMLP((2, 3), (4,), 5, seed=0)
    assert float(net.kl().detach()) == pytest.approx(float(fresh.kl().detach()))


def test_means_start_at_a_fit_and_other_heads_stay():
    net = BayesMLP((6,), (4,), 5, seed=0)
    before = net.head.weight.detach().clone()
    net.body[0].weight_log_var.data += 1
    net.start_at([torch.ones(4, 6), torch.ones(5, 4)], [torch.ones(4), torch.ones(5)], rows=torch.tensor([1]))
    assert bool((net.body[0].weight == 1).all())
    assert bool((net.body[0].weight_log_var == -6).all())
    assert bool((net.head.weight[1] == 1).all())
    assert torch.equal(net.head.weight[[0, 2, 3, 4]], before[[0, 2, 3, 4]])


def test_samples_in_a_batch_are_distributed_as_samples_in_a_loop():
    net = BayesMLP((6,), (8,), 3, seed=0, log_var=-1.0)
    x = torch.randn(3, 6, generator=rng.fork(0, "x"))
    with torch.no_grad():
        batch = net(x, 4000, rng.fork(0, "a"))
        loop = torch.cat([net(x, 1, rng.fork(1, "b", i)) for i in range(1500)])
    error = batch.std(0) * (1 / len(batch) + 1 / len(loop)) ** 0.5
    assert bool(((batch.mean(0) - loop.mean(0)).abs() < 5 * error).all())
    torch.testing.assert_close(batch.std(0), loop.std(0), atol=0, rtol=0.15)
