"""Users' files in: `read` one, `read_pair` two that are to be compared, `chunks` of one that is larger than memory.

Arrays keep their numbers, but bytes with more than one axis a sample are pixels and are divided by 255. Tables are
encoded together (see `columns`), images are brought to the same channels, and whatever was done stands in the report.

In chunks .npy is memory-mapped, .safetensors is sliced, .csv and .parquet come in batches, images are opened as they
are needed. An .npz is the exception: its array is one compressed stream and is loaded whole; save large arrays as .npy
or .safetensors. Text columns need both whole tables to be encoded, so chunks of tables take numbers only and refuse the
rest by name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import InputError, checks
from vestige.data.formats import require_memory
from vestige.data.readers.address import Address, locate, refuse_file
from vestige.data.readers.arrays import open_array
from vestige.data.readers.columns import Column, ColumnReport, encode, floats, kind_of, plain
from vestige.data.readers.images import ImageFolder
from vestige.data.readers.tables import read_table, table_batches

ROWS = 65536  # of a chunk
NAME_BYTES = 64  # of a column's name, such as x123


@dataclass(frozen=True)
class SampleFile:
    """Samples that came from a file: one a row, with the names of their columns."""

    x: Float[Tensor, "n d"]
    origin: str
    shape: tuple[int, ...]  # of one sample, before it was flattened
    report: ColumnReport

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of `x`."""
        return self.report.features


def read(where: str | os.PathLike[str], *, key: str | None = None, drop: Sequence[str] = ()) -> SampleFile:
    """The samples in a file (`FILE` or `FILE:key`) or in a folder of images. `drop` names columns of a table."""
    return _read([locate(where, key)], drop)[0]


def read_pair(
    real: str | os.PathLike[str], fake: str | os.PathLike[str], *, drop: Sequence[str] = ()
) -> tuple[Float[Tensor, "n_p d"], Float[Tensor, "n_q d"], ColumnReport]:
    """Two sample sets of one width, tables encoded together: `p` the real one, `q` the fake one, and the report."""
    p, q = _read([locate(real), locate(fake)], drop)
    if p.report is q.report:
        return p.x, q.x, p.report
    _same_samples(p, q)
    dtype = torch.promote_types(p.x.dtype, q.x.dtype)
    notes = [f"{p.origin}: {note}" for note in p.report.notes]
    notes += [f"{q.origin}: {note}" for note in q.report.notes if note not in p.report.notes]
    return p.x.to(dtype), q.x.to(dtype), ColumnReport(p.report.columns, tuple(notes), p.report.shape)


def _read(at: list[Address], drop: Sequence[str]) -> list[SampleFile]:
    """The samples of each place: tables alone are encoded together, folders alone brought to the same channels."""
    kinds = {one.kind for one in at}
    for one in at:
        if drop and one.kind != "table":
            refuse_file(one, "a table for 'drop' to leave out columns of", f"'{drop[0]}' of an array or a folder")
    if kinds == {"table"}:
        found = [read_table(one) for one in at]
        encoded, report = encode([table for table, _ in found], [str(one) for one in at], drop=drop)
        report = ColumnReport(report.columns, tuple(note for _, notes in found for note in notes) + report.notes)
        return [SampleFile(x, str(one), (x.shape[1],), report) for one, x in zip(at, encoded, strict=True)]
    if kinds == {"images"}:
        folders = [ImageFolder.survey(one.path) for one in at]
        colour = any(folder.colour for folder in folders)
        return [_read_folder(one, folder, colour) for one, folder in zip(at, folders, strict=True)]
    return [_read_array(one) if one.kind == "array" else _read([one], drop)[0] for one in at]


def _read_array(at: Address) -> SampleFile:
    with open_array(at) as array:
        samples = _bytes(array.shape[0], math.prod(array.shape[1:]), array.dtype.itemsize)
        require_memory(at, array.unpacked + samples)
        x = array.rows(at, 0, array.shape[0])
    notes = ("bytes of images were divided by 255",) if array.is_images else ()
    return SampleFile(x, str(at), array.shape[1:], plain_report(array.shape[1:], "number", notes))


def _bytes(rows: int, width: int, bytes_each: int) -> int:
    """What samples take in memory, and the names of their columns."""
    return rows * width * bytes_each + width * NAME_BYTES


