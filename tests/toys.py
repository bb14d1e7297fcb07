"""Small data that tests of several rooms share."""

import torch

from vestige.data.dataset import DataSet


def blobs(n_classes=6, per_class=40, side=6, seed=0, name="blobs"):
    """Images of separable classes: each class has a bright square of its own, under noise."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n_classes).repeat(per_class)
    test_y = torch.arange(n_classes).repeat(20)

    def images(labels):
        x = torch.rand(len(labels), side, side, generator=g) * 60
        flat = x.flatten(1)
        for shift in range(3):
            flat[torch.arange(len(labels)), (labels * 5 + shift) % side**2] += 180
        return flat.reshape(x.shape).to(torch.uint8)

    names = tuple(f"class {c}" for c in range(n_classes))
    return DataSet(name, images(y), y, images(test_y), test_y, names, "none", "made up")
