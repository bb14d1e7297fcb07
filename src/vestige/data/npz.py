"""An .npz file of a data set, read without pickle. Whatever is wrong with it is one error that names file and key."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from vestige.core.checks import refuse
from vestige.core.errors import InputError

# What numpy and zipfile raise on torn, hostile or foreign bytes.
BROKEN = (ValueError, OSError, EOFError, KeyError, MemoryError, NotImplementedError, zlib.error, zipfile.BadZipFile)


# train_x, train_y, test_x, test_y
Splits: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


class Npz:
    """The arrays of an open file by key, each checked as it is read."""

    def __init__(self, path: Path, file: NpzFile) -> None:
        self.path, self._file = path, file

    def __contains__(self, key: str) -> bool:
        return key in self._file

    def array(self, key: str) -> NDArray[Any]:
        """The array under `key`, of numbers or text."""
        if key not in self._file:
            refuse(key, str(self.path), "a key of the file", f"only {', '.join(sorted(self._file.files)) or 'none'}")
        try:
            array = self._file[key]
        except BROKEN as error:
            reason = str(error) or type(error).__name__
            raise InputError(f"The '{key}' of {self.path} cannot be read: {reason.rstrip('.')}.") from None
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
            refuse(key, str(self.path), "an array of numbers or text", getattr(array, "dtype", "raw bytes"))
        return array

    def images(self, key: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Images of `shape` as bytes."""
        array = self.array(key)
        if array.dtype != np.uint8 or array.shape[1:] != shape or len(array) == 0:
            must = f"uint8 of shape (n, {', '.join(map(str, shape))})"
            refuse(key, str(self.path), must, f"{array.dtype} {array.shape}")
        return array

    def table(self, key: str, width: int) -> NDArray[Any]:
        """Rows of `width` finite numbers, as float32."""
        array = self.array(key)
        if array.dtype.kind == "U" or array.ndim != 2 or array.shape[1] != width or len(array) == 0:
            refuse(key, str(self.path), f"numbers of shape (n, {width})", f"{array.dtype} {array.shape}")
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is refused below
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            refuse(key, str(self.path), "finite", f"{int((~np.isfinite(array)).sum())} NaN or infinite values")
        return array

    def labels(self, key: str, length: int | None, low: int, high: int) -> NDArray[Any]:
        """`length` whole numbers (any number of them when None) in low..high, as int64."""
        array = self.array(key)
        if array.dtype.kind not in "iu" or array.ndim != 1 or (length is not None and len(array) != length):
            must = "a list of whole numbers" if length is None else f"{length} whole numbers"
            refuse(key, str(self.path), must, f"{array.dtype} {array.shape}")
        if len(array) and (array.min() < low or array.max() > high):
            refuse(key, str(self.path), f"in {low}..{high}", f"{array.min()}..{array.max()}")
        return array.astype(np.int64)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of names."""
        array = self.array(key)
        if array.dtype.kind != "U" or array.ndim != 1:
            refuse(key, str(self.path), "a list of names", f"{array.dtype} {array.shape}")
        return tuple(str(name) for name in array)


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """The .npz at `path`, for as long as the block lasts."""
    try:
        raw = open(path, "rb")  # noqa: SIM115 - closed below; numpy leaves a torn file open
    except OSError as error:
        raise InputError(f"{path} cannot be read as an .npz file: {error.strerror}.") from None
    with raw:
        try:
            file = np.load(raw, allow_pickle=False)
        except BROKEN as error:
            reason = str(error) or type(error).__name__
            raise InputError(f"{path} cannot be read as an .npz file: {reason.rstrip('.')}.") from None
        if not isinstance(file, NpzFile):
            raise InputError(f"{path} cannot be read as an .npz file: it is a single array.")
        with file:
            yield Npz(path, file)


def image_splits(npz: Npz, shape: tuple[int, ...], classes: int) -> Splits:
    """The four arrays of an image set, each checked."""
    train_x, test_x = npz.images("train_x", shape), npz.images("test_x", shape)
    train_y = npz.labels("train_y", len(train_x), 0, classes - 1)
    return train_x, train_y, test_x, npz.labels("test_y", len(test_x), 0, classes - 1)
