"""Moments against numpy, in one pass and merged."""

import numpy as np
import pytest
import torch

from vestige.core.numerics import Moments

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(50, 3)) @ RNG.normal(size=(3, 3)) + 5, RNG.random(50)


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


def test_agree_with_numpy():
    plain = Moments.of(*tensors(X))
    np.testing.assert_allclose(plain.mean, X.mean(0))
    np.testing.assert_allclose(plain.covariance(), np.cov(X, rowvar=False))
    weighted = Moments.of(*tensors(X, W))
    np.testing.assert_allclose(weighted.mean, np.average(X, axis=0, weights=W))
    np.testing.assert_allclose(weighted.covariance(), np.cov(X, rowvar=False, aweights=W))
    assert weighted.ess == pytest.approx(W.sum() ** 2 / (W**2).sum())
    assert plain.ess == 50


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0, 1e8])
def test_merged_in_any_tree_they_are_those_of_one_pass(weighted, offset):
    x, w = X + offset, W if weighted else np.ones(50)
    parts = [Moments.of(*tensors(x[a:b], w[a:b])) for a, b in ((0, 1), (1, 2), (2, 30), (30, 50))]
    left = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
    right = parts[3].merge(parts[2].merge(parts[1].merge(parts[0])))
    whole = Moments.of(*tensors(x, w))
    for tree in (left, right):
        assert (tree.n, tree.weight, tree.weight_sq) == pytest.approx((50, whole.weight, whole.weight_sq))
        torch.testing.assert_close(tree.mean, whole.mean, rtol=1e-12, atol=0)
        # The offset leaves 8 of 16 digits.
        torch.testing.assert_close(tree.scatter, whole.scatter, rtol=1e-6 if offset else 1e-11, atol=1e-10)


def test_nothing_is_the_neutral_element():
    whole, empty = Moments.of(*tensors(X, W)), Moments.empty(3)
    assert whole.merge(empty) is whole
    assert empty.merge(whole) is whole
    nothing = Moments.of(*tensors(X, 0 * W))
    assert torch.equal(whole.merge(nothing).scatter, whole.scatter)
    assert empty.ess == 0


def test_single_precision_is_summed_in_double():
    x = torch.full((1000, 1), 1 / 3, dtype=torch.float32)
    assert Moments.of(x).mean.dtype == torch.float64
    assert float(Moments.of(x).scatter) == pytest.approx(0, abs=1e-20)
