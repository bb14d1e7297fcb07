"""Networks by name, their shapes and first weights, and a head that grows."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from vestige.core.errors import InputError, UnknownName
from vestige.nets import MLP, NETS, Dropout, ResNet18, Table4, build_net


def parameters(net):
    return sum(p.numel() for p in net.parameters())


class TestHead:
    def grown(self, *groups):
        whole, net = MLP((5,), (7,), 6, seed=0), MLP((5,), (7,), 6, seed=0)
        net.hold((), net.head.weight[:0], net.head.bias[:0])
        for group in groups:
            net.grow(group, whole)
        return whole, net

    def test_outputs_that_have_not_come_cannot_be_answered(self):
        whole, net = self.grown()
        x = torch.rand(3, 5)
        assert (net(x) == -torch.inf).all()
        assert net(x).shape == (3, 6)
        whole, net = self.grown([4, 2], [0])
        logits = net(x)
        torch.testing.assert_close(logits[:, [4, 2, 0]], whole(x)[:, [4, 2, 0]])
        assert (logits[:, [1, 3, 5]] == -torch.inf).all()
        assert net.head.weight.shape == (3, 7)
        assert net.head.out_features == 3

    def test_rows_that_are_there_stay_when_it_grows(self):
        whole, net = self.grown([4, 2])
        with torch.no_grad():
            net.head.weight += 1
            net.head.bias -= 2
        net.grow([1], whole)
        torch.testing.assert_close(net.head.weight[:2], whole.head.weight[[4, 2]] + 1)
        torch.testing.assert_close(net.head.bias, torch.cat([whole.head.bias[[4, 2]] - 2, whole.head.bias[[1]]]))
        assert torch.equal(net.head.weight[2], whole.head.weight[1])
        assert all(p.requires_grad and p.is_leaf for p in net.parameters())

    def test_weights_of_a_label_are_those_of_its_row(self):
        whole, net = self.grown([4, 2], [0])
        y = torch.tensor([0, 4, 2, 4])
        assert torch.equal(net.weights_of(y), whole.head.weight[y])
        assert torch.equal(whole.weights_of(y), whole.head.weight[y])

    def test_gradients_reach_the_rows_and_no_nan_comes_from_the_missing_ones(self):
        whole, net = self.grown([4, 2])
        x, y = torch.rand(8, 5), torch.tensor([4, 2] * 4)
        functional.cross_entropy(net(x), y).backward()
        functional.cross_entropy(whole(x)[:, [4, 2]], torch.tensor([0, 1] * 4)).backward()
        torch.testing.assert_close(net.head.weight.grad, whole.head.weight.grad[[4, 2]])
        torch.testing.assert_close(net.body[1].weight.grad, whole.body[1].weight.grad)


class TestNets:
    @pytest.mark.parametrize("name", [n for n in NETS if n != "resnet18"])
    @pytest.mark.parametrize("shape", [(8, 8), (3, 8, 8)])
    def test_each_is_a_body_and_a_linear_head_and_follows_its_seed(self, name, shape):
        net, same, other = (build_net(name, shape, 5, hidden=(9,), seed=s) for s in (1, 1, 2))
        x = torch.rand(4, *shape)
        net.eval()
        features = net.body(x)
        assert features.ndim == 2
        assert isinstance(net.head, nn.Linear)
        torch.testing.assert_close(net(x), features @ net.head.weight.mT + net.head.bias)
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), same.parameters(), strict=True))
        assert not torch.equal(net.head.weight, other.head.weight)

    def test_table_4_layer_by_layer(self):
        """The layers as the table lists them, by hand with torch's functions."""
        net = Table4((3, 32, 32), 10, seed=0).eval()
        convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
        assert [tuple(m.weight.shape) for m in convolutions] == [
            (32, 3, 3, 3), (32, 32, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3),
        ]  # fmt: skip
        assert [m.p for m in net.modules() if isinstance(m, Dropout)] == [0.5, 0.5]
        x = torch.rand(2, 3, 32, 32)
        h = x
        for i, c in enumerate(convolutions):
            h = functional.relu(functional.conv2d(h, c.weight, c.bias, padding=1))
            h = functional.max_pool2d(h, 2) if i % 2 else h
        assert h.flatten(1).shape == (2, 4096)
        torch.testing.assert_close(net(x), net.head(h.flatten(1)))

    def test_the_resnets_have_as_many_weights_as_published(self):
        """11 173 962 is He et al.'s for ten classes on CIFAR; the reduced one has three times fewer feature maps."""
        assert parameters(ResNet18((3, 32, 32), 10, seed=0)) == 11_173_962
        reduced = build_net("resnet18_reduced", (3, 32, 32), 100)
        assert parameters(reduced) == 1_109_240
        assert reduced.head.in_features == 160
        sizes = []
        for block in reduced.body:
            block.register_forward_hook(lambda m, i, o: sizes.append(tuple(o.shape[2:])))
        reduced.eval()(torch.rand(1, 3, 32, 32))
        assert [s for s in dict.fromkeys(sizes) if s] == [(32, 32), (16, 16), (8, 8), (4, 4), (1, 1)]

    def test_what_is_no_image_or_no_name_is_refused(self):
        with pytest.raises(InputError, match=r"'input_shape' of Table4 must be \(h, w\) or \(c, h, w\)"):
            build_net("table4", (36,), 3)
        with pytest.raises(UnknownName, match="Did you mean 'resnet18'"):
            build_net("resnet", (3, 8, 8), 3)
        with pytest.raises(UnknownName, match="'init' of build_net"):
            build_net("mlp", (4,), 3, init="zeros")


