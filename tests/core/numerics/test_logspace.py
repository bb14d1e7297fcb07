"""Sums and means of exponentials against plain arithmetic, and where plain arithmetic fails."""

import math

import numpy as np
import pytest
import torch

from vestige.core.numerics import log_mean_exp, log_normalise, log_sum_exp, weighted_mean

X = torch.tensor([-1.0, 0.5, 2.0, 0.0], dtype=torch.float64)
W = torch.tensor([1.0, 0.0, 3.0, 4.0], dtype=torch.float64)


def test_agree_with_plain_arithmetic():
    x, w = X.numpy(), W.numpy()
    assert float(log_sum_exp(X)) == pytest.approx(math.log(np.exp(x).sum()))
    assert float(log_sum_exp(X, W)) == pytest.approx(math.log((w * np.exp(x)).sum()))
    assert float(log_mean_exp(X)) == pytest.approx(math.log(np.exp(x).mean()))
    assert float(log_mean_exp(X, W)) == pytest.approx(math.log(np.average(np.exp(x), weights=w)))
    assert float(log_mean_exp(X, 7 * W)) == pytest.approx(float(log_mean_exp(X, W)))
    np.testing.assert_allclose(log_normalise(X).exp(), np.exp(x) / np.exp(x).sum())


def test_neither_overflow_nor_underflow():
    for offset in (1e5, -1e5):
        assert float(log_mean_exp(X + offset, W)) == pytest.approx(offset + float(log_mean_exp(X, W)))
        torch.testing.assert_close(log_normalise(X + offset), log_normalise(X), rtol=1e-9, atol=1e-9)


def test_a_weight_of_zero_removes_even_an_infinite_term():
    infinite = torch.tensor([1.0, math.inf], dtype=torch.float64)
    weights = torch.tensor([2.0, 0.0], dtype=torch.float64)
    assert float(log_sum_exp(infinite, weights)) == pytest.approx(1 + math.log(2))


def test_weighted_mean_is_numpys():
    rows = torch.arange(12, dtype=torch.float64).reshape(4, 3)
    np.testing.assert_allclose(weighted_mean(rows, W), np.average(rows.numpy(), axis=0, weights=W.numpy()))
    np.testing.assert_allclose(weighted_mean(rows), rows.numpy().mean(0))
    assert float(weighted_mean(X, W)) == pytest.approx(np.average(X.numpy(), weights=W.numpy()))
