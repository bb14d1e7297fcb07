"""Files larger than memory, a chunk of rows at a time, for statistics that merge.

.npy is memory-mapped, .safetensors is sliced, .csv and .parquet come in batches, images are opened as they are
needed. An .npz is the exception: its array is one compressed stream and is loaded whole; save large arrays as .npy or
.safetensors. Text columns need both whole tables to be encoded (`read_pair`), so chunks of tables take numbers only and
refuse the rest by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.errors import InputError
from vestige.data.readers.address import Address, locate, refuse_file
from vestige.data.readers.arrays import open_array
from vestige.data.readers.columns import floats, kind_of, plain
from vestige.data.readers.frames import table_batches
from vestige.data.readers.images import image_batches, list_images, survey
from vestige.data.readers.read import as_rows, require_finite

ROWS = 65536


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
            x, _ = as_rows(array.rows(start, min(start + rows, array.shape[0])), array.is_bytes)
            require_finite(at, x, first_row=start)
            yield x


def _image_chunks(at: Address, rows: int) -> Iterator[Float[Tensor, "_ d"]]:
    paths = list_images(at.path)
    size, colour = survey(paths)
    yield from image_batches(paths, size, colour=colour, rows=rows)


def _table_chunks(at: Address, rows: int) -> Iterator[Float[Tensor, "_ d"]]:
    """Arrow chooses its own batches; they are cut and joined to `rows`."""
    waiting: list[Tensor] = []
    held = done = 0
    for table in table_batches(at, rows):
        x = _numbers(at, table, done)
        done += len(x)
        for piece in torch.split(x, rows):
            waiting.append(piece)
            held += len(piece)
            if held >= rows:
                joined = torch.cat(waiting)
                yield joined[:rows]
                waiting, held = [joined[rows:]], held - rows
    if held:
        yield torch.cat(waiting)
    if not done:
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
