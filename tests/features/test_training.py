"""The training loop against a hand-written one, and against the optimum of a problem that has one."""

import pytest
import torch
from torch import nn

from vestige import features
from vestige.core import rng
from vestige.core.errors import InputError, NotEstimable
from vestige.features.trained import batches


def train(net, loss, weights, epochs, batch_size, learning_rate, weight_decay=0.0, seed=0):
    """The loop of every trained map, on a network that is none of its own."""
    rates = {"learning_rate": learning_rate, "weight_decay": weight_decay}
    feature_map = features.build("classifier", epochs=epochs, batch_size=batch_size, **rates)
    return feature_map._train(net, loss, weights, seed)


def test_every_row_once_and_no_small_batch():
    for n, size in ((10, 3), (11, 4), (2, 100), (100, 100), (7, 2)):
        parts = batches(n, size, torch.Generator().manual_seed(0))
        assert sorted(torch.cat(parts).tolist()) == list(range(n))
        assert min(len(part) for part in parts) >= min(n, size)


def test_it_finds_the_weighted_ridge_solution():
    """Weighted least squares with (l2 / 2) |W|^2 on the matrix alone has a closed form."""
    g = torch.Generator().manual_seed(0)
    x, weights = torch.randn(60, 2, generator=g), torch.rand(60, generator=g)
    y = x @ torch.tensor([1.0, -2.0]) + 3 + 0.1 * torch.randn(60, generator=g)
    weights = weights / weights.mean()
    net, l2 = nn.Linear(2, 1), 0.5

    def loss(i):
        return (net(x[i]).squeeze(1) - y[i]).square()

    for rate in (0.1, 0.01, 0.001):
        train(net, loss, weights, 200, 60, rate, l2)
    design = torch.cat([x, torch.ones(60, 1)], 1).double()
    w = weights.double()[:, None] / 60
    # gradient of mean w (design b - y)^2 + (l2 / 2)(b_1^2 + b_2^2): the bias is not in the penalty
    penalty = torch.diag(torch.tensor([l2 / 2, l2 / 2, 0.0], dtype=torch.float64))
    solution = torch.linalg.solve(design.T @ (w * design) + penalty, design.T @ (w * y.double()[:, None]))[:, 0]
    torch.testing.assert_close(net.weight[0].double(), solution[:2], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(net.bias.double(), solution[2:], rtol=1e-3, atol=1e-3)


def test_the_losses_are_those_of_a_plain_loop():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    weights = torch.linspace(0.5, 1.5, 20)

    def make():
        with rng.guard(0, "net"):
            return nn.Linear(3, 1)

    net, twin = make(), make()
    losses = train(net, lambda i: net(x[i]).square().sum(1), weights, 2, 5, 1e-2, seed=7)
    optimizer, order, expected = torch.optim.Adam(twin.parameters(), lr=1e-2), rng.fork(7, "batches"), []
    for _ in range(2):
        total = 0.0
        for rows in torch.randperm(20, generator=order).split(5):
            terms = weights[rows] * twin(x[rows]).square().sum(1)
            optimizer.zero_grad()
            terms.mean().backward()
            optimizer.step()
            total += float(terms.detach().sum())
        expected.append(total / 20)
    assert losses == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(net.weight, twin.weight)


def test_a_loss_that_is_not_finite_stops_it():
    net = nn.Linear(1, 1)
    with pytest.raises(NotEstimable, match="training of ClassifierFeatures diverged in epoch 1"):
        train(net, lambda i: net(torch.ones(len(i), 1))[:, 0] * torch.inf, torch.ones(4), 3, 2, 1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("epochs", 0), ("batch_size", 1), ("learning_rate", 0.0), ("learning_rate", float("inf")), ("weight_decay", -1.0)],
)
def test_refusals(field, value):
    for name in ("vae", "classifier"):
        with pytest.raises(InputError, match=f"'{field}' of"):
            features.build(name, **{field: value})
