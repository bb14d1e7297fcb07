"""Against scikit-learn, on both ways to the directions; weights against repeated rows."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA as SKPCA

from vestige import features
from vestige.core.errors import InputError
from vestige.features.fixed import principal_directions


def cloud(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


def up_to_sign(ours, theirs):
    return theirs * np.sign((ours * theirs).sum(0))


@pytest.mark.parametrize(("n", "d"), [(200, 12), (20, 50)])
@pytest.mark.parametrize("whiten", [False, True])
def test_codes_are_those_of_scikit_learn(n, d, whiten):
    x, new = cloud(n, d), cloud(30, d, seed=1)
    theirs = SKPCA(6, whiten=whiten, svd_solver="full").fit(x)
    ours = features.PCA(dims=6, whiten=whiten).fit(x)
    codes = ours(new)
    np.testing.assert_allclose(codes, up_to_sign(codes, theirs.transform(new)), rtol=1e-7, atol=1e-8)
    assert ours.report_["explained"] == pytest.approx(theirs.explained_variance_ratio_.sum())


def test_a_weight_counts_as_a_repetition():
    x = torch.from_numpy(cloud(40, 5))
    times = torch.tensor([1, 3] * 20)
    mean, directions, variances, _ = principal_directions(x, times.double(), 5)
    repeated = SKPCA(5, svd_solver="full").fit(x.repeat_interleave(times, 0).numpy())
    np.testing.assert_allclose(mean.numpy(), repeated.mean_)
    np.testing.assert_allclose((directions @ torch.from_numpy(repeated.components_).T).abs().diagonal(), 1)
    ratio = variances.numpy() / repeated.explained_variance_
    np.testing.assert_allclose(ratio, ratio[0])


def test_the_sign_is_fixed_by_the_largest_entry():
    x = torch.from_numpy(cloud(60, 4))
    _, one, _, _ = principal_directions(x, torch.ones(60, dtype=torch.float64), 3)
    assert bool((one.gather(1, one.abs().argmax(1, keepdim=True)) > 0).all())


def test_a_dead_direction_is_not_blown_up():
    x = cloud(50, 3)
    x = np.concatenate([x, x[:, :1]], 1)  # rank 3 in 4 columns
    codes = features.PCA(dims=4, whiten=True)
    assert codes.fit(x).report_["at_floor"] == 1
    assert np.abs(codes(x)[:, 3]).max() < 1e-3
    assert features.PCA(dims=3, whiten=True).fit(x).report_["at_floor"] == 0


def test_refusals():
    with pytest.raises(InputError, match=r"'dims' of PCA must be at most 9 \(10 samples of 20 features\)"):
        features.PCA(dims=10).fit(cloud(10, 20))
    with pytest.raises(InputError, match="samples that differ"):
        features.PCA(dims=2).fit(np.ones((9, 4)))
    with pytest.raises(InputError, match="'dims' of PCA"):
        features.PCA(dims=0)
    with pytest.raises(InputError, match="at least 2 samples"):
        features.PCA(dims=1).fit(np.ones((1, 4)))
