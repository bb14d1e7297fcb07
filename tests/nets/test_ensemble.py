"""The batched ensemble against its members one by one."""

import torch

from vestige.core import rng
from vestige.nets import MLP
from vestige.nets.bayesian import EnsembleMLP, member_seed


def test_each_member_is_a_network_of_its_own_and_gets_its_own_gradient():
    x = torch.rand(4, 2, 3, generator=rng.fork(0, "x"))
    net = EnsembleMLP((2, 3), (5, 4), 3, members=3, seed=7)
    logits = net(x)
    logits.square().sum().backward()
    for i in range(3):
        alone = MLP((2, 3), (5, 4), 3, seed=member_seed(7, i))
        torch.testing.assert_close(logits[i], alone(x))
        alone(x).square().sum().backward()
        for stacked, own in zip(net.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(stacked.grad[i], own.grad)
    assert not torch.equal(logits[0], logits[1])
