"""Rows of any source, in batches that fit in memory, as often as they are asked for; a random sample in one pass.

`batches` takes files (.parquet, .arrow, .feather, .csv, .npy, .safetensors, .npz, folders of images), lists of files,
arrays, tables in memory, Ray Data sets, anything that yields batches of these again and again (a list, a DataLoader, a
function that makes an iterator), and iterators, which can be read once. A batch is an Arrow table, or a float tensor
with one sample a row. It has at most `rows` rows, and fewer where they are wide: at most BATCH_BYTES.

Memory is that of a few batches, whatever the size of the source (tests/vestiges/test_batches.py reads 20 GB within 2).
An .npz array is one compressed stream and is loaded whole; a record batch of an .arrow file is the least that can be
read of it. A .csv takes one more pass, the first, which finds the types that all rows of a column allow: numbers,
booleans or text (dates are text here, and known as dates by the schema). Whole tables of files are not encoded here, so
text is welcome: the schema is frozen first.

`sample_of` is a uniform sample without replacement of the rows: row i has a random key that depends on the seed and i
alone, and the rows with the `most` smallest keys are kept, in their order. So the sample is the same however the rows
are batched, and costs memory for twice as many rows as are kept (Vitter's reservoir with random keys; Efraimidis and
Spirakis 2006 with equal weights). Keys are drawn in blocks of KEY_BLOCK rows from a generator of the block's own.

`survey` freezes the schema of a source of tables in one pass: the sample and the counts of `SchemaCounts` together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import InputError, checks, rng
from vestige.data.readers.address import Address, locate, refuse_file
from vestige.data.readers.arrays import open_array
from vestige.data.readers.frames import as_table, is_frame
from vestige.data.readers.images import ImageFolder
from vestige.data.readers.tables import CsvTypes, csv_types, table_batches
from vestige.vestiges.schema import Schema, SchemaCounts

ROWS = 65_536
BATCH_BYTES = 1 << 26
SAMPLE_ROWS = 20_000  # that a schema's scales are taken from
SAMPLE_BYTES = 1 << 27  # of such a sample; of wide rows there are fewer
KEY_BLOCK = 65_536
PIXELS = 255
OWNER = "batches"

Batch: TypeAlias = "pa.Table | Float[Tensor, '_ d']"


@dataclass(frozen=True)
class Batches:
    """A source of rows: iterate over it for its batches, from the first row, every time."""

    kind: Literal["table", "array"]
    origin: str  # for sentences
    shape: tuple[int, ...] | None  # of one sample of an array
    make: Callable[[], Iterator[Batch]] = field(repr=False)

    def __iter__(self) -> Iterator[Batch]:
        empty = True
        for batch in self.make():
            if len(batch):
                empty = False
                yield batch
        if empty:
            raise InputError(f"The rows of {self.origin} must be at least one. Got none instead.")


def batches(source: Any, rows: int = ROWS) -> Batches:  # noqa: ANN401 - many kinds
    """The rows of `source` in batches of at most `rows` rows.

    >>> import numpy as np
    >>> found = batches(np.arange(10.0).reshape(5, 2), rows=2)
    >>> [len(batch) for batch in found], [len(batch) for batch in found]
    ([2, 2, 1], [2, 2, 1])
    """
    rows = checks.whole(rows, "rows", OWNER, low=1)
    if isinstance(source, Batches):
        return source
    if _is_path(source):
        return _of_file(locate(source), rows)
    if isinstance(source, list | tuple) and source and all(map(_is_path, source)):
        return _joined([_of_file(locate(one), rows) for one in source], f"{source[0]} and {len(source) - 1} more")
    if is_ray_data(source):
        return Batches("table", "the Ray Data set", None, lambda: _from_ray(source, rows))
    if isinstance(source, pa.RecordBatchReader):
        return _of_batches(source, rows)
    if is_frame(source):
        table = as_table(source, OWNER)
        return Batches("table", "the table", None, lambda: _cut_table(table, rows))
    if _holds_batches(source):
        return _of_batches(source, rows)
    x = _array(source)
    return Batches("array", "the array", tuple(x.shape[1:]) or (1,), lambda: _cut_array(x, rows))


def is_ray_data(x: object) -> bool:
    """Whether `x` is a Ray Data set; Ray may be missing."""
    return hasattr(x, "map_batches") and hasattr(x, "iter_batches")


def _is_path(x: object) -> bool:
    return isinstance(x, str | os.PathLike)


def _holds_batches(source: Any) -> bool:  # noqa: ANN401
    """Whether it is no array, and what it yields are no numbers."""
    if callable(source) or isinstance(source, Iterator):
        return True
    if isinstance(source, list | tuple):
        return bool(source) and (is_frame(source[0]) or isinstance(source[0], np.ndarray | Tensor))
    return not hasattr(source, "__array__") and isinstance(source, Iterable)


def _fitting(rows: int, row_bytes: int) -> int:
    return max(1, min(rows, BATCH_BYTES // max(1, row_bytes)))


def _cut_table(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    step = _fitting(rows, table.nbytes // max(1, table.num_rows))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def _array(x: Any) -> Tensor:  # noqa: ANN401
    tensor = checks.as_tensor(x, "rows", OWNER)
    if tensor.ndim == 0:
        checks.refuse("rows", OWNER, "one sample a row", "a single number")
    return tensor


def _cut_array(x: Tensor, rows: int) -> Iterator[Float[Tensor, "_ d"]]:
    width = x[:1].numel()
    step = _fitting(rows, 8 * width)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        pixels = x.dtype == torch.uint8 and x.ndim > 2  # as in files
        found = checks.samples(part.cpu(), "rows", OWNER, dtype=None)
        yield found / PIXELS if pixels else found


def _of_file(at: Address, rows: int) -> Batches:
    if at.kind == "table":
        return Batches("table", str(at), None, _TableFile(at, rows))
    if at.kind == "images":
        images = ImageFolder.survey(at.path)
        step = _fitting(rows, 4 * images.width(images.colour))
        sides = (*images.size, 3) if images.colour else images.size
        return Batches("array", str(at), sides, lambda: iter(images.batches(step, colour=images.colour)))
    with open_array(at) as array:
        shape = array.shape[1:] or (1,)
        step = _fitting(rows, array.dtype.itemsize * int(np.prod(shape)))
    return Batches("array", str(at), shape, lambda: _array_file(at, step))


def _array_file(at: Address, step: int) -> Iterator[Float[Tensor, "_ d"]]:
    with open_array(at) as array:
        for start in range(0, array.shape[0], step):
            yield array.rows(at, start, min(start + step, array.shape[0]))


@dataclass
class _TableFile:
    """Batches of a table on disk; the types of a .csv are found at the first reading."""

    at: Address
    rows: int
    types: CsvTypes | None = None

    def __call__(self) -> Iterator[pa.Table]:
        if self.at.suffix == ".csv" and self.types is None:
            self.types = csv_types(self.at)
        for table in table_batches(self.at, self.rows, self.types):
            yield from _cut_table(table, self.rows)


def _joined(parts: Sequence[Batches], origin: str) -> Batches:
    kinds = {(part.kind, part.shape) for part in parts}
    if len(kinds) > 1:
        refuse_file(origin, "of one kind and shape", " and ".join(sorted(f"{k} {s or ''}".strip() for k, s in kinds)))
    kind, shape = kinds.pop()
    return Batches(kind, origin, shape, lambda: chain.from_iterable(parts))


def _from_ray(data: Any, rows: int) -> Iterator[pa.Table]:  # noqa: ANN401 - Ray may be missing
    for table in data.iter_batches(batch_size=rows, batch_format="pyarrow"):
        yield from _cut_table(table, rows)


@dataclass
class _Iterated:
    """Batches from what can be iterated over: again and again, or once if it is an iterator."""

    source: Any
    rows: int
    first: Any = None  # what was looked at to know the kind, if it is to be read once
    used: bool = False

    def __call__(self) -> Iterator[Batch]:
        once = isinstance(self.source, Iterator | pa.RecordBatchReader)
        if once and self.used:
            must = "readable twice: hand over a file, a list of batches, or a function that makes the iterator anew"
            checks.refuse("rows", OWNER, must, "an iterator that is used up")
        self.used = True
        items = chain([self.first], self.source) if once else _items(self.source)
        kinds = set()
        for item in items:
            one = _one(item)
            kinds.add("table" if isinstance(one, pa.Table) else tuple(one.shape[1:]))
            if len(kinds) > 1:
                told = " and ".join(sorted(map(str, kinds)))
                checks.refuse("rows", OWNER, "batches of one kind and shape", told)
            yield from _cut_table(one, self.rows) if isinstance(one, pa.Table) else _cut_array(one, self.rows)


def _items(source: Any) -> Iterator[Any]:  # noqa: ANN401
    made = source() if callable(source) else source
    if not isinstance(made, Iterable):
        checks.refuse("rows", OWNER, "something that yields batches", type(made).__name__)
    return iter(made)


def _one(item: Any) -> pa.Table | Tensor:  # noqa: ANN401
    """One batch as it came: a table or an array; of a pair (samples, labels) the samples."""
    if isinstance(item, tuple | list) and item and isinstance(item[0], np.ndarray | Tensor):
        item = item[0]
    return as_table(item, OWNER) if is_frame(item) else _array(item)


def _of_batches(source: Any, rows: int) -> Batches:  # noqa: ANN401
    once = isinstance(source, Iterator | pa.RecordBatchReader)
    first = next(iter(source) if once else _items(source), None)
    if first is None:
        checks.refuse("rows", OWNER, "at least one batch", "none")
    one = _one(first)
    kind: Literal["table", "array"] = "table" if isinstance(one, pa.Table) else "array"
    shape = None if isinstance(one, pa.Table) else tuple(one.shape[1:]) or (1,)
    return Batches(kind, "the batches", shape, _Iterated(source, rows, first if once else None))


class _Keys:
    """The random keys of rows, by position."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.block, self.values = -1, np.empty(0)

    def of(self, start: int, stop: int) -> NDArray[np.float64]:
        """Those of the rows from `start` to `stop`."""
        parts = []
        for block in range(start // KEY_BLOCK, -(-stop // KEY_BLOCK)):
            if block != self.block:
                self.block, self.values = block, rng.fork_numpy(self.seed, "rows", block).random(KEY_BLOCK)
            first = block * KEY_BLOCK
            parts.append(self.values[max(start - first, 0) : stop - first])
        return np.concatenate(parts)


class Reservoir:
    """A uniform sample of the rows that were added so far, at most `most` of them; see the module."""

    def __init__(self, most: int, seed: int = 0) -> None:
        self.most = checks.whole(most, "most", "Reservoir", low=1)
        self.seen = 0
        self._source = _Keys(seed)
        self._held: list[Batch] = []
        self._keys, self._places = np.empty(0), np.empty(0, np.int64)
        self._limit = np.inf

    def add(self, batch: Batch) -> None:
        """Let the rows of `batch`, which follow those that were added, take part."""
        keys = self._source.of(self.seen, self.seen + len(batch))
        chosen = np.flatnonzero(keys < self._limit)
        if len(chosen):
            self._held.append(_rows(batch, chosen))
            self._keys = np.concatenate([self._keys, keys[chosen]])
            self._places = np.concatenate([self._places, self.seen + chosen])
        self.seen += len(batch)
        if len(self._keys) > 2 * self.most:
            self._shrink()

    def _shrink(self) -> None:
        """Forget all but the smallest keys."""
        if len(self._keys) > self.most:
            kept = np.sort(np.argpartition(self._keys, self.most)[: self.most])
            self._held = [_rows(self._whole(), kept)]
            self._keys, self._places = self._keys[kept], self._places[kept]
            self._limit = float(self._keys.max())

    def _whole(self) -> Batch:
        first = self._held[0]
        if isinstance(first, Tensor):
            return torch.cat([part for part in self._held if isinstance(part, Tensor)])
        return pa.concat_tables(self._held, promote_options="permissive")

    def rows(self) -> tuple[Batch, Int64[Tensor, " n"]]:
        """The sample, in the order of the source, and the position of each row in it."""
        self._shrink()
        return self._whole(), torch.from_numpy(self._places)


def _rows(batch: Batch, chosen: NDArray[np.int64]) -> Batch:
    """A copy of these rows, without the dictionaries of all others."""
    if isinstance(batch, Tensor):
        return batch[torch.from_numpy(chosen)]
    taken = batch.take(pa.array(chosen))
    for i, column in enumerate(taken.columns):
        if pa.types.is_dictionary(column.type) and not pa.types.is_string_view(column.type.value_type):
            taken = taken.set_column(i, taken.field(i).name, column.cast(column.type.value_type))
    return taken


def sample_of(source: Any, most: int, *, seed: int = 0) -> Batch:  # noqa: ANN401 - what `batches` takes
    """A uniform sample of at most `most` rows, in their order; the same for a seed however the rows are batched."""
    reservoir = Reservoir(most, seed)
    for batch in batches(source):
        reservoir.add(batch)
    return reservoir.rows()[0]


def whole(source: Any) -> pa.Table | Tensor:  # noqa: ANN401 - what `batches` takes
    """All rows in memory: a table, or an array with one sample a row in its own shape."""
    data = batches(source)
    parts = list(data)
    if data.kind == "table":
        return pa.concat_tables(parts, promote_options="permissive")
    return torch.cat([part for part in parts if isinstance(part, Tensor)]).reshape(-1, *(data.shape or (1,)))


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass told: how many rows there are, a sample of them in their order and where they stand, and of tables
    the frozen schema.
    """

    schema: Schema | None
    n: int
    sample: pa.Table | Tensor
    places: Int64[Tensor, " k"]


def fitting_sample(batch: Batch, most: int) -> int:
    """How many rows like these, as numbers, SAMPLE_BYTES hold, at most `most`."""
    width = batch.shape[1] if isinstance(batch, Tensor) else batch.num_columns
    return max(1, min(most, SAMPLE_BYTES // (8 * max(width, 1))))


def survey(source: Any, *, drop: Sequence[str] = (), most: int = SAMPLE_ROWS, seed: int = 0) -> Survey:  # noqa: ANN401
    """A sample of rows that may be larger than memory; of tables also the schema, from counts of all rows."""
    data = batches(source)
    if drop and data.kind != "table":
        checks.refuse("drop", "survey", "given for tables alone", f"'{drop[0]}' for {data.origin}")
    reservoir, counts = Reservoir(most, seed), None
    for batch in data:
        if not reservoir.seen:
            reservoir = Reservoir(fitting_sample(batch, most), seed)
        if isinstance(batch, pa.Table):
            for name in drop if counts is None else ():
                checks.one_of(name, batch.column_names, "drop", "survey")
            found = SchemaCounts.of(batch, data.origin, drop=drop, first_row=reservoir.seen)
            counts = found if counts is None else counts.merge(found)
        reservoir.add(batch)
    sample, places = reservoir.rows()
    if isinstance(sample, Tensor):
        return Survey(None, reservoir.seen, sample.reshape(-1, *(data.shape or (1,))), places)
    return Survey(Schema.of(sample, drop=drop, origin=data.origin, counts=counts), reservoir.seen, sample, places)
