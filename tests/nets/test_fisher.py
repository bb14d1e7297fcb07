"""The Fisher diagonals against a loop over samples, and the true one against a Hessian."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from vestige.core import rng
from vestige.nets import MLP, ResNet18, Table4, build_net, fisher
from vestige.nets.fisher import can_follow, fisher_batch, fisher_empirical, fisher_true, following


def convolutional():
    with rng.guard(0, "conv"):
        return nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Conv2d(6, 4, 3, groups=2, dilation=2, padding=2, bias=False),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 9, 3),
        )


class Residual(nn.Module):
    """A residual block with batch norm and a shared input, as in a ResNet."""

    def __init__(self):
        super().__init__()
        with rng.guard(0, "residual"):
            self.first, self.norm1 = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.second, self.norm2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.skip, self.head = nn.Conv2d(2, 4, 1), nn.Linear(4, 3)
            for norm in (self.norm1, self.norm2):
                norm.running_mean.uniform_(-1, 1)
                norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        h = self.norm2(self.second(functional.relu(self.norm1(self.first(x))))) + self.skip(x)
        return self.head(functional.relu(h).mean((2, 3)))


def cases():
    g = torch.Generator().manual_seed(0)
    y = torch.randint(3, (12,), generator=g)
    return {
        "mlp": (MLP((5,), (7, 6), 3, seed=0), torch.randn(12, 5, generator=g), y),
        "conv": (convolutional(), torch.randn(12, 2, 6, 6, generator=g), y),
        "residual": (Residual(), torch.randn(12, 2, 6, 6, generator=g), y),
        "table4": (Table4((2, 6, 6), 3, seed=0, filters=(4, 6)), torch.randn(12, 2, 6, 6, generator=g), y),
        "resnet18": (resnet(), torch.randn(12, 2, 8, 8, generator=g), y),
        "grown": (grown(), torch.randn(12, 5, generator=g), y),
    }


def resnet():
    """Small, with the running statistics of a network that has trained."""
    net = ResNet18((2, 8, 8), 3, seed=0, width=3)
    for norm in (m for m in net.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.uniform_(-0.5, 0.5, generator=rng.fork(0, "mean"))
        norm.running_var.uniform_(0.5, 2, generator=rng.fork(0, "variance"))
    return net


def grown():
    """A head that has three of four outputs, in another order."""
    net, whole = (MLP((5,), (7, 6), 4, seed=0) for _ in range(2))
    net.hold((2,), whole.head.weight[2:3], whole.head.bias[2:3])
    net.grow((0, 1), whole)
    return net


def gradient(net, value):
    found = torch.autograd.grad(value, [p for _, p in net.named_parameters()])
    return {name: g for (name, _), g in zip(net.named_parameters(), found, strict=True)}


def loop_empirical(net, x, y):
    net.eval()
    total = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    for i in range(len(x)):
        for name, g in gradient(net, functional.cross_entropy(net(x[i : i + 1]), y[i : i + 1])).items():
            total[name] += g.square() / len(x)
    return total


def loop_true(net, x):
    net.eval()
    total = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    for i in range(len(x)):
        for c in range(3):
            log_p = net(x[i : i + 1]).log_softmax(1)[0, c]
            for name, g in gradient(net, log_p).items():
                total[name] += log_p.exp().detach() * g.square() / len(x)
    return total


@pytest.mark.parametrize("name", ["mlp", "conv", "residual", "table4", "resnet18", "grown"])
class TestAgainstALoop:
    def test_empirical(self, name):
        net, x, y = cases()[name]
        found, expected = fisher_empirical(net, x, y), loop_empirical(net, x, y)
        assert found.keys() == expected.keys()
        for key in expected:
            scale = expected[key].max()
            assert scale > 1e-9
            torch.testing.assert_close(found[key] / scale, expected[key] / scale, atol=1e-5, rtol=1e-5)

    def test_true(self, name):
        net, x, _ = cases()[name]
        found, expected = fisher_true(net, x, outputs=[0, 1, 2]), loop_true(net, x)
        for key in expected:
            scale = expected[key].max()
            torch.testing.assert_close(found[key] / scale, expected[key] / scale, atol=1e-5, rtol=1e-5)

    def test_a_few_rows_at_a_time_is_the_same(self, name, monkeypatch):
        net, x, y = cases()[name]
        outputs = [0, 1, 2]
        empirical, true = fisher_empirical(net, x, y), fisher_true(net, x, outputs=outputs)
        monkeypatch.setattr(fisher, "PATCH_NUMBERS", 1)  # convolutions: one sample at a time
        parts = fisher_empirical(net, x, y, rows=5), fisher_true(net, x, outputs=outputs, rows=5)
        for found, expected in zip(parts, (empirical, true), strict=True):
            for key in expected:
                scale = expected[key].max()
                torch.testing.assert_close(found[key] / scale, expected[key] / scale, atol=1e-5, rtol=1e-5)

    def test_the_network_is_left_as_it_was(self, name):
        net, x, y = cases()[name]
        before = {k: v.clone() for k, v in net.state_dict().items()}
        for training in (True, False):
            net.train(training)
            fisher_empirical(net, x, y)
            fisher_true(net, x, outputs=[0, 1, 2])
            assert net.training is training
            assert all(p.grad is None for p in net.parameters())
        assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


@pytest.mark.parametrize("name", ["mlp", "grown", "ours"])
def test_a_training_pass_that_is_followed_shows_the_fisher_of_its_batch(name):
    ours = build_net("conv", (1, 8, 8), 3, hidden=(4,), seed=0), torch.rand(12, 1, 8, 8, generator=rng.fork(0, "x"))
    net, x, y = (cases() | {"ours": (*ours, cases()["mlp"][2])})[name]
    assert can_follow(net)
    with following(net) as seen:
        functional.cross_entropy(net(x), y).backward()
    found, expected = seen.fisher(), fisher_empirical(net, x, y)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-9)
    with following(net) as again:
        pass
    net(x).sum().backward()
    assert not again.seen, "what comes afterwards is not followed"


def test_networks_that_train_as_another_function_are_not_followed():
    """Dropout and batch norm in training, frozen layers, layers that nobody vouches for."""
    made = cases()
    assert not any(can_follow(made[name][0]) for name in ("conv", "residual", "table4", "resnet18"))
    frozen = made["mlp"][0]
    frozen.head.weight.requires_grad_(False)
    assert not can_follow(frozen)


def test_the_true_fisher_is_the_hessian_of_a_logistic_regression():
    """For a linear softmax model the expected Hessian of -log p does not depend on labels, and equals the Fisher."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(30, 4, generator=g, dtype=torch.float64)
    net = nn.Linear(4, 3, dtype=torch.float64)
    y = torch.randint(3, (30,), generator=g)

    def loss(weight):
        return functional.cross_entropy(x @ weight.mT + net.bias.detach(), y)

    hessian = torch.autograd.functional.hessian(loss, net.weight.detach()).reshape(12, 12).diagonal().reshape(3, 4)
    torch.testing.assert_close(fisher_true(net, x)["weight"], hessian)