@pytest.mark.parametrize("name", ["mlp", "table4", "resnet18_reduced"])
def test_a_truncated_normal_has_its_moments_and_no_tail(name):
    net = build_net(name, (3, 8, 8), 10, hidden=(64,), init="truncated_normal", seed=3)
    layers = [m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    weights = torch.cat([m.weight.detach().flatten() for m in layers]).double()
    assert weights.abs().max() <= 0.2
    # Cut at two deviations the variance is 1 - 2 * 2 phi(2) / (2 Phi(2) - 1) of what it was.
    phi, inside = math.exp(-2) / math.sqrt(2 * math.pi), math.erf(math.sqrt(2))
    deviation = 0.1 * math.sqrt(1 - 4 * phi / inside)
    assert float(weights.std()) == pytest.approx(deviation, rel=6 / math.sqrt(2 * len(weights)))
    assert abs(float(weights.mean())) < 5 * deviation / math.sqrt(len(weights))
    assert all((m.bias == 0.1).all() for m in layers if m.bias is not None)
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)
    again = build_net(name, (3, 8, 8), 10, hidden=(64,), init="truncated_normal", seed=3)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


class TestDropout:
    def test_it_keeps_the_mean_and_drops_its_share(self):
        layer = Dropout(0.3, seed=0)
        out = layer(torch.ones(200, 500))
        assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
        assert float((out == 0).float().mean()) == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / 1e5))

    def test_masks_follow_the_seed_the_name_and_the_count_and_leave_the_global_generator(self):
        x, before = torch.ones(4, 50), torch.random.get_rng_state()
        one, two = Dropout(0.5, seed=1), Dropout(0.5, seed=1)
        first, second = one(x), one(x)
        assert not torch.equal(first, second)
        assert torch.equal(first, two(x))
        two.load_state_dict(one.state_dict())
        assert torch.equal(one(x), two(x))
        assert not torch.equal(first, Dropout(0.5, seed=2)(x))
        assert not torch.equal(first, Dropout(0.5, seed=1, name=1)(x))
        assert torch.equal(before, torch.random.get_rng_state())

    def test_at_test_time_it_is_not_there_and_counts_nothing(self):
        layer, x = Dropout(0.5, seed=1).eval(), torch.rand(3, 4)
        assert layer(x) is x
        assert int(layer.calls) == 0
