"""A user's network as body and head: the same logits, whatever its shape, and nothing of it is touched."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.nets import own_net
from vestige.nets.own import described


def dense(shape, hidden, k, flatten):
    width = torch.Size(shape).numel()
    layers = [nn.Flatten()] if flatten else []
    return nn.Sequential(
        *layers, nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, k)
    )


def convolutional(shape, hidden, k):
    channels = 1 if len(shape) == 2 else shape[0]
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(hidden, k)
    )


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    hidden=st.integers(1, 6),
    k=st.integers(1, 5),
    kind=st.sampled_from(["flat", "flattened", "convolutional"]),
    seed=st.integers(0, 5),
)
def test_body_and_head_give_what_the_network_gives(shape, hidden, k, kind, seed):
    with rng.guard(seed, "here"):
        net = (
            convolutional(shape, hidden, k)
            if kind == "convolutional" and len(shape) > 1
            else dense(shape, hidden, k, kind == "flattened")
        )
        x = torch.rand(4, *shape)
    before = copy.deepcopy(net.state_dict())
    made = own_net(net, shape, k, seed=seed).eval()
    wanted = x.reshape(4, *made.body[0].shape)
    torch.testing.assert_close(made(x), net.eval()(wanted))
    torch.testing.assert_close(made.answer(made.body(x)), made(x))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(a is b for a in made.parameters() for b in net.parameters())


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_dropout_follows_the_seed_and_the_count_of_passes(probability):
    def made():
        with rng.guard(0, "here"):
            return own_net(nn.Sequential(nn.Linear(6, 8), nn.Dropout(probability), nn.Linear(8, 3)), (6,), 3, seed=1)

    one, other, x = made(), made(), torch.rand(5, 6)
    state = torch.random.get_rng_state()
    first, second = one(x), one(x)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, other(x))
    assert torch.equal(second, other(x))
    assert torch.equal(first, second) is (probability == 0)
    assert int(one.calls) == (2 if probability else 0)
    later = made()
    later.load_state_dict(one.state_dict())
    assert torch.equal(later(x), one(x))


def test_a_named_head_keeps_what_stands_before_it_and_names_the_choice():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 2)})

        def forward(self, x):
            return self.parts["two"](self.parts["one"](x).relu())

    net = own_net(Two(), (4,), 2, head="parts.two")
    assert (net.about["head"], net.head.in_features) == ("parts.two", 4)
    with pytest.raises(InputError, match="one that ends with its head"):
        own_net(Two(), (4,), 2, head="parts.one")


def test_what_tells_networks_apart():
    def of(build):
        with rng.guard(0, "here"):
            return described(build())

    base = of(lambda: nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.1), nn.Linear(4, 2)))
    assert base == of(lambda: nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.1), nn.Linear(4, 2)))
    assert base["layers"] != of(lambda: nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2)))["layers"]
    assert base["layers"] != of(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))["layers"]
    moved = described(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.1), nn.Linear(4, 2)))
    assert (moved["layers"], moved["weights"] == base["weights"]) == (base["layers"], False)

    class Scaled(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.fc, self.act = nn.Linear(3, 2), act

        def forward(self, x):
            return self.act(self.fc(x))

    assert of(lambda: Scaled(torch.relu))["layers"] != of(lambda: Scaled(torch.tanh))["layers"]
    assert of(lambda: Scaled(lambda x: x + 1))["layers"] != of(lambda: Scaled(lambda x: x + 2))["layers"]
