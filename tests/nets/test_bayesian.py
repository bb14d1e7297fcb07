"""Mean-field layers against drawn weights, torch's own KL, and their own promises."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.nets import MLP, Conv
from vestige.nets.bayesian import BayesNet, MeanField, MeanFieldConv2d, MeanFieldLinear
from vestige.nets.vae import gaussian_kl


def normal(*shape, name="x"):
    return torch.randn(*shape, generator=rng.fork(0, name), dtype=torch.float64)


def linear():
    """A layer of 5 inputs and 3 outputs, in float64."""
    plain = nn.Linear(5, 3)
    plain.weight.data, plain.bias.data = normal(3, 5), normal(3, name="b")
    return MeanFieldLinear(plain, log_var=-1.0, prior_std=1.0).double()


def bayes_mlp(shape, hidden, k, **options):
    return BayesNet(MLP(shape, hidden, k, seed=0), **options)


def test_the_kl_is_that_of_torch():
    mean, log_var, prior_mean, prior_log_var = (normal(4, 3, name=n) for n in "abcd")
    mine = gaussian_kl(mean, log_var, prior_mean, prior_log_var).sum()
    theirs = kl_divergence(Normal(mean, (log_var / 2).exp()), Normal(prior_mean, (prior_log_var / 2).exp())).sum()
    torch.testing.assert_close(mine, theirs)


def test_draws_of_outputs_have_the_law_of_drawn_weights():
    """Mean and variance over many draws of x W' + b, W and b drawn one by one."""
    layer = linear()
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
    layer = linear()
    x = normal(7, 4, 5, name="in")
    assert layer(x, 7, rng.fork(1, "noise")).shape == (7, 4, 3)


def test_a_convolution_has_the_moments_of_drawn_kernels_at_every_pixel():
    plain = nn.Conv2d(3, 2, 3, padding=1)
    plain.weight.data, plain.bias.data = normal(2, 3, 3, 3), normal(2, name="b")
    layer = MeanFieldConv2d(plain, log_var=-1.0, prior_std=1.0).double()
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


@pytest.mark.parametrize("padding", [0, 1, "same"])
def test_a_convolution_keeps_its_padding(padding):
    plain, x = nn.Conv2d(3, 2, 3, padding=padding), torch.rand(2, 3, 6, 6, generator=rng.fork(0, "x"))
    mean, _ = MeanFieldConv2d(plain, log_var=-6.0, prior_std=1.0).moments(x)
    assert torch.equal(mean, plain(x))


@pytest.mark.parametrize("options", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"padding_mode": "circular"}])
def test_a_convolution_that_moves_otherwise_is_refused(options):
    with pytest.raises(InputError, match=f"'{next(iter(options))}' of a mean-field convolution must be"):
        MeanFieldConv2d(nn.Conv2d(2, 2, 3, **options), log_var=-6.0, prior_std=1.0)


def test_the_posterior_becomes_the_prior_of_the_rows_that_trained():
    net = bayes_mlp((2, 3), (4,), 5)
    rows = torch.tensor([0, 2])
    assert float(net.kl().detach()) > 0
    net.advance(rows)
    assert float(net.kl(rows).detach()) == 0
    assert float(net.kl().detach()) == pytest.approx(float(net.head.kl(torch.tensor([1, 3, 4])).detach()))
    net.forget_prior()
    fresh = bayes_mlp((2, 3), (4,), 5)
    assert float(net.kl().detach()) == pytest.approx(float(fresh.kl().detach()))


def test_means_start_at_a_fit_and_other_heads_stay():
    net, fitted = bayes_mlp((6,), (4,), 5), MLP((6,), (4,), 5, seed=1)
    for parameter in fitted.parameters():
        nn.init.ones_(parameter)
    before = net.head.weight.detach().clone()
    net.body[0].weight_log_var.data += 1
    net.start_at(fitted, rows=torch.tensor([1]))
    assert bool((net.body[0].weight == 1).all())
    assert bool((net.body[0].weight_log_var == -6).all())
    assert bool((net.head.weight[1] == 1).all())
    assert torch.equal(net.head.weight[[0, 2, 3, 4]], before[[0, 2, 3, 4]])


def test_samples_in_a_batch_are_distributed_as_samples_in_a_loop():
    net = bayes_mlp((6,), (8,), 3, log_var=-1.0)
    x = torch.randn(3, 6, generator=rng.fork(0, "x"))
    with torch.no_grad():
        batch = net(x, 4000, rng.fork(0, "a"))
        loop = torch.cat([net(x, 1, rng.fork(1, "b", i)) for i in range(1500)])
    error = batch.std(0) * (1 / len(batch) + 1 / len(loop)) ** 0.5
    assert bool(((batch.mean(0) - loop.mean(0)).abs() < 5 * error).all())
    torch.testing.assert_close(batch.std(0), loop.std(0), atol=0, rtol=0.15)


