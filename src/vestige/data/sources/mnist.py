"""MNIST and Fashion-MNIST, and what else comes in MNIST's four gzipped idx files.

MNIST: 60 000 + 10 000 handwritten digits of 28 x 28 pixels (LeCun, Cortes, Burges).

Fashion-MNIST: 60 000 + 10 000 articles of clothing of 28 x 28 pixels (Xiao, Rasul, Vollgraf), in MNIST's format.

Debian packages a copy: the same bytes, compressed anew, so its gzipped files do not have the checksums below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.core.checks import refuse
from vestige.data.formats import Npz, image_splits, read_idx
from vestige.data.source import DataSource, Parts, Remote, SystemCopy

# The four files of MNIST and of the sets made in its image, in the order train_x, train_y, test_x, test_y.
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def read_mnist_files(paths: Mapping[str, Path], names: tuple[str, ...]) -> Parts:
    """The four idx files of MNIST or Fashion-MNIST."""
    train_x, train_y, test_x, test_y = (paths[file] for file in FILES)
    train, test = _read_pair(train_x, train_y, len(names)), _read_pair(test_x, test_y, len(names))
    return Parts(*train, *test, names)


def like_mnist(
    name: str,
    names: tuple[str, ...],
    licence: str,
    mirrors: Sequence[str],
    checksums_and_sizes: Sequence[tuple[str, int]],
    system: SystemCopy | None = None,
) -> DataSource:
    """A data set of MNIST's shape, in its four files."""

    def read_npz(npz: Npz) -> Parts:
        return Parts(*image_splits(npz, (28, 28), len(names)), names)

    return DataSource(
        name=name,
        about=f"60 000 + 10 000 images, 28 x 28, {len(names)} classes",
        licence=licence,
        read_npz=read_npz,
        read_files=partial(read_mnist_files, names=names),
        remotes=tuple(
            Remote(file, tuple(mirror + file for mirror in mirrors), checksum, size)
            for file, (checksum, size) in zip(FILES, checksums_and_sizes, strict=True)
        ),
        system=system,
    )


def _read_pair(images: Path, labels: Path, classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = read_idx(images), read_idx(labels)
    if x.shape[1:] != (28, 28):
        refuse("shape", str(images), "(n, 28, 28)", x.shape)
    if y.shape != (len(x),):
        refuse("labels", str(labels), f"as many as the {len(x)} images", f"shape {y.shape}")
    if len(y) and int(y.max()) >= classes:
        refuse("labels", str(labels), f"in 0..{classes - 1}", int(y.max()))
    return x, y.astype(np.int64)


MNIST = like_mnist(
    "mnist",
    tuple("0123456789"),
    "CC BY-SA 3.0 (as usually stated)",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    (
        ("md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("md5:d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("md5:9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("md5:ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ),
)

FASHION_MNIST = like_mnist(
    "fashion_mnist",
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    "MIT",
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    (
        ("md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        ("md5:25c81989df183df01b3e8a0aad5dffbe", 29_515),
        ("md5:bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        ("md5:bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    ),
    SystemCopy("fashion-mnist", "apt install dataset-fashion-mnist (Debian, Ubuntu)"),
)
