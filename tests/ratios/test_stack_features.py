"""Products by hand, centres against scikit-learn's k-means, and the even mixture's moments."""

import torch
from sklearn.cluster import KMeans

from vestige.ratios.base import Sample
from vestige.ratios.stack.mixture import k_means, nearest
from vestige.ratios.stack.stack import StackFeatures
from vestige.ratios.standardise import design, mixture_standardiser


def draw(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def even(x):
    return torch.full((len(x),), 1 / len(x), dtype=torch.float64)


def test_products_by_hand():
    z = torch.tensor([[2.0, 3.0]], dtype=torch.float64)
    assert design(z, "full").tolist() == [[1, 2, 3, 4, 6, 9]]
    assert design(z, "diagonal").tolist() == [[1, 2, 3, 4, 9]]


def test_nearest_is_the_nearest():
    z, centres = draw(50, 3), draw(6, 3, 1)
    assert torch.equal(nearest(z, centres), torch.cdist(z, centres).argmin(1))


def test_k_means_finds_separated_groups_as_scikit_learn_does():
    z = draw(300, 2) * 0.1 + 5 * torch.eye(2, dtype=torch.float64)[torch.arange(300) % 2]
    centres = k_means(z, even(z), 2, generator=torch.Generator().manual_seed(0))
    peer = torch.from_numpy(KMeans(2, n_init=1, random_state=0).fit(z.numpy()).cluster_centers_)
    torch.testing.assert_close(centres[centres[:, 0].argsort()], peer[peer[:, 0].argsort()])


def test_k_means_obeys_weights_and_few_distinct_rows():
    z = torch.tensor([[0.0], [1.0], [10.0]], dtype=torch.float64)
    weights = torch.tensor([0.3, 0.1, 0.6], dtype=torch.float64)
    centres = k_means(z, weights, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(centres.sort(0).values, torch.tensor([[0.25], [10.0]], dtype=torch.float64))
    assert len(k_means(z[[0, 0, 0]], weights, 3, generator=torch.Generator().manual_seed(0))) == 1


def test_mixture_gives_both_sides_half_of_the_mass():
    p, q = draw(10, 1) + 4, draw(1000, 1, 1)
    got = mixture_standardiser(Sample(p, q))
    mean = (p.mean() + q.mean()) / 2
    variance = ((p - mean).square().mean() + (q - mean).square().mean()) / 2
    torch.testing.assert_close(got.shift[0], mean)
    torch.testing.assert_close(got.scale[0], variance.sqrt())


def test_local_columns_are_a_constant_and_the_offset_from_the_nearest_centre():
    p, q = draw(200, 2), draw(200, 2, 1)
    options = {"clip": 4.5, "centres": 3, "full": True, "tame": False, "generator": torch.Generator().manual_seed(0)}
    features = StackFeatures.of(Sample(p, q), **options)
    design = features(p[:5])
    z = features.standardise(p[:5])
    group = torch.cdist(z, features.centres).argmin(1)
    torch.testing.assert_close(design.local, torch.cat([torch.ones(5, 1).double(), z - features.centres[group]], 1))
    assert design.groups == 3


def test_clipped_share():
    q = draw(100, 1)
    options = {"clip": 1.0, "centres": 0, "full": True, "tame": False, "generator": torch.Generator().manual_seed(0)}
    features = StackFeatures.of(Sample(q, q), **options)
    expected = ((q - q.mean()).abs() > q.std(correction=0)).double().mean()
    assert features.standardise.clipped(q) == float(expected)
    assert float(features.standardise(q).abs().max()) == 1.0