def layer_and_input(shared, rows=6):
    layer = linear()
    layer.weight_log_var.data += normal(3, 5, name="v") / 3
    return layer, normal(*(() if shared else (4,)), rows, 5, name="in")


@pytest.mark.parametrize("shared", [True, False])
def test_the_derivative_of_a_draw_is_that_of_autograd(shared):
    """The general form, which convolutions use, is written with plain operations."""
    layer, x = layer_and_input(shared)
    found = []
    for forward in (MeanField.forward, MeanFieldLinear.forward):
        entry = x.clone().requires_grad_()
        out = forward(layer, entry, 4, rng.fork(2, "noise"))
        slopes = torch.autograd.grad((out * normal(*out.shape, name="g")).sum(), [entry, *layer.parameters()])
        found.append([out, *slopes])
    assert len(found[0]) == 6
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain)


def test_the_derivative_of_the_kl_is_that_of_torch():
    mean, log_var, prior_mean, prior_log_var = (normal(4, 3, name=n) for n in "abcd")
    leaves = [mean.requires_grad_(), log_var.requires_grad_()]
    mine = torch.autograd.grad(2 * gaussian_kl(mean, log_var, prior_mean, prior_log_var).sum(), leaves)
    laws = Normal(mean, (log_var / 2).exp()), Normal(prior_mean, (prior_log_var / 2).exp())
    theirs = torch.autograd.grad(2 * kl_divergence(*laws).sum(), leaves)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_drawn_weights_give_each_row_the_law_of_drawn_outputs():
    layer, x = layer_and_input(shared=True)
    mean, std = layer.moments(x)
    draws = layer.drawn(x.expand(40_000, -1, -1), rng.fork(1, "noise"))
    torch.testing.assert_close(draws.mean(0), mean, atol=0.06, rtol=0)
    torch.testing.assert_close(draws.std(0), std, atol=0, rtol=0.03)


def test_drawn_weights_are_shared_between_rows_and_outputs_are_drawn_where_rows_are_few():
    layer, x = layer_and_input(shared=False)
    same = x[:, :1].expand(-1, 6, -1)
    draws = layer.drawn(same, rng.fork(1, "noise"))
    torch.testing.assert_close(draws, draws[:, :1].expand(-1, 6, -1))
    few = layer.drawn(same[:, :2], rng.fork(1, "noise"))
    assert float((few[:, 0] - few[:, 1]).abs().min()) > 0


@pytest.mark.parametrize("kind", [MLP, Conv])
def test_without_variance_it_is_the_plain_network(kind):
    plain = kind((7, 8), (5, 4), 3, seed=3)
    net = BayesNet(plain, log_var=-60.0)
    x = torch.rand(6, 7, 8, generator=rng.fork(0, "x"))
    logits = plain(x)
    torch.testing.assert_close(net(x, 2, rng.fork(0, "a")), logits.expand(2, -1, -1))
    torch.testing.assert_close(torch.cat(list(net.draw(x, 2, rng.fork(0, "a")))), logits.detach().expand(2, -1, -1))


def test_the_convolutional_one_draws_and_trains_every_weight():
    net = BayesNet(Conv((2, 6, 6), (5,), 3, seed=0))
    assert [tuple(layer.weight.shape) for layer in net.layers()] == [(32, 2, 3, 3), (64, 32, 3, 3), (5, 64), (3, 5)]
    logits = net(torch.rand(4, 2, 6, 6), 3, rng.fork(0, "a"))
    assert logits.shape == (3, 4, 3)
    logits.square().sum().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in net.parameters())


@pytest.mark.parametrize("rows_at_once", [32, 10**6])
def test_draws_come_in_parts_and_have_the_law_of_the_forward_pass(rows_at_once):
    net = bayes_mlp((3,), (4, 4), 3, log_var=-1.0)
    net.rows_at_once = rows_at_once
    x = torch.randn(5, 3, generator=rng.fork(0, "x"))
    parts = list(net.draw(x, 3000, rng.fork(0, "a")))
    assert max(len(part) for part in parts) == min(max(rows_at_once // 5, 1), 3000)
    drawn, passed = torch.cat(parts), net(x, 20_000, rng.fork(1, "b")).detach()
    assert drawn.shape == (3000, 5, 3)
    assert not drawn.requires_grad
    error = passed.std(0) * (1 / 3000 + 1 / 20_000) ** 0.5
    assert bool(((drawn.mean(0) - passed.mean(0)).abs() < 5 * error).all())
    torch.testing.assert_close(drawn.std(0), passed.std(0), atol=0, rtol=0.1)
