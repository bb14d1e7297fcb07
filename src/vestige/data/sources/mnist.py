"""MNIST: 60 000 + 10 000 handwritten digits of 28 x 28 pixels (LeCun, Cortes, Burges), as four gzipped idx files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vestige.data.idx import FILES, read_mnist_files
from vestige.data.npz import Npz, image_splits
from vestige.data.source import Parts, Remote, Source

NAMES = tuple("0123456789")
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
CHECKSUMS_AND_SIZES = (
    ("md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
    ("md5:d53e105ee54ea40749a09fcbcd1e9432", 28_881),
    ("md5:9fb629c4189551a2d022fa330f9573f3", 1_648_877),
    ("md5:ec29112dd5afa0611ce80d1b7f02629c", 4_542),
)


def read_npz(npz: Npz) -> Parts:
    """From mnist.npz."""
    return Parts(*image_splits(npz, (28, 28), len(NAMES)), NAMES)


def read_files(paths: Mapping[str, Path]) -> Parts:
    """From the four idx files."""
    return read_mnist_files(paths, NAMES)


MNIST = Source(
    name="mnist",
    about="60 000 + 10 000 images, 28 x 28, 10 classes",
    licence="CC BY-SA 3.0 (as usually stated)",
    keys=("train_x", "train_y", "test_x", "test_y"),
    read_npz=read_npz,
    read_files=read_files,
    remotes=tuple(
        Remote(file, tuple(mirror + file for mirror in MIRRORS), checksum, size)
        for file, (checksum, size) in zip(FILES, CHECKSUMS_AND_SIZES, strict=True)
    ),
)
