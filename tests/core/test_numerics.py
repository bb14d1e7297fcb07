"""Log space against plain arithmetic, traces of roots against scipy's matrix square root, moments against numpy's."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from vestige.core.numerics import (
    Moments,
    gram,
    log_mean_exp,
    log_normalise,
    on_grid,
    psd_root,
    sqrt_trace_gram,
    sqrt_trace_psd,
    two_digits,
    weighted_mean,
)

X = torch.tensor([-1.0, 0.5, 2.0, 0.0], dtype=torch.float64)
W = torch.tensor([1.0, 0.0, 3.0, 4.0], dtype=torch.float64)


def test_agree_with_plain_arithmetic():
    x, w = X.numpy(), W.numpy()
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
    assert float(log_mean_exp(infinite, weights)) == pytest.approx(1)


def test_weighted_mean_is_numpys():
    rows = torch.arange(12, dtype=torch.float64).reshape(4, 3)
    np.testing.assert_allclose(weighted_mean(rows, W), np.average(rows.numpy(), axis=0, weights=W.numpy()))
    np.testing.assert_allclose(weighted_mean(rows), rows.numpy().mean(0))
    assert float(weighted_mean(X, W)) == pytest.approx(np.average(X.numpy(), weights=W.numpy()))


def matrix(d, rank, seed):
    root = np.random.default_rng(seed).normal(size=(rank, d))
    return torch.from_numpy(root.T @ root), torch.from_numpy(root)


@pytest.mark.parametrize(
    ("rank1", "rank2", "rel"), [(9, 9, 1e-9), (6, 6, 1e-9), (3, 9, 1e-5), (9, 3, 1e-5), (3, 2, 1e-5)]
)
def test_definite_or_not_it_is_the_trace_of_scipys_root(rank1, rank2, rel):
    (s1, root1), (s2, root2) = matrix(6, rank1, 0), matrix(6, rank2, 1)
    expected = np.trace(scipy.linalg.sqrtm(s1.numpy() @ s2.numpy())).real
    assert float(sqrt_trace_psd(s1, s2)) == pytest.approx(expected, rel=rel)
    assert float(sqrt_trace_gram(root1, root2)) == pytest.approx(expected, rel=rel)
    assert float(sqrt_trace_psd(s1, s2)) == pytest.approx(float(sqrt_trace_gram(root1, root2)), rel=1e-10)


def test_null_directions_do_not_leak_rounding():
    # Rank 20 of 200: the root of rounding is 1e-8 a direction, times 180 directions, unless they are left out.
    (s1, root1), (s2, root2) = matrix(200, 20, 0), matrix(200, 30, 1)
    assert float(sqrt_trace_psd(s1, s2)) == pytest.approx(float(sqrt_trace_gram(root1, root2)), rel=1e-11)


def test_null_rows_are_left_out():
    (s1, _), (s2, _) = matrix(4, 9, 0), matrix(4, 9, 1)
    wide1, wide2 = torch.zeros(6, 6, dtype=torch.float64), torch.zeros(6, 6, dtype=torch.float64)
    kept = torch.tensor([0, 2, 3, 5])
    wide1[kept[:, None], kept], wide2[kept[:, None], kept] = s1, s2
    wide2[1, 1] = 3.0
    assert float(sqrt_trace_psd(wide1, wide2)) == pytest.approx(float(sqrt_trace_psd(s1, s2)), rel=1e-12)
    zero = torch.zeros(3, 3, dtype=torch.float64)
    assert float(sqrt_trace_psd(zero, zero)) == 0


@pytest.mark.parametrize("rank", [9, 3])
def test_roots_and_grams(rank):
    s, root = matrix(5, rank, 2)
    torch.testing.assert_close(gram(psd_root(s)), s, rtol=1e-9, atol=1e-9)
    assert len(psd_root(s)) == min(rank, 5)
    torch.testing.assert_close(gram(root), root.mT @ root)


def test_arguments_are_untouched():
    (s1, _), (s2, _) = matrix(5, 9, 0), matrix(5, 9, 1)
    copies = s1.clone(), s2.clone()
    sqrt_trace_psd(s1, s2)
    assert torch.equal(s1, copies[0])
    assert torch.equal(s2, copies[1])


def test_the_root_of_matrices_that_commute():
    cov1, cov2 = torch.diag(torch.tensor([4.0, 9.0])).double(), torch.diag(torch.tensor([1.0, 25.0])).double()
    assert float(sqrt_trace_psd(cov1, cov2)) == pytest.approx(2 * 1 + 3 * 5)


RNG = np.random.default_rng(0)
ROWS, SHARES = RNG.normal(size=(50, 3)) @ RNG.normal(size=(3, 3)) + 5, RNG.random(50)


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


def test_agree_with_numpy():
    plain = Moments.of(*tensors(ROWS))
    np.testing.assert_allclose(plain.mean, ROWS.mean(0))
    np.testing.assert_allclose(plain.covariance(), np.cov(ROWS, rowvar=False))
    weighted = Moments.of(*tensors(ROWS, SHARES))
    np.testing.assert_allclose(weighted.mean, np.average(ROWS, axis=0, weights=SHARES))
    np.testing.assert_allclose(weighted.covariance(), np.cov(ROWS, rowvar=False, aweights=SHARES))
    assert weighted.ess == pytest.approx(SHARES.sum() ** 2 / (SHARES**2).sum())
    assert plain.ess == 50


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0, 1e8])
def test_merged_in_any_tree_they_are_those_of_one_pass(weighted, offset):
    x, w = ROWS + offset, SHARES if weighted else np.ones(50)
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
    whole, nothing = Moments.of(*tensors(ROWS, SHARES)), Moments.of(*tensors(ROWS, 0 * SHARES))
    assert whole.merge(nothing) is whole
    assert nothing.merge(whole) is whole
    assert nothing.ess == 0


def test_single_precision_is_summed_in_double():
    x = torch.full((1000, 1), 1 / 3, dtype=torch.float32)
    assert Moments.of(x).mean.dtype == torch.float64
    assert float(Moments.of(x).scatter) == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize(
    ("x", "scale", "want"),
    [(52.1234, 7.6, 52.1), (-52.16, 76.0, -52), (123456.7, 9900, 123500), (0.012345, 0.05, 0.012)],
)
def test_a_number_on_the_grid_of_a_scale(x, scale, want):
    assert on_grid(x, scale) == want


def test_two_significant_digits():
    assert [two_digits(x) for x in (0.0, 1.26, -126.0, 9.96e-7)] == [0.0, 1.3, -130.0, 1e-6]
