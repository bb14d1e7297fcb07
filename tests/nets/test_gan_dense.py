"""Dense networks of a GAN against a forward pass written out row by row."""

import pytest
import torch
from torch import nn

from vestige.nets.gan import SLOPE, ConditionalCritic, ConditionalGenerator, ProjectionHead, beside

CONDITIONS = torch.tensor([0, 2, 1, 2])


def leaky(h):
    return torch.where(h > 0, h, SLOPE * h)


def trained_statistics(net):
    """Running statistics and scales that are not those a network begins with."""
    generator = torch.Generator().manual_seed(5)
    for norm in net.norms:
        norm.running_mean.normal_(generator=generator)
        norm.running_var.uniform_(0.5, 2, generator=generator)
        nn.init.normal_(norm.weight, generator=generator)
        nn.init.normal_(norm.bias, generator=generator)
    return net


def row_of(net, z, c):
    """One sample in testing mode, layer after layer."""
    one_hot = torch.eye(3)[c]
    h = torch.cat([z, one_hot])
    for i, (layer, norm) in enumerate(zip(net.hidden, net.norms, strict=True)):
        h = layer.weight @ h + layer.bias
        h = (h - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        h = leaky(h) * net.get_buffer(f"gates_{i}")[c]
    return net.last.weight @ h + net.last.bias


@pytest.mark.parametrize("bounded", [True, False])
def test_generator_against_one_row_at_a_time(bounded):
    net = trained_statistics(ConditionalGenerator(2, 3, (6, 8), (4,), keep=0.5, bounded=bounded, seed=1)).eval()
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    rows = torch.stack([row_of(net, *pair) for pair in zip(z, CONDITIONS.tolist(), strict=True)])
    assert torch.allclose(net(z, CONDITIONS), torch.sigmoid(rows) if bounded else rows, atol=1e-5)


def test_a_condition_does_not_hear_the_units_that_are_switched_off_for_it():
    net = ConditionalGenerator(2, 3, (6, 8), (4,), keep=0.5, bounded=False, seed=1).eval()
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    before = net(z, CONDITIONS).detach()
    off = (net.get_buffer("gates_1")[2] == 0).nonzero()[0, 0]
    with torch.no_grad():
        net.last.weight[:, off] += 1
    moved = (net(z, CONDITIONS) != before).any(1)
    assert moved[CONDITIONS == 2].tolist() == [False, False]
    assert moved.any()  # the unit works for another
    assert net.get_buffer("gates_1").sum(1).tolist() == [4, 4, 4]


def test_small_networks_have_the_sizes_they_say():
    generator = ConditionalGenerator(64, 10, (128, 256), (28, 28), keep=0.5, bounded=True, seed=0)
    critic = ConditionalCritic((28, 28), 10, (256, 128), projection=False, seed=0)
    dense = (74 * 128 + 128) + (128 * 256 + 256) + (256 * 784 + 784)
    assert sum(p.numel() for p in generator.parameters()) == dense + 2 * 128 + 2 * 256
    assert sum(p.numel() for p in critic.parameters()) == (794 * 256 + 256) + (256 * 128 + 128) + (128 + 1)


@pytest.mark.parametrize("projection", [True, False])
def test_critic_against_one_row_at_a_time(projection):
    net = ConditionalCritic((5,), 3, (6, 4), projection=projection, seed=1)
    if projection:
        nn.init.normal_(net.last.own, generator=torch.Generator().manual_seed(2))
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    for value, row, c in zip(net(x, CONDITIONS), x, CONDITIONS.tolist(), strict=True):
        h = torch.cat([row, torch.eye(3)[c]])
        for layer in net.hidden[::2]:  # the others are leaky ReLUs
            h = leaky(layer.weight @ h + layer.bias)
        own = net.last.own[c] if projection else 0
        assert torch.allclose(value, (net.last.shared.weight[0] + own) @ h + net.last.shared.bias, atol=1e-6)


def test_a_projection_begins_at_nothing():
    plain, own = (ConditionalCritic((5,), 3, (6, 4), projection=p, seed=1) for p in (False, True))
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(plain(x, CONDITIONS), own(x, CONDITIONS))
    assert ProjectionHead(4, 3, projection=False).own is None


def test_one_hot_rows_stand_to_the_right():
    assert beside(torch.tensor([[7.0], [8.0]]), torch.tensor([2, 0]), 3).tolist() == [[7, 0, 0, 1], [8, 1, 0, 0]]
