"""Where images differ: means of pixels, through components of a vestige, the region, and typical rows."""

import numpy as np
import pytest
import torch

from vestige.ratios import Stack
from vestige.vestiges import compare, keep
from vestige.vestiges.image_difference import ImageDifference, as_images

FAST = Stack(**Stack.presets["fast"])


def blobs(n, seed, side=8):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    centre = 3.5 + rng.normal(0, 0.7, size=(n, 2))
    images = np.exp(-((y - centre[:, :1, None]) ** 2 + (x - centre[:, 1:, None]) ** 2) / 6)
    return torch.as_tensor(images + 0.05 * rng.random((n, side, side)))


OLD = blobs(500, 0)
NEW = blobs(400, 1)
NEW[:, :3, 5:] += 0.6


def test_the_map_is_the_difference_of_means():
    found = compare(OLD, NEW, estimator=FAST, pair_rows=100)
    assert torch.allclose(found.images.mean, OLD.mean(0) - NEW.mean(0))
    assert found.images.region == "upper right"
    assert "The images differ most in the upper right." in found.conclusion
    assert "upper right" in found.advice


@pytest.mark.slow
def test_a_vestige_maps_components_back():
    kept = keep(OLD, density="mixture")
    found = compare(kept, NEW, estimator=FAST, pair_rows=100)
    assert found.images.region == "upper right"
    pca = kept.frame.map
    gap = ((OLD.mean(0) - NEW.mean(0)).flatten() @ pca.directions_.mT) @ pca.directions_
    assert torch.allclose(found.images.mean.flatten(), gap, atol=0.05)  # far out it is clipped
    assert found.differences[0].name.startswith("component ")


def test_rows_by_how_much_they_are_like_the_data():
    mixed = torch.cat([blobs(200, 2), NEW[:200]])
    found = compare(OLD, mixed, estimator=FAST, pair_rows=100)
    assert all(row < 200 for row in found.typical.most)
    assert all(row >= 200 for row in found.typical.least)


@pytest.mark.parametrize("shape", [(8, 8, 3), (3, 8, 8), (8, 8, 1)])
def test_colours_are_averaged(shape):
    n = int(np.prod(shape))
    p, q = torch.rand(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    found = ImageDifference.of(p, q, torch.ones(n), shape)
    axis = 0 if shape[0] == 3 else 2
    assert torch.allclose(found.mean, p.reshape(shape).mean(axis))
    assert as_images(torch.zeros(2, n), shape).shape == (2, 8, 8, 3 if 3 in shape else 1)
    assert ImageDifference.of(p, q, torch.ones(n), (n,)) is None
