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
from vestige.data.readers.address import Address, locate, refuse_file, require_memory
from vestige.data.readers.arrays import open_array
from vestige.data.readers.columns import Column, ColumnReport, encode, floats, kind_of, plain
from vestige.data.readers.images import image_batches, list_images, read_images, survey
from vestige.data.readers.tables import read_table, table_batches

ROWS = 65536  # of a chunk


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
    at = locate(where, key)
    _only_tables_drop(at, drop)
    if at.kind == "array":
        return _read_array(at)
    if at.kind == "images":
        return _read_folder(at, colour=None)
    table, notes = read_table(at)
    (x,), report = encode([table], [str(at)], drop=drop)
    return SampleFile(x, str(at), (x.shape[1],), ColumnReport(report.columns, notes + report.notes))


def read_pair(
    real: str | os.PathLike[str], fake: str | os.PathLike[str], *, drop: Sequence[str] = ()
) -> tuple[Float[Tensor, "n_p d"], Float[Tensor, "n_q d"], ColumnReport]:
    """Two sample sets of one width, tables encoded together: `p` the real one, `q` the fake one, and the report."""
    at = [locate(real), locate(fake)]
    for one in at:
        _only_tables_drop(one, drop)
    if all(one.kind == "table" for one in at):
        read_tables = [read_table(one) for one in at]
        (p, q), report = encode([table for table, _ in read_tables], [str(one) for one in at], drop=drop)
        notes = tuple(note for _, notes in read_tables for note in notes)
        return p, q, ColumnReport(report.columns, notes + report.notes)
    if all(one.kind == "images" for one in at):
        colour = any(survey(list_images(one.path))[1] for one in at)
        first, second = (_read_folder(one, colour=colour) for one in at)
    else:
        first, second = (read(one.path, key=one.key, drop=drop if one.kind == "table" else ()) for one in at)
    _same_samples(first, second)
    dtype = torch.promote_types(first.x.dtype, second.x.dtype)
    seconds = [f"{second.origin}: {note}" for note in second.report.notes if note not in first.report.notes]
    notes = tuple(f"{first.origin}: {note}" for note in first.report.notes) + tuple(seconds)
    return first.x.to(dtype), second.x.to(dtype), ColumnReport(first.report.columns, notes)


def _only_tables_drop(at: Address, drop: Sequence[str]) -> None:
    if drop and at.kind != "table":
        refuse_file(at, "a table for 'drop' to leave out columns of", f"'{drop[0]}' of an array or a folder")


def _read_array(at: Address) -> SampleFile:
    with open_array(at) as array:
        require_memory(at, math.prod(array.shape), bytes_each=4)
        x = array.rows(at, 0, array.shape[0])
    notes = ("bytes of images were divided by 255",) if array.is_images else ()
    return SampleFile(x, str(at), array.shape[1:], _plain_report(x.shape[1], "number", notes))


def _read_folder(at: Address, *, colour: bool | None) -> SampleFile:
    paths = list_images(at.path)
    size, any_colour = survey(paths)
    colour = any_colour if colour is None else colour
    x = read_images(paths, size, colour=colour)
    shape = (*size, 3) if colour else size
    note = f"{len(paths)} images of {size[0]} x {size[1]}, {'RGB' if colour else 'grey'}, pixels in [0, 1]"
    return SampleFile(x, str(at), shape, _plain_report(x.shape[1], "pixel", (note,)))


def _plain_report(width: int, kind: str, notes: tuple[str, ...]) -> ColumnReport:
    names = tuple(f"x{i}" for i in range(width))
    label = "x0" if width == 1 else f"x0 ... x{width - 1}"
    return ColumnReport((Column(label, kind, "as it is", names),), notes)


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
    paths = list_images(at.path)
    size, colour = survey(paths)
    yield from image_batches(paths, size, colour=colour, rows=rows)


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
        value = floats(part)
        bad = np.flatnonzero(~np.isfinite(value))
        if len(bad):
            told = f"{value[bad[0]]} in data row {first_row + int(bad[0]) + 1}"
            raise InputError(f"The column '{name}' of {at} must be finite to be read in chunks. Got {told} instead.")
        values.append(value)
    return torch.from_numpy(np.stack(values, 1))
