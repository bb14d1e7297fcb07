"""The written-out gradient against autograd, systematic draws, and the independence of members."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from vestige.nets.training import systematic
from vestige.ratios.stack.nets import JointNets, StackSchedule, train, write_gradient


def nets(members=4, m=6, d=2, seed=0, zero=False):
    g = torch.Generator().manual_seed(seed)
    made = JointNets.zero(members, m, [d, 5, 7, 1], generator=g)
    if not zero:
        with torch.no_grad():
            for t in made.tensors():
                t.copy_(torch.randn(t.shape, generator=g) * 0.5)
    return made


def test_gradient_equals_autograd():
    made = nets()
    g = torch.Generator().manual_seed(1)
    phi, sign = torch.randn(4, 30, 6, generator=g), torch.where(torch.arange(30) < 15, 1.0, -1.0)
    into = [torch.empty_like(t) for t in made.tensors()]
    with torch.no_grad():
        write_gradient(made, phi, sign, into)
    leaves = [t.detach().clone().requires_grad_() for t in made.tensors()]
    w, b = leaves[1:4], leaves[4:]
    h = phi[:, :, 1:3]
    for i in range(3):
        h = h @ w[i] + b[i]
        h = h.relu() if i < 2 else h
    logits = (h + phi @ leaves[0])[:, :, 0]
    softplus(-sign * logits).mean(1).sum().backward()
    for ours, leaf in zip(into, leaves, strict=True):
        torch.testing.assert_close(ours, leaf.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(made.predict(phi[0])[0].float(), logits[0].detach(), atol=1e-5, rtol=1e-5)


def test_equal_weights_draw_every_row_once():
    rows = systematic(torch.full((97,), 1 / 97).double(), 97, generator=torch.Generator().manual_seed(0))
    assert rows.sort().values.tolist() == list(range(97))
    assert rows.tolist() != sorted(rows.tolist())


def test_draws_follow_the_weights_and_skip_zeros():
    weights = torch.tensor([0.0, 0.5, 0.25, 0.0, 0.25, 0.0], dtype=torch.float64)
    for seed in range(20):
        counts = torch.bincount(systematic(weights, 8, generator=torch.Generator().manual_seed(seed)), minlength=6)
        assert counts.tolist() == [0, 4, 2, 0, 2, 0]


def test_rows_of_weight_zero_never_reach_a_fold():
    phi = torch.randn(40, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weights = torch.rand(2, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weights[0, 7] = weights[0, 33] = 0
    other = phi.clone()
    other[[7, 33]] = 100.0
    schedule = StackSchedule(steps=20, batch_size=8, learning_rate=0.01, warm_up=0.1, average=0.9, decays=(0.0, 1.0))
    results = []
    for data in (phi, other):
        made = nets(zero=True)
        train(made, data, 20, weights, schedule, generator=torch.Generator().manual_seed(4))
        results.append(made)
    for a, b in zip(results[0].tensors(), results[1].tensors(), strict=True):
        assert torch.equal(a[[0, 2]], b[[0, 2]])  # fold 0 of either decay
        assert not torch.equal(a[[1, 3]], b[[1, 3]])  # fold 1 saw them


def test_one_step_is_adam_with_decoupled_decay_on_the_last_layer_alone():
    phi = torch.randn(20, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weights = torch.full((2, 20), 0.1, dtype=torch.float64)
    schedule = StackSchedule(steps=1, batch_size=10, learning_rate=0.01, warm_up=0.0, average=0.0, decays=(0.0, 3.0))
    made = nets()
    before = [t.clone() for t in made.tensors()]
    train(made, phi, 10, weights, schedule, generator=torch.Generator().manual_seed(4))
    for i, (old, new) in enumerate(zip(before, made.tensors(), strict=True)):
        decay = torch.tensor([0.0, 0.0, 3.0, 3.0]).view(-1, 1, 1) * (i in (3, 6))  # linear, three weights, three biases
        size = (new - old * (1 - 0.01 * decay)).abs()  # Adam's first step is the rate in every coordinate that moves
        assert torch.all((size - 0.01).abs().minimum(size) < 1e-4)


def test_pulling_moves_every_parameter_by_the_share():
    fresh, old = nets(seed=1), nets(seed=2)
    before = [t.clone() for t in fresh.tensors()]
    fresh.pull_towards(old, 0.25)
    for start, end, now in zip(before, old.tensors(), fresh.tensors(), strict=True):
        torch.testing.assert_close(now, 0.75 * start + 0.25 * end)


def test_the_schedule_bounds_the_way():
    """Two steps at half of the rate each (half warm, then half down the cosine) move no coordinate much beyond it."""
    phi = torch.ones(20, 6, dtype=torch.float64)
    weights = torch.full((2, 20), 0.1, dtype=torch.float64)
    phi[:10] *= 2
    schedule = StackSchedule(steps=2, batch_size=10, learning_rate=0.01, warm_up=1.0, average=0.0, decays=(0.0, 0.0))
    made = nets(zero=True)
    train(made, phi, 10, weights, schedule, generator=torch.Generator().manual_seed(4))
    assert 0.009 < float(made.linear.abs().max()) < 0.0105


def test_training_recovers_a_linear_log_ratio():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(4000, 1, generator=g, dtype=torch.float64)
    z[:2000] += 1.0
    phi = torch.cat([torch.ones_like(z), z, z.square()], 1)
    made = JointNets.zero(4, 3, [1, 8, 8, 1], generator=g)
    schedule = StackSchedule(
        steps=300, batch_size=200, learning_rate=0.03, warm_up=0.1, average=0.98, decays=(0.01, 5.0)
    )
    train(made, phi, 2000, torch.full((2, 4000), 1 / 2000).double(), schedule, generator=g)
    grid = torch.linspace(-1, 2, 7, dtype=torch.float64)[:, None]
    got = made.predict(torch.cat([torch.ones_like(grid), grid, grid.square()], 1))
    assert float((got - (grid[:, 0] - 0.5)).abs().max()) < 0.25


@pytest.mark.parametrize("step", [0, 4, 9, 50, 99])
def test_rate_warms_up_and_falls_by_cosine(step):
    schedule = StackSchedule(steps=100, batch_size=1, learning_rate=2.0, warm_up=0.1, average=0.9, decays=(0.0,))
    expected = 2.0 * min(1.0, (step + 1) / 10) * (1 + math.cos(math.pi * step / 100)) / 2
    assert schedule.rate_at(step) == pytest.approx(expected)
