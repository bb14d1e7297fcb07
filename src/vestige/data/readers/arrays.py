"""Arrays on disk: .npy by mapping the rows that are asked for, .safetensors by slices, .npz one member at a time.

Each opens as an `ArrayFile`, which knows its shape before it reads and hands out rows. Object arrays would need
pickle and are refused. An .npz member is one compressed stream, so the first rows of it cost the whole array.
"""

from __future__ import annotations

import functools
import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vestige.core import checks
from vestige.data.formats import first_line, require_memory
from vestige.data.readers.address import Address, refuse_file

# safetensors names its types; the small ones, bytes included, lose nothing in float32.
SMALL = {"BOOL", "U8", "I8", "I16", "F16", "BF16", "F32", "F8_E4M3", "F8_E5M2"}
LARGE = {"U16", "I32", "U32", "I64", "U64", "F64"}
WHOLE = {"I64", "U64"}
SHOWN = 60  # characters of a type that an error repeats

# What numpy's header parser, zip and zlib raise on a torn or hostile file.
DAMAGE = (
    *(ValueError, EOFError, OSError, SyntaxError, tokenize.TokenError, MemoryError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


# Of a header, which numpy would read however long it claims to be; its own limit is 10 000.
HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class ArrayFile:
    """An open array: its whole shape, whether it holds bytes, what its values become, and its rows on demand."""

    shape: tuple[int, ...]
    is_bytes: bool
    dtype: torch.dtype
    read: Callable[[int, int], NDArray[Any] | Tensor]
    unpacked: int = 0  # bytes that reading takes beside the samples

    @property
    def is_images(self) -> bool:
        """Whether its bytes are pixels."""
        return self.is_bytes and len(self.shape) > 2

    def rows(self, at: Address, start: int, stop: int) -> Float[Tensor, "n d"]:
        """Samples, one a row, pixels in [0, 1]; what no float holds is refused with the place of the first."""
        raw = self.read(start, stop)
        if isinstance(raw, np.ndarray):
            if raw.dtype.kind in "iu" and len(bad := np.argwhere(checks.inexact(raw).reshape(len(raw), -1))):
                value = raw.reshape(len(raw), -1)[tuple(bad[0])]
                must = "numbers that float64 holds apart, which are whole ones up to 2^53"
                refuse_file(at, must, f"{value} in {checks.place(bad[0], start)}")
            # A copy of what is mapped from the disk; of what was unpacked one only where the type changes.
            single = np.float32 if self.dtype == torch.float32 else np.float64
            raw = torch.from_numpy(np.array(raw, single, order="C", copy=None if raw.flags.writeable else True))
        x = raw.to(self.dtype).reshape(len(raw), -1)
        if self.is_images:
            x.div_(255)
        if not checks.within(x, checks.LARGEST):
            if len(wild := (~torch.isfinite(x)).nonzero()):
                refuse_file(
                    at, "finite", f"{len(wild)} NaN or infinite values, the first in {checks.place(wild[0], start)}"
                )
            first = (x.abs() > checks.LARGEST).nonzero()[0]
            got = f"{float(x[tuple(first)]):.4g} in {checks.place(first, start)}"
            refuse_file(at, f"numbers no larger than {checks.LARGEST:.2g}", got)
        return x


@contextmanager
def open_array(at: Address) -> Iterator[ArrayFile]:
    """The array that `at` names; a torn, hostile or ambiguous file is refused by name."""
    opener = {".npy": _open_npy, ".npz": _open_npz, ".safetensors": _open_safetensors}[at.suffix]
    with opener(at) as array:
        if len(array.shape) == 0:
            refuse_file(at, "an array with one sample a row", "a single number")
        if 0 in array.shape:
            refuse_file(at, "an array with samples and features", f"the empty shape {array.shape}")
        yield array


def _becomes(dtype: np.dtype[Any]) -> torch.dtype:
    """float32 where that loses nothing, else float64."""
    small = dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return torch.float32 if small else torch.float64


@dataclass(frozen=True)
class NpyHeader:
    """What the head of an .npy stream says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int  # where the data begins
    by_columns: bool  # the first axis varies fastest


def npy_header(file: Any) -> NpyHeader:  # noqa: ANN401 - a file or a zip member
    """The head of an .npy stream; what is none is a ValueError."""
    head = io.BytesIO(file.read(HEADER_BYTES))
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(head)
    if any(type(side) is not int or side < 0 for side in shape):  # True is an int to numpy, too
        raise ValueError("sides that are no lengths")
    return NpyHeader(shape, dtype, head.tell(), by_columns)


def _only_numbers(at: Address, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        refuse_file(at, "an array of numbers", "Python objects, which would need pickle")
    if dtype.kind not in "biuf":
        refuse_file(at, "an array of numbers", f"the type {str(dtype)[:SHOWN]}")


@contextmanager
def _open_npy(at: Address) -> Iterator[ArrayFile]:
    try:
        with at.path.open("rb") as file:
            head = npy_header(file)
    except DAMAGE:
        refuse_file(at, "a whole .npy file", "a torn or foreign one")
    shape, dtype = head.shape, head.dtype
    _only_numbers(at, dtype)
    claimed, there = math.prod(shape) * dtype.itemsize, at.path.stat().st_size - head.start
    if claimed > there:
        refuse_file(at, f"a whole .npy file with {claimed} bytes of data", f"{there}")
    row = math.prod(shape[1:]) * dtype.itemsize

    def window(first: int, stop: int) -> NDArray[Any]:
        """Only these rows are mapped, so that rows which were read take no memory, nor any of the address space."""
        try:
            if head.by_columns:
                return np.load(at.path, mmap_mode="r", allow_pickle=False)[first:stop]
            return np.memmap(at.path, dtype, "r", head.start + first * row, (stop - first, *shape[1:]))
        except DAMAGE as error:  # such as more axes than numpy has
            refuse_file(at, "a whole .npy file", f"one that cannot be read ({first_line(error)})")

    yield ArrayFile(shape, dtype == np.uint8, _becomes(dtype), window)


@contextmanager
def _open_npz(at: Address) -> Iterator[ArrayFile]:
    try:
        archive = zipfile.ZipFile(at.path)
    except DAMAGE:
        refuse_file(at, "a whole .npz file", "a torn or foreign one")
    with archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        member = members[choose_key(at, list(members))]
        unpacked = archive.getinfo(member).file_size
        require_memory(at, unpacked)
        try:
            with archive.open(member) as file:
                head = npy_header(file)
        except DAMAGE:
            refuse_file(at, f"an .npz file whose '{member}' can be read", "a torn one")
        shape, dtype = head.shape, head.dtype
        _only_numbers(at, dtype)
        claimed, there = math.prod(shape) * dtype.itemsize, unpacked - head.start
        if claimed != there:
            refuse_file(at, f"an .npz file whose '{member}' holds {claimed} bytes of data", f"{there}")

        @functools.cache
        def array() -> NDArray[Any]:
            try:
                with archive.open(member) as file:
                    return np.lib.format.read_array(file, allow_pickle=False)
            except DAMAGE:
                refuse_file(at, f"an .npz file whose '{member}' can be read", "a torn one")

        as_it_is = dtype in (np.float32, np.float64)
        yield ArrayFile(
            *(shape, dtype == np.uint8, _becomes(dtype), lambda a, b: array()[a:b]), 0 if as_it_is else unpacked
        )


@contextmanager
def _open_safetensors(at: Address) -> Iterator[ArrayFile]:
    try:
        file = safe_open(at.path, framework="pt")
    except (SafetensorError, ValueError, OSError):
        refuse_file(at, "a whole .safetensors file", "a torn or foreign one")
    with file:
        handle: Any = file  # safetensors has no types
        part = handle.get_slice(choose_key(at, sorted(handle.keys())))
        shape, dtype = tuple(part.get_shape()), part.get_dtype()
        if dtype not in SMALL | LARGE:
            refuse_file(at, "an array of real numbers", f"the type {dtype}")
        wide = torch.float32 if dtype in SMALL else torch.float64
        whole = dtype in WHOLE
        yield ArrayFile(shape, dtype == "U8", wide, lambda a, b: part[a:b].numpy() if whole else part[a:b])


def choose_key(at: Address, keys: list[str]) -> str:
    """The array that is meant: the named one, or the only one; else the names are told."""
    if not keys:
        refuse_file(at.path, "a file with an array in it", "none")
    shown = ", ".join(keys[:10]) + (f" and {len(keys) - 10} more" if len(keys) > 10 else "")
    if at.key is None and len(keys) > 1:
        refuse_file(at.path, f"named with one of its arrays, such as {at.path.name}:{keys[0]}", f"no key among {shown}")
    if at.key is not None and at.key not in keys:
        refuse_file(at.path, f"named with one of its arrays ({shown})", f"the key '{at.key}'")
    return at.key or keys[0]
