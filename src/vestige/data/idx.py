"""The idx format of MNIST: two zero bytes, a type, the number of axes, each axis as a big-endian uint32, the bytes."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.core.checks import refuse
from vestige.core.errors import InputError
from vestige.data.npz import Npz, image_splits
from vestige.data.source import Parts, Remote, Source, SystemCopy

# The four files of MNIST and of the sets made in its image, in the order train_x, train_y, test_x, test_y.
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
UNSIGNED_BYTE = 8


def read_idx(path: Path) -> NDArray[Any]:
    """The bytes in a gzipped idx file, in their shape; a torn file or a foreign one is refused by name."""
    try:
        with gzip.open(path, "rb") as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read as a gzipped idx file: {str(error).rstrip('.')}.") from None
    axes = data[3] if len(data) > 3 else 0
    if data[:3] != bytes([0, 0, UNSIGNED_BYTE]) or not axes or len(data) < 4 + 4 * axes:
        refuse("header", str(path), "that of an idx file of bytes", data[:4].hex() or "nothing")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", axes, offset=4))
    if len(data) - 4 - 4 * axes != math.prod(shape):
        refuse("length", str(path), f"{math.prod(shape)} bytes after its header", len(data) - 4 - 4 * axes)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


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
) -> Source:
    """A data set of MNIST's shape, in its four files."""

    def read_npz(npz: Npz) -> Parts:
        return Parts(*image_splits(npz, (28, 28), len(names)), names)

    def read_files(paths: Mapping[str, Path]) -> Parts:
        return read_mnist_files(paths, names)

    return Source(
        name=name,
        about=f"60 000 + 10 000 images, 28 x 28, {len(names)} classes",
        licence=licence,
        keys=("train_x", "train_y", "test_x", "test_y"),
        read_npz=read_npz,
        read_files=read_files,
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