def _read_folder(at: Address, images: ImageFolder, colour: bool) -> SampleFile:
    size = images.size
    require_memory(at, _bytes(len(images.paths), images.width(colour), torch.float32.itemsize))
    x = images.read(colour=colour)
    note = f"{len(x)} images of {size[0]} x {size[1]}, {'RGB' if colour else 'grey'}, pixels in [0, 1]"
    shape = (*size, 3) if colour else size
    return SampleFile(x, str(at), shape, plain_report(shape, "pixel", (note,)))


def plain_report(shape: tuple[int, ...], kind: str, notes: tuple[str, ...]) -> ColumnReport:
    """Of columns that have no names and stay as they are; of images the shape is told too."""
    width = math.prod(shape)
    names = tuple(f"x{i}" for i in range(width))
    label = "x0" if width == 1 else f"x0 ... x{width - 1}"
    return ColumnReport((Column(label, kind, "as it is", names),), notes, shape if len(shape) > 1 else ())


def _same_samples(p: SampleFile, q: SampleFile) -> None:
    """Widths, layouts and the scale of pixels must agree."""
    if p.x.shape[1] != q.x.shape[1]:
        told = f"{p.x.shape[1]} in {p.origin} and {q.x.shape[1]} in {q.origin}"
        raise InputError(f"The two files must have equally many features a sample. Got {told} instead.")
    p_shape, q_shape = (tuple(side for side in s.shape if side != 1) for s in (p, q))
    if min(len(p_shape), len(q_shape)) > 1 and p_shape != q_shape:
        told = f"{p.shape} in {p.origin} and {q.shape} in {q.origin}"
        raise InputError(f"The samples of the two files must be laid out alike. Got {told} instead.")
    if max(len(p_shape), len(q_shape)) > 1:
        top = [float(s.x.max()) for s in (p, q)]
        if min(top) <= 1 and max(top) > 2 and min(float(s.x.min()) for s in (p, q)) >= 0:
            told = f"a largest value of {top[0]:g} in {p.origin} and of {top[1]:g} in {q.origin}"
            raise InputError(f"The pixels of the two files must be on one scale. Got {told} instead.")


def chunks(
    where: str | os.PathLike[str], rows: int = ROWS, *, key: str | None = None
) -> Iterator[Float[Tensor, "_ d"]]:
    """The samples of a file or folder in order, at most `rows` at a time."""
    rows = checks.whole(rows, "rows", "files.chunks", low=1)
    at = locate(where, key)
    return {"array": _array_chunks, "table": _table_chunks, "images": _image_chunks}[at.kind](at, rows)


def _array_chunks(at: Address, rows: int) -> Iterator[Float[Tensor, "_ d"]]:
    with open_array(at) as array:
        for start in range(0, array.shape[0], rows):
            yield array.rows(at, start, min(start + rows, array.shape[0]))


def _image_chunks(at: Address, rows: int) -> Iterator[Float[Tensor, "_ d"]]:
    images = ImageFolder.survey(at.path)
    yield from images.batches(rows, colour=images.colour)


def _table_chunks(at: Address, rows: int) -> Iterator[Float[Tensor, "_ d"]]:
    """Arrow chooses its own batches; they are joined, which copies nothing, and cut to `rows`."""
    done, held = 0, pa.table({})
    for table in table_batches(at, rows):
        held = pa.concat_tables([held, table]) if held.num_rows else table
        while held.num_rows >= rows:
            yield _numbers(at, held.slice(0, rows), done)
            done, held = done + rows, held.slice(rows)
    if held.num_rows:
        yield _numbers(at, held, done)
    elif not done:
        refuse_file(at, "a table with at least one row", "none")


def _numbers(at: Address, table: pa.Table, first_row: int) -> Float[Tensor, "n d"]:
    values = []
    for name in table.column_names:
        part = plain(table.column(name), name, str(at))
        if kind_of(part) == "text":
            raise InputError(f"The column '{name}' of {at} must be numeric to be read in chunks. Got text instead.")
        value = floats(part, name, str(at), first_row=first_row)
        bad = np.flatnonzero(np.isnan(value))
        if len(bad):
            told = f"a missing value in data row {first_row + int(bad[0]) + 1}"
            raise InputError(f"The column '{name}' of {at} must be complete to be read in chunks. Got {told} instead.")
        values.append(value)
    return torch.from_numpy(np.stack(values, 1))
