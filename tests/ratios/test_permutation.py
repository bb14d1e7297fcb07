"""Exactness by brute force, uniform p-values under one law, and power."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from vestige.core.errors import InputError
from vestige.ratios.logistic import Logistic
from vestige.ratios.permutation import deals, largest, permutation_test, score, score_features


def gaussian(n, d, mean=0.0, scale=1.0, seed=0):
    return mean + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_all_deals_of_tiny_sets_by_brute_force():
    p, q = gaussian(4, 2, 0.8), gaussian(3, 2, seed=1)
    test = permutation_test(p, q, n=1000)
    features = score_features(torch.cat([p, q]), generator=_features_stream()).numpy()
    values = {}
    for rows in itertools.combinations(range(7), 4):
        rest = [i for i in range(7) if i not in rows]
        gap = features[list(rows)].mean(0) - features[rest].mean(0)
        values[rows] = 4 * 3 / 7 * gap @ gap
    observed = values[(0, 1, 2, 3)]
    assert test.exact
    assert len(test.null) == 35
    assert test.statistic == pytest.approx(observed, rel=1e-9)
    assert test.p_value == sum(v >= observed - 1e-12 for v in values.values()) / 35
    np.testing.assert_allclose(sorted(test.null.tolist()), sorted(values.values()), rtol=1e-9)


def test_functions_join_the_test_exactly():
    """Both statistics of all 35 deals by brute force, ranked, the smaller rank ranked again."""
    p, q = gaussian(4, 2, 0.8), gaussian(3, 2, seed=1)
    functions = gaussian(7, 3, seed=2)
    features = score_features(torch.cat([p, q]), generator=_features_stream()).numpy()
    f = (functions.numpy() - functions.numpy().mean(0)) / functions.numpy().std(0, ddof=1)
    found = []
    for rows in itertools.combinations(range(7), 4):
        rest = [i for i in range(7) if i not in rows]
        gaps = [x[list(rows)].mean(0) - x[rest].mean(0) for x in (features, f)]
        found.append((gaps[0] @ gaps[0], np.max(gaps[1] ** 2)))
    values = np.array(found)
    ranks = (values[None] >= values[:, None] - 1e-12).mean(1).min(1)
    test = permutation_test(p, q, functions=functions, n=1000)
    assert test.exact
    assert test.p_value == pytest.approx((ranks <= ranks[0] + 1e-12).mean())
    z2 = largest(functions, (torch.arange(7) < 4)[None])
    assert float(z2[0]) == pytest.approx(values[0, 1] * 4 * 3 / 7)


def test_functions_find_what_the_score_does_not_and_keep_the_level():
    found, level = [], []
    for seed in range(60):
        p, q = gaussian(60, 12, seed=2 * seed), gaussian(60, 12, seed=2 * seed + 1)
        level.append(permutation_test(p, q, functions=torch.cat([p, q]), n=99, seed=seed).p_value)
        q[:, 3] += 0.6
        x = torch.cat([p, q])
        found.append([permutation_test(p, q, functions=f, n=99, seed=seed).p_value for f in (None, x)])
    alone, joint = (np.array(found) <= 0.05).mean(0)
    assert joint > alone + 0.1
    assert kstest(level, "uniform").pvalue > 0.001
    assert np.mean(np.array(level) <= 0.05) < 0.05 + 3 * (0.05 * 0.95 / 60) ** 0.5


def _features_stream():
    from vestige.core import rng

    return rng.fork(0, "features")


def test_random_deals_converge_to_the_exact_p_value():
    p, q = gaussian(6, 1, 1.0), gaussian(6, 1, seed=1)
    exact = permutation_test(p, q, n=924)
    random = permutation_test(p, q, n=900)
    assert exact.exact
    assert not random.exact
    assert random.p_value == pytest.approx(
        exact.p_value, abs=4 * (exact.p_value * (1 - exact.p_value) / 900) ** 0.5 + 2e-3
    )


def test_the_statistic_is_the_score_of_a_ridge_logistic():
    """One Newton step from r = 1 gains half of it."""
    x = torch.cat([gaussian(40, 1, 0.5), gaussian(60, 1, seed=1)])
    u = score_features(x, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(100) < 40
    y = labels.double() - 0.4
    expected = (u.mT @ y).square().sum() / (100 * 0.4 * 0.6)  # g' H^-1 g with H whitened to n var(y)
    torch.testing.assert_close(score(u, labels[None])[0], expected)


def test_deals_are_uniform_and_of_the_right_size():
    dealt = torch.cat(list(deals(30, 9, 4000, generator=torch.Generator().manual_seed(0))))
    assert dealt.shape == (4000, 30)
    assert bool((dealt.sum(1) == 9).all())
    share = dealt.double().mean(0)
    assert float((share - 0.3).abs().max()) < 5 * (0.3 * 0.7 / 4000) ** 0.5


@pytest.mark.parametrize("d", [1, 3, 30])
def test_p_values_are_uniform_under_one_law(d):
    values = [
        permutation_test(gaussian(15, d, seed=3 * i), gaussian(20, d, seed=3 * i + 1), n=99, seed=i).p_value
        for i in range(200)
    ]
    smooth = np.array(values) - np.random.default_rng(0).random(200) / 100  # p-values come in steps of 1 / 100
    assert kstest(smooth, "uniform").pvalue > 0.01
    assert np.mean(np.array(values) <= 0.05) < 0.11


@pytest.mark.parametrize(
    "other",
    [lambda s: gaussian(100, 2, 0.6, seed=s), lambda s: gaussian(100, 2, 0.0, 1.6, seed=s), lambda s: _ring(100, s)],
    ids=["shift", "scale", "shape"],
)
def test_power(other):
    rejected = [
        permutation_test(gaussian(100, 2, seed=2 * i), other(2 * i + 1), n=99).p_value <= 0.05 for i in range(20)
    ]
    assert sum(rejected) >= 16


def _ring(n, seed):
    """Mean zero, unit covariance, all mass on a circle."""
    angle = 2 * torch.pi * torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 2**0.5 * torch.stack([angle.cos(), angle.sin()], 1)


def test_any_estimator_is_refitted_in_every_permutation():
    p, q = gaussian(40, 2, 1.5), gaussian(40, 2, seed=1)
    test = permutation_test(p, q, estimator=Logistic(kind="linear", ridge=0.1), n=19)
    assert test.p_value == 1 / 20
    assert float(test.null.min()) > 0  # each refit finds something in its own deal
    same = permutation_test(
        gaussian(40, 2), gaussian(40, 2, seed=1), estimator=Logistic(kind="linear", ridge=0.1), n=19
    )
    assert same.p_value > 0.05


def test_ties_count_against_the_verdict():
    p, q = torch.zeros(30, 2), torch.zeros(30, 2)
    assert permutation_test(p, q, n=50).p_value == 1.0


def test_bad_input():
    with pytest.raises(InputError, match="'n'"):
        permutation_test(gaussian(5, 1), gaussian(5, 1), n=0)
    with pytest.raises(InputError, match="as wide"):
        permutation_test(gaussian(5, 1), gaussian(5, 2))
