"""The files that data sets come in, read without pickle and without unpacking anything to disk.

- .npz: whatever is wrong with it is one error that names file and key.
- idx, the format of MNIST: two zero bytes, a type, the number of axes, each axis as a big-endian uint32, the bytes.
- .tar.gz and .zip archives, and the PNG images in them, read in memory. An archive in which any member is a link, a
  device, or a path that climbs out of the archive is refused as a whole, whether or not that member was asked for.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from PIL import Image

from vestige import store
from vestige.core import InputError, machine
from vestige.core.checks import refuse

# What numpy and zipfile raise on torn, hostile or foreign bytes.
BROKEN = (ValueError, OSError, EOFError, KeyError, MemoryError, NotImplementedError, zlib.error, zipfile.BadZipFile)


# train_x, train_y, test_x, test_y
Splits: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


# What is read from one file may take this share of the free memory: there are two, and work takes as much again.
MEMORY_SHARE = 0.25


def memory_limit() -> float:
    """Bytes that what is read from a file may take at this moment."""
    return MEMORY_SHARE * machine.free_memory()


def require_memory(where: object, needed: float, limit: float | None = None) -> None:
    """Refuse, before anything is decoded, what would not fit: a header may claim any size, and a bomb is small."""
    limit = memory_limit() if limit is None else limit
    if needed > limit:
        must = f"small enough for {limit / 1e9:.3g} GB of memory, {MEMORY_SHARE:.0%} of what is free"
        raise InputError(f"The file '{where}' must be {must}. Got {needed / 1e9:.3g} GB instead.")


def first_line(error: BaseException) -> str:
    """What a library complains of, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


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
        archive = self._file.zip
        assert archive is not None  # it is open
        members = [info.file_size for info in archive.infolist() if info.filename in (key, f"{key}.npy")]
        require_memory(f"{self.path}:{key}", max(members, default=0))
        try:
            array = self._file[key]
        except BROKEN as error:
            raise InputError(f"The '{key}' of {self.path} cannot be read: {first_line(error)}.") from None
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
        raw = open(store.regular(path), "rb")  # noqa: SIM115 - closed below; numpy leaves a torn file open
    except OSError as error:
        raise InputError(f"{path} cannot be read as an .npz file: {error.strerror}.") from None
    with raw:
        try:
            alone = raw.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
            raw.seek(0)
            file = None if alone else np.load(raw, allow_pickle=False)
        except BROKEN as error:
            raise InputError(f"{path} cannot be read as an .npz file: {first_line(error)}.") from None
        if not isinstance(file, NpzFile):
            raise InputError(f"{path} cannot be read as an .npz file: it is a single array.")
        with file:
            yield Npz(path, file)


def image_splits(npz: Npz, shape: tuple[int, ...], classes: int) -> Splits:
    """The four arrays of an image set, each checked."""
    train_x, test_x = npz.images("train_x", shape), npz.images("test_x", shape)
    train_y = npz.labels("train_y", len(train_x), 0, classes - 1)
    return train_x, train_y, test_x, npz.labels("test_y", len(test_x), 0, classes - 1)


UNSIGNED_BYTE = 8
# Far above any idx file that there is, when it is unpacked.
IDX_BYTES = 2**30


def read_idx(path: Path) -> NDArray[Any]:
    """The bytes in a gzipped idx file, in their shape; a torn file or a foreign one is refused by name."""
    try:
        with gzip.open(store.regular(path), "rb") as file:
            data = file.read(IDX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read as a gzipped idx file: {first_line(error)}.") from None
    if len(data) > IDX_BYTES:
        refuse("length", str(path), f"at most {IDX_BYTES} bytes when it is unpacked", "more")
    axes = data[3] if len(data) > 3 else 0
    if data[:3] != bytes([0, 0, UNSIGNED_BYTE]) or not axes or len(data) < 4 + 4 * axes:
        refuse("header", str(path), "that of an idx file of bytes", data[:4].hex() or "nothing")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", axes, offset=4))
    if len(data) - 4 - 4 * axes != math.prod(shape):
        refuse("length", str(path), f"{math.prod(shape)} bytes after its header", len(data) - 4 - 4 * axes)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


BROKEN_ARCHIVE = (
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    tarfile.TarError,
    zlib.error,
    zipfile.BadZipFile,
)


def climbs(name: str) -> bool:
    """Whether a member's name leads out of the folder into which the archive would be unpacked, on any system."""
    kinds = (PurePosixPath(name), PureWindowsPath(name))
    return any(".." in path.parts or path.is_absolute() or path.drive for path in kinds) or "\0" in name


def read_members(path: Path, wanted: re.Pattern[str], *, max_bytes: int) -> dict[str, bytes]:
    """Every regular file whose whole name matches `wanted`, by name. One larger than `max_bytes` is refused."""
    try:
        store.regular(path)
        return dict(_zip(path, wanted, max_bytes) if path.suffix == ".zip" else _tar(path, wanted, max_bytes))
    except BROKEN_ARCHIVE as error:
        raise InputError(f"{path} is a torn archive or none: {first_line(error)}.") from None


def _check_member(path: Path, name: str, is_plain: bool, size: int, max_bytes: int | None) -> None:
    if climbs(name):
        refuse("members", str(path), "paths within the archive", repr(name))
    if not is_plain:
        refuse("members", str(path), "files and folders", f"the link or device {name!r}")
    if max_bytes is not None and size > max_bytes:
        refuse("members", str(path), f"no larger than {max_bytes} bytes", f"{size} for {name!r}")


def _tar(path: Path, wanted: re.Pattern[str], max_bytes: int) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:  # one pass: going back would decompress again from the start
            is_wanted = member.isreg() and wanted.fullmatch(member.name) is not None
            is_plain = member.isreg() or member.isdir()
            _check_member(path, member.name, is_plain, member.size, max_bytes if is_wanted else None)
            if is_wanted:
                file = archive.extractfile(member)
                assert file is not None  # regular files have contents
                yield member.name, file.read()


def _zip(path: Path, wanted: re.Pattern[str], max_bytes: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            is_wanted = not member.is_dir() and wanted.fullmatch(member.filename) is not None
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 where the archive was not made on a Unix
            is_plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
            # zipfile cuts a name at a NUL byte, so the name as stored is the one to look at.
            _check_member(path, member.orig_filename, is_plain, member.file_size, max_bytes if is_wanted else None)
            if is_wanted:
                yield member.filename, archive.read(member)


def decode_png(data: bytes, size: tuple[int, int], where: str) -> NDArray[Any]:
    """A PNG of `size` (width, height) as grey levels; the size is read from its header before a pixel is decoded."""
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.size != size:
                refuse("size", where, f"{size[0]} x {size[1]}", f"{image.size[0]} x {image.size[1]}")
            return np.asarray(image.convert("L"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{where} cannot be read as PNG: {first_line(error)}.") from None
