"""Members of .tar.gz and .zip archives, and the PNG images in them, read in memory: nothing is ever unpacked to disk.

An archive in which any member is a link, a device, or a path that climbs out of the archive is refused as a whole,
whether or not that member was asked for.
"""

from __future__ import annotations

import io
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vestige.core.checks import refuse
from vestige.core.errors import InputError

BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError)


def climbs(name: str) -> bool:
    """Whether a member's name leads out of the folder into which the archive would be unpacked, on any system."""
    kinds = (PurePosixPath(name), PureWindowsPath(name))
    return any(".." in path.parts or path.is_absolute() or path.drive for path in kinds) or "\0" in name


def read_members(path: Path, wanted: re.Pattern[str], *, max_bytes: int) -> dict[str, bytes]:
    """Every regular file whose whole name matches `wanted`, by name. One larger than `max_bytes` is refused."""
    try:
        return dict(_zip(path, wanted, max_bytes) if path.suffix == ".zip" else _tar(path, wanted, max_bytes))
    except BROKEN as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{path} is a torn archive or none: {reason.rstrip('.')}.") from None


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
        raise InputError(f"{where} cannot be read as PNG: {str(error).rstrip('.')}.") from None
