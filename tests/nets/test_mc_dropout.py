"""Monte Carlo dropout against a loop over samples with the same masks, and its moments in closed form."""

import pytest
import torch
from torch import nn

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.nets import MLP, Conv
from vestige.nets.bayesian import MCDropoutNet

thinned = MCDropoutNet.thinned
NETS = {"mlp": lambda: MLP((6, 6), (8, 7), 3, seed=1), "conv": lambda: Conv((6, 6), (5,), 3, seed=1)}


def inputs(n=4):
    return torch.rand(n, 6, 6, generator=rng.fork(0, "x"))


@pytest.mark.parametrize("name", NETS)
def test_a_batch_of_samples_is_a_loop_over_them(name):
    plain, kept = NETS[name](), []

    class Recorded(MCDropoutNet):
        def mask(self, like, generator):
            kept.append(super().mask(like, generator))
            assert kept[-1].stride() == like.stride()
            return kept[-1]

    x = inputs()
    found = Recorded(plain, 0.25)(x, 5, rng.fork(0, "masks"))
    first, later = torch.stack(kept[:5]), kept[5:]  # a mask a sample before the samples are one batch
    masks = [first, *(mask.reshape(5, 4, *mask.shape[1:]) for mask in later)]
    assert len(masks) == {"mlp": 2, "conv": 3}[name]
    assert {round(float(v), 6) for v in torch.cat([m.flatten() for m in masks]).unique()} == {0, round(4 / 3, 6)}
    for s in range(5):
        h, left = x, iter(masks)
        for module in plain.body:
            h = module(h)
            if isinstance(module, nn.ReLU):
                h = h * next(left)[s]
        torch.testing.assert_close(found[s], plain.head(h))


def test_a_linear_layer_behind_dropout_has_the_moments_of_the_closed_form():
    """Mean w h + b, variance p / (1 - p) w^2 h^2, for one hidden layer h."""
    plain, p = MLP((6, 6), (8,), 3, seed=1), 0.25
    draws = MCDropoutNet(plain, p)(inputs(), 20_000, rng.fork(0, "masks")).detach()
    with torch.no_grad():
        h = plain.body(inputs())
        mean, var = plain.head(h), p / (1 - p) * h.square() @ plain.head.weight.square().T
    assert bool(((draws.mean(0) - mean).abs() < 5 * (var / 20_000).sqrt()).all())
    torch.testing.assert_close(draws.var(0), var, atol=0, rtol=0.05)


@pytest.mark.parametrize("name", NETS)
def test_without_dropout_it_is_the_plain_network(name):
    plain = NETS[name]()
    torch.testing.assert_close(MCDropoutNet(plain, 0.0)(inputs(), 2, rng.fork(0, "m"))[1], plain(inputs()))


@pytest.mark.parametrize("p", [0.25, 0.5, 0.9, 1e-3])
def test_masks_drop_as_often_as_they_say_and_each_number_by_itself(p):
    mask = MCDropoutNet(NETS["mlp"](), p).mask(torch.empty(1001, 999), rng.fork(0, "masks"))
    kept = (mask > 0).double()
    share = round(p * 2**16) / 2**16
    assert float(mask.max()) == pytest.approx(1 / (1 - share))
    n = mask.numel()
    assert abs(float(kept.mean()) - (1 - share)) < 5 * (share * (1 - share) / n) ** 0.5
    of_draws = kept.flatten()[: n // 4 * 4].unflatten(0, (-1, 4))  # the four that one draw decides on
    assert bool(((of_draws.mean(0) - (1 - share)).abs() < 5 * (share * (1 - share) / (n // 4)) ** 0.5).all())
    among = torch.corrcoef(of_draws.T) - torch.eye(4)
    assert float(among.abs().max()) < 5 / (n // 4) ** 0.5


def test_draws_come_in_parts(monkeypatch):
    net = MCDropoutNet(NETS["mlp"](), 0.5)
    whole = net(inputs(), 6, rng.fork(0, "m")).detach()
    assert torch.equal(torch.cat(list(net.draw(inputs(), 6, rng.fork(0, "m")))), whole)
    held = []
    monkeypatch.setattr(MCDropoutNet, "thinned", lambda self, x, *rest: held.append(len(x)) or thinned(self, x, *rest))
    for most, samples, rows in ((4 * 8 * 4, [4, 2], [4, 4]), (2 * 8, [1] * 6, [2] * 12)):
        held.clear()
        monkeypatch.setattr(MCDropoutNet, "numbers_at_once", most)
        parts = list(net.draw(inputs(), 6, rng.fork(0, "m")))
        assert [len(part) for part in parts] == samples
        assert held == rows
        assert not parts[0].requires_grad


def test_the_prior_term_counts_weights_and_no_biases():
    net = MCDropoutNet(NETS["conv"](), 0.5)
    by_hand = sum(float(v.square().sum()) for k, v in net.state_dict().items() if k.endswith("weight"))
    assert float(net.squared_weights().detach()) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("p", [1.0, -0.1])
def test_a_rate_that_is_none_is_refused(p):
    with pytest.raises(InputError, match="'p' of MCDropoutNet"):
        MCDropoutNet(NETS["mlp"](), p)