def test_the_batch_version_is_another_quantity():
    net, x, y = cases()["mlp"]
    batch, empirical = fisher_batch(net, x, y), fisher_empirical(net, x, y)
    mean = gradient(net, functional.cross_entropy(net(x), y))
    for key in batch:
        torch.testing.assert_close(batch[key], mean[key].square())
        assert (batch[key] <= empirical[key] * (1 + 1e-5)).all()  # Jensen: the square of a mean
    assert sum(float(v.sum()) for v in batch.values()) < 0.9 * sum(float(v.sum()) for v in empirical.values())


def test_only_outputs_that_were_asked_for_compete():
    net, x, _ = cases()["mlp"]
    found = fisher_true(net, x, outputs=[0, 2])
    assert (found["head.weight"][1] == 0).all()
    assert (found["head.weight"][0] > 0).any()


class Foreign(nn.Module):
    """What a user's network may do: work in place, call a layer twice, use a weight outside of its layer."""

    def __init__(self):
        super().__init__()
        with rng.guard(0, "foreign"):
            self.first, self.twice, self.tied = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        h = functional.relu(self.first(x), inplace=True)
        h = self.twice(torch.tanh(self.twice(h)))
        h = functional.linear(torch.tanh(self.tied(h)), self.tied.weight.mT)
        h += 1
        return self.head(self.norm(h))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        with rng.guard(0, "recurrent"):
            self.rnn, self.every, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.every(self.rnn(x)[0]).relu().mean(1))


