"""A step, a mean over steps and statistics, each against the formula."""

import pytest
import torch
from torch import nn

from vestige.generators.adversarial import Player, follow, settle
from vestige.nets.gan import SLOPE, ConditionalGenerator


def line(weight):
    net = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([weight]))
    return net


@pytest.mark.parametrize(("clip", "norm", "clipped"), [(None, 5.0, 0), (10.0, 5.0, 0), (1.0, 1.0, 1)])
def test_gradient_is_scaled_to_the_norm_and_counted(clip, norm, clipped):
    net = line([1.0, -1.0])
    player = Player(net, 0.1, (0.5, 0.9))
    player.descend(net(torch.tensor([[3.0, -4.0]])).sum(), clip)
    assert net.weight.grad.norm() == pytest.approx(norm, rel=1e-4)
    # Adam's first step is the rate times the sign of the gradient, whatever its size
    assert net.weight.tolist()[0] == pytest.approx([0.9, -0.9], abs=1e-5)
    assert (player.steps, player.clipped) == (1, clipped)


def test_a_step_leaves_the_other_network_alone():
    generator, critic = line([1.0, 2.0]), nn.Linear(1, 1)
    Player(generator, 0.1, (0.5, 0.9)).descend(critic(generator(torch.ones(3, 2))).sum(), None)
    assert all(p.grad is None for p in critic.parameters())


def test_following_with_step_over_step_plus_one_is_the_plain_mean():
    averaged = line([9.0, 9.0])  # what stood there before does not linger
    for step, weight in enumerate([[1.0, 0.0], [2.0, 3.0], [6.0, 0.0]]):
        follow(averaged, line(weight), step / (step + 1))
    assert averaged.weight.tolist()[0] == pytest.approx([3.0, 1.0])
    follow(averaged, line([0.0, 0.0]), 0.9)
    assert averaged.weight.tolist()[0] == pytest.approx([2.7, 0.9])


def test_statistics_are_those_of_the_layers_inputs_over_all_conditions():
    net = ConditionalGenerator(2, 2, (4, 3), (5,), keep=0.5, bounded=False, seed=0).eval()
    for norm in net.norms:
        norm.running_mean.fill_(7.0)
    codes = torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
    conditions = torch.arange(2).repeat(15)
    settle(net, codes, conditions)
    h = torch.cat([codes, torch.eye(2)[conditions]], 1)
    for i, (layer, norm) in enumerate(zip(net.hidden, net.norms, strict=True)):
        h = layer(h)
        assert torch.allclose(norm.running_mean, h.mean(0), atol=1e-6)
        assert torch.allclose(norm.running_var, h.var(0), atol=1e-6)
        assert norm.momentum == 0.1
        h = (h - h.mean(0)) / (h.var(0, correction=0) + norm.eps).sqrt()
        h = nn.functional.leaky_relu(h, SLOPE) * net.get_buffer(f"gates_{i}")[conditions]


def test_a_gradient_reaches_the_weight_that_it_is_of():
    """Twice differentiated convolutions have gradients of other strides, which fused Adam on the CPU does not heed."""

    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Softplus(), torch.nn.Conv2d(3, 4, 3))

    def loss(made):
        x = torch.linspace(-1, 1, 3 * 2 * 6 * 6).reshape(3, 2, 6, 6).requires_grad_()
        (slope,) = torch.autograd.grad(made(x).square().sum(), x, create_graph=True)
        return slope.square().sum()

    ours, plain = net(), net()
    gradients = torch.autograd.grad(loss(ours), list(ours.parameters()), allow_unused=True, materialize_grads=True)
    assert any(g.stride() != p.stride() for g, p in zip(gradients, ours.parameters(), strict=True))
    Player(ours, 0.1, (0.5, 0.9)).descend(loss(ours), None)
    optimizer = torch.optim.Adam(plain.parameters(), 0.1, (0.5, 0.9), fused=False)
    loss(plain).backward()
    optimizer.step()
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
