"""Gaussian policies: draws, densities with point masses at the bounds, files."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from vestige import store
from vestige.core.errors import InputError, StoreError
from vestige.policy import GaussianPolicy, Policy


@pytest.fixture
def policy():
    low, high = torch.tensor([-1.0, -0.5]), torch.tensor([1.0, 2.0])
    return GaussianPolicy.initial(3, 2, hidden=(8, 8), log_std=-0.3, low=low, high=high, seed=1)


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_mean_is_that_of_torchs_own_layers(policy):
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    )
    with torch.no_grad():
        for layer, w, b in zip(net[::2], policy.weights, policy.biases, strict=True):
            layer.weight.copy_(w)
            layer.bias.copy_(b)
        x = torch.randn(5, 3, generator=stream())
        assert torch.allclose(policy.mean(x), net(x), atol=1e-6)
    shifted = GaussianPolicy(
        policy.weights, policy.biases, policy.log_std, shift=torch.ones(3), scale=torch.full((3,), 2.0), clip=0.5
    )
    assert torch.allclose(shifted.mean(x), policy.mean(((x - 1) / 2).clamp(-0.5, 0.5)), atol=1e-6)


def test_draws_have_the_law_that_log_prob_says(policy):
    """Densities integrate to one: inside by the trapezoid rule, at the bounds by their masses."""
    x = torch.tensor([[0.3, -0.2, 1.0]])
    w, b = ((*layers[:-1], layers[-1][:1]) for layers in (policy.weights, policy.biases))
    one = GaussianPolicy(w, b, policy.log_std[:1], low=policy.low[:1], high=policy.high[:1])
    grid = torch.linspace(-1, 1, 4001, dtype=torch.float64)[1:-1, None]
    inside = torch.trapezoid(one.log_prob(x.expand(len(grid), 3), grid).exp(), grid[:, 0])
    ends = one.log_prob(x.expand(2, 3), torch.tensor([[-1.0], [1.0]])).exp()
    assert float(inside + ends.sum()) == pytest.approx(1, abs=2e-3)
    drawn = one.act(x.expand(20_000, 3), generator=stream())
    assert float(drawn.min()) == -1
    assert float(drawn.max()) == 1
    assert (drawn == -1).double().mean() == pytest.approx(float(ends[0]), abs=0.01)
    assert (drawn == 1).double().mean() == pytest.approx(float(ends[1]), abs=0.01)


def test_densities_are_scipys(policy):
    free = GaussianPolicy(policy.weights, policy.biases, policy.log_std)
    x, a = torch.randn(7, 3, generator=stream()), torch.randn(7, 2, generator=stream(1))
    want = stats.norm(free.mean(x).numpy(), math.exp(-0.3)).logpdf(a.numpy()).sum(1)
    assert free.log_prob(x, a).numpy() == pytest.approx(want, rel=1e-6)
    grouped = free.log_prob(x[:6].reshape(2, 3, 3), a[:6].reshape(2, 3, 2))
    assert grouped.shape == (2, 3)
    assert torch.equal(grouped.flatten(), free.log_prob(x[:6], a[:6]))


def test_a_stored_policy_is_the_same(policy, tmp_path):
    again = GaussianPolicy.load(policy.save(tmp_path / "policy.json"))
    x = torch.randn(4, 3, generator=stream())
    assert torch.equal(again.act(x, generator=stream(3)), policy.act(x, generator=stream(3)))
    assert isinstance(again, Policy)
    assert again.widths == (3, 2)


def test_files_of_another_shape_name_the_key(policy, tmp_path):
    path = policy.save(tmp_path / "p.json")
    fields, tensors = store.load(path, "policy")
    plain = fields["object"]
    wrong = {
        "tensor 'weights.1' is missing": (plain, {k: v for k, v in tensors.items() if k != "weights.1"}),
        "'w1' of GaussianPolicy must be 8 wide": (plain, tensors | {"weights.1": torch.zeros(8, 5)}),
        "'b2' of GaussianPolicy must be 2 long": (plain, tensors | {"biases.2": torch.zeros(3)}),
        "'log_std' of GaussianPolicy must be 2 long": (plain, tensors | {"log_std": torch.zeros(3)}),
        "'b0' of GaussianPolicy must be a row of numbers": (plain, tensors | {"biases.0": torch.zeros(8, 1)}),
        "must be a GaussianPolicy. Got 'Dice'": (plain | {"class": "Dice"}, tensors),
        "'biases' of GaussianPolicy must be one for each of 0 layers": (plain | {"weights": []}, tensors),
        "key 'layers' of the stored GaussianPolicy is unknown": (plain | {"layers": 3}, tensors),
        "'w0' of GaussianPolicy must be finite": (plain, tensors | {"weights.0": torch.full((8, 3), math.nan)}),
        "'activation' of GaussianPolicy must be one of": (plain | {"activation": "sine"}, tensors),
        "key 'clip' must be a number": (plain | {"clip": "far"}, tensors),
    }
    for i, (sentence, (f, t)) in enumerate(wrong.items()):
        store.save(tmp_path / f"wrong{i}.json", "policy", {"object": f}, t)
        with pytest.raises(StoreError, match=sentence):
            GaussianPolicy.load(tmp_path / f"wrong{i}.json")
    store.save(tmp_path / "old.json", "policy", {"law": "gaussian", "layers": 3}, tensors)
    with pytest.raises(StoreError, match="written by an earlier version of Vestige: write it anew"):
        GaussianPolicy.load(tmp_path / "old.json")
    (tmp_path / "other.json").write_text(json.dumps({"format": "vestige/ratio"}))
    with pytest.raises(StoreError, match="key 'format' must be 'vestige/policy'"):
        GaussianPolicy.load(tmp_path / "other.json")


def test_arrays_and_lists_become_tensors_of_one_type(policy):
    x = torch.randn(4, 3, generator=stream())
    arrays = {"weights": [w.numpy() for w in policy.weights], "biases": [b.numpy() for b in policy.biases]}
    mixed = GaussianPolicy(**arrays, log_std=[-0.3, -0.3], low=np.array([-1.0, -0.5]), high=[1, 2])
    held = (*mixed.weights, *mixed.biases, mixed.log_std, mixed.low, mixed.high)
    assert {value.dtype for value in held} == {torch.float32}
    assert torch.equal(mixed.act(x, generator=stream(3)), policy.act(x, generator=stream(3)))
    lists = GaussianPolicy([[[1, 2, 3]]], [[0]], [0.0])
    assert lists.mean(torch.ones(1, 3)).tolist() == [[6.0]]
    wide = GaussianPolicy(
        [w.double() for w in policy.weights], policy.biases, policy.log_std, shift=[0] * 3, scale=[1] * 3
    )
    assert wide.biases[0].dtype == wide.log_std.dtype == wide.scale.dtype == torch.float64
    assert wide.act(x, generator=stream()).shape == (4, 2)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"weights": (torch.zeros(3),)}, r"'w0' of GaussianPolicy must be a matrix .* Got shape \(3,\)"),
        ({"weights": torch.zeros(2, 3)}, r"'w0' of GaussianPolicy must be a matrix .* Got shape \(3,\)"),
        ({"biases": (0.0, 0.0, 0.0)}, r"'b0' of GaussianPolicy must be a row of numbers. Got shape \(\)"),
        ({"log_std": torch.tensor(-0.5)}, r"'log_std' of GaussianPolicy must be a row of numbers. Got shape \(\)"),
        ({"log_std": ["a", "b"]}, "'log_std' of GaussianPolicy must be an array of numbers"),
        ({"log_std": [0.0, math.inf]}, "'log_std' of GaussianPolicy must be finite"),
        ({"low": torch.zeros(2)}, "'low' of GaussianPolicy must be given together with 'high'"),
        ({"low": torch.ones(2), "high": torch.ones(2)}, "'low' of GaussianPolicy must be below 'high'"),
        ({"shift": torch.zeros(3), "scale": torch.zeros(3)}, "'scale' of GaussianPolicy must be above 0"),
        ({"biases": (torch.zeros(8),)}, "'biases' of GaussianPolicy must be one for each of 3 layers"),
    ],
)
def test_what_cannot_be_a_policy(policy, wrong, sentence):
    parts = {"weights": policy.weights, "biases": policy.biases, "log_std": policy.log_std} | wrong
    with pytest.raises(InputError, match=sentence):
        GaussianPolicy(**parts)
