"""The trace of the root of a product against scipy's matrix square root and closed forms."""

import numpy as np
import pytest
import scipy.linalg
import torch

from vestige.core.numerics import sqrt_trace_gram, sqrt_trace_psd
from vestige.core.numerics.psd import gram, psd_root


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
