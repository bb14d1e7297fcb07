"""The mixture against scipy's densities, closed forms and its own brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from vestige import densities
from vestige.core.errors import InputError
from vestige.densities.mixture import (
    Components,
    MixtureDensity,
    enough,
    expectation_maximisation,
    log_joint,
    maximise,
    merge_two,
    reduce_components,
)

G = np.random.default_rng(0)


def some(k, d, seed=0):
    """A mixture of any means and covariances."""
    g = np.random.default_rng(seed)
    a = g.normal(size=(k, d, d))
    shares = g.dirichlet(np.ones(k) * 3)
    covariances = a @ a.transpose(0, 2, 1) + np.eye(d)
    return Components(*(torch.from_numpy(part) for part in (shares, 3 * g.normal(size=(k, d)), covariances)))


def moments(mixture):
    mean = mixture.shares @ mixture.means
    apart = mixture.means - mean
    parts = mixture.covariances + apart[:, :, None] * apart[:, None, :]
    return mean, (mixture.shares[:, None, None] * parts).sum(0)


def three_blobs(n=900, seed=0):
    g = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    return torch.from_numpy(centres[g.integers(0, 3, n)] + g.normal(size=(n, 2)))


def fitted(x, **options):
    return MixtureDensity(**options).fit(x)


def test_log_joint_is_that_of_scipy():
    mixture, x = some(3, 4), torch.from_numpy(G.normal(size=(20, 4)))
    theirs = np.stack(
        [
            np.log(float(w)) + multivariate_normal(m.numpy(), s.numpy()).logpdf(x.numpy())
            for w, m, s in zip(mixture.shares, mixture.means, mixture.covariances, strict=True)
        ],
        1,
    )
    np.testing.assert_allclose(log_joint(x, mixture).numpy(), theirs, rtol=1e-10)


def test_the_density_of_a_fit_is_that_of_scipy_in_the_units_of_the_rows():
    x = three_blobs() * torch.tensor([100.0, 0.1]) + 5
    density = fitted(x, components=(4,))
    theirs = sum(
        float(w) * multivariate_normal(m.numpy(), s.numpy()).pdf(x.numpy())
        for w, m, s in zip(density.shares_, density.means_, density.covariances_, strict=True)
    )
    np.testing.assert_allclose(density.log_density(x).exp().numpy(), theirs, rtol=1e-6)
    with pytest.raises(InputError, match="2 columns wide"):
        density.log_density(x[:, :1])
    with pytest.raises(InputError, match="without missing"):
        density.log_density(x * torch.nan)


def test_em_ends_where_scikit_learn_ends():
    x = three_blobs()
    start = torch.Generator().manual_seed(0)
    ours = expectation_maximisation(x, 3, pseudo_rows=0.0, least=10.0, generator=start)
    theirs = GaussianMixture(3, means_init=ours.means.numpy(), reg_covar=1e-6, tol=1e-6, max_iter=200).fit(x.numpy())
    np.testing.assert_allclose(ours.means.numpy(), theirs.means_, atol=2e-3)
    np.testing.assert_allclose(ours.shares.numpy(), theirs.weights_, atol=1e-3)
    np.testing.assert_allclose(ours.covariances.numpy(), theirs.covariances_, atol=1e-2)


def test_covariances_are_shrunk_to_the_pooled_one_by_pseudo_rows():
    x = torch.from_numpy(G.normal(size=(60, 2)) * np.array([1.0, 2.0]))
    counted = torch.nn.functional.one_hot(torch.arange(60) // 40, 2).double()
    parts = [x[:40], x[40:]]
    scatter = [(part - part.mean(0)).T @ (part - part.mean(0)) for part in parts]
    pooled = (scatter[0] + scatter[1]) / 60
    found = maximise(x, counted, 7.0)
    for k in range(2):
        expected = (scatter[k] + 7 * pooled) / (len(parts[k]) + 7) + 1e-6 * torch.eye(2)
        torch.testing.assert_close(found.covariances[k], expected, rtol=1e-10, atol=1e-12)


def test_components_are_as_many_as_held_out_rows_ask_for():
    assert fitted(three_blobs(), components=(1, 2, 3, 6)).report_["components"] == 3
    gaussian = torch.from_numpy(G.normal(size=(900, 2)))
    assert fitted(gaussian).report_["components"] == 1


def test_no_component_has_fewer_than_fifty_rows_or_twice_the_columns():
    for d, least in ((2, 50), (30, 60)):
        x = torch.from_numpy(np.concatenate([G.normal(size=(370, d)), 30 + G.normal(size=(30, d))]))  # 30 rows apart
        density = fitted(x, components=(6,))
        assert float(density.shares_.min()) * len(x) >= least - 1e-6
        assert len(density.shares_) <= len(x) // least
    assert fitted(three_blobs(99), components=(2, 8)).report_["components"] == 1  # fewer than two times 50


def test_the_rows_of_a_component_that_is_left_out_go_to_the_others():
    counted = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
    left = enough(counted, 0.9)
    assert left.shape == (3, 2)
    torch.testing.assert_close(left.sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(left[2], torch.tensor([0.0, 1.0], dtype=torch.float64))


def test_merging_two_preserves_moments():
    mixture = some(4, 3)
    share, mean, covariance = merge_two(mixture, 1, 3)
    keep = [0, 2]
    merged = Components(
        torch.cat([mixture.shares[keep], share[None]]),
        torch.cat([mixture.means[keep], mean[None]]),
        torch.cat([mixture.covariances[keep], covariance[None]]),
    )
    for a, b in zip(moments(mixture), moments(merged), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_reduction_preserves_moments_and_merges_the_cheapest_pair_first():
    mixture = some(6, 2, seed=1)
    reduced = reduce_components(mixture, 5)

    def bound(i, j):
        share, _, covariance = merge_two(mixture, i, j)
        pieces = sum(float(mixture.shares[c]) * float(mixture.covariances[c].logdet()) for c in (i, j))
        return (float(share) * float(covariance.logdet()) - pieces) / 2

    i, j = min(itertools.combinations(range(6), 2), key=lambda pair: bound(*pair))
    torch.testing.assert_close(reduced.means[-1], merge_two(mixture, i, j)[1])
    for cap in (5, 2, 1):
        for a, b in zip(moments(mixture), moments(reduce_components(mixture, cap)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert len(reduce_components(mixture, 6).shares) == 6


def test_runnalls_bound_is_one_on_the_divergence():
    """The Kullback-Leibler divergence from a mixture to the reduced one is at most the bound, by Monte Carlo."""
    mixture = some(2, 2, seed=5)
    share, mean, covariance = merge_two(mixture, 0, 1)
    reduced = Components(share[None], mean[None], covariance[None])
    density = fitted(three_blobs())
    density.shares_, density.means_, density.covariances_ = mixture.shares, mixture.means, mixture.covariances
    x = density.draw(20_000)
    kl = float((torch.logsumexp(log_joint(x, mixture), 1) - torch.logsumexp(log_joint(x, reduced), 1)).mean())
    bound = float(covariance.logdet() - mixture.shares @ torch.logdet(mixture.covariances)) / 2
    assert 0 < kl < bound


def test_a_union_has_the_density_of_its_parts():
    a, b = fitted(three_blobs(), components=(4,)), fitted(three_blobs(seed=1) + 20, components=(2,))
    whole = MixtureDensity.union([a, b], [300, 100])
    x = torch.cat([three_blobs(50, seed=2), three_blobs(50, seed=3) + 20])
    expected = torch.logaddexp(a.log_density(x) + math.log(0.75), b.log_density(x) + math.log(0.25))
    torch.testing.assert_close(whole.log_density(x), expected)
    assert whole.report_["components"] == len(a.shares_) + len(b.shares_)
    assert whole.report_["n"] == 1800
    drawn = whole.draw(4000, seed=1)
    assert float((drawn.mean(1) > 10).double().mean()) == pytest.approx(0.25, abs=0.03)


def test_a_union_above_the_cap_is_reduced_with_its_moments():
    parts = [fitted(three_blobs(seed=s) + 9 * s, components=(3,)) for s in range(7)]
    whole = MixtureDensity.union(parts, [1.0] * 7)
    assert len(whole.shares_) == 16
    apart = [moments(Components(part.shares_, part.means_, part.covariances_)) for part in parts]
    mean = torch.stack([m for m, _ in apart]).mean(0)
    second = torch.stack([s + torch.outer(m - mean, m - mean) for m, s in apart]).mean(0)
    found = moments(Components(whole.shares_, whole.means_, whole.covariances_))
    torch.testing.assert_close(found[0], mean)
    torch.testing.assert_close(found[1], second, rtol=1e-9, atol=1e-9)


def test_unions_that_cannot_be_are_refused():
    a = fitted(three_blobs())
    for parts, shares, options, sentence in (
        ([], [], {}, "at least one mixture"),
        ([a], [1.0, 2.0], {}, "'shares'"),
        ([a], [-1.0], {}, "0 or larger"),
        ([a, fitted(three_blobs()[:, :1])], [1, 1], {}, "of one width"),
        ([a], [1.0], {"cap": 15}, "at least 16"),
    ):
        with pytest.raises(InputError, match=sentence):
            MixtureDensity.union(parts, shares, **options)


def test_only_so_many_rows_are_looked_at():
    density = densities.build("mixture", most_rows=100, components=(1,)).fit(three_blobs())
    assert density.report_["rows_used"] == 100
