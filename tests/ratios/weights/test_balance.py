"""Entropy balancing against scipy and against its own definition, and balanced rows against the moments of the data."""

import numpy as np
import torch
from scipy.optimize import minimize

from vestige.core import rng
from vestige.ratios.weights.balance import balance_to, entropy_balance, random_relu


def draw(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_balanced_weights_are_those_that_scipy_finds():
    x, log_w = draw(200, 3, 0), draw(200, 1, 1)[:, 0] / 3
    targets, ridge = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64), 1e-2

    def dual(lam):
        raw = log_w.numpy() + (x - targets).numpy() @ lam
        return np.logaddexp.reduce(raw) + ridge / 2 * lam @ lam

    lam = minimize(dual, np.zeros(3), method="BFGS", options={"gtol": 1e-10}).x
    raw = log_w + (x - targets) @ torch.from_numpy(lam)
    found = entropy_balance(log_w, x - targets, ridge=ridge)
    torch.testing.assert_close(found, raw - torch.logsumexp(raw, 0), atol=1e-5, rtol=0)


def test_without_a_ridge_the_targets_are_met():
    x = draw(500, 4, 2)
    targets = torch.tensor([0.5, -0.3, 0.0, 0.2], dtype=torch.float64)
    found = entropy_balance(torch.zeros(500, dtype=torch.float64), x - targets, ridge=1e-12)
    torch.testing.assert_close(found.exp() @ x, targets, atol=1e-6, rtol=0)


def test_targets_beyond_every_sample_end_in_finite_weights():
    x = draw(100, 1, 3)
    found = entropy_balance(torch.zeros(100, dtype=torch.float64), x - 50)
    assert torch.isfinite(found).any()
    assert float(found.exp() @ x) < 40


def test_balanced_rows_take_over_first_and_second_moments():
    p, q = draw(4000, 2, 4), draw(5000, 2, 5) * 0.9 + 0.1
    options = {"clip": 4.5, "rows_a_product": 100.0, "relu": 16, "ridge": 1e-6}
    plain = torch.full((5000,), -np.log(5000.0), dtype=torch.float64)
    w = balance_to(p, None, q, plain, seed=0, **options).exp()
    assert abs(float(w.sum()) - 1) < 1e-9
    torch.testing.assert_close(w @ q, p.mean(0), atol=2e-3, rtol=0)
    torch.testing.assert_close((w[:, None] * q).mT @ q, p.mT @ p / len(p), atol=1e-2, rtol=0)
    assert abs(float(q.mean())) > 0.05  # which is what there was to correct


def test_a_coordinate_that_no_row_varies_in_is_left_out_and_the_others_are_balanced():
    """As a category that the model never draws: with it one of the 1000 rows had all the weight."""
    p, q = draw(450, 2, 7), draw(1000, 2, 8) + 0.1
    rare = (torch.arange(450) % 14 == 0).double()
    options = {"clip": 4.5, "rows_a_product": 20.0, "relu": 64, "ridge": 1e-4, "seed": 0}
    plain = torch.full((1000,), -np.log(1000.0), dtype=torch.float64)
    without = balance_to(p, None, q, plain, **options)
    beside = torch.column_stack([p, rare]), torch.column_stack([q, torch.zeros(1000)])
    found = balance_to(beside[0], None, beside[1], plain, **options)
    assert torch.equal(found, without)
    assert float(1 / found.exp().square().sum()) > 800
    nothing = balance_to(rare[:, None], None, torch.zeros(1000, 1, dtype=torch.float64), plain + 3, **options)
    torch.testing.assert_close(nothing, plain)


def test_random_features_come_from_their_seed_alone_and_have_kinks():
    z = draw(300, 3, 6)
    a, b = (random_relu(z, 8, generator=rng.fork(0, "relu")) for _ in range(2))
    assert torch.equal(a, b)
    assert 0.1 < float((a == 0).double().mean()) < 0.9
