"""The loop: when it checks and ends, and Adam in it against torch's own."""

import pytest
import torch
from torch import nn

from vestige.core import rng
from vestige.nets.training import Best, adam, train


@pytest.mark.parametrize(
    ("end", "made", "checked"), [(None, 7, [3, 6, 7]), (6, 6, [3, 6]), (4, 6, [3, 6]), (7, 7, [3, 6, 7])]
)
def test_it_checks_every_so_often_and_at_the_end_and_stops_when_told(end, made, checked):
    steps, checks = [], []

    def check(step):
        checks.append(step)
        return end is None or step < end

    assert train(steps.append, 7, check_every=3, check=check) == made
    assert steps == list(range(made))
    assert checks == checked


def test_adam_is_torchs_with_decay_on_matrices_and_a_cosine():
    x = torch.randn(5, 6, 3, generator=torch.Generator().manual_seed(0))

    def make():
        with rng.guard(0, "net"):
            return nn.Linear(3, 2)

    net, twin = make(), make()
    train(adam(net.parameters(), lambda i: net(x[i]).square().mean(), 0.1, weight_decay=0.3, cosine=5), 5)
    groups = [{"params": [twin.weight], "weight_decay": 0.3}, {"params": [twin.bias]}]
    optimizer = torch.optim.Adam(groups, lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    for batch in x:
        optimizer.zero_grad()
        twin(batch).square().mean().backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(net.weight, twin.weight)
    torch.testing.assert_close(net.bias, twin.bias)


def test_the_best_come_back_each_members_own():
    weights = [torch.zeros(2, 3), torch.zeros(2, 1, requires_grad=True)]
    best = Best(weights, limit=10)
    for step, losses in enumerate([(3.0, float("nan")), (2.0, 5.0), (2.5, 4.0)]):
        with torch.no_grad():
            for w in weights:
                w.fill_(float(step))
        assert best.update(torch.tensor(losses), step)
    best.restore()
    assert [w.detach()[:, 0].tolist() for w in weights] == [[1.0, 2.0], [1.0, 2.0]]
    assert not best.update(torch.tensor([9.0, 9.0]), 12)
