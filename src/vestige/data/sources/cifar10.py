"""CIFAR-10: 50 000 + 10 000 colour images of 3 x 32 x 32 pixels (Krizhevsky), from the binary archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vestige.data.cifar_binary import SHAPE, read_records
from vestige.data.npz import Npz, image_splits
from vestige.data.source import Parts, Remote, Source

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = "cifar-10-binary.tar.gz"
TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
TEST = "cifar-10-batches-bin/test_batch.bin"


def read_npz(npz: Npz) -> Parts:
    """From cifar10.npz."""
    return Parts(*image_splits(npz, SHAPE, len(NAMES)), NAMES)


def read_files(paths: Mapping[str, Path]) -> Parts:
    """From the binary archive: five batches to train, one to test."""
    records = read_records(paths[ARCHIVE], (*TRAIN, TEST), label_bytes=1, classes=len(NAMES))
    train_x = np.concatenate([records[member][0] for member in TRAIN])
    train_y = np.concatenate([records[member][1] for member in TRAIN])
    return Parts(train_x, train_y, *records[TEST], NAMES)


CIFAR10 = Source(
    name="cifar10",
    about="50 000 + 10 000 images, 3 x 32 x 32, 10 classes",
    licence="none stated; research use",
    keys=("train_x", "train_y", "test_x", "test_y"),
    read_npz=read_npz,
    read_files=read_files,
    remotes=(
        Remote(
            ARCHIVE,
            (f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",),
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            170_052_171,
        ),
    ),
)
