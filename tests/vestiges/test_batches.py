"""Every source gives its rows in batches, again and again; samples do not depend on how rows are batched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from vestige.core.errors import InputError
from vestige.vestiges import batches as module
from vestige.vestiges.batches import Reservoir, batches, held, sample_of, survey
from vestige.vestiges.schema import Schema

X = np.random.default_rng(0).normal(size=(1000, 3))


def mixed(n=1000, seed=0):
    g = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": g.normal(40, 10, n),
            "work": g.choice(["private", "state", "self"], n, p=[0.5, 0.4, 0.1]),
            "joined": (np.datetime64("2020-01-01") + g.integers(0, 900, n)).astype(str),
            "member": g.random(n) < 0.3,
            "children": g.integers(0, 5, n),
        }
    )
    frame.loc[::9, "age"] = np.nan
    frame.loc[::11, "work"] = None
    return frame


def write(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=70)
    else:
        frame.to_feather(path, chunksize=70, compression="lz4" if path.suffix == ".feather" else "uncompressed")
    return path


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("rows", [1, 333, 5000])
def test_arrays_on_disk(tmp_path, ending, rows):
    path = tmp_path / f"a{ending}"
    if ending == ".npy":
        np.save(path, X)
    elif ending == ".npz":
        np.savez(path, x=X)
    else:
        save_file({"x": torch.from_numpy(X)}, path)
    found = batches(path, rows)
    assert (found.kind, found.shape) == ("array", (3,))
    for _ in range(2):
        parts = list(found)
        assert max(map(len, parts)) == min(rows, 1000)
        assert np.array_equal(torch.cat(parts).numpy(), X)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("rows", [50, 5000])
def test_tables_on_disk_with_text_dates_and_gaps(tmp_path, ending, rows, monkeypatch):
    monkeypatch.setattr("vestige.data.readers.tables.BLOCK_BYTES", 8192)
    frame = mixed()
    found = batches(write(frame, tmp_path / f"a{ending}"), rows)
    assert (found.kind, found.shape) == ("table", None)
    schema = survey(found).schema
    want = Schema.of(pa.Table.from_pandas(frame))
    assert schema == want
    for _ in range(2):
        parts = [schema.cells(part).cells for part in found]
        assert len(parts) > 1 or rows == 5000
        assert max(map(len, parts)) <= rows
        whole = want.cells(pa.Table.from_pandas(frame)).cells
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-12, equal_nan=True)


def test_the_types_of_a_csv_are_those_that_all_of_its_rows_allow(tmp_path, monkeypatch):
    monkeypatch.setattr("vestige.data.readers.tables.BLOCK_BYTES", 256)
    lines = ["late,flag,gap,odd,never", *(["1,true,,2020-01-01,NA"] * 100), "x, ,1.5,soon,", "2,FALSE,inf,1,"]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    parts = list(batches(tmp_path / "a.csv"))
    assert len(parts) > 3
    types = {str(part.schema.types) for part in parts}
    assert len(types) == 1
    assert parts[0].schema.types == [pa.string(), pa.string(), pa.float64(), pa.string(), pa.float64()]
    (tmp_path / "b.csv").write_text("\n".join(["a,b", *["true,1"] * 60, "False,"]))
    assert next(iter(batches(tmp_path / "b.csv"))).schema.types == [pa.bool_(), pa.float64()]


def test_a_number_that_is_none_is_refused_with_its_row_in_the_file(tmp_path, monkeypatch):
    frame = mixed()
    frame.loc[700, "age"] = np.inf
    write(frame, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"'age' of .*a\.parquet must be finite. Got inf in data row 701"):
        survey(batches(tmp_path / "a.parquet", 64))


def test_torn_and_foreign_arrow_files_are_refused_by_name(tmp_path):
    path = write(mixed(), tmp_path / "a.arrow")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"a\.arrow' must be a whole \.arrow file of Arrow's IPC file format"):
        list(batches(path))
    (tmp_path / "b.feather").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"b\.feather' must be a whole"):
        list(batches(tmp_path / "b.feather"))


def test_images_and_bytes_are_pixels_from_0_to_1(tmp_path):
    for i in range(5):
        Image.new("L", (2, 2), color=i * 51).save(tmp_path / f"{i}.png")
    found = batches(tmp_path, 2)
    assert found.shape == (2, 2)
    assert torch.allclose(torch.cat(list(found))[:, 0], torch.arange(5) / 5)
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.full((1, 2, 2), 51, np.uint8)
    assert torch.allclose(torch.cat(list(batches(images, 2)))[:, 0], torch.arange(5) / 5)


def test_what_is_in_memory():
    x = torch.from_numpy(X)
    for source in (X, x, X.tolist(), [X[:600], X[600:]], lambda: iter([X[:1], X[1:]])):
        found = batches(source, 300)
        assert found.kind == "array"
        assert [len(torch.cat(list(found))) for _ in range(2)] == [1000, 1000]
        assert torch.equal(torch.cat(list(found)), x)
    frame = mixed()
    table = pa.Table.from_pandas(frame)
    for source in (frame, table, [frame[:600], table.slice(600)], lambda: [table]):
        found = batches(source, 300)
        assert found.kind == "table"
        assert [sum(map(len, found)) for _ in range(2)] == [1000, 1000]
        assert max(map(len, found)) == 300
    loader = DataLoader(TensorDataset(x, torch.zeros(1000)), batch_size=64)
    assert torch.equal(torch.cat(list(batches(loader))), x)


def test_files_of_one_kind_are_one_source(tmp_path):
    paths = [write(mixed(200, i), tmp_path / f"{i}.parquet") for i in range(3)]
    assert sum(map(len, batches(paths))) == 600
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InputError, match="must be of one kind and shape"):
        batches([*paths, tmp_path / "a.npy"])


def test_the_rows_of_an_iterator_are_held():
    found = batches(iter([X[:10], X[10:]]), 500)
    for _ in range(2):
        assert np.array_equal(torch.cat(list(found)).numpy(), X)
    assert found.warnings == ()
    table = pa.Table.from_pandas(mixed())
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(100))
    assert sum(map(len, batches(reader))) == 1000


class RayLike:
    """What is asked of a Ray Data set."""

    map_batches = None

    def __init__(self, table):
        self.table = table

    def iter_batches(self, *, batch_size, batch_format):
        assert batch_format == "pyarrow"
        for batch in self.table.to_batches(batch_size):
            yield pa.Table.from_batches([batch])


def test_a_ray_data_set_is_read_in_arrow_batches():
    found = batches(RayLike(pa.Table.from_pandas(mixed())), 300)
    assert [len(part) for part in found] == [300, 300, 300, 100]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (np.empty((0, 3)), "must be at least one"),
        ([X, X[:, :2]], "batches of one kind and shape"),
        ([X, mixed()], "batches of one kind and shape"),
        (iter([]), "The 'rows' of batches must be at least one row. Got an iterator without any"),
        (iter([X, X[:, :2]]), "batches of one kind and shape"),
        ([], "samples with at least one feature|at least one"),
        (lambda n: X[:5], "as many rows as it is asked for, 10000. Got 5"),
        (lambda a, b: X, "a function of the number of rows alone. Got one that asks for a, b"),
        (
            torch.nn.Linear(2, 2),
            "a function f.n. that returns n rows, or an object with a method 'sample'. Got a network",
        ),
        ([{"a": X, "b": X}], "one array of samples, or with one named 'x'. Got a, b"),
        (3.0, "a single number"),
        (np.array([[1.0, np.nan]]), "must be finite"),
        (["nowhere.parquet"], "no such file"),
        (lambda: 3, "something that yields batches"),
    ],
)
def test_what_is_no_source_is_refused(source, told):
    with pytest.raises(InputError, match=told):
        list(batches(source))


def test_wide_rows_come_in_smaller_batches(monkeypatch):
    monkeypatch.setattr(module, "BATCH_BYTES", 8 * 3 * 100)
    assert max(map(len, batches(X))) == 100


def test_the_sample_is_the_same_however_rows_are_batched(monkeypatch):
    monkeypatch.setattr(module, "KEY_BLOCK", 64)
    first = sample_of(batches(X, 1000), 50, seed=3)
    assert first.shape == (50, 3)
    for rows in (1, 7, 64, 100, 999):
        assert torch.equal(sample_of(batches(X, rows), 50, seed=3), first)
    assert not torch.equal(sample_of(X, 50, seed=4), first)
    places = [X.tolist().index(row) for row in first.tolist()]
    assert places == sorted(set(places))  # in their order, none twice
    assert torch.equal(sample_of(X, 5000), torch.from_numpy(X))


def test_every_row_is_as_likely_as_any_other(monkeypatch):
    """10 of 40 rows, 800 times: each about 200 times, and neighbours in one sample no more often than others."""
    monkeypatch.setattr(module, "KEY_BLOCK", 16)
    counts, pairs = np.zeros(40), 0
    for seed in range(800):
        reservoir = Reservoir(10, seed)
        for part in np.split(np.arange(40.0)[:, None], 8):
            reservoir.add(torch.from_numpy(part))
        rows, places = reservoir.rows()
        assert rows[:, 0].tolist() == places.tolist()
        counts[places] += 1
        pairs += int((places.diff() == 1).sum())
    assert counts.sum() == 8000
    chi2 = ((counts - 200) ** 2 / (200 * 0.75)).sum() * 39 / 40
    assert chi2 < 73  # the 99.9 % quantile with 39 degrees of freedom
    assert pairs / 800 == pytest.approx(39 * 10 * 9 / (40 * 39), abs=0.25)


def test_a_sample_of_a_table_keeps_no_more_than_its_own_texts(tmp_path):
    frame = pd.DataFrame({"t": [f"text {i}" for i in range(5000)], "x": np.arange(5000.0)})
    sample = sample_of(write(frame, tmp_path / "a.parquet"), 100)
    assert sample.num_rows == 100
    assert not any(pa.types.is_dictionary(kind) for kind in sample.schema.types)
    assert [f"text {int(x)}" for x in sample.column("x").to_pylist()] == sample.column("t").to_pylist()


def test_a_survey_counts_every_row_and_scales_by_the_sample():
    frame = mixed(3000)
    frame.loc[:29, "work"] = "rare"
    frame.loc[2970:, "work"] = "rare"
    found = survey(batches(frame, 500), most=200, drop=["joined"])
    assert (found.n, found.sample.num_rows) == (3000, 200)
    assert "rare" in found.schema.columns[1].categories  # 60 rows of all, about 4 of the sample
    assert found.schema.cell_names == ("age", "work", "member", "children")
    assert found.schema.columns[0].fill == pytest.approx(40, abs=3)
    assert survey(batches(frame, 77), most=200, drop=["joined"]).schema == found.schema
    with pytest.raises(InputError, match="Did you mean 'joined'"):
        survey(frame, drop=["joind"])
    with pytest.raises(InputError, match="given for tables alone"):
        survey(np.zeros((60, 2)), drop=["joined"])


def test_a_sample_of_wide_rows_is_smaller(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_BYTES", 8 * 3 * 40)
    assert survey(X).sample.shape == (40, 3)
    assert survey(X, most=7).sample.shape == (7, 3)
    assert survey(mixed()).sample.num_rows == 8 * 3 * 40 // (8 * 5)


def run_large(limit, *paths, rows=65_536):
    """What was found in each of the files, read one after the other within `limit` bytes, and the peak of memory."""
    script = Path(__file__).parent / "large_file.py"
    words = [sys.executable, script, str(rows), str(limit), *paths]
    # what is counted is what is asked for, not the address space that allocators reserve for each thread
    env = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return *told["found"], told["peak"]


def sparse_npy(path, shape):
    """Zeros that take no room on the disk."""
    np.lib.format.open_memmap(path, "w+", np.float64, shape).flush()
    return path


def repeated_parquet(path, rows, columns, groups):
    """So many groups of the same rows: small on the disk, for the values repeat."""
    numbers = {f"x{i}": np.arange(rows) % 7 / 2 + i for i in range(columns)}
    table = pa.table(numbers | {"t": pa.array(["a", "b", None, "c"] * (rows // 4))})
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(groups):
            writer.write_table(table, row_group_size=rows)
    return path


needs_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits and measures through /proc")


@pytest.mark.slow
@needs_linux
def test_files_are_read_within_less_memory_than_they_take(tmp_path):
    arrays = sparse_npy(tmp_path / "a.npy", (800_000, 32))  # 205 MB
    tables = repeated_parquet(tmp_path / "a.parquet", 250_000, 12, 8)  # 192 MB of numbers
    array, table, _ = run_large(1.6e8, arrays, tables, rows=8192)
    assert (array["n"], array["rows"], array["sample"]) == (800_000, 800_000, 1000)
    assert table["n"] == table["rows"] == 2_000_000
    sums = [8 * (np.arange(250_000) % 7 / 2 + i).sum() for i in range(12)]
    assert table["sums"] == pytest.approx([*sums, 8 * 3 * 62_500])
    assert table["features"][-5:] == ["t = a", "t = b", "t = c", "t is other", "t is missing"]


@needs_linux
@pytest.mark.slow
def test_20_gigabytes_within_2(tmp_path):
    found, peak = run_large(2e9, sparse_npy(tmp_path / "a.npy", (39_062_500, 64)))
    assert found["n"] == found["rows"] == 39_062_500
    assert peak < 2e9


@needs_linux
@pytest.mark.slow
def test_a_table_of_5_gigabytes_within_1(tmp_path):
    path = repeated_parquet(tmp_path / "a.parquet", 1_000_000, 48, 13)
    assert path.stat().st_size < 1e9
    found, peak = run_large(1e9, path)
    assert found["n"] == found["rows"] == 13_000_000
    assert peak < 1e9


@needs_linux
@pytest.mark.slow
def test_20_gigabytes_are_kept_within_2():
    """312 times the same 100 rows of 80 000 numbers, which no file has to hold."""
    found, peak = run_large(2e9, "keep:312")
    assert found["n"] == 312 * 100
    assert peak < 2e9


class Sampler:
    """Draws rows, as generators do."""

    def sample(self, n, *, seed=0):
        return np.random.default_rng(seed).normal(size=(n, 3))


def test_what_draws_is_asked_once_with_a_seed_where_it_takes_one():
    want = Sampler().sample(40, seed=7)
    for source in (Sampler(), Sampler().sample, lambda n, seed: Sampler().sample(n, seed=seed)):
        found = batches(source, n=40, seed=7)
        assert found.notes == ("40 rows were drawn of a function with seed 7",)
        for _ in range(2):
            assert np.array_equal(torch.cat(list(found)), want)
    assert batches(lambda n: X[:n], n=9).notes == ("9 rows were drawn of a function that takes no seed",)
    assert len(held(lambda n: np.zeros((n, 1))).rows) == module.DRAWN
    assert len(held(lambda n: iter([X, X, X]), n=2500).rows) == 2500
    assert len(held(lambda n: X, n=20).rows) == 20  # more than it was asked for


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        (lambda x: (x, x[:, 0]), "of batches of 2 parts the first, the samples, was taken"),
        (lambda x: {"x": x, "y": x[:, 0]}, "of batches of 2 parts 'x', the samples, was taken"),
        (
            lambda x: {"pixel_values": x, "label": x[:, 0]},
            "of batches of 2 parts 'pixel_values', the samples, was taken",
        ),
    ],
)
def test_of_pairs_and_mappings_the_samples_are_taken_and_it_is_said(batch, told):
    x = torch.from_numpy(X)
    for source in (iter([batch(x[:600]), batch(x[600:])]), lambda: iter([batch(x[:600]), batch(x[600:])])):
        found = held(source)
        assert found.notes == (told,)
        assert torch.equal(found.rows, x)
        assert found.like.name == "torch"


def test_a_mapping_of_columns_is_a_table():
    frame = mixed()
    found = held(iter([{name: frame[name].to_numpy() for name in frame}]))
    assert found.rows.column_names == list(frame)


def endless():
    while True:
        yield X


class EndlessStream(IterableDataset):
    def __iter__(self):
        return (torch.from_numpy(row) for row in X.repeat(500, 0))


def test_what_has_no_end_is_read_so_far(monkeypatch):
    found = batches(endless(), n=1500)
    assert np.array_equal(torch.cat(list(found))[1000:], X[:500])
    assert found.notes == ("The first 1500 rows of an iterator were read.",)
    assert found.warnings == ()
    monkeypatch.setattr(module, "ENDLESS", 2500)
    found = held(endless())
    assert len(found.rows) == 3000
    assert found.warnings[0].startswith("The first 3000 rows of an iterator were read, and it has more")
    loader = DataLoader(EndlessStream(), batch_size=100)
    found = held(loader)
    assert len(found.rows) == 2500
    assert found.notes == ("at most 2500 rows were read of what has no length",)
    assert len(held(loader, n=300).rows) == 300


def test_what_does_not_fit_in_memory_is_sampled_and_it_is_said(monkeypatch):
    monkeypatch.setattr(module, "memory_limit", lambda: 2 * 24 * 100)
    loader = DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=50)
    found = held(loader, seed=3)
    assert torch.equal(found.rows, sample_of(X, 100, seed=3))
    assert found.warnings[0].startswith("A random sample of 100 of 1000 rows was taken")
    assert held(X).warnings == ()  # it is in memory already
    assert len(held(endless()).rows) < 3000


def test_rows_of_one_axis_and_torch_datasets():
    assert torch.equal(held(list(X)).rows, torch.from_numpy(X))
    data = TensorDataset(torch.from_numpy(X), torch.zeros(1000))
    assert torch.equal(held(data).rows, torch.from_numpy(X))
