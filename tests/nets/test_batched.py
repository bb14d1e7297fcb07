"""Batched networks against a loop of nn.Linear, and the one-product gradient against autograd."""

import pytest
import torch
from torch import nn

from vestige.nets import BatchedMLP
from vestige.nets.batched import gradients
from vestige.store.codec import decode, encode

ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def build(members=3, sizes=(2, 5, 4, 1), **options):
    return BatchedMLP.initial(members, sizes, generator=generator(), dtype=torch.float64, **options)


def loop(net, i, activation):
    """Member i as an nn.Sequential."""
    layers = []
    for w, b in zip(net.weights, net.biases, strict=True):
        linear = nn.Linear(w.shape[1], w.shape[2], dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(w[i].mT)
            linear.bias.copy_(b[i, 0])
        layers += [linear, ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_outputs_and_gradients_are_those_of_separate_networks(activation):
    net = build(activation=activation)
    x = torch.randn(3, 7, 2, generator=generator(1), dtype=torch.float64)
    net(x).square().sum().backward()
    for i in range(3):
        single = loop(net, i, activation)
        out = single(x[i])
        torch.testing.assert_close(net(x)[i], out)
        out.square().sum().backward()
        for layer, w in zip([m for m in single if isinstance(m, nn.Linear)], net.weights, strict=True):
            torch.testing.assert_close(w.grad[i], layer.weight.grad.mT)


def test_one_batch_serves_every_member():
    net, x = build(skip=True), torch.randn(6, 2, generator=generator(1), dtype=torch.float64)
    torch.testing.assert_close(net(x), net(x.expand(3, 6, 2)))


def test_the_skip_is_linear_and_starts_at_zero():
    net, plain = build(skip=True), build()
    x = torch.randn(6, 2, generator=generator(1), dtype=torch.float64)
    torch.testing.assert_close(net(x), plain(x))
    with torch.no_grad():
        net.skip.copy_(torch.randn(net.skip.shape, generator=generator(2), dtype=torch.float64))
    torch.testing.assert_close(net(x) - plain(x), torch.einsum("nd,mdk->mnk", x, net.skip))


@pytest.mark.parametrize("skip", [False, True])
def test_state_goes_out_and_comes_back(skip):
    net = build(skip=skip, activation="tanh")
    x = torch.randn(6, 2, generator=generator(1), dtype=torch.float64)
    back = decode(BatchedMLP, *encode(net))
    assert back.members == 3
    assert torch.equal(back(x), net(x))


def test_a_stack_holds_every_network_in_order():
    nets = [BatchedMLP.initial(1, (2, 3, 1), generator=generator(i), activation="tanh") for i in range(3)]
    x = torch.randn(6, 2, generator=generator(1))
    torch.testing.assert_close(BatchedMLP.stack(nets)(x), torch.cat([net(x) for net in nets]))


@pytest.mark.parametrize("sizes", [(2, 9, 1), (2, 5, 4, 1)])
@pytest.mark.parametrize("skip", [False, True])
def test_gradients_are_autograd_s(sizes, skip):
    net = build(sizes=sizes, skip=skip)
    x = torch.randn(3, 7, 2, generator=generator(1), dtype=torch.float64)
    weights = torch.rand(3, 7, generator=generator(2), dtype=torch.float64)
    found = gradients(net, x, lambda out: 2 * weights * out)
    (weights * net(x).squeeze(2).square()).sum().backward()
    for gradient, parameter in zip(found, net.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_zero_last_starts_at_zero_everywhere():
    assert not build(zero_last=True)(torch.randn(5, 2, dtype=torch.float64, generator=generator())).any()
