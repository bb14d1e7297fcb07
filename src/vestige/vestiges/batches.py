"""Rows of any source, in batches that fit in memory, as often as they are asked for; a random sample in one pass.

`batches` is the one door of rows. It takes

- files (.parquet, .arrow, .feather, .csv, .npy, .safetensors, .npz, folders of images) by name, and lists of files;
- arrays, lists of numbers, and tables in memory (pandas, polars, whatever hands itself over as an Arrow stream);
- Ray Data sets, torch Datasets, and anything that yields batches again and again: a list of arrays or tables, a
  DataLoader, a function of no arguments that makes an iterator;
- iterators, which can be read once: their rows are held;
- what draws: a function `f(n)` that returns n rows, or an object with such a method `sample`. It is called once, with
  `seed` where it takes one, for `n` rows: DRAWN unless told.

A batch is an Arrow table, or a float tensor with one sample a row. It has at most `rows` rows, and fewer where they are
wide: at most BATCH_BYTES. Of a batch that is a pair (samples, labels), or a mapping with one array of samples, the
samples are taken, and a note says so. Of iterators, and of iterables that do not know their length, at most `n` rows
are read, ENDLESS unless told, since they may have no end; of those with a length all, or `n` where it is given.

Memory is that of a few batches, whatever the size of the source (tests/vestiges/test_batches.py reads 20 GB within 2).
An .npz array is one compressed stream and is loaded whole; a record batch of an .arrow file is the least that can be
read of it. A .csv takes one more pass, the first, which finds the types that all rows of a column allow: numbers,
booleans or text (dates are text here, and known as dates by the schema). Whole tables of files are not encoded here, so
text is welcome: the schema is frozen first.

`held` are the rows in memory, for those who need all at once: a random sample of them, which is warned of, where they
would take more than MEMORY_SHARE of what is free.

`sample_of` is a uniform sample without replacement of the rows: row i has a random key that depends on the seed and i
alone, and the rows with the `most` smallest keys are kept, in their order. So the sample is the same however the rows
are batched, and costs memory for twice as many rows as are kept (Vitter's reservoir with random keys; Efraimidis and
Spirakis 2006 with equal weights). Keys are drawn in blocks of KEY_BLOCK rows from a generator of the block's own.

`survey` freezes the schema of a source of tables in one pass: the sample and the counts of `SchemaCounts` together.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from vestige.core import InputError, checks, rng
from vestige.core.checks import Kind
from vestige.data.formats import memory_limit
from vestige.data.readers.address import Address, locate, refuse_file
from vestige.data.readers.arrays import open_array
from vestige.data.readers.frames import as_table, is_frame, refuse_lazy
from vestige.data.readers.images import ImageFolder
from vestige.data.readers.tables import CsvTypes, csv_types, table_batches
from vestige.vestiges.schema import Schema, SchemaCounts

ROWS = 65_536
BATCH_BYTES = 1 << 26
SAMPLE_ROWS = 20_000  # that a schema's scales are taken from
SAMPLE_BYTES = 1 << 27  # of such a sample; of wide rows there are fewer
KEY_BLOCK = 65_536
DRAWN = 10_000  # rows that are drawn of a function unless told
ENDLESS = 100_000  # rows that are read of what may have no end, unless told
DATASET_BATCH = 1024
PIXELS = 255
DIVIDED = "bytes of images were divided by 255"

Batch: TypeAlias = "pa.Table | Float[Tensor, '_ d']"


@dataclass(frozen=True)
class Batches:
    """A source of rows: iterate over it for its batches, from the first row, every time."""

    kind: Literal["table", "array"]
    origin: str  # for sentences
    shape: tuple[int, ...] | None  # of one sample of an array
    make: Callable[[], Iterator[Batch]] = field(repr=False)
    held: pa.Table | Tensor | None = field(repr=False, default=None)  # all rows, where they are in memory
    like: Kind = Kind("numpy")  # noqa: RUF009 - frozen; the kind that the rows came in
    notes: tuple[str, ...] = ()  # what was taken
    warnings: tuple[str, ...] = ()  # what was not

    def __iter__(self) -> Iterator[Batch]:
        empty = True
        for batch in self.make():
            if len(batch):
                empty = False
                yield batch
        if empty:
            raise InputError(f"The rows of {self.origin} must be at least one. Got none instead.")


@dataclass(frozen=True)
class _Door:
    """What rows are called in sentences, and how many are drawn of what draws."""

    name: str
    owner: str
    rows: int
    n: int | None
    seed: int

    def refuse(self, must: str, got: object) -> NoReturn:
        """Raise the one error sentence."""
        checks.refuse(self.name, self.owner, must, got)


def batches(
    source: Any,  # noqa: ANN401 - many kinds
    rows: int = ROWS,
    *,
    n: int | None = None,
    seed: int = 0,
    name: str = "rows",
    owner: str = "batches",
) -> Batches:
    """The rows of `source` in batches of at most `rows` rows.

    `n` are the rows to draw of a function, and the most to read of iterables; `name` and `owner` are for sentences.

    >>> import numpy as np
    >>> found = batches(np.arange(10.0).reshape(5, 2), rows=2)
    >>> [len(batch) for batch in found], [len(batch) for batch in found]
    ([2, 2, 1], [2, 2, 1])
    >>> batches(lambda n: np.zeros((n, 2)), n=50).notes
    ('50 rows were drawn of a function that takes no seed',)
    """
    rows = checks.whole(rows, "rows", owner, low=1)
    n = None if n is None else checks.whole(n, "n", owner, low=1)
    door = _Door(name, owner, rows, n, seed)
    if isinstance(source, Batches):
        return source
    refuse_lazy(source, name, owner)
    if is_path(source):
        return _of_file(locate(source), rows)
    if isinstance(source, list | tuple) and source and all(map(is_path, source)):
        return _joined([_of_file(locate(one), rows) for one in source], f"{source[0]} and {len(source) - 1} more")
    if is_ray_data(source):
        return Batches("table", "the Ray Data set", None, lambda: _from_ray(source, rows))
    if is_frame(source) and not isinstance(source, pa.RecordBatchReader):
        return _in_memory(as_table(source, owner), _kind_of(source), rows)
    if isinstance(source, Dataset):  # which is no iterable
        source = DataLoader(source, DATASET_BATCH)
    if draws := _drawing(source, door):
        return _drawn(draws, door)
    if isinstance(source, Iterator | pa.RecordBatchReader):
        return _read_once(source, door)
    if _holds_batches(source):
        return _of_batches(source, door)
    return _in_memory(_array(source, door), _kind_of(source), rows)


def is_ray_data(x: object) -> bool:
    """Whether `x` is a Ray Data set; Ray may be missing."""
    return hasattr(x, "map_batches") and hasattr(x, "iter_batches")


def is_path(x: object) -> bool:
    """Whether `x` is the name of a file."""
    return isinstance(x, str | os.PathLike)


def _kind_of(x: object) -> Kind:
    """Of what came in; of what is no array numpy's."""
    known = isinstance(x, np.ndarray | Tensor | pd.DataFrame | pd.Series | list | tuple)
    return Kind.of(x) if known else Kind("numpy")


