"""The real data sets, where VESTIGE_DATA has them; and Debian's copy of Fashion-MNIST, where it is installed."""

import os
from collections import Counter

import numpy as np
import pytest
import torch

from vestige import data
from vestige.data import SOURCES, loading

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("VESTIGE_DATA"), reason="VESTIGE_DATA is not set"),
]


def load(name):
    if loading.find_npz(SOURCES[name], None) is None:
        pytest.skip(f"{name} is not in VESTIGE_DATA")
    return data.load(name, download=False)


@pytest.mark.parametrize(
    ("name", "train", "test", "shape", "classes"),
    [
        ("mnist", 60_000, 10_000, (28, 28), 10),
        ("fashion_mnist", 60_000, 10_000, (28, 28), 10),
        ("cifar10", 50_000, 10_000, (3, 32, 32), 10),
        ("cifar100", 50_000, 10_000, (3, 32, 32), 100),
        ("electricity", 36_249, 9_063, (6,), 2),
        ("covtype", 15_120, 565_892, (54,), 7),
    ],
)
def test_sizes(name, train, test, shape, classes):
    found = load(name)
    assert found.train_x.shape == (train, *shape)
    assert found.test_x.shape == (test, *shape)
    assert len(found.names) == classes
    assert set(torch.cat([found.train_y, found.test_y]).tolist()) == set(range(classes))


def test_notmnist_is_balanced():
    found = load("notmnist")
    assert len(set(Counter(found.train_y.tolist()).values())) == 1
    assert len(found.train_x) == 4 * len(found.test_x)


def test_the_superclasses_of_cifar100_are_those_of_the_file():
    path = loading.find_npz(SOURCES["cifar100"], None)
    found = load("cifar100")
    with np.load(path) as file:
        assert found.names == tuple(file["fine_names"])
        assert found.groups == tuple(file["coarse_names"][file["fine_to_coarse"]])


def test_omniglot_has_20_drawings_of_each_character():
    found = load("omniglot")
    assert found.train_x.shape == (19_280, 105, 105)
    assert found.test_x.shape == (13_180, 105, 105)
    assert found.train_y.tolist() == [c for c in range(964) for _ in range(20)]
    assert found.test_y.tolist() == [c for c in range(964, 1623) for _ in range(20)]
    assert len(set(found.groups)) == 50
    assert len(set(found.names)) == 1623
    assert found.train_x[:2000].unique().tolist() == [0, 255]
    assert 0.03 < float((found.train_x[::50] > 0).float().mean()) < 0.15  # ink, not paper


def test_debians_copy_of_fashion_mnist_has_the_same_rows():
    source = SOURCES["fashion_mnist"]
    folder = loading.find_system(source)
    if folder is None:
        pytest.skip("dataset-fashion-mnist is not installed")
    theirs = source.build(source.read_files(source.files_in(folder)), str(folder))
    ours = load("fashion_mnist")
    for key in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(theirs, key), getattr(ours, key))
