"""Folds, held-out predictions, and the stacking logistic against its optimality conditions."""

import torch

from vestige.ratios.stack.stack import assign_folds, combine, held_out_of


def test_folds_are_even_among_rows_that_count():
    weights = torch.tensor([0.0, 1.0] * 10, dtype=torch.float64)
    fold = assign_folds(weights, 3, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(fold[weights > 0], minlength=3)
    assert sorted(counts.tolist()) == [3, 3, 4]


def test_held_out_takes_the_fold_that_has_not_seen_the_row():
    every = torch.arange(3 * 2 * 4).view(3, 2, 4).double()  # fold, model, row
    fold = torch.tensor([2, 0, 1, 2])
    expected = [[every[f, m, i].item() for m in range(2)] for i, f in enumerate(fold.tolist())]
    assert held_out_of(every, fold).tolist() == expected


def stacking_problem():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2000, generator=g, dtype=torch.float64)
    sign = torch.where(torch.arange(2000) < 1000, 1.0, -1.0).double()
    x += sign / 2  # log-ratio x
    noise = torch.randn(2000, 2, generator=g, dtype=torch.float64)
    return torch.stack([2 * x, noise[:, 0], -x, noise[:, 1] + x], 1), sign


def test_coefficients_meet_the_optimality_conditions_in_the_box():
    held_out, sign = stacking_problem()
    weights = torch.rand(2000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    c = combine(held_out, sign, weights, ridge=1e-3, top=0.4)
    leaf = c.clone().requires_grad_()
    w = weights / weights.sum()
    loss = w @ torch.nn.functional.softplus(-sign * (held_out @ leaf))
    (loss + 0.5e-3 * (leaf - 0.25).square().sum()).backward()
    slope = leaf.grad
    inside = (c > 1e-9) & (c < 0.4 - 1e-9)
    assert float(slope[inside].abs().max()) < 1e-6
    assert bool((slope[c <= 1e-9] >= -1e-6).all())
    assert bool((slope[c >= 0.4 - 1e-9] <= 1e-6).all())
    assert c[2] == 0  # the model of the wrong sign
    assert c[0] == 0.4  # the good one, at the bound


def test_useless_models_are_shrunk_and_a_strong_ridge_returns_the_mean():
    g = torch.Generator().manual_seed(3)
    noise = torch.randn(4000, 4, generator=g, dtype=torch.float64)
    sign = torch.where(torch.arange(4000) < 2000, 1.0, -1.0).double()
    weights = torch.ones(4000, dtype=torch.float64)
    assert float(combine(noise, sign, weights, ridge=1e-3, top=2.0).sum()) < 0.2
    strong = combine(noise, sign, weights, ridge=1e6, top=2.0)
    torch.testing.assert_close(strong, torch.full((4,), 0.25, dtype=torch.float64), atol=1e-5, rtol=0)