def _holds_batches(source: Any) -> bool:  # noqa: ANN401
    """Whether it is no array, and what it yields are no numbers or rows."""
    if callable(source):
        return True
    if isinstance(source, list | tuple):
        first = source[0] if source else None
        return is_frame(first) or (isinstance(first, np.ndarray | Tensor) and first.ndim > 1) or _is_mapping(first)
    return not hasattr(source, "__array__") and isinstance(source, Iterable)


def _is_mapping(x: object) -> bool:
    return isinstance(x, Mapping)


def _fitting(rows: int, row_bytes: int) -> int:
    return max(1, min(rows, BATCH_BYTES // max(1, row_bytes)))


def _in_memory(x: pa.Table | Tensor, like: Kind, rows: int, notes: tuple[str, ...] = ()) -> Batches:
    if isinstance(x, pa.Table):
        return Batches("table", "the table", None, lambda: _cut_table(x, rows), x, like, notes)
    notes += (DIVIDED,) if _are_pixels(x) else ()
    return Batches("array", "the array", tuple(x.shape[1:]) or (1,), lambda: _cut_array(x, rows), x, like, notes)


def _cut_table(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    step = _fitting(rows, table.nbytes // max(1, table.num_rows))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def _array(x: Any, door: _Door) -> Tensor:  # noqa: ANN401
    tensor = checks.as_tensor(x, door.name, door.owner)
    if tensor.ndim == 0:
        door.refuse("one sample a row", "a single number")
    return tensor


def _are_pixels(x: Tensor) -> bool:
    return x.dtype == torch.uint8 and x.ndim > 2  # as in files


def _cut_array(x: Tensor, rows: int) -> Iterator[Float[Tensor, "_ d"]]:
    width = x[:1].numel()
    step = _fitting(rows, 8 * width)
    for start in range(0, len(x), step):
        found = checks.samples(x[start : start + step].cpu(), "rows", "batches", dtype=None)
        yield found / PIXELS if _are_pixels(x) else found


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


def _drawing(source: Any, door: _Door) -> Callable[..., Any] | None:  # noqa: ANN401
    """The function of a number of rows that `source` is or has; None where it is no such thing."""
    sample = getattr(source, "sample", None)
    draws = sample if callable(sample) else source
    if not callable(draws):
        return None
    if isinstance(draws, nn.Module):
        door.refuse("a function f(n) that returns n rows, or an object with a method 'sample'", "a network")
    placed = [
        one for one in _parameters(draws).values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    variadic = any(one.kind is one.VAR_POSITIONAL for one in _parameters(draws).values())
    needed = [one.name for one in placed if one.default is one.empty and one.name != "seed"]
    if len(needed) > 1:
        door.refuse("a function of the number of rows alone", f"one that asks for {', '.join(needed)}")
    return draws if placed or variadic else None


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some of those in C do not say
        return inspect.signature(lambda n: n).parameters


def _drawn(function: Callable[..., Any], door: _Door) -> Batches:
    """Rows that a function was asked for once."""
    n = DRAWN if door.n is None else door.n
    seeded = "seed" in _parameters(function)
    made = function(n, seed=door.seed) if seeded else function(n)
    rows, like, notes = _collected(made, n, replace(door, n=n)) if isinstance(made, Iterator) else _one(made, door)
    if len(rows) < n:
        door.refuse(f"a function that returns as many rows as it is asked for, {n}", len(rows))
    told = f"{n} rows were drawn of a function {f'with seed {door.seed}' if seeded else 'that takes no seed'}"
    return _in_memory(rows[:n], like, door.rows, (told, *notes))


def _read_once(source: Iterator[Any], door: _Door) -> Batches:
    """The rows of an iterator, held; of a reader of record batches, which has an end, all that fit."""
    most = ENDLESS if door.n is None and not isinstance(source, pa.RecordBatchReader) else door.n
    rows, like, notes = _collected(source, most, door)
    found = _in_memory(rows, like, door.rows, notes)
    told = f"The first {len(rows)} rows of an iterator were read"
    if door.n is not None and len(rows) == door.n:
        return replace(found, notes=(*found.notes, f"{told}."))
    if next(source, None) is None:
        return found
    return replace(found, warnings=(f"{told}, and it has more: 'n' reads more of them, as far as memory goes.",))


def _collected(items: Iterator[Any], most: int | None, door: _Door) -> tuple[pa.Table | Tensor, Kind, tuple[str, ...]]:
    """The first rows of batches, as far as memory goes: `most` of them where 'n' is given, else whole batches."""
    parts: list[pa.Table | Tensor] = []
    told: tuple[Kind, tuple[str, ...]] = Kind("numpy"), ()
    found, limit = 0, memory_limit()
    for one, like, notes in _alike(items, door):
        told = like, notes
        parts.append(one if door.n is None else one[: door.n - found])
        found += len(parts[-1])
        if found >= (most or found + 1) or sum(map(_bytes, parts)) > limit:
            break
    if not found:
        door.refuse("at least one row", "an iterator without any")
    return _together(parts), *told


def _bytes(batch: pa.Table | Tensor) -> int:
    return int(batch.nbytes)


def _together(parts: Sequence[pa.Table | Tensor]) -> pa.Table | Tensor:
    if isinstance(parts[0], Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    return pa.concat_tables(parts, promote_options="permissive")


def _alike(items: Iterable[Any], door: _Door) -> Iterator[tuple[pa.Table | Tensor, Kind, tuple[str, ...]]]:
    """Batches as they come, which must be of one kind and shape."""
    kinds = set()
    for item in items:
        one, like, notes = _one(item, door)
        kinds.add("table" if isinstance(one, pa.Table) else tuple(one.shape[1:]))
        if len(kinds) > 1:
            door.refuse("batches of one kind and shape", " and ".join(sorted(map(str, kinds))))
        yield one, like, notes


@dataclass
class _Iterated:
    """Batches from what can be iterated over again and again; at most `most` rows of them."""

    source: Any
    door: _Door
    most: int | None

    def __call__(self) -> Iterator[Batch]:
        left = self.most
        for one, _, _ in _alike(_items(self.source, self.door), self.door):
            part = one if left is None else one[:left]
            left = None if left is None else left - len(part)
            rows = self.door.rows
            yield from _cut_table(part, rows) if isinstance(part, pa.Table) else _cut_array(part, rows)
            if left == 0:
                return


def _items(source: Any, door: _Door) -> Iterator[Any]:  # noqa: ANN401
    made = source() if callable(source) else source
    if not isinstance(made, Iterable):
        door.refuse("something that yields batches", type(made).__name__)
    return iter(made)


def _one(item: Any, door: _Door) -> tuple[pa.Table | Tensor, Kind, tuple[str, ...]]:  # noqa: ANN401
    """One batch as it came, a table or an array, and what was taken of it: of pairs and mappings the samples."""
    notes: tuple[str, ...] = ()
    if isinstance(item, tuple | list) and item and (is_frame(item[0]) or isinstance(item[0], np.ndarray | Tensor)):
        notes = (f"of batches of {len(item)} parts the first, the samples, was taken",) if len(item) > 1 else ()
        item = item[0]
    elif isinstance(item, Mapping) and not is_frame(item):
        wide = [key for key, value in item.items() if getattr(value, "ndim", 1) > 1]
        if len(wide) > 1 and "x" not in item:
            door.refuse("batches with one array of samples, or with one named 'x'", f"{', '.join(map(str, wide))}")
        if not wide and "x" not in item:
            return as_table(pd.DataFrame(dict(item)), door.owner), Kind("numpy"), ()
        key = "x" if "x" in item else wide[0]
        notes, item = (f"of batches of {len(item)} parts '{key}', the samples, was taken",), item[key]
    return (as_table(item, door.owner) if is_frame(item) else _array(item, door)), _kind_of(item), notes


def _of_batches(source: Any, door: _Door) -> Batches:  # noqa: ANN401
    first = next(_items(source, door), None)
    if first is None:
        door.refuse("at least one batch", "none")
    one, like, notes = _one(first, door)
    kind: Literal["table", "array"] = "table" if isinstance(one, pa.Table) else "array"
    shape = None if isinstance(one, pa.Table) else tuple(one.shape[1:]) or (1,)
    most = door.n
    if most is None and not callable(source) and not _has_length(source):
        most = ENDLESS
    notes += (f"at most {most} rows were read of what has no length",) if most != door.n else ()
    notes += (DIVIDED,) if isinstance(one, Tensor) and _are_pixels(one) else ()
    return Batches(kind, "the batches", shape, _Iterated(source, door, most), None, like, notes)


def _has_length(source: Any) -> bool:  # noqa: ANN401
    """Whether it knows how long it is; a loader of a stream does not, whatever it answers."""
    if isinstance(getattr(source, "dataset", None), IterableDataset):
        return hasattr(source.dataset, "__len__")
    try:
        len(source)
    except TypeError:
        return False
    return True


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
        return _together(self._held)

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
        if pa.types.is_dictionary(column.type):
            taken = taken.set_column(i, taken.field(i).name, column.cast(column.type.value_type))
    return taken


def sample_of(source: Any, most: int, *, seed: int = 0) -> Batch:  # noqa: ANN401 - what `batches` takes
    """A uniform sample of at most `most` rows, in their order; the same for a seed however the rows are batched."""
    reservoir = Reservoir(most, seed)
    for batch in batches(source):
        reservoir.add(batch)
    return reservoir.rows()[0]


@dataclass(frozen=True, eq=False)
class Held:
    """Rows in memory: a table, or an array with one sample a row in its own shape."""

    rows: pa.Table | Tensor
    like: Kind  # the kind that they came in
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def held(source: Any, **how: Any) -> Held:  # noqa: ANN401 - what `batches` takes, and its options
    """All rows in memory; a random sample of them, which is warned of, where they would not fit."""
    data = source if isinstance(source, Batches) else batches(source, **how)
    notes, warnings = data.notes, data.warnings
    if data.held is not None:
        x = data.held
        return Held(x.float() / PIXELS if isinstance(x, Tensor) and _are_pixels(x) else x, data.like, notes, warnings)
    reservoir: Reservoir | None = None
    for batch in data:
        if reservoir is None:  # it holds twice what it keeps
            most = int(memory_limit() / 2 // max(1, _bytes(batch) // len(batch)))
            reservoir = Reservoir(max(1, most), how.get("seed", 0))
        reservoir.add(batch)
    assert reservoir is not None  # an empty source is refused
    rows, _ = reservoir.rows()
    if len(rows) < reservoir.seen:
        told = f"A random sample of {len(rows)} of {reservoir.seen} rows was taken of {data.origin}: all do not fit in "
        warnings += (f"{told}memory.",)
    if isinstance(rows, Tensor):
        rows = rows.reshape(-1, *(data.shape or (1,)))
    return Held(rows, data.like, notes, warnings)


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
    data = batches(source, seed=seed)
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
