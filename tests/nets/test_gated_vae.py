"""Gates counted, a pass through the decoder unit by unit, and conditions that cannot touch each other's own units."""

import torch

from vestige.core import rng
from vestige.nets.vae import GatedVAENet, gates


def net(keep=0.5, seed=0):
    return GatedVAENet(6, 2, 3, (5,), (8, 10), keep=keep, seed=seed)


def test_every_condition_has_as_many_units_and_others_of_them():
    drawn = gates(50, 20, 0.3, rng.fork(0, "gates"))
    assert set(drawn.unique().tolist()) == {0, 1}
    assert drawn.sum(1).tolist() == [6] * 50
    assert len(drawn.unique(dim=0)) == 50
    frequency = drawn.mean(0)  # each unit as often as any other: 0.3, se 0.065
    assert float((frequency - 0.3).abs().max()) < 0.25
    assert gates(4, 5, 1.0, rng.fork(0, "gates")).sum() == 20
    assert gates(4, 5, 0.01, rng.fork(0, "gates")).sum(1).tolist() == [1] * 4


@torch.no_grad()
def test_decoding_by_hand():
    model, z, c = net(), torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([2, 0, 1, 2])
    expected = []
    for row, k in zip(z, c.tolist(), strict=True):
        h = row
        for i, layer in enumerate(model.hidden):
            on = model.get_buffer(f"gates_{i}")[k].nonzero()[:, 0].tolist()
            wide = torch.zeros(layer.out_features)
            for j in on:
                wide[j] = max(float(layer.weight[j] @ h + layer.bias[j]), 0.0)
            h = wide
        expected.append(model.last.weight @ h + model.last.bias)
    torch.testing.assert_close(model.decode(z, c), torch.stack(expected))


def test_a_condition_moves_its_own_units_alone():
    model, z = net(), torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    model.decode(z, torch.full((9,), 1)).square().sum().backward()
    for i, layer in enumerate(model.hidden):
        off = model.get_buffer(f"gates_{i}")[1] == 0
        assert float(layer.weight.grad[off].abs().sum()) == 0
        assert float(layer.weight.grad.abs().sum()) > 0
    assert float(model.last.weight.grad[:, model.gates_1[1] == 0].abs().sum()) == 0


def test_gates_are_kept_with_the_weights_and_follow_the_seed():
    state = torch.random.get_rng_state()
    one, two, other = (net(seed=s).state_dict() for s in (0, 0, 1))
    assert {"gates_0", "gates_1"} <= one.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["gates_0"], other["gates_0"])
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_encoder_gives_mean_and_log_variance():
    model, x = net(), torch.rand(3, 6)
    mean, log_var = model.encode(x)
    assert mean.shape == log_var.shape == (3, 2)
    torch.testing.assert_close(torch.cat([mean, log_var], 1), model.encoder(x))
