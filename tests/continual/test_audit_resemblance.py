"""Resemblance: shares by hand, a rank that is exact under the null, and models whose sureness means nothing."""

import pytest
import torch

from vestige.continual.audit import Resemblance, resemblance, share_named_old, summarised
from vestige.core import rng


def test_the_share_of_inputs_that_are_named_old():
    """Rows: sure of old, unsure of old, sure of new, sure of a class that is no candidate."""
    p = torch.tensor(
        [[0.95, 0.01, 0.03, 0.01], [0.5, 0.1, 0.3, 0.1], [0.02, 0.02, 0.95, 0.01], [0.01, 0.004, 0.006, 0.98]]
    )
    assert share_named_old(p.log(), [0, 1, 2], [0, 1], 0.9) == pytest.approx(0.25)
    assert share_named_old(p.log(), [0, 1, 2], [0, 1], 0.4) == pytest.approx(0.75)
    assert share_named_old(p.log(), [0, 1, 2, 3], [0, 1, 3], 0.9) == pytest.approx(0.5)
    assert share_named_old(p.log(), [0, 1, 2], [0, 1, 2], 0.9) == pytest.approx(0.5)
    assert share_named_old(p.log(), [0, 1, 2, 3], [0, 1, 2, 3], 0.9) == pytest.approx(0.75)


def test_summary_by_hand():
    """Means over tasks: own .6; other orders .2, .6 and .1, of which one does as well."""
    found = [Resemblance(1, 0.4, (0.3, 0.4, 0.0), 100, 0.5), Resemblance(2, 0.8, (0.1, 0.8, 0.2), 100, 0.9)]
    numbers = summarised(found)
    assert numbers["named_old"] == pytest.approx(0.6)
    assert numbers["other_orders"] == pytest.approx(0.3)
    assert numbers["difference"] == pytest.approx(0.3)
    assert numbers["p"] == pytest.approx(2 / 4)
    assert numbers["sure_of_any"] == pytest.approx(0.7)
    assert found[0].difference == pytest.approx(0.4 - 0.7 / 3)


def options(seed, **other):
    return {"task": 1, "candidates": [0, 1], "old": [0], "seed": seed, "sure": 0.7} | other


def test_a_model_that_is_sure_of_everything_shows_no_resemblance():
    found = resemblance(lambda x: torch.tensor([[9.0, 0.0]]).expand(len(x), 2), torch.rand(50, 4), **options(0))
    assert found.named_old == 1.0
    assert found.difference == 0.0
    assert summarised([found])["p"] == 1.0


def test_a_model_that_sees_shape_finds_it_in_the_inputs_alone():
    """The left half is bright; the model says old where it is. Every other order mixes the halves."""
    x = torch.zeros(60, 8, 8)
    x[:, :, :4] = 1.0

    def model(x):
        return torch.stack([20 * (x[:, :, :4].mean((1, 2)) - 0.9), torch.zeros(len(x))], 1)

    found = resemblance(model, x, **options(0))
    assert found.named_old == 1.0
    assert max(found.other_orders) == 0.0
    assert found.sure_of_any == 1.0
    assert summarised([found])["p"] == pytest.approx(1 / 40)


def test_inputs_in_a_random_order_are_one_of_many():
    """Under the null of Permuted MNIST the p-value is uniform: over 200 models and orders, a tenth lies below .1."""
    base = (torch.rand(30, 25, generator=rng.fork(0, "base")) < 0.3).float()
    below = 0
    for trial in range(200):
        g = rng.fork(trial, "null")
        weights = torch.randn(25, 2, generator=g)
        moved = base[:, torch.randperm(25, generator=g)]
        found = resemblance(lambda x, w=weights: x @ w, moved, **options(trial, orders=19))
        below += summarised([found])["p"] <= 0.1
    assert 8 <= below <= 33  # binomial (200, .1): mean 20, three deviations of 4.2


def test_rows_and_orders_follow_from_the_seed():
    x = torch.rand(20, 3, 3, generator=rng.fork(0, "x"))

    def model(x):
        return torch.stack([x.flatten(1)[:, 0] * 8, x.flatten(1)[:, 1] * 8], 1)

    assert resemblance(model, x, **options(1, most=10)) == resemblance(model, x, **options(1, most=10))
    assert resemblance(model, x, **options(1, most=10)) != resemblance(model, x, **options(2, most=10))
