"""Users' own data as a `DataSet`: arrays, torch data sets, tables with a column of labels, folders of images.

`as_dataset` takes any of them, and so does every stream maker. Labels may be whole numbers, words or truth values; the
classes are the different ones, in order, and keep their names. Bytes with more than one axis a sample are pixels, as
everywhere here, and stay bytes; all other numbers become float32. Images whose channels come last, as those of pillow
do, get them in front. Columns of tables are encoded as `vestige.data.readers` encodes them: words one-hot, missing
numbers by the median of all rows and an indicator.

Where no rows to test on are given, a share of each class is held out: by default a fifth, at least one row of it, drawn
by a seed that is not the stream's, so that runs of several seeds are tested on the same rows. `held_out` of the data
set says so, and with it every Record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from vestige.core import InputError, machine, rng
from vestige.core.checks import as_tensor, number, one_of, refuse
from vestige.core.errors import shortened
from vestige.core.machine import on_cpu
from vestige.data.dataset import DataSet
from vestige.data.formats import MEMORY_SHARE

LABELS = ("label", "labels", "target", "class", "y")  # what the column of labels is called where nobody says
KINDS = "arrays (x, y), a torch Dataset of such pairs, a table, a folder of images or the name of a data set"
SHARE = 0.2  # of each class that is held out where no rows to test on are given
IMAGES_AT_ONCE = 1024


@on_cpu()
def as_dataset(
    data: Any,  # noqa: ANN401 - whatever a user has
    *,
    test: Any = None,  # noqa: ANN401
    label: str | None = None,
    test_share: float = SHARE,
    seed: int = 0,
    name: str | None = None,
) -> DataSet:
    """The data set that `data` is, tested on `test`, which is of the same kind.

    Parameters
    ----------
    data
        Arrays `(x, y)` or `((x, y), (test_x, test_y))`; a torch Dataset of pairs, images of pillow among them, or two,
        of which the second is to test on; a DataLoader (its data set); a pandas or polars frame, or whatever hands
        itself over as an Arrow stream; the path of a table, or of a folder with a folder of images for each class or
        with `train` and `test` that are such folders; the name of a data set that `load` knows. A DataSet is itself.
    test
        What to test on. None: `test_share` of each class, drawn by `seed`.
    label
        Of a table: the column of the classes. None: the one that is called label, labels, target, class or y.
    name
        What it is called in Records.
    """
    if isinstance(data, DataSet) and test is None:
        return data
    if isinstance(data, tuple) and len(data) == 2 and test is None and all(map(_is_whole, data)):
        data, test = data
    from vestige.data.readers.frames import refuse_lazy  # imported late, with all of Arrow

    for one, argument in ((data, "data"), (test, "test")):
        refuse_lazy(one, argument, "data.as_dataset")
    held: dict[str, Any] = {"test_share": test_share, "seed": seed}
    if _is_table(data):
        return _from_table(data, test, label, name or "table", "a table in memory", **held)
    if isinstance(data, str | Path):
        return _from_path(data, test, label, name, **held)
    if label is not None:
        refuse("label", "data.as_dataset", "None for what is no table", repr(label))
    x, y, names = _pairs(data, "data")
    found = None if test is None else _pairs(test, "test")[:2]
    return from_arrays(x, y, test=found, names=names, name=name or "own", **held)


@on_cpu()
def from_arrays(
    x: Any,  # noqa: ANN401 - any kind of array
    y: Any,  # noqa: ANN401
    *,
    test: tuple[Any, Any] | None = None,
    names: Sequence[str] | None = None,
    test_share: float = SHARE,
    seed: int = 0,
    name: str = "own",
) -> DataSet:
    """The data set of samples `x` (n, ...) and their classes `y` (n,), tested on `test`, a pair of the same kind.

    `names` are those of the classes where labels are their places; otherwise the labels are the names. The other
    arguments are those of `as_dataset`.

    Example
    -------
    >>> from_arrays([[0.1], [0.2], [0.8], [0.9]], ["no", "no", "yes", "yes"])
    DataSet('own', 2 + 2 rows of 1, 2 classes, from arrays in memory; 20 % of each class held out, seed 0)
    """
    owner = "data.from_arrays"
    if test is not None and not (isinstance(test, tuple | list) and len(test) == 2):
        refuse("test", owner, "a pair (x, y)", f"a {type(test).__name__}")
    given = [(x, y, ""), *([] if test is None else [(*test, " of 'test'")])]
    rows = [_rows(one, f"x{where}", owner) for one, _, where in given]
    labels = [_labels(one, len(part), f"y{where}", owner) for (_, one, where), part in zip(given, rows, strict=True)]
    coded, classes = _coded(labels, names, owner)
    return _built(rows, coded, classes, "arrays in memory", test_share, seed, name)


def _is_table(data: Any) -> bool:  # noqa: ANN401
    from vestige.data.readers.frames import is_frame  # imported late, with all of Arrow

    return not isinstance(data, str | Path | Tensor | np.ndarray | tuple | Dataset) and is_frame(data)


def _is_whole(part: Any) -> bool:  # noqa: ANN401
    """Whether half of a tuple has both samples and labels."""
    return (isinstance(part, tuple) and len(part) == 2) or isinstance(part, Dataset | DataLoader) or _is_table(part)


def _pairs(data: Any, argument: str) -> tuple[Any, Any, Sequence[str] | None]:  # noqa: ANN401
    """Samples, labels and, where the data set says them, the names of its classes."""
    owner = "data.as_dataset"
    if isinstance(data, DataLoader):
        data = data.dataset
    if isinstance(data, tuple) and len(data) == 2:
        return data[0], data[1], None
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return data.tensors[0], data.tensors[1], None
    if isinstance(data, IterableDataset):
        refuse(argument, owner, "a Dataset with a length, for its rows are dealt out to tasks", "an IterableDataset")
    listed = isinstance(data, list) and bool(data) and isinstance(data[0], tuple)
    if not (isinstance(data, Dataset) or listed):
        refuse(argument, owner, KINDS, f"a {type(data).__name__}")
    if not hasattr(data, "__len__") or len(data) == 0:
        refuse(argument, owner, "a Dataset with a length and at least one sample", f"a {type(data).__name__} without")
    x, y = _gathered(data, argument, owner)
    classes = getattr(data, "classes", None)
    named = isinstance(classes, list | tuple) and all(isinstance(label, int) and label < len(classes) for label in y)
    return x, y, list(map(str, classes)) if named and classes is not None else None


def _gathered(data: Any, argument: str, owner: str) -> tuple[Tensor, list[Any]]:  # noqa: ANN401
    """Every pair of a map-style data set, which must be of one shape."""
    rows: Tensor | None = None
    labels = []
    for i in range(len(data)):
        pair = data[i]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            got = f"{len(pair)} things" if isinstance(pair, tuple | list) else f"a {type(pair).__name__}"
            refuse(argument, owner, "of pairs (x, y)", f"{got} at {i}")
        row = _one(pair[0], f"{argument}[{i}]", owner)
        if rows is None:
            _require_memory(row.numel() * row.element_size() * len(data), argument, owner)
            rows = torch.empty((len(data), *row.shape), dtype=row.dtype)
        if row.shape != rows.shape[1:] or row.dtype != rows.dtype:
            must, got = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (rows[0], row))
            refuse(argument, owner, f"of samples of one shape and type ({must})", f"{got} at {i}")
        rows[i] = row
        labels.append(pair[1].item() if isinstance(pair[1], Tensor | np.generic) and pair[1].ndim == 0 else pair[1])
    assert rows is not None, "there is one sample at least"
    return rows, labels


def _one(row: Any, argument: str, owner: str) -> Tensor:  # noqa: ANN401
    """One sample; a picture as (h, w) or (h, w, c) bytes."""
    if isinstance(row, Image.Image):
        row = np.array(row if row.mode in ("L", "RGB") else row.convert("L" if row.mode in ("1", "LA") else "RGB"))
    found = as_tensor(row, argument, owner)
    return found.cpu().reshape(1) if found.ndim == 0 else found.cpu()


def _require_memory(needed: float, argument: str, owner: str) -> None:
    limit = MEMORY_SHARE * machine.free_memory()
    if needed > limit:
        refuse(argument, owner, f"small enough for {limit / 1e9:.3g} GB of memory", f"{needed / 1e9:.3g} GB")


def _rows(x: Any, argument: str, owner: str) -> Tensor:  # noqa: ANN401
    """Samples as a data set holds them: pixels as bytes, all else as float32, channels in front."""
    given = found = as_tensor(x, argument, owner).cpu()
    if found.ndim == 0 or len(found) == 0:
        refuse(argument, owner, "at least one sample", f"shape {tuple(found.shape)}")
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim == 4 and found.shape[3] in (1, 3) and found.shape[1] not in (1, 3):
        found = found.permute(0, 3, 1, 2)
    pixels = found.dtype == torch.uint8 and found.ndim > 2
    found = (found if pixels else found.to(torch.float32)).contiguous()
    return found.clone() if found.data_ptr() == given.data_ptr() else found  # the array stays the user's


def _labels(y: Any, n: int, argument: str, owner: str) -> list[Any]:  # noqa: ANN401
    """One label a sample: whole numbers, words or truth values, as plain Python values."""
    values = y.tolist() if hasattr(y, "tolist") else list(y) if isinstance(y, Sequence) else None
    if values is None or isinstance(y, str):
        refuse(argument, owner, "one label a sample", f"a {type(y).__name__}")
    if len(values) == n and all(isinstance(v, list) and len(v) == 1 for v in values):
        values = [v[0] for v in values]
    values = [v.item() if isinstance(v, np.generic | Tensor) and v.ndim == 0 else v for v in values]
    if len(values) != n:
        refuse(argument, owner, f"one label for each of {n} samples", f"{len(values)}")
    for i, value in enumerate(values):
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            values[i] = int(value)
        elif not isinstance(value, int | str):
            missing = value is None or (isinstance(value, float) and math.isnan(value))
            got = "a missing one" if missing else shortened(repr(value), 40)
            refuse(argument, owner, "classes: whole numbers, words or truth values", f"{got} in row {i}")
    kinds = {bool if isinstance(v, bool) else type(v) for v in values}
    if len(kinds) > 1:
        refuse(argument, owner, "labels of one kind", " and ".join(sorted(kind.__name__ for kind in kinds)))
    return values


def _coded(parts: list[list[Any]], names: Sequence[str] | None, owner: str) -> tuple[list[Tensor], tuple[str, ...]]:
    """Labels as places among the classes, and the names of these."""
    if len(kinds := {type(part[0]) for part in parts}) > 1:
        refuse("y", owner, "labels of one kind to learn from and to test on", " and ".join(k.__name__ for k in kinds))
    found = sorted({label for part in parts for label in part})
    if names is not None:
        if not isinstance(found[0], int) or found[0] < 0 or found[-1] >= len(names):
            refuse("y", owner, f"places among {len(names)} names, 0..{len(names) - 1}", f"{found[0]}..{found[-1]}")
        return [torch.tensor(part, dtype=torch.int64) for part in parts], tuple(map(str, names))
    place = {label: i for i, label in enumerate(found)}
    return [torch.tensor([place[label] for label in part]) for part in parts], tuple(map(str, found))


def held_out(y: Tensor, names: Sequence[str], share: float, seed: int, owner: str) -> Tensor:
    """Marks `share` of the rows of each class, at least one and never all of them, drawn by the seed."""
    marked = torch.zeros(len(y), dtype=torch.bool)
    for c in y.unique().tolist():
        rows = (y == c).nonzero().flatten()
        if len(rows) < 2:
            must = "two rows of each class at least where none are given to test on"
            refuse("y", owner, must, f"one of '{names[c]}'")
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        marked[rows[torch.randperm(len(rows), generator=rng.fork(seed, "test rows", c))[:count]]] = True
    return marked


def _built(
    rows: list[Tensor], labels: list[Tensor], names: tuple[str, ...], origin: str, share: float, seed: int, name: str
) -> DataSet:
    """From one part, some of which is held out, or from two."""
    owner = "data.as_dataset"
    share = number(share, "test_share", owner, low=0, high=1, open_low=True, open_high=True)
    said = ""
    if len(rows) == 1:
        (x,), (y,) = rows, labels
        test = held_out(y, names, share, seed, owner)
        rows, labels = [x[~test], x[test]], [y[~test], y[test]]
        said = f"{100 * share:.3g} % of each class held out, seed {seed}"
    elif rows[0].dtype != rows[1].dtype:
        refuse("test", owner, "of the kind of the samples to learn from", "bytes beside other numbers")
    (train_x, test_x), (train_y, test_y) = rows, labels
    origin = f"{origin}; {said}" if said else origin
    return DataSet(name, train_x, train_y, test_x, test_y, names, "not said", origin, held_out=said)


def _from_path(data: str | Path, test: Any, label: str | None, name: str | None, **held: Any) -> DataSet:  # noqa: ANN401
    """A table, a folder of images by class, or a data set by its name."""
    from vestige.data.loading import load
    from vestige.data.sources import SOURCES

    path = Path(data)
    if path.is_dir():
        if test is not None:
            refuse("test", "data.as_dataset", "None: a folder has folders 'train' and 'test'", f"{test}")
        return _from_folder(path, name or path.resolve().name, **held)
    if path.exists() or isinstance(data, Path):
        from vestige.data.readers.address import locate
        from vestige.data.readers.tables import read_table

        if (at := locate(path)).kind != "table":
            refuse("data", "data.as_dataset", "a table or a folder of images by class", f"the file {path}")
        other = None if test is None else read_table(locate(test))[0]
        return _from_table(read_table(at)[0], other, label, name or path.stem, str(path), **held)
    return load(one_of(data, SOURCES, "data", "data.as_dataset"))


def _from_table(
    data: Any,  # noqa: ANN401
    test: Any,  # noqa: ANN401
    label: str | None,
    name: str,
    origin: str,
    *,
    test_share: float,
    seed: int,
) -> DataSet:
    """Columns encoded together, the column `label` taken for the classes."""
    from vestige.data.readers.columns import encode
    from vestige.data.readers.frames import as_table

    owner = "data.as_dataset"
    if test is not None and not _is_table(test):
        refuse("test", owner, "a table, as the data is", f"a {type(test).__name__}")
    tables = [as_table(one, owner) for one in ([data] if test is None else [data, test])]
    columns = tables[0].column_names
    label = _label_of(columns, owner) if label is None else one_of(label, columns, "label", owner)
    if len(columns) < 2:
        refuse("data", owner, "a table with columns beside the label", f"'{label}' alone")
    for table in tables:
        if table.num_rows == 0 or label not in table.column_names:
            refuse("test", owner, f"a table with rows and the column '{label}'", f"{table.num_rows} rows")
    labels = [_labels(t.column(label).to_pylist(), t.num_rows, f"column {label}", owner) for t in tables]
    encoded, _ = encode([t.drop_columns([label]) for t in tables], ["the table", "the table to test on"][: len(tables)])
    coded, names = _coded(labels, None, owner)
    return _built([x.to(torch.float32) for x in encoded], coded, names, origin, test_share, seed, name)


def _label_of(columns: Sequence[str], owner: str) -> str:
    """The one column that is called as labels are."""
    found = [column for column in columns if column.strip().lower() in LABELS]
    if len(found) != 1:
        got = " and ".join(f"'{column}'" for column in found) or f"only {shortened(', '.join(columns), 80)}"
        refuse(
            "data", owner, f"a table with one column called {', '.join(LABELS)}, or as_dataset(..., label=NAME)", got
        )
    return found[0]


def _from_folder(folder: Path, name: str, *, test_share: float, seed: int) -> DataSet:
    """Images by class, of one size, grey or all in colour; more than eight bits a channel are rounded to eight."""
    from vestige.data.readers.images import ImageFolder

    parts = [folder / "train", folder / "test"] if all((folder / p).is_dir() for p in ("train", "test")) else [folder]
    whole = ImageFolder.survey(folder)
    _require_memory(len(whole.paths) * whole.width(whole.colour), str(folder), "data.as_dataset")
    names = sorted({path.name for part in parts for path in part.iterdir() if path.is_dir() and path.name[0] != "."})
    if len(names) == 0:
        raise InputError(f"The folder '{folder}' must hold a folder of images for each class. Got none instead.")
    rows, labels = [], []
    for part in parts:
        own = [(c, part / c) for c in names if (part / c).is_dir()]
        counts = [ImageFolder.survey(path) for _, path in own]
        if beside := [p for p in whole.paths if p.is_relative_to(part) and p.parent == part]:
            raise InputError(f"The folder '{part}' must hold folders of images. Got {beside[0].name} instead.")
        found = [
            batch.mul(255).round_().to(torch.uint8)
            for one in counts
            for batch in one.batches(IMAGES_AT_ONCE, colour=whole.colour)
        ]
        h, w = whole.size
        images = torch.cat(found)
        rows.append(
            images.reshape(-1, h, w, 3).permute(0, 3, 1, 2).contiguous() if whole.colour else images.reshape(-1, h, w)
        )
        labels.append(
            torch.tensor([names.index(c) for (c, _), one in zip(own, counts, strict=True) for _ in one.paths])
        )
    return _built(rows, labels, tuple(names), str(folder), test_share, seed, name)