def normed():
    with rng.guard(0, "normed"):
        net = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Linear(6, 3))
        net[1].running_mean.uniform_(-1, 1)
        net[1].running_var.uniform_(0.5, 2)
    return net


def over_time():
    with rng.guard(0, "over time"):
        layers = (nn.Conv1d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16, 3))
        return nn.Sequential(*layers)


FOREIGN = {
    "foreign": (Foreign, (5,), {"exact": ["first (Linear)", "head (Linear)"]}),
    "normed": (normed, (5,), {"exact": ["0 (Linear)", "3 (Linear)"], "torch.func": ["1 (BatchNorm1d)"]}),
    "over time": (over_time, (2, 6), {"exact": ["3 (Linear)"], "torch.func": ["0 (Conv1d)"]}),
    "recurrent": (Recurrent, (3, 4), {"exact": ["head (Linear)"], "by one": ["rnn (GRU)", "every (Linear)"]}),
    "logistic": (lambda: nn.Linear(5, 3), (5,), {"exact": ["the network (Linear)"]}),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_networks_of_any_layers_against_a_loop(name):
    make, shape, ways = FOREIGN[name]
    net, g = make(), torch.Generator().manual_seed(0)
    x, y = torch.randn(7, *shape, generator=g), torch.randint(3, (7,), generator=g)
    told = fisher.ways(net, x)
    assert told["exact"] == ways["exact"]
    assert name == "foreign" or told == ways
    pairs = (fisher_empirical(net, x, y, rows=4), loop_empirical(net, x, y)), (fisher_true(net, x), loop_true(net, x))
    for found, expected in pairs:
        assert found.keys() == expected.keys()
        for key in expected:
            scale = expected[key].max() + 1e-12
            torch.testing.assert_close(found[key] / scale, expected[key] / scale, atol=1e-5, rtol=1e-5)
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


@pytest.mark.parametrize("samples_at_once", [1, 10**6])
def test_per_sample_gradients_are_the_exact_ones_of_a_linear_network(monkeypatch, samples_at_once):
    g = torch.Generator().manual_seed(2)
    with rng.guard(2, "linear"):
        net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)).double()
    x, y = torch.randn(20, 4, generator=g, dtype=torch.float64), torch.randint(3, (20,), generator=g)
    exact = fisher_empirical(net, x, y), fisher_true(net, x)
    monkeypatch.setattr(fisher, "known_layers", lambda net, x: set())
    monkeypatch.setattr(fisher, "PATCH_NUMBERS", samples_at_once)
    for found, expected in zip((fisher_empirical(net, x, y), fisher_true(net, x)), exact, strict=True):
        for key in expected:
            torch.testing.assert_close(found[key], expected[key], atol=1e-6 * float(expected[key].max()), rtol=1e-6)


def test_frozen_and_shared_parameters():
    net = Foreign()
    net.first.weight.requires_grad_(False)
    net.tied.weight = net.twice.weight
    x, y = torch.randn(5, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    found = fisher_empirical(net, x, y)
    assert found.keys() == {name for name, p in net.named_parameters() if p.requires_grad}
    net.first.weight.requires_grad_()
    expected = loop_empirical(net, x, y)
    for key in found:
        torch.testing.assert_close(found[key], expected[key], atol=1e-5 * float(expected[key].max()), rtol=1e-4)


def test_a_look_at_the_network_moves_no_running_statistics():
    net = build_net("resnet18_reduced", (1, 8, 8), 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fisher_batch(net, torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0]))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert net.training
